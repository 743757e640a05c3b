"""Streams of outputs in an asyncio program."""
import asyncio
import copy
import os
from collections.abc import AsyncGenerator
from typing import Any

from halley import _native
from halley._session import LoadedModel, Prompt
from halley.outputs import RequestOutput
from halley.sampling_params import SamplingParams


class AsyncLLM(LoadedModel):
    """A loaded model whose outputs stream. The event loop waits on a file descriptor: there is no
    thread in between, and the loop is free while the engine runs."""

    def __init__(self, model: str | os.PathLike[str], **options: Any) -> None:
        """Takes what LLM takes."""
        super().__init__(model, **options)
        self._live: dict[str, tuple[_native.RequestStream, list[int]]] = {}

    async def generate(self, prompt: Prompt, sampling_params: SamplingParams | None,
                       request_id: str) -> AsyncGenerator[RequestOutput, None]:
        """Yields the outputs so far, each time there is more of them, the last time finished.

        `request_id` is the handle for abort(). A generator that is closed, or whose task is
        cancelled, ends its request. Raises as LLM.generate().
        """
        if request_id in self._live:
            raise _native.InputError("request_id: expected one that no live request has, got "
                                     f"'{request_id}'.")
        stream = _native.RequestStream(self._session, False)
        collector = self._submit(stream, request_id, prompt, sampling_params)
        self._live[request_id] = (stream, collector.ids)
        loop = asyncio.get_running_loop()
        news = asyncio.Event()
        loop.add_reader(stream.fileno(), news.set)
        try:
            while not collector.output.finished:
                await news.wait()
                news.clear()
                for delta in stream.take():
                    collector.add(delta)
                yield copy.deepcopy(collector.output)
        finally:
            loop.remove_reader(stream.fileno())
            self._cancel(request_id)
            del self._live[request_id]

    async def abort(self, request_id: str) -> None:
        """Ends a request: its generator yields once more, with finish_reason "abort". An unknown
        id is ignored."""
        if request_id in self._live:
            self._cancel(request_id)

    def _cancel(self, request_id: str) -> None:
        stream, ids = self._live[request_id]
        for id in ids:
            stream.cancel(id)
