"""The module that quantize_() puts in the place of nn.Linear."""
import math
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import nn

from halley import _native
from halley.torch.config import AX_BLOCK
from halley.torch.ops import DeviceWeight, format_of, memory_of

# Outputs and inputs of a unit of the packed layout: slices begin and end at multiples of them.
PANEL_ROWS = 32
UNIT_INPUTS = 32
_CUDA_DTYPES = (torch.float16, torch.bfloat16)
_PACKED = ("qweight", "groups", "block_bits", "activation_clip", "input_perm")
# Kernels load vectors of so many bytes.
_ALIGNMENT = 64


def _ceil_div(a: int, b: int) -> int:
    return -(-a // b)


class QuantizedLinear(nn.Module):
    """y = x W^T + bias with a packed weight.

    Buffers, which state_dict() holds:
    - `qweight`, u8 [ceil(N/32), ceil(K/32), bytes of a unit], of NestedFP [ceil(N/32), 2,
      ceil(K/32), 1024]: the quantized values of 32 outputs and 32 inputs a unit;
    - `groups`, f32 [ceil(N/32), ceil(K/group_size), 2, 32]: scales and zeros; not of NestedFP;
    - W4Ax: `block_bits`, u8 [ceil(K/128)], `activation_clip`, f32 [1], and `input_perm`, i32 [K],
      where inputs are permuted: packed input k is x[input_perm[k]].

    Both dimensions of a weight are dimensions of the buffers, so that packing and slicing commute:
    slice() has the rules. The buffers stay in host memory, also where the module is on a GPU, whose
    kernels have a layout of their own. dtype conversions apply to the bias and, on a GPU, to
    activations.
    """
    qweight: torch.Tensor
    groups: torch.Tensor | None
    input_perm: torch.Tensor | None
    block_bits: torch.Tensor | None
    activation_clip: torch.Tensor | None
    _probe: torch.Tensor

    def __init__(self, in_features: int, out_features: int, scheme: str, group_size: int, *,
                 bias: bool = True, num_inputs: int | None = None, has_input_perm: bool = False,
                 device: torch.device | str | None = None,
                 dtype: torch.dtype | None = None) -> None:
        """Buffers without contents, for load_state_dict(); a GPU as `device` stands for the host.
        `num_inputs`: columns of x, where input_perm picks in_features of more."""
        super().__init__()
        self.in_features, self.out_features = in_features, out_features
        self.scheme, self.group_size = scheme, group_size
        self.num_inputs = in_features if num_inputs is None else num_inputs
        self.num_s8_inputs, self.s4_clip = 0, 1.0
        self.is_low = False
        self._device_weight: DeviceWeight | None = None
        self._device_id = 0
        is_meta = device is not None and torch.device(device).type == "meta"
        host = "meta" if is_meta else "cpu"
        packed_format = format_of(scheme, self._sizes(), has_input_perm, self.s4_clip)
        self.register_buffer("qweight", torch.empty(packed_format.qweight_shape(),
                                                    dtype=torch.uint8, device=host))
        self.register_buffer("groups", torch.empty(packed_format.groups_shape(), device=host)
                             if group_size else None)
        is_ax = scheme == "int4_ax"
        blocks = torch.empty(_ceil_div(in_features, AX_BLOCK), dtype=torch.uint8, device=host)
        self.register_buffer("block_bits", blocks if is_ax else None)
        self.register_buffer("activation_clip", torch.empty(1, device=host) if is_ax else None)
        self.register_buffer("input_perm", torch.empty(in_features, dtype=torch.int32, device=host)
                             if has_input_perm else None)
        # Where the module is, and the type of its activations.
        self.register_buffer("_probe", torch.empty(0, dtype=dtype, device=device), persistent=False)
        self.bias = nn.Parameter(torch.zeros(out_features, dtype=dtype, device=device),
                                 requires_grad=False) if bias else None

    @classmethod
    def from_quantized(cls, qweight: torch.Tensor, scales: torch.Tensor | None,
                       zeros: torch.Tensor | None, scheme: str, *,
                       bias: torch.Tensor | None = None, group_size: int | None = None,
                       input_perm: torch.Tensor | None = None, num_s8_inputs: int = 0,
                       s4_clip: float = 1.0, dtype: torch.dtype | None = None
                       ) -> "QuantizedLinear":
        """Packs quantized values.

        `qweight`: u8 [N, K], a value a byte, signed ones plus 128; float8: the bytes of e4m3;
        nestedfp: [2, N, K], upper and lower bytes. `scales` and `zeros`: [N, ceil(K/group_size)];
        w = scale * (qweight - zero), and scale * qweight - zero for int4_a8. `group_size`: inputs
        that share a scale; None: K. Raises InputError.
        """
        out_features, in_features = qweight.shape[-2:]
        if scheme == "nestedfp":
            group_size = 0
        module = cls(in_features, out_features, scheme,
                     in_features if group_size is None else group_size, bias=bias is not None,
                     has_input_perm=input_perm is not None, dtype=dtype)
        if input_perm is not None and module.input_perm is not None:
            module.input_perm.copy_(input_perm)
        module.set_blocks(num_s8_inputs, s4_clip)
        plain = [qweight.to(torch.uint8).contiguous()] + [
            None if tensor is None else tensor.to(torch.float32).contiguous()
            for tensor in (scales, zeros)]
        _native.pack_linear(torch.get_num_threads(), module.packed_format(),
                            [memory_of(tensor) for tensor in plain], module.packed_memory())
        if bias is not None and module.bias is not None:
            module.bias.data.copy_(bias)
        return module

    def to_quantized(self) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """qweight, scales and zeros as from_quantized() takes them; of NestedFP empty scales."""
        planes = (2,) if self.scheme == "nestedfp" else ()
        num_groups = _ceil_div(self.in_features, self.group_size) if self.group_size else 0
        qweight = torch.empty(*planes, self.out_features, self.in_features, dtype=torch.uint8)
        scales = torch.empty(self.out_features, num_groups)
        zeros = torch.empty(self.out_features, num_groups)
        _native.unpack_linear(self.packed_format(), self.packed_memory(),
                              [memory_of(qweight), memory_of(scales), memory_of(zeros)])
        return qweight, scales, zeros

    def dequantize(self) -> torch.Tensor:
        """The weight that is multiplied, f32 [out_features, num_inputs], in the precision that is
        set."""
        weight = torch.empty(self.out_features, self.num_inputs)
        _native.dequantize_linear(self.packed_format(), self.packed_memory(), self.is_low,
                                  memory_of(weight))
        return weight

    def slice(self, dim: int, start: int, length: int) -> "QuantizedLinear":
        """The module of outputs (dim 0) or inputs (dim 1) [start, start + length) of the weight.

        It begins and ends at multiples of 32, or with the weight; inputs at multiples of a group
        too (W4Ax: of a block), but where scales are per-channel. The results of slices of inputs
        must be added; the one that begins at 0 has the bias. With `input_perm` a slice of inputs
        takes all of x; otherwise x[..., start:start + length]. Raises InputError.
        """
        size = (self.out_features, self.in_features)[dim]
        is_grouped = dim == 1 and 0 < self.group_size < self.in_features
        step = PANEL_ROWS if dim == 0 else UNIT_INPUTS
        if is_grouped:
            step = math.lcm(step, self.group_size)
        end = start + length
        is_inside = 0 <= start < end <= size
        if not is_inside or start % step or (end % step and end != size):
            raise _native.InputError(f"slice: expected multiples of {step} of 0 to {size} in "
                                     f"dimension {dim}, got {start} to {end}.")
        has_perm = self.input_perm is not None
        features = [self.in_features, self.out_features]
        features[1 - dim] = length
        group_size = self.group_size if is_grouped or dim == 0 else min(self.group_size, length)
        part = QuantizedLinear(features[0], features[1], self.scheme, group_size,
                               bias=self.bias is not None and (dim == 0 or start == 0),
                               num_inputs=self.num_inputs if has_perm else None,
                               has_input_perm=has_perm, dtype=self._probe.dtype)
        self._copy_slice(part, dim, start, end)
        part.is_low = self.is_low
        return part._apply(lambda t: t.to(self._probe.device))

    def slice_(self, dim: int, start: int, length: int) -> None:
        """Becomes slice() of itself."""
        part = self.slice(dim, start, length)
        for name in ("in_features", "out_features", "num_inputs", "group_size", "num_s8_inputs",
                     "_buffers", "_parameters", "_device_weight", "_device_id"):
            self.__dict__[name] = part.__dict__[name]

    def _copy_slice(self, part: "QuantizedLinear", dim: int, start: int, end: int) -> None:
        step = PANEL_ROWS if dim == 0 else UNIT_INPUTS
        units = slice(start // step, _ceil_div(end, step))
        part.qweight.copy_(self.qweight[units] if dim == 0 else self.qweight[..., units, :])
        groups = slice(None)
        if dim == 1 and 0 < self.group_size < self.in_features:
            groups = slice(start // self.group_size, _ceil_div(end, self.group_size))
        if part.groups is not None and self.groups is not None:
            part.groups.copy_(self.groups[units] if dim == 0 else self.groups[:, groups])
        if part.input_perm is not None and self.input_perm is not None:
            part.input_perm.copy_(self.input_perm if dim == 0 else self.input_perm[start:end])
        begin = 0 if dim == 0 else start
        part.set_blocks(min(max(self.num_s8_inputs - begin, 0), part.in_features), self.s4_clip)
        if part.bias is not None and self.bias is not None:
            part.bias.data.copy_(self.bias[start:end] if dim == 0 else self.bias)

    def set_blocks(self, num_s8_inputs: int, s4_clip: float) -> None:
        """W4Ax: the packed inputs below `num_s8_inputs` have 8 bits."""
        if self.block_bits is None or self.activation_clip is None:
            return
        self.block_bits.fill_(4)[:_ceil_div(num_s8_inputs, AX_BLOCK)] = 8
        self.activation_clip.fill_(s4_clip)
        self.num_s8_inputs, self.s4_clip = num_s8_inputs, s4_clip

    def _sizes(self) -> list[int]:
        return [self.out_features, self.in_features, self.group_size, self.num_inputs,
                self.num_s8_inputs]

    def packed_format(self) -> _native.PackedFormat:
        """For the native module."""
        return format_of(self.scheme, self._sizes(), self.input_perm is not None, self.s4_clip)

    def packed_memory(self) -> list[tuple[int, int]]:
        """For the native module."""
        return [memory_of(self.qweight), memory_of(self.groups), memory_of(self.input_perm)]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x [..., num_inputs] -> [..., out_features] of x's type. Raises InputError."""
        if x.is_cuda:
            return torch.ops.halley.linear_cuda(x, self._device_id, self.num_inputs,
                                                self.out_features, self.is_low)
        return torch.ops.halley.linear(x, self.qweight, self.groups, self.input_perm, self.bias,
                                       self.scheme, self._sizes(), self.s4_clip, self.is_low)

    def extra_repr(self) -> str:
        return (f"in_features={self.num_inputs}, out_features={self.out_features}, "
                f"bias={self.bias is not None}, scheme={self.scheme}, "
                f"group_size={self.group_size}")

    def describe_device(self) -> str:
        """The storage format and the kernels of the GPU; empty where the module is on the CPU."""
        return "" if self._device_weight is None else self._device_weight.linear.describe()

    def _apply(self, fn: Callable[[torch.Tensor], torch.Tensor], recurse: bool = True
               ) -> "QuantizedLinear":
        packed = {name: self._buffers.pop(name) for name in _PACKED}
        before = (self._probe.device, self._probe.dtype)
        has_values = not self._probe.is_meta
        try:
            super()._apply(fn, recurse)
            device = self._probe.device
            for name, tensor in packed.items():
                if tensor is not None:
                    packed[name] = _apply_to_packed(fn, tensor, device)
        finally:
            self._buffers.update(packed)
        if has_values and (self._probe.device, self._probe.dtype) != before:
            self._load_device()
        return self

    def _load_device(self) -> None:
        """The weight as the GPU's kernels read it, where the module is on one."""
        self._device_weight, self._device_id = None, 0
        device = self._probe.device
        if device.type != "cuda" or self._probe.dtype not in _CUDA_DTYPES or self.qweight.is_meta:
            return
        bias = None if self.bias is None else self.bias.data.to("cpu", torch.float32).contiguous()
        index = torch.cuda.current_device() if device.index is None else device.index
        self._device_weight = DeviceWeight(_native.load_cuda_linear(
            index, self._probe.dtype == torch.bfloat16, self.packed_format(), self.packed_memory(),
            memory_of(bias)))
        self._device_id = self._device_weight.id

    def _load_from_state_dict(self, state_dict: Mapping[str, Any], prefix: str, *args: Any) -> None:
        perm = state_dict.get(prefix + "input_perm")
        if (perm is None) != (self.input_perm is None) and self.block_bits is not None:
            self.input_perm = None if perm is None else torch.empty(
                self.in_features, dtype=torch.int32, device=self.qweight.device)
        super()._load_from_state_dict(state_dict, prefix, *args)
        if self.block_bits is not None and self.activation_clip is not None \
                and not self.block_bits.is_meta:
            self.num_s8_inputs = min(int((self.block_bits == 8).sum()) * AX_BLOCK,
                                     self.in_features)
            self.s4_clip = float(self.activation_clip)
        for name in _PACKED:
            if self._buffers[name] is not None:
                self._buffers[name] = _on_host(self._buffers[name])
        if self._probe.is_meta and not self.qweight.is_meta:
            self._probe = torch.empty(0, dtype=self._probe.dtype)
        self._load_device()

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_device_weight": None, "_device_id": 0}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self._load_device()


def _on_host(tensor: torch.Tensor) -> torch.Tensor:
    """A packed tensor where kernels read it: load_state_dict(assign=True) takes tensors that lie on
    a GPU, or anywhere in a mapped file."""
    if tensor.is_meta:
        return tensor
    tensor = tensor.cpu().contiguous()
    return tensor if tensor.data_ptr() % _ALIGNMENT == 0 else tensor.clone()


def _apply_to_packed(fn: Callable[[torch.Tensor], torch.Tensor], tensor: torch.Tensor,
                     device: torch.device) -> torch.Tensor:
    """Moves a packed tensor where it belongs, and keeps its type."""
    if device.type == "cuda":
        return torch.empty_like(tensor, device="cpu") if tensor.is_meta else tensor
    # An integer type: fn may convert floating-point ones.
    moved = fn(tensor.view(torch.uint8))
    if moved.device.type not in ("cpu", "meta"):
        raise _native.InputError(f"halley.torch: expected a module on the CPU or on a GPU of CUDA, "
                                 f"got {moved.device}.")
    return moved.view(tensor.dtype)
