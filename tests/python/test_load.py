"""A thousand requests at once: results, file descriptors and memory afterwards."""
import asyncio
import gc
import os
from concurrent.futures import ThreadPoolExecutor

import pytest
from halley import LLM, AsyncLLM, SamplingParams

MODEL = os.path.join(os.environ["HALLEY_TEST_SOURCE"], "models", "demo-21m")
PROMPTS = ["The Python programming language", "def main():", "In the beginning", "Once"]
GREEDY = SamplingParams(temperature=0, max_tokens=6)
NUM_REQUESTS = 1000
# A request and its output take more than 4 KiB, so two rounds that were kept take more than this.
BYTES_MAX = 5 << 20


def resident_bytes():
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def state():
    gc.collect()
    return len(os.listdir("/proc/self/fd")), resident_bytes()


def check_rounds(run_round):
    """Runs rounds until two of them add nothing. What each request leaves behind is added by every
    round; what allocators take once, for this and for earlier tests, by some."""
    for _ in range(3):
        run_round()
    added = []
    for _ in range(4):
        files, size = state()
        for _ in range(2):
            run_round()
        files_after, size_after = state()
        assert files_after == files
        added.append(size_after - size)
        if added[-1] < BYTES_MAX:
            break
    print(f"{NUM_REQUESTS} requests a round: {files} files; two rounds added {added} bytes")
    assert added[-1] < BYTES_MAX


@pytest.mark.parametrize("num_prompts", [1, 4])
def test_threads(num_prompts):
    llm = LLM(MODEL, device="cpu", max_model_len=128)
    expected = [llm.generate(prompt, GREEDY, use_tqdm=False)[0].outputs for prompt in PROMPTS]

    def call(index):
        first = index % len(PROMPTS)
        prompts = (PROMPTS[first:] + PROMPTS[:first])[:num_prompts]
        outputs = llm.generate(prompts, GREEDY, use_tqdm=False)
        assert [each.prompt for each in outputs] == prompts
        return outputs[0].outputs == expected[first]

    def run_round():
        with ThreadPoolExecutor(16) as threads:
            assert all(threads.map(call, range(NUM_REQUESTS // num_prompts), timeout=300))
    check_rounds(run_round)
    assert llm.metrics()["num_running"] == llm.metrics()["num_waiting"] == 0


def test_asyncio():
    llm = AsyncLLM(MODEL, device="cpu", max_model_len=128)

    async def last(prompt, request_id):
        output = None
        async for output in llm.generate(prompt, GREEDY, request_id):
            pass
        return output.outputs

    async def run_once():
        alone = [await last(prompt, prompt) for prompt in PROMPTS]
        many = await asyncio.gather(*(last(PROMPTS[i % len(PROMPTS)], str(i))
                                      for i in range(NUM_REQUESTS)))
        assert all(each == alone[i % len(PROMPTS)] for i, each in enumerate(many))

    check_rounds(lambda: asyncio.run(asyncio.wait_for(run_once(), 300)))
    assert llm.metrics()["num_running"] == llm.metrics()["num_waiting"] == 0


def test_models_that_end_give_their_memory_back():
    def run_round():
        for _ in range(5):
            LLM(MODEL, device="cpu", max_model_len=64).generate("a", GREEDY, use_tqdm=False)
    check_rounds(run_round)
