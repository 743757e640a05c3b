"""A model's session and the prompts for it: LLM and AsyncLLM share this."""
import itertools
import json
import logging
import os
from collections.abc import Mapping, Sequence
from typing import Any, Protocol, TypeAlias, TypedDict, cast

from halley import _native
from halley._options import session_options
from halley.lora import LoRARequest
from halley.outputs import Collector
from halley.sampling_params import SamplingParams, body_of


class TokenArray(Protocol):
    """Token ids [T] of 32 or 64 bits on the CPU, of NumPy, PyTorch or another library."""

    def __dlpack__(self) -> Any: ...

    def __dlpack_device__(self) -> Any: ...


TokenIds: TypeAlias = Sequence[int] | TokenArray


class TokensPrompt(TypedDict):
    """A prompt as token ids."""
    prompt_token_ids: TokenIds


class TextPrompt(TypedDict):
    """A prompt as text."""
    prompt: str


Prompt: TypeAlias = str | TextPrompt | TokensPrompt | TokenIds
Message: TypeAlias = Mapping[str, Any]  # {"role": ..., "content": ...}, as the server takes it


def is_token_ids(value: object) -> bool:
    """Whether it is an array or a list that begins with an integer."""
    return hasattr(value, "__dlpack__") or (
        isinstance(value, Sequence) and len(value) > 0 and isinstance(value[0], int))


def prompts_of(prompts: Prompt | Sequence[Prompt]) -> list[Prompt]:
    """The list of one prompt or of several."""
    is_list = isinstance(prompts, Sequence) and not isinstance(prompts, str)
    return list(cast(Sequence[Prompt], prompts)) if is_list and not is_token_ids(prompts) else [
        cast(Prompt, prompts)]


def token_list(ids: TokenIds) -> list[int]:
    """Raises InputError for an array that holds no token ids."""
    return _native.token_ids(ids) if hasattr(ids, "__dlpack__") else [int(i) for i in ids]


def token_array(token_ids: Sequence[int]) -> TokenArray:
    """An int32 array [T] on the CPU of a list of token ids, which NumPy and PyTorch take without a
    copy by from_dlpack()."""
    return cast(TokenArray, _native.token_array(token_ids))


def prompt_body(prompt: Prompt) -> tuple[dict[str, Any], bool]:
    """The members of a request that hold the prompt, and whether it is text."""
    if isinstance(prompt, str):
        return {"prompt": prompt}, True
    if isinstance(prompt, Mapping):
        members = cast(Mapping[str, Any], prompt)
        if "prompt_token_ids" in members:
            return {"prompt": token_list(members["prompt_token_ids"])}, False
        if "prompt" in members:
            return {"prompt": members["prompt"]}, True
    elif is_token_ids(prompt):
        return {"prompt": token_list(prompt)}, False
    raise _native.InputError("prompt: expected a text, token ids, {\"prompt\": text} or "
                             f"{{\"prompt_token_ids\": ids}}, got {type(prompt).__name__}.")


def chat_body(messages: Sequence[Message], params: SamplingParams | None,
              tools: list[dict[str, Any]] | None, add_generation_prompt: bool,
              continue_final_message: bool, chat_template_kwargs: dict[str, Any] | None
              ) -> dict[str, Any]:
    """The request of one conversation."""
    fields: dict[str, Any] = {"messages": list(messages),
                              "add_generation_prompt": add_generation_prompt,
                              "continue_final_message": continue_final_message}
    if tools is not None:
        fields["tools"] = tools
    if chat_template_kwargs is not None:
        fields["chat_template_kwargs"] = chat_template_kwargs
    return body_of(params, fields, True)


