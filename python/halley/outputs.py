"""The outputs of requests, with vLLM's names."""
import dataclasses
from dataclasses import dataclass, field

from halley import _native
from halley.lora import LoRARequest


@dataclass
class Logprob:
    """The log probability of a token among all that could stand in its place."""
    logprob: float  # natural logarithm
    rank: int | None = None  # 1: the most likely one; None: not among the most likely ones
    decoded_token: str | None = None


@dataclass
class CompletionOutput:
    """One of the n outputs of a request."""
    index: int
    text: str = ""
    token_ids: list[int] = field(default_factory=list)
    cumulative_logprob: float | None = None  # where logprobs were asked for
    logprobs: list[dict[int, Logprob]] | None = None
    finish_reason: str | None = None  # "stop", "length", "abort"; None: it goes on
    stop_reason: str | None = None  # the stop string, or the text of the token that ended it

    def finished(self) -> bool:
        """Whether nothing more comes."""
        return self.finish_reason is not None


@dataclass
class RequestMetrics:
    """Times of a request in seconds, under the names of vLLM's histograms. With n > 1 they are
    those of the output that ended last. None: the request did not come so far."""
    request_queue_time: float  # from the submission to the first step
    request_prefill_time: float | None  # from there to the first token
    time_to_first_token: float | None  # from the submission
    request_decode_time: float | None  # from the first token to the last
    e2e_request_latency: float  # from the submission to the end


@dataclass
class RequestOutput:
    """A prompt with its outputs."""
    request_id: str
    prompt: str | None  # None: the prompt was token ids
    prompt_token_ids: list[int]
    outputs: list[CompletionOutput]
    finished: bool = False
    prompt_logprobs: list[dict[int, Logprob] | None] | None = None
    num_cached_tokens: int | None = None  # of the prompt; known at the end
    metrics: RequestMetrics | None = None  # known at the end
    lora_request: LoRARequest | None = None


def logprobs_of(session: _native.Session, pairs: list[tuple[int, float]]) -> dict[int, Logprob]:
    """`pairs`: the token itself, then the most likely ones in order."""
    ranks = {token: rank for rank, (token, _) in enumerate(pairs[1:], 1)}
    return {token: Logprob(logprob, ranks.get(token), session.decode([token], False))
            for token, logprob in dict(pairs).items()}


class Collector:
    """Makes a RequestOutput of the news of its sequences."""

    def __init__(self, session: _native.Session, request_id: str,
                 submitted: _native.SubmittedPrompt, lora: LoRARequest | None) -> None:
        self._session = session
        self.output = RequestOutput(
            request_id, submitted.text, submitted.token_ids,
            [CompletionOutput(index) for index in range(submitted.num_sequences)],
            lora_request=lora)

    def add(self, delta: _native.RequestDelta) -> None:
        """Raises InputError or DeviceError where the request has failed."""
        if delta.finish_reason == "error":
            raise (_native.InputError if delta.is_input_error else _native.DeviceError)(delta.error)
        output = self.output.outputs[delta.index]
        output.token_ids += delta.token_ids
        output.text += delta.text
        if logprobs := delta.logprobs:
            output.logprobs = output.logprobs or []
            output.logprobs += [logprobs_of(self._session, pairs) for pairs in logprobs]
            output.cumulative_logprob = (output.cumulative_logprob or 0.0) + sum(
                pairs[0][1] for pairs in logprobs)
        if prompt_logprobs := delta.prompt_logprobs:
            self.output.prompt_logprobs = [
                None if pairs is None else logprobs_of(self._session, pairs)
                for pairs in prompt_logprobs]
        if delta.finish_reason is None:
            return
        output.finish_reason = delta.finish_reason
        output.stop_reason = delta.stop_reason or None
        self.output.finished = all(each.finished() for each in self.output.outputs)
        if times := delta.times:
            self.output.num_cached_tokens = times.num_cached_tokens
            self.output.metrics = RequestMetrics(times.queue, times.prefill, times.first_token,
                                                 times.decode, times.total)

    def snapshot(self) -> RequestOutput:
        """The output so far, which later news leave as it is."""
        outputs = [dataclasses.replace(
            each, token_ids=list(each.token_ids),
            logprobs=None if each.logprobs is None else list(each.logprobs))
            for each in self.output.outputs]
        return dataclasses.replace(self.output, outputs=outputs)
