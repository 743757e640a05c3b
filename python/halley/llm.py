"""Prompts to outputs, many at once."""
import functools
import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias, cast

from halley import _native
from halley._options import of_each
from halley._progress import progress_bar
from halley._session import LoadedModel, Message, Prompt, chat_body, prompts_of
from halley.lora import LoRARequest, LoRARequests
from halley.outputs import Collector, RequestOutput
from halley.sampling_params import SamplingParams

# Between two waits Python handles signals: Ctrl-C is seen within this time.
_WAIT_MILLISECONDS = 100

Params: TypeAlias = SamplingParams | Sequence[SamplingParams] | None


class LLM(LoadedModel):
    """A loaded model that runs lists of requests. Any number of threads may call it at once; their
    requests run together, and other Python threads run meanwhile. Ctrl-C cancels the requests of
    the call."""

    _numbers = itertools.count()

    def generate(self, prompts: Prompt | Sequence[Prompt], sampling_params: Params = None,
                 use_tqdm: bool = True, lora_request: LoRARequests = None
                 ) -> list[RequestOutput]:
        """Continues every prompt; the outputs have the order of the prompts.

        A prompt is a text, token ids, {"prompt": text} or {"prompt_token_ids": ids}. Token ids are
        a list of integers or an array [T] on the CPU that has __dlpack__. `sampling_params` are
        those of all prompts, or a list of one for each; None: the model's own defaults, and 16
        tokens. `lora_request`: the adapter of all prompts, or a list of one or None for each.

        Raises InputError for a request that cannot be served, before any output; CheckpointError
        or UnsupportedError for an adapter; DeviceError where the model fails.
        """
        prompt_list = prompts_of(prompts)
        params = of_each("sampling_params", sampling_params, SamplingParams, len(prompt_list))
        loras = of_each("lora_request", lora_request, LoRARequest, len(prompt_list))
        return self._run(use_tqdm, [
            functools.partial(self._submit, prompt=prompt, params=each, lora=lora)
            for prompt, each, lora in zip(prompt_list, params, loras)])

    def chat(self, messages: Sequence[Message] | Sequence[Sequence[Message]],
             sampling_params: Params = None, use_tqdm: bool = True,
             lora_request: LoRARequests = None, *,
             tools: list[dict[str, Any]] | None = None, add_generation_prompt: bool = True,
             continue_final_message: bool = False,
             chat_template_kwargs: dict[str, Any] | None = None) -> list[RequestOutput]:
        """Answers one conversation, a list of messages, or each of a list of them.

        The model's chat template makes the prompts. `tools` have OpenAI's form; calls stay in the
        text of the output as the model writes them. Raises as generate().
        """
        is_one = bool(messages) and isinstance(messages[0], Mapping)
        conversations = cast(list[Sequence[Message]], [messages] if is_one else list(messages))
        params = of_each("sampling_params", sampling_params, SamplingParams, len(conversations))
        loras = of_each("lora_request", lora_request, LoRARequest, len(conversations))
        bodies = [chat_body(conversation, each, tools, add_generation_prompt,
                            continue_final_message, chat_template_kwargs)
                  for conversation, each in zip(conversations, params)]
        return self._run(use_tqdm, [
            functools.partial(self._submit_body, body=body, params=each, lora=lora)
            for body, each, lora in zip(bodies, params, loras)])

    def _run(self, use_tqdm: bool, submits: Sequence[Callable[..., Collector]]
             ) -> list[RequestOutput]:
        """Each of `submits` takes a stream and the request's number."""
        stream = _native.RequestStream(self._session, True)
        try:
            collectors = {number: submit(stream, number)
                          for submit, number in zip(submits, self._numbers)}
            show = progress_bar(len(collectors), "Processed prompts", use_tqdm)
            num_finished = 0
            while num_finished < len(collectors):
                stream.wait(_WAIT_MILLISECONDS)
                for delta in stream.take():
                    collectors[delta.request].add(delta)
                    num_finished += collectors[delta.request].output.finished
                show(num_finished)
        except BaseException:
            # The traceback keeps the stream, whose end would cancel them too.
            stream.cancel(None)
            raise
        return [collector.output for collector in collectors.values()]
