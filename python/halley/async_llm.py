"""Streams of outputs in an asyncio program."""
import asyncio
import copy
import functools
from collections.abc import AsyncGenerator

from halley import _native
from halley._session import LoadedModel, Prompt
from halley.outputs import Collector, RequestOutput
from halley.sampling_params import SamplingParams


class AsyncLLM(LoadedModel):
    """A loaded model whose outputs stream. The event loop waits on a file descriptor for each live
    request, and is free while the engine runs. One event loop may use it."""

    @functools.cached_property
    def _live(self) -> dict[str, _native.RequestStream]:
        return {}

    async def generate(self, prompt: Prompt, sampling_params: SamplingParams | None,
                       request_id: str) -> AsyncGenerator[RequestOutput, None]:
        """Yields the outputs so far, each time there is more of them, the last time finished.

        `request_id` is the handle for abort(). A generator that is closed, or whose task is
        cancelled, ends its request. Raises as LLM.generate().
        """
        if request_id in self._live:
            raise _native.InputError("request_id: expected one that no live request has, got "
                                     f"'{request_id}'.")
        stream = self._live[request_id] = _native.RequestStream(self._session, False)
        try:
            # A schema may take long to compile.
            collector = await asyncio.to_thread(self._submit, stream, request_id, prompt,
                                                sampling_params)
            async for output in _outputs_of(stream, collector):
                yield output
        finally:
            stream.cancel_all()
            del self._live[request_id]

    async def abort(self, request_id: str) -> None:
        """Ends a request: its generator yields once more, with finish_reason "abort". An unknown
        id is ignored."""
        if request_id in self._live:
            self._live[request_id].cancel_all()


async def _outputs_of(stream: _native.RequestStream, collector: Collector
                      ) -> AsyncGenerator[RequestOutput, None]:
    loop = asyncio.get_running_loop()
    has_news = asyncio.Event()
    loop.add_reader(stream.fileno(), has_news.set)
    try:
        while not collector.output.finished:
            await has_news.wait()
            has_news.clear()
            news = stream.take()
            for delta in news:
                collector.add(delta)
            if news:
                yield copy.deepcopy(collector.output)
    finally:
        loop.remove_reader(stream.fileno())
