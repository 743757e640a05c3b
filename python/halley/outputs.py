"""The outputs of requests, with vLLM's names."""
from dataclasses import dataclass, field

from halley import _native


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
class RequestOutput:
    """A prompt with its outputs."""
    request_id: str
    prompt: str | None  # None: the prompt was token ids
    prompt_token_ids: list[int]
    outputs: list[CompletionOutput]
    finished: bool = False
    prompt_logprobs: list[dict[int, Logprob] | None] | None = None
    num_cached_tokens: int | None = None  # of the prompt; known at the end


def logprobs_of(session: _native.Session, pairs: list[tuple[int, float]]) -> dict[int, Logprob]:
    """`pairs`: the token itself, then the most likely ones in order."""
    ranks = {token: rank for rank, (token, _) in enumerate(pairs[1:], 1)}
    return {token: Logprob(logprob, ranks.get(token), session.decode([token], False))
            for token, logprob in dict(pairs).items()}


class Collector:
    """Makes a RequestOutput of the news of its sequences."""

    def __init__(self, session: _native.Session, request_id: str,
                 submitted: _native.SubmittedPrompt) -> None:
        self._session = session
        self._indices = {id: index for index, id in enumerate(submitted.ids)}
        self.output = RequestOutput(
            request_id, submitted.text, submitted.token_ids,
            [CompletionOutput(index) for index in range(len(submitted.ids))])

    @property
    def ids(self) -> list[int]:
        """The engine's ids of the sequences."""
        return list(self._indices)

    def add(self, delta: _native.RequestDelta) -> None:
        """Raises InputError or DeviceError where the request has failed."""
        if delta.finish_reason == "error":
            raise (_native.InputError if delta.is_input_error else _native.DeviceError)(delta.error)
        output = self.output.outputs[self._indices[delta.id]]
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
        self.output.num_cached_tokens = delta.num_cached_tokens
        self.output.finished = all(each.finished() for each in self.output.outputs)
