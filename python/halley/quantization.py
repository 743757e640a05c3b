"""From a checkpoint in full precision to one in low precision."""
import json
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from halley import _native
from halley._options import set_members
from halley._progress import progress_bar


@dataclass
class QuantizedLayer:
    """A linear layer of a quantized checkpoint."""
    name: str
    bits: int
    is_quantized: bool
    relative_error: float  # of the layer's output
    s4_share: float  # FMPQ: multiply-accumulates with 4 bits on both sides


@dataclass
class QuantizeResult:
    """The report of a finished checkpoint."""
    method: str
    recipe: str  # bits, groups and techniques in words
    out: str
    seconds: float
    layers_resumed: int  # that an interrupted run had written
    source_bytes: float
    written_bytes: float
    s4_share: float
    notes: list[str]
    error_inputs: str  # "calibration", or "random" where there was no text
    rounded_to_f16: dict[str, Any] | None  # NestedFP: what rounding to f16 changed
    layers: list[QuantizedLayer]


def quantize(model: str | os.PathLike[str], *, method: str, out: str | os.PathLike[str],
             calibrate: str | os.PathLike[str] | None = None, bits: int | None = None,
             group_size: int | None = None, symmetric: bool | None = None,
             desc_act: bool | None = None, static_groups: bool | None = None,
             static_activations: bool | None = None, per_tensor: bool = False,
             damp: float | None = None, alpha: float | None = None, s8_share: float | None = None,
             kv_bits: int | None = None, without: Sequence[str] = (),
             overrides: Sequence[str] = (), num_samples: int = 64, sample_length: int = 1024,
             threads: int = 0, use_tqdm: bool = True,
             on_progress: Callable[[float, str], object] | None = None) -> QuantizeResult:
    """Quantizes the checkpoint in the folder `model` by `method` into the new folder `out`.

    `method` and the arguments after `calibrate`, a file with the calibration text, are those of
    `halley quantize`, whose help lists them; None leaves what the method has. `overrides`:
    "PATTERN=none" or "PATTERN=bits=8,group=64,sym" for layers that differ. `on_progress` gets the
    share of the work that is done, 0 to 1, and what is being done. What it raises, and Ctrl-C, ends
    the work; the same call goes on there later.

    Raises InputError, CheckpointError, UnsupportedError or DeviceError.
    """
    options = _native.QuantizeOptions()
    set_members(options, {
        "model": os.fspath(model), "method": method, "out": os.fspath(out),
        "calibrate": None if calibrate is None else os.fspath(calibrate),
        "overrides": list(overrides), "num_samples": num_samples, "sample_length": sample_length})
    set_members(options.changes, {
        "bits": bits, "group_size": group_size, "symmetric": symmetric, "desc_act": desc_act,
        "static_groups": static_groups, "static_activations": static_activations,
        "per_tensor": per_tensor, "damp": damp, "alpha": alpha, "s8_share": s8_share,
        "kv_bits": kv_bits, "without": list(without)})
    show = progress_bar(None, "Quantizing", use_tqdm)

    def progress(share: float, doing: str) -> None:
        show(share)
        if on_progress is not None:
            on_progress(share, doing)

    report = json.loads(_native.quantize(options, threads, progress))
    progress(1, "done")
    layers = [QuantizedLayer(**layer) for layer in report.pop("layers")]
    return QuantizeResult(**report, layers=layers)
