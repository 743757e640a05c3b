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


def test_abort_ends_a_request_that_is_being_submitted(llm):
    async def run():
        task = asyncio.create_task(collect(llm, LONG, "early"))
        await asyncio.sleep(0)
        await llm.abort("early")
        assert (await task)[-1].outputs[0].finish_reason == "abort"
        await settle(llm)
    asyncio.run(asyncio.wait_for(run(), 60))


def test_a_task_that_is_cancelled_while_it_submits_leaves_nothing(llm):
    async def run():
        tasks = [asyncio.create_task(collect(llm, LONG, str(i))) for i in range(50)]
        await asyncio.sleep(0)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    asyncio.run(asyncio.wait_for(run(), 60))
    # The loop has waited for its threads: whatever they submitted was cancelled.
    asyncio.run(asyncio.wait_for(settle(llm), 60))
    assert llm.metrics()["num_output_tokens"] < 50 * 400


def test_outputs_that_were_yielded_stay_as_they_are(llm):
    outputs = asyncio.run(collect(llm, SamplingParams(temperature=0, max_tokens=8, logprobs=1),
                                  "kept"))
    lengths = [len(output.outputs[0].token_ids) for output in outputs]
    assert lengths == sorted(set(lengths))
    assert lengths == [len(output.outputs[0].logprobs) for output in outputs]


def test_chats_stream(tmp_path):
    template = tmp_path / "chat.jinja"
    template.write_text("{{ messages[0].content }}")
    model = AsyncLLM(MODEL, device="cpu", max_model_len=128, chat_template=template)

    async def run():
        params = SamplingParams(temperature=0, max_tokens=8)
        talk = [{"role": "user", "content": "The Python language"}]
        chat = [output async for output in model.chat(talk, params, "chat")]
        # A template's text gets no special tokens but its own.
        ids = await collect(model, params, "ids", chat[-1].prompt_token_ids)
        assert chat[-1].prompt == "The Python language"
        assert chat[-1].outputs == ids[-1].outputs
    asyncio.run(asyncio.wait_for(run(), 60))


def test_a_second_loop_is_rejected_while_the_first_has_requests(llm):
    async def run():
        generator = llm.generate("a", LONG, "first")
        await anext(generator)
        with pytest.raises(RuntimeError, match="expected calls from one event loop at a time"):
            await asyncio.to_thread(asyncio.run, collect(llm, LONG, "second"))
        await generator.aclose()
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
