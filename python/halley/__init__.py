"""Halley: low-precision inference for large language models.

    from halley import LLM, SamplingParams
    llm = LLM("models/demo-21m")
    print(llm.generate("The Python language", SamplingParams(max_tokens=32))[0].outputs[0].text)

Classes and fields have the names of vLLM. docs/python.md describes them.
"""
from halley import eval
from halley._native import CheckpointError, DeviceError, Error, InputError, UnsupportedError
from halley._native import version as __version__
from halley._results import to_pandas
from halley._session import (Message, Prompt, TextPrompt, TokenArray, TokenIds, TokensPrompt,
                             token_array)
from halley.async_llm import AsyncLLM
from halley.llm import LLM
from halley.lora import LoRARequest
from halley.outputs import CompletionOutput, Logprob, RequestMetrics, RequestOutput
from halley.quantization import QuantizedLayer, QuantizeResult, quantize
from halley.sampling_params import SamplingParams, StructuredOutputsParams

for _error in (Error, InputError, CheckpointError, UnsupportedError, DeviceError):
    _error.__module__ = "halley"

__all__ = [
    "LLM", "AsyncLLM", "SamplingParams", "StructuredOutputsParams", "LoRARequest",
    "RequestOutput", "CompletionOutput", "Logprob", "RequestMetrics",
    "Prompt", "TextPrompt", "TokensPrompt", "TokenIds", "TokenArray", "Message", "token_array",
    "quantize", "QuantizeResult", "QuantizedLayer", "to_pandas", "eval",
    "Error", "InputError", "CheckpointError", "UnsupportedError", "DeviceError", "__version__",
]
