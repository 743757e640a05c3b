"""How quantize_() rounds the weights of a model, and what they are multiplied with."""
import abc
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, ClassVar

from halley._native import InputError

# Inputs that share a scale in a W4Ax weight, and in its activations.
AX_BLOCK = 128


class Config(abc.ABC):
    """What the configurations have in common."""
    scheme: ClassVar[str]

    @abc.abstractmethod
    def group_size_of(self, in_features: int) -> int:
        """Inputs that share a scale, for a layer of so many inputs; 0: there are no scales."""

    @property
    def is_symmetric(self) -> bool:
        """Whether zero points are fixed."""
        return False

    @property
    def is_per_tensor(self) -> bool:
        """Whether a weight has one scale."""
        return False


@dataclass(frozen=True)
class _GroupedConfig(Config):
    """Of weights with scales of groups of inputs; None: per-channel scales."""
    group_size: int | None = 128

    def __post_init__(self) -> None:
        if self.group_size is not None and self.group_size < 1:
            raise InputError("group_size: expected None (per-channel) or 1 and more, got "
                             f"{self.group_size}.")

    def group_size_of(self, in_features: int) -> int:
        return in_features if self.group_size is None else min(self.group_size, in_features)


@dataclass(frozen=True)
class _WeightOnlyConfig(_GroupedConfig):
    """Of weights that floating-point activations multiply."""
    symmetric: bool = False

    @property
    def is_symmetric(self) -> bool:
        return self.symmetric


@dataclass(frozen=True)
class Int4WeightOnlyConfig(_WeightOnlyConfig):
    """W4A16. `group_size`: inputs that share a scale; None: per-channel. The weights are those of
    `halley quantize --method rtn`."""
    scheme: ClassVar[str] = "int4"


@dataclass(frozen=True)
class Int8WeightOnlyConfig(_WeightOnlyConfig):
    """W8A16, as Int4WeightOnlyConfig: `halley quantize --method rtn --bits 8`."""
    group_size: int | None = None
    symmetric: bool = True
    scheme: ClassVar[str] = "int8"


@dataclass(frozen=True)
class Int8DynamicActivationInt4WeightConfig(_GroupedConfig):
    """W4A8 as in QServe: activations are rounded to int8 with a scale per token. Groups have two
    levels of scales; None: per-channel scales and zero points. The weights are those of
    `halley quantize --method qoq` without its calibrated techniques."""
    scheme: ClassVar[str] = "int4_a8"


@dataclass(frozen=True)
class Int8DynamicActivationInt8WeightConfig(Config):
    """W8A8: weights with a scale per channel, activations with a scale per token, as
    `halley quantize --method smoothquant` without smoothing."""
    scheme: ClassVar[str] = "int8_a8"

    def group_size_of(self, in_features: int) -> int:
        return in_features

    @property
    def is_symmetric(self) -> bool:
        return True


@dataclass(frozen=True)
class W4AxConfig(Config):
    """W4Ax (FMPQ): weights of 4 bits in groups of 128 inputs; activations of 8 bits in the blocks
    of 128 inputs that hold outliers, and of 4 bits in all others.

    `s8_share`: the share of blocks of 8 bits. `calibration`: inputs of the model, each a mapping, a
    tuple or a tensor, by which outliers are found; below a share of 1 there must be some.
    `s4_clip`: the range of a block of 4 bits, relative to its largest magnitude."""
    s8_share: float = 0.25
    s4_clip: float = 1.0
    calibration: Iterable[Any] | None = field(default=None, compare=False, repr=False)
    scheme: ClassVar[str] = "int4_ax"

    def __post_init__(self) -> None:
        if not 0 <= self.s8_share <= 1:
            raise InputError(f"s8_share: expected 0 to 1, got {self.s8_share}.")
        if not 0 < self.s4_clip <= 1:
            raise InputError(f"s4_clip: expected above 0 and at most 1, got {self.s4_clip}.")
        if self.s8_share < 1 and self.calibration is None:
            raise InputError("calibration: expected inputs of the model, by which the blocks of 8 "
                             f"bits are chosen, got None with s8_share {self.s8_share}. Give some, "
                             "or s8_share=1.")

    def group_size_of(self, in_features: int) -> int:
        return min(AX_BLOCK, in_features)

    @property
    def is_symmetric(self) -> bool:
        return True


@dataclass(frozen=True)
class Float8DynamicActivationFloat8WeightConfig(Config):
    """FP8: weights in e4m3 with a scale per channel ("row") or one for all ("tensor"), activations
    in e4m3 with a scale per token, as `halley quantize --method fp8`."""
    granularity: str = "row"
    scheme: ClassVar[str] = "float8"

    def __post_init__(self) -> None:
        if self.granularity not in ("row", "tensor"):
            raise InputError("granularity: expected \"row\" or \"tensor\", got "
                             f"{self.granularity!r}.")

    def group_size_of(self, in_features: int) -> int:
        return in_features

    @property
    def is_per_tensor(self) -> bool:
        return self.granularity == "tensor"


@dataclass(frozen=True)
class NestedFpConfig(Config):
    """NestedFP: one weight in two precisions, exact f16 and, by set_precision(model, "low"), e4m3
    with activations in e4m3, as `halley quantize --method nestedfp`. Layers with a weight beyond
    1.75 stay as they are."""
    scheme: ClassVar[str] = "nestedfp"

    def group_size_of(self, in_features: int) -> int:
        return 0
