"""Streams of outputs in an asyncio program."""
import asyncio
import functools
import itertools
from collections.abc import AsyncGenerator, Callable, Sequence
from typing import Any

from halley import _native
from halley._session import LoadedModel, Message, Prompt, chat_body
from halley.lora import LoRARequest
from halley.outputs import Collector, RequestOutput
from halley.sampling_params import SamplingParams


class _Request:
    """A live request, and its news that its generator has not seen."""

    def __init__(self, stream: _native.RequestStream, number: int) -> None:
        self.number = number
        self._stream = stream
        self._is_cancelled = False
        self._deltas: list[_native.RequestDelta] = []
        self._has_news = asyncio.Event()

    def submit(self, submit: Callable[..., Collector]) -> Collector:
        """Runs in a thread; cancel() may come before, meanwhile or later."""
        collector = submit(self._stream, self.number)
        if self._is_cancelled:
            self._stream.cancel(self.number)
        return collector

    def cancel(self) -> None:
        """Ends the request in the engine, at once or as soon as it is there."""
        self._is_cancelled = True
        self._stream.cancel(self.number)

    def add(self, delta: _native.RequestDelta) -> None:
        """Wakes the generator."""
        self._deltas.append(delta)
        self._has_news.set()

    async def take(self) -> list[_native.RequestDelta]:
        """Waits for news."""
        await self._has_news.wait()
        self._has_news.clear()
        deltas, self._deltas = self._deltas, []
        return deltas


class _Router:
    """Hands the news of all requests to their generators. The event loop waits on one file
    descriptor, however many requests there are."""

    def __init__(self, session: _native.Session) -> None:
        self._stream = _native.RequestStream(session, False)
        self._numbers = itertools.count()
        self._requests: dict[int, _Request] = {}
        self._loop: asyncio.AbstractEventLoop | None = None

    def open(self) -> _Request:
        """A request that is to be submitted. Raises RuntimeError in a second event loop."""
        loop = asyncio.get_running_loop()
        if self._loop not in (None, loop):
            raise RuntimeError("AsyncLLM: expected calls from one event loop at a time, got one "
                               "while requests of another loop run. Load the model for each loop.")
        if self._loop is None:
            self._loop = loop
            loop.add_reader(self._stream.fileno(), self._dispatch)
        request = _Request(self._stream, next(self._numbers))
        self._requests[request.number] = request
        return request

    def close(self, request: _Request) -> None:
        """Ends a request; the last one frees the event loop."""
        request.cancel()
        del self._requests[request.number]
        if not self._requests and self._loop is not None:
            self._loop.remove_reader(self._stream.fileno())
            self._loop = None

    def _dispatch(self) -> None:
        for delta in self._stream.take():
            if request := self._requests.get(delta.request):
                request.add(delta)


class AsyncLLM(LoadedModel):
    """A loaded model whose outputs stream; the event loop is free while the engine runs. One event
    loop at a time may use it."""

    @functools.cached_property
    def _router(self) -> _Router:
        return _Router(self._session)

    @functools.cached_property
    def _live(self) -> dict[str, _Request]:
        return {}

    def generate(self, prompt: Prompt, sampling_params: SamplingParams | None, request_id: str,
                 lora_request: LoRARequest | None = None) -> AsyncGenerator[RequestOutput, None]:
        """Yields the outputs so far, each time there is more of them, the last time finished.

        `request_id` is the handle for abort(). A generator that is closed, or whose task is
        cancelled, ends its request. Raises as LLM.generate().
        """
        submit = functools.partial(self._submit, prompt=prompt, params=sampling_params,
                                   lora=lora_request)
        return self._stream(request_id, submit)

    def chat(self, messages: Sequence[Message], sampling_params: SamplingParams | None,
             request_id: str, lora_request: LoRARequest | None = None, *,
             tools: list[dict[str, Any]] | None = None,
             add_generation_prompt: bool = True, continue_final_message: bool = False,
             chat_template_kwargs: dict[str, Any] | None = None
             ) -> AsyncGenerator[RequestOutput, None]:
        """Answers one conversation as LLM.chat() does; yields and raises as generate()."""
        body = chat_body(messages, sampling_params, tools, add_generation_prompt,
                         continue_final_message, chat_template_kwargs)
        submit = functools.partial(self._submit_body, body=body, params=sampling_params,
                                   lora=lora_request)
        return self._stream(request_id, submit)

    async def abort(self, request_id: str) -> None:
        """Ends a request: its generator yields once more, with finish_reason "abort". An unknown
        id is ignored."""
        if request_id in self._live:
            self._live[request_id].cancel()

    async def _stream(self, request_id: str, submit: Callable[..., Collector]
                      ) -> AsyncGenerator[RequestOutput, None]:
        if request_id in self._live:
            raise _native.InputError("request_id: expected one that no live request has, got "
                                     f"'{request_id}'.")
        request = self._live[request_id] = self._router.open()
        try:
            # In a thread: a schema may take long to compile.
            collector = await asyncio.to_thread(request.submit, submit)
            collector.output.request_id = request_id
            while not collector.output.finished:
                for delta in await request.take():
                    collector.add(delta)
                yield collector.snapshot()
        finally:
            del self._live[request_id]
            self._router.close(request)