class LoadedModel:
    """LLM and AsyncLLM inherit from it. The engine ends with the object."""

    def __init__(self, model: str | os.PathLike[str], *, device: str = "auto", dtype: str = "auto",
                 quantization: str | None = None, kv_cache_dtype: str = "auto",
                 max_model_len: int | None = None, max_num_seqs: int | None = None,
                 max_num_batched_tokens: int | None = None,
                 kv_cache_memory_bytes: int | None = None, tensor_parallel_size: int = 1,
                 pipeline_parallel_size: int = 1, enable_expert_parallel: bool = False,
                 enable_prefix_caching: bool = True, enable_lora: bool = False,
                 precision: str = "full", threads: int = 0, gpu_memory_utilization: float = 0.9,
                 tune: bool = False, seed: int | None = None,
                 chat_template: str | os.PathLike[str] | None = None,
                 tool_call_parser: str = "auto") -> None:
        """Loads the checkpoint in the folder `model`.

        `device`: "cpu", "cuda", "cuda:N", or "auto": the GPU where there is one. `dtype`: that of
        activations on a GPU. `quantization`: rounds weights in full precision while they are
        loaded: "fp8", "int8", "int4-rtn", "nestedfp" or another method of `halley serve`. `tune`:
        on a GPU, measures plans of the model's GEMMs that have none, before it is loaded, and
        keeps them for later loads. `chat_template`: a file in place of the model's own. `seed`:
        of requests that have none, each with one of its own made of it. `enable_lora`: a model
        that takes no adapters is an error at once, and not at the first lora_request. None and 0
        stand for the program's defaults; `halley serve --help` says more of each.

        Raises InputError, CheckpointError, UnsupportedError or DeviceError.
        """
        options = session_options(
            model, chat_template=os.fspath(chat_template) if chat_template is not None else None,
            tool_call_parser=tool_call_parser, device=device, dtype=dtype,
            quantization=quantization, kv_cache_dtype=kv_cache_dtype, precision=precision,
            max_model_len=max_model_len, max_num_seqs=max_num_seqs,
            max_num_batched_tokens=max_num_batched_tokens,
            kv_cache_memory_bytes=kv_cache_memory_bytes,
            tensor_parallel_size=tensor_parallel_size,
            pipeline_parallel_size=pipeline_parallel_size, threads=threads,
            gpu_memory_utilization=gpu_memory_utilization, tune=tune,
            enable_prefix_caching=enable_prefix_caching, enable_lora=enable_lora,
            enable_expert_parallel=enable_expert_parallel)
        self._session = _native.Session(options)
        self._seeds = itertools.count(seed) if seed is not None else None
        for warning in self._session.warnings:
            logging.getLogger("halley").warning("%s", warning)

    @property
    def max_model_len(self) -> int:
        """Tokens of prompt and output of one request."""
        return self._session.max_model_len

    def encode(self, text: str, add_special_tokens: bool = True) -> list[int]:
        """The text's token ids."""
        return self._session.encode(text, add_special_tokens)

    def decode(self, token_ids: TokenIds, skip_special_tokens: bool = True) -> str:
        """The text of token ids."""
        return self._session.decode(token_list(token_ids), skip_special_tokens)

    def metrics(self) -> dict[str, int]:
        """The engine's counters: current values, and totals since it was loaded."""
        return self._session.stats()

    def inspect(self) -> dict[str, Any]:
        """Shapes, format and bytes of the model and the kernel of every weight, as `halley inspect
        --json` prints them."""
        return cast(dict[str, Any], json.loads(self._session.inspect()))

    def remove_lora(self, lora_int_id: int) -> bool:
        """Frees an adapter; requests that run keep it. Returns whether there was one."""
        return self._session.remove_adapter(lora_int_id)

    def _submit(self, stream: _native.RequestStream, number: int, prompt: Prompt,
                params: SamplingParams | None, lora: LoRARequest | None) -> Collector:
        body, is_text = prompt_body(prompt)
        collector = self._submit_body(stream, number, body_of(params, body, False), params, lora)
        if not is_text:
            collector.output.prompt = None
        return collector

    def _submit_body(self, stream: _native.RequestStream, number: int, body: dict[str, Any],
                     params: SamplingParams | None, lora: LoRARequest | None) -> Collector:
        if lora is not None:
            self._session.add_adapter(lora.lora_int_id, lora.lora_name, lora.lora_path)
        if self._seeds is not None:
            body.setdefault("seed", next(self._seeds))
        count = params.prompt_logprobs if params else None
        submitted = stream.submit(number, json.dumps(body), "messages" in body,
                                  -1 if count is None else count,
                                  None if lora is None else lora.lora_int_id)
        return Collector(self._session, str(number), submitted, lora)
