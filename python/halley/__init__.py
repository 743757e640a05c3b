"""Halley: low-precision inference for large language models.

    from halley import LLM, SamplingParams
    llm = LLM("models/demo-21m")
    print(llm.generate("The Python language", SamplingParams(max_tokens=32))[0].outputs[0].text)

Classes and fields have the names of vLLM. docs/python.md describes them.
"""
from halley._native import CheckpointError, DeviceError, Error, InputError, UnsupportedError
from halley._native import version as __version__
from halley._session import Prompt
from halley.async_llm import AsyncLLM
from halley.llm import LLM
from halley.outputs import CompletionOutput, Logprob, RequestOutput
from halley.sampling_params import SamplingParams, StructuredOutputsParams

for _error in (Error, InputError, CheckpointError, UnsupportedError, DeviceError):
    _error.__module__ = "halley"

__all__ = [
    "AsyncLLM", "CheckpointError", "CompletionOutput", "DeviceError", "Error", "InputError", "LLM",
    "Logprob", "Prompt", "RequestOutput", "SamplingParams", "StructuredOutputsParams",
    "UnsupportedError", "__version__",
]
