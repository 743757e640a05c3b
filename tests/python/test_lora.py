"""LoRA adapters in the installed package: tokens are the program's, whose logits are PEFT's
(adapter_test)."""
import asyncio
import json
import os
import subprocess
import sys

import pytest
from halley import LLM, AsyncLLM, InputError, LoRARequest, SamplingParams

SOURCE = os.environ["HALLEY_TEST_SOURCE"]
sys.path.insert(0, os.path.join(SOURCE, "tests", "lora"))
from random_adapter import write_adapter  # noqa: E402

MODEL = os.path.join(SOURCE, "models", "demo-21m")
PROMPTS = ["The Python programming language", "def main():", "In the beginning"]
GREEDY = SamplingParams(temperature=0, max_tokens=16)


@pytest.fixture(scope="module", name="adapters")
def fixture_adapters(tmp_path_factory):
    return [LoRARequest(name, number, write_adapter(MODEL, tmp_path_factory.mktemp(name), number))
            for number, name in enumerate(("sql", "chat"), 1)]


@pytest.fixture(scope="module", name="llm")
def fixture_llm():
    return LLM(MODEL, device="cpu", max_model_len=256, enable_lora=True)


def tokens_of(outputs):
    return [output.outputs[0].token_ids for output in outputs]


def program_tokens(prompt, adapter):
    lora = [] if adapter is None else ["--lora", adapter.lora_path]
    line = subprocess.run(
        [sys.executable, "-m", "halley", "generate", MODEL, "--device", "cpu", "--json",
         "--temperature", "0", "--max-tokens", "16", "--prompt", prompt, *lora],
        capture_output=True, text=True, timeout=120, check=True).stdout
    return json.loads(line)["token_ids"]


def test_each_request_has_its_adapter(llm, adapters):
    loras = [adapters[0], None, adapters[1]]
    outputs = llm.generate(PROMPTS, GREEDY, use_tqdm=False, lora_request=loras)
    assert tokens_of(outputs) == [program_tokens(*each) for each in zip(PROMPTS, loras)]
    assert [output.lora_request for output in outputs] == loras
    # The adapters change what comes.
    plain = tokens_of(llm.generate(PROMPTS, GREEDY, use_tqdm=False))
    assert [a == b for a, b in zip(plain, tokens_of(outputs))] == [False, True, False]
    same = llm.generate(PROMPTS, GREEDY, use_tqdm=False, lora_request=adapters[0])
    assert tokens_of(same)[0] == tokens_of(outputs)[0]


def test_a_number_is_that_of_one_adapter(llm, adapters):
    other = LoRARequest("other", adapters[0].lora_int_id, adapters[1].lora_path)
    llm.generate(PROMPTS[0], GREEDY, use_tqdm=False, lora_request=adapters[0])
    with pytest.raises(InputError, match="expected a lora_int_id of its own"):
        llm.generate(PROMPTS[0], GREEDY, use_tqdm=False, lora_request=other)
    assert llm.remove_lora(other.lora_int_id)
    assert not llm.remove_lora(other.lora_int_id)
    replaced, = llm.generate(PROMPTS[0], GREEDY, use_tqdm=False, lora_request=other)
    assert tokens_of([replaced]) == [program_tokens(PROMPTS[0], adapters[1])]
    llm.remove_lora(other.lora_int_id)


def test_adapters_that_cannot_be(llm, adapters):
    with pytest.raises(InputError, match="adapter_config.json"):
        llm.generate(PROMPTS[0], GREEDY, use_tqdm=False,
                     lora_request=LoRARequest("none", 9, "/nonexistent"))
    with pytest.raises(InputError, match="one for each of the 3 prompts, got 2"):
        llm.generate(PROMPTS, GREEDY, use_tqdm=False, lora_request=adapters)


def test_streams_have_adapters_too(adapters):
    llm = AsyncLLM(MODEL, device="cpu", max_model_len=256)

    async def last(prompt, lora):
        async for output in llm.generate(prompt, GREEDY, f"{prompt} {lora}", lora):
            pass
        return output

    async def all_of_them():
        return await asyncio.gather(*(last(PROMPTS[0], lora) for lora in (None, *adapters)))

    outputs = asyncio.run(all_of_them())
    assert tokens_of(outputs) == [program_tokens(PROMPTS[0], lora) for lora in (None, *adapters)]
