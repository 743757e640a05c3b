"""What the gateway and the replicas send to each other."""
import dataclasses


@dataclasses.dataclass(frozen=True)
class ForwardedRequest:
    """A client's request, without the headers of its connection."""
    method: str
    path: str  # with the query
    headers: tuple  # of (name, value)
    body: bytes
    prefix_key: str | None  # equal for prompts with the same beginning
    avoided_replicas: tuple = ()  # ids of those that failed this request


@dataclasses.dataclass(frozen=True)
class AnswerHead:
    """The first message of a replica's stream; the answer's bytes follow."""
    replica_id: str
    status: int
    headers: tuple


@dataclasses.dataclass(frozen=True)
class ReplicaFailure:
    """The last message of a stream whose `halley serve` broke off, also where it is the first."""
    replica_id: str
    reason: str
