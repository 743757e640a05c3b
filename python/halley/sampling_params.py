"""The parameters by which a request's tokens are chosen, with vLLM's names."""
import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass
class StructuredOutputsParams:
    """What the output must be; one member is set."""
    json: str | dict[str, Any] | None = None
    regex: str | None = None
    choice: list[str] | None = None
    grammar: str | None = None
    json_object: bool | None = None


@dataclass
class SamplingParams:
    """Ranges are those of the server's fields (docs/serving.md); they are checked at submission."""
    n: int = 1
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float = 1.0
    temperature: float = 1.0  # 0: greedy
    top_p: float = 1.0
    top_k: int = 0  # below 1: all
    min_p: float = 0.0
    dry_multiplier: float = 0.0  # 0: no DRY
    dry_base: float = 1.75
    dry_allowed_length: int = 2
    dry_penalty_last_n: int = -1  # -1: all tokens
    dry_sequence_breakers: Sequence[str] | None = None  # None: line end, ":", '"' and "*"
    xtc_probability: float = 0.0  # 0: no XTC
    xtc_threshold: float = 0.1
    seed: int | None = None  # None: another text each time
    stop: str | Sequence[str] | None = None
    stop_token_ids: Sequence[int] | None = None
    ignore_eos: bool = False
    max_tokens: int | None = 16  # None: up to max_model_len
    min_tokens: int = 0
    logprobs: int | None = None  # of each token, and of this many most likely ones
    prompt_logprobs: int | None = None
    skip_special_tokens: bool = True
    include_stop_str_in_output: bool = False
    logit_bias: Mapping[int, float] | None = None
    structured_outputs: StructuredOutputsParams | None = None
    guided_json: str | dict[str, Any] | None = None  # structured_outputs' members, by older names
    guided_regex: str | None = None
    guided_choice: list[str] | None = None
    guided_grammar: str | None = None


def body_of(params: SamplingParams | None, prompt: Mapping[str, Any], is_chat: bool
            ) -> dict[str, Any]:
    """The request as the server's endpoint takes it; no params: the model's own defaults."""
    body: dict[str, Any] = dict(prompt)
    if params is None:
        body["max_tokens"] = 16
        return body
    fields = {field.name: getattr(params, field.name) for field in dataclasses.fields(params)}
    logprobs = fields.pop("logprobs")
    del fields["prompt_logprobs"]
    structured = fields.pop("structured_outputs")
    if structured is not None:
        members = dataclasses.asdict(structured)
        body["structured_outputs"] = {k: v for k, v in members.items() if v is not None}
    if logprobs is not None and is_chat:
        body["logprobs"], body["top_logprobs"] = True, logprobs
    elif logprobs is not None:
        body["logprobs"] = logprobs
    if fields["stop"] is not None and not isinstance(fields["stop"], str):
        fields["stop"] = list(fields["stop"])
    for name in ("stop_token_ids", "dry_sequence_breakers"):
        if fields[name] is not None:
            fields[name] = list(fields[name])
    if fields["logit_bias"] is not None:
        fields["logit_bias"] = {str(k): v for k, v in fields["logit_bias"].items()}
    body.update((k, v) for k, v in fields.items() if v is not None)
    return body
