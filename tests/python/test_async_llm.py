"""AsyncLLM of the installed package: order, cancellation, many requests."""
import asyncio
import os

import halley
import pytest
from halley import AsyncLLM, SamplingParams

MODEL = os.path.join(os.environ["HALLEY_TEST_SOURCE"], "models", "demo-21m")
LONG = SamplingParams(max_tokens=400, ignore_eos=True)


@pytest.fixture(scope="module", name="llm")
def fixture_llm():
    return AsyncLLM(MODEL, device="cpu", max_model_len=512)


async def collect(llm, params, request_id, prompt="The Python language"):
    return [output async for output in llm.generate(prompt, params, request_id)]


async def settle(llm):
    """Until the engine has dropped what was cancelled."""
    while llm.metrics()["num_running"]:
        await asyncio.sleep(0.01)


def test_outputs_only_grow(llm):
    outputs = asyncio.run(collect(llm, SamplingParams(temperature=0, max_tokens=32), "1"))
    assert len(outputs) > 1
    assert [output.finished for output in outputs] == [False] * (len(outputs) - 1) + [True]
    for before, after in zip(outputs, outputs[1:]):
        ids = before.outputs[0].token_ids
        assert after.outputs[0].token_ids[:len(ids)] == ids
        assert after.outputs[0].text.startswith(before.outputs[0].text)
    assert len(outputs[-1].outputs[0].token_ids) == 32


def test_hundreds_of_requests_are_what_each_is_alone(llm):
    params = SamplingParams(temperature=0, max_tokens=8)

    async def run():
        alone = await collect(llm, params, "alone")
        many = await asyncio.gather(*(collect(llm, params, str(i)) for i in range(300)))
        assert all(each[-1].outputs == alone[-1].outputs for each in many)
    asyncio.run(asyncio.wait_for(run(), 300))


def test_abort_ends_the_generator(llm):
    async def run():
        last = None
        async for output in llm.generate("a", LONG, "abort"):
            last = output
            await llm.abort("abort")
        assert last.finished and last.outputs[0].finish_reason == "abort"
        await llm.abort("unknown")
        await settle(llm)
    asyncio.run(asyncio.wait_for(run(), 60))


def test_a_closed_generator_and_a_cancelled_task_end_their_requests(llm):
    async def run():
        generator = llm.generate("a", LONG, "closed")
        await anext(generator)
        await generator.aclose()
        task = asyncio.create_task(collect(llm, LONG, "task"))
        while not llm.metrics()["num_running"]:
            await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await settle(llm)
    asyncio.run(asyncio.wait_for(run(), 60))


def test_errors(llm):
    async def run():
        with pytest.raises(halley.InputError, match="temperature"):
            await collect(llm, SamplingParams(temperature=3), "error")
        generator = llm.generate("a", LONG, "twice")
        await anext(generator)
        with pytest.raises(halley.InputError, match="request_id: expected one that no live"):
            await collect(llm, LONG, "twice")
        await generator.aclose()
    asyncio.run(asyncio.wait_for(run(), 60))
