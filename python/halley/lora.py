"""LoRA adapters, with vLLM's names."""
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True)
class LoRARequest:
    """An adapter for a request: a folder with the files of PEFT. It is loaded at its first use and
    kept; later uses name it by its number, which no other adapter of the model may have."""
    lora_name: str
    lora_int_id: int
    lora_path: str


LoRARequests: TypeAlias = LoRARequest | Sequence[LoRARequest | None] | None
