"""Continues prompts, then streams one of them: python_generate.py MODEL"""
import asyncio
import sys

from halley import LLM, AsyncLLM, SamplingParams


def generate(model: str) -> None:
    """Many prompts at once."""
    llm = LLM(model, max_model_len=256)
    params = SamplingParams(temperature=0, max_tokens=24)
    for output in llm.generate(["The Python language", "In the beginning"], params):
        print(f"{output.prompt!r}: {output.outputs[0].text!r}")


async def stream(model: str) -> None:
    """One prompt, printed as its text comes."""
    llm = AsyncLLM(model, max_model_len=256)
    shown = 0
    async for output in llm.generate("The Python language", SamplingParams(seed=1), "first"):
        text = output.outputs[0].text
        print(text[shown:], end="", flush=True)
        shown = len(text)
    print()


if __name__ == "__main__":
    generate(sys.argv[1])
    asyncio.run(stream(sys.argv[1]))
