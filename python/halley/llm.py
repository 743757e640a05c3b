"""Prompts to outputs, many at once."""
import functools
import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias, cast

from halley import _native
from halley._session import LoadedModel, Message, Prompt, is_prompt
from halley.outputs import Collector, RequestOutput
from halley.sampling_params import SamplingParams, body_of

# Between two waits Python handles signals: Ctrl-C is seen within this time.
_WAIT_MILLISECONDS = 100

Params: TypeAlias = SamplingParams | Sequence[SamplingParams] | None


def _params_of_each(params: Params, count: int) -> list[SamplingParams | None]:
    if params is None or isinstance(params, SamplingParams):
        return [params] * count
    if len(params) != count:
        raise _native.InputError(f"sampling_params: expected one, or one for each of the {count} "
                                 f"prompts, got {len(params)}.")
    return list(params)


def _progress(count: int, use_tqdm: bool) -> Callable[[], object]:
    """A function to call at the end of each request; tqdm is an optional dependency."""
    if not use_tqdm:
        return lambda: None
    try:
        from tqdm.auto import tqdm  # it takes a part of a second
    except ImportError:
        return lambda: None
    bar = tqdm(total=count, desc="Processed prompts", leave=False)

    def advance() -> None:
        bar.update(1)
        if bar.n == count:
            bar.close()
    return advance


class LLM(LoadedModel):
    """A loaded model that runs lists of requests. Any number of threads may call it at once; their
    requests run together, and other Python threads run meanwhile. Ctrl-C cancels the requests of
    the call."""

    _ids = itertools.count()

    def generate(self, prompts: Prompt | Sequence[Prompt], sampling_params: Params = None,
                 use_tqdm: bool = True) -> list[RequestOutput]:
        """Continues every prompt; the outputs have the order of the prompts.

        A prompt is a text, token ids, {"prompt": text} or {"prompt_token_ids": ids}. Token ids are
        a list of integers or an array [T] on the CPU that has __dlpack__. `sampling_params` are
        those of all prompts, or a list of one for each; None: the model's own defaults, and 16
        tokens.

        Raises InputError for a request that cannot be served, before any output; DeviceError where
        the model fails.
        """
        prompt_list = [cast(Prompt, prompts)] if is_prompt(prompts) else list(prompts)
        params = _params_of_each(sampling_params, len(prompt_list))
        return self._run(use_tqdm, [functools.partial(self._submit, prompt=prompt, params=each)
                                    for prompt, each in zip(prompt_list, params)])

    def chat(self, messages: Sequence[Message] | Sequence[Sequence[Message]],
             sampling_params: Params = None, use_tqdm: bool = True, *,
             tools: list[dict[str, Any]] | None = None, add_generation_prompt: bool = True,
             continue_final_message: bool = False,
             chat_template_kwargs: dict[str, Any] | None = None) -> list[RequestOutput]:
        """Answers one conversation, a list of messages, or each of a list of them.

        The model's chat template makes the prompts. `tools` have OpenAI's form; calls stay in the
        text of the output as the model writes them. Raises as generate().
        """
        is_one = bool(messages) and isinstance(messages[0], Mapping)
        conversations = cast(list[Sequence[Message]], [messages] if is_one else list(messages))
        params = _params_of_each(sampling_params, len(conversations))
        fields: dict[str, Any] = {"add_generation_prompt": add_generation_prompt,
                                  "continue_final_message": continue_final_message}
        if tools is not None:
            fields["tools"] = tools
        if chat_template_kwargs is not None:
            fields["chat_template_kwargs"] = chat_template_kwargs
        bodies = [body_of(each, {"messages": list(conversation), **fields}, True)
                  for conversation, each in zip(conversations, params)]
        return self._run(use_tqdm, [functools.partial(self._submit_body, body=body, params=each)
                                    for body, each in zip(bodies, params)])

    def _run(self, use_tqdm: bool, submits: Sequence[Callable[..., Collector]]
             ) -> list[RequestOutput]:
        """Each of `submits` takes a stream and the request's id."""
        stream = _native.RequestStream(self._session, True)
        try:
            collectors = [submit(stream, str(next(self._ids))) for submit in submits]
            self._wait(stream, collectors, _progress(len(collectors), use_tqdm))
        except BaseException:
            # The traceback keeps the stream, whose end would cancel them too.
            stream.cancel_all()
            raise
        return [collector.output for collector in collectors]

    @staticmethod
    def _wait(stream: _native.RequestStream, collectors: Sequence[Collector],
              advance: Callable[[], object]) -> None:
        by_id = {id: collector for collector in collectors for id in collector.ids}
        num_live = len(by_id)
        while num_live > 0:
            stream.wait(_WAIT_MILLISECONDS)
            for delta in stream.take():
                by_id[delta.id].add(delta)
                num_live -= 1
                if by_id[delta.id].output.finished:
                    advance()
