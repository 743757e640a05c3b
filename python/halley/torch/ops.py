"""The operators of halley.torch: halley::linear on the CPU, halley::linear_cuda on a GPU."""
import functools
import itertools
from collections.abc import Sequence
from typing import Any

import torch

from halley import _native

# Rows of a GPU's operands begin at multiples of so many bytes.
_ROW_BYTES = 16

_LIBRARY = torch.library.Library("halley", "DEF")
# `sizes`: out_features, K, group_size, columns of x, num_s8_inputs (PackedFormat).
_LIBRARY.define("linear(Tensor x, Tensor qweight, Tensor? groups, Tensor? input_perm, "
                "Tensor? bias, str scheme, int[] sizes, float s4_clip, bool is_low) -> Tensor")
# `weight`: DeviceWeight.id
_LIBRARY.define("linear_cuda(Tensor x, int weight, int in_features, int out_features, bool is_low) "
                "-> Tensor")

Memory = tuple[int, int]


def memory_of(tensor: torch.Tensor | None) -> Memory:
    """Address and bytes of a tensor of the host, for the native module. The caller keeps the tensor
    until the native call has returned: pass a variable, not a temporary."""
    if tensor is None:
        return 0, 0
    if tensor.device.type != "cpu" or not tensor.is_contiguous():
        raise _native.InputError("halley.torch: expected a contiguous tensor of the host, got one "
                                 f"of {tensor.device} with strides {tuple(tensor.stride())}. Call "
                                 "contiguous().")
    return tensor.data_ptr(), tensor.nbytes


def format_of(scheme: str, sizes: Sequence[int], has_input_perm: bool, s4_clip: float
              ) -> _native.PackedFormat:
    """The native description of a packed weight."""
    out_features, num_packed, group_size, num_inputs, num_s8_inputs = sizes
    return _native.PackedFormat(scheme, (out_features, num_packed), group_size, num_inputs,
                                has_input_perm, (num_s8_inputs, s4_clip))


@functools.lru_cache(maxsize=4096)
def _cpu_linear(scheme: str, sizes: tuple[int, ...], has_input_perm: bool, s4_clip: float,
                is_low: bool) -> _native.CpuLinear:
    return _native.CpuLinear(format_of(scheme, sizes, has_input_perm, s4_clip), is_low)


def _check_columns(x: torch.Tensor, num_inputs: int) -> None:
    if x.dim() == 0 or x.shape[-1] != num_inputs:
        raise _native.InputError(f"halley::linear: expected x of [..., {num_inputs}], got "
                                 f"{list(x.shape)}.")
    if not x.is_floating_point():
        raise _native.InputError(f"halley::linear: expected x of a floating-point type, got "
                                 f"{x.dtype}.")


def _linear_cpu(x: torch.Tensor, qweight: torch.Tensor, groups: torch.Tensor | None,
                input_perm: torch.Tensor | None, bias: torch.Tensor | None, scheme: str,
                sizes: Sequence[int], s4_clip: float, is_low: bool) -> torch.Tensor:
    linear = _cpu_linear(scheme, tuple(sizes), input_perm is not None, s4_clip, is_low)
    _check_columns(x, sizes[3])
    rows = x.reshape(-1, sizes[3]).to(torch.float32).contiguous()
    y = torch.empty(rows.shape[0], sizes[0], dtype=torch.float32)
    bias = None if bias is None else bias.to(torch.float32).contiguous()
    weight = [memory_of(qweight), memory_of(groups), memory_of(input_perm)]
    linear.run(torch.get_num_threads(), weight, memory_of(bias), memory_of(rows), memory_of(y))
    return y.to(x.dtype).view(*x.shape[:-1], sizes[0])


class DeviceWeight:
    """A weight on a GPU. Operators name it by its `id`, which is never used again."""
    _all: dict[int, _native.CudaLinear] = {}
    _ids = itertools.count(1)

    def __init__(self, linear: _native.CudaLinear) -> None:
        self.id = next(self._ids)
        self.linear = linear
        self._all[self.id] = linear

    def __del__(self) -> None:
        self._all.pop(self.id, None)

    @classmethod
    def find(cls, weight: int) -> _native.CudaLinear:
        """Raises InputError where it is gone."""
        linear = cls._all.get(weight)
        if linear is None:
            raise _native.InputError("halley::linear_cuda: expected a weight on a GPU, got "
                                     f"{weight}, which is none. Move the module to the GPU, in "
                                     "float16 or bfloat16.")
        return linear


def _aligned_rows(x: torch.Tensor) -> torch.Tensor:
    """x [M, K] with rows at multiples of 16 bytes."""
    step = _ROW_BYTES // x.element_size()
    if x.stride(-1) == 1 and x.stride(0) % step == 0 and x.data_ptr() % _ROW_BYTES == 0:
        return x
    num_rows, num_columns = x.shape
    rows = x.new_empty(num_rows, -(-num_columns // step) * step)[:, :num_columns]
    return rows.copy_(x)


def _linear_cuda(x: torch.Tensor, weight: int, in_features: int, out_features: int, is_low: bool
                 ) -> torch.Tensor:
    linear = DeviceWeight.find(weight)
    _check_columns(x, in_features)
    if x.dtype not in (torch.float16, torch.bfloat16):
        raise _native.InputError(f"halley::linear_cuda: expected x of float16 or bfloat16, got "
                                 f"{x.dtype}. Convert the model.")
    rows = _aligned_rows(x.reshape(-1, in_features))
    step = _ROW_BYTES // x.element_size()
    y = x.new_empty(rows.shape[0], -(-out_features // step) * step)
    # From PyTorch's allocator, so that a CUDA graph keeps it, and its operators share it.
    workspace = x.new_empty(linear.workspace_bytes(rows.shape[0]), dtype=torch.uint8)
    matrices = [(m.data_ptr(), rows.shape[0], columns, m.stride(0))
                for m, columns in ((rows, in_features), (y, out_features))]
    linear.run(x.dtype == torch.bfloat16, (matrices[0], matrices[1]),
               (workspace.data_ptr(), workspace.nbytes),
               torch.cuda.current_stream(x.device).cuda_stream, is_low)
    return y[:, :out_features].contiguous().view(*x.shape[:-1], out_features)


def _linear_fake(x: torch.Tensor, qweight: torch.Tensor, groups: torch.Tensor | None,
                 input_perm: torch.Tensor | None, bias: torch.Tensor | None, scheme: str,
                 sizes: Sequence[int], s4_clip: float, is_low: bool) -> torch.Tensor:
    _check_columns(x, sizes[3])
    return x.new_empty(*x.shape[:-1], sizes[0])


def _linear_cuda_fake(x: torch.Tensor, weight: int, in_features: int, out_features: int,
                      is_low: bool) -> torch.Tensor:
    _check_columns(x, in_features)
    return x.new_empty(*x.shape[:-1], out_features)


def _reject_backward(*_: Any) -> None:
    raise _native.UnsupportedError("halley.torch: expected inference, got a backward pass through "
                                   "a quantized layer. Use torch.no_grad(), or train the model "
                                   "before quantize_().")


_LIBRARY.impl("linear", _linear_cpu, "CPU")
_LIBRARY.impl("linear_cuda", _linear_cuda, "CUDA")
torch.library.register_fake("halley::linear", _linear_fake, lib=_LIBRARY)
torch.library.register_fake("halley::linear_cuda", _linear_cuda_fake, lib=_LIBRARY)
for _name in ("linear", "linear_cuda"):
    torch.library.register_autograd(f"halley::{_name}", _reject_backward, lib=_LIBRARY)
