"""Tensor parallelism: styles for torch.distributed.tensor.parallel.parallelize_module()."""
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor.parallel import ParallelStyle

from halley import _native
from halley.torch.linear import QuantizedLinear


def _checked(module: nn.Module, mesh: DeviceMesh) -> QuantizedLinear:
    if not isinstance(module, QuantizedLinear):
        raise _native.InputError(f"parallelize_module: expected a QuantizedLinear, got "
                                 f"{type(module).__name__}. Call quantize_() first.")
    if mesh.ndim != 1:
        raise _native.InputError(f"parallelize_module: expected a mesh of 1 dimension, got "
                                 f"{mesh.ndim}.")
    return module


def _slice_in_place(module: QuantizedLinear, dim: int, mesh: DeviceMesh) -> None:
    size = (module.out_features, module.in_features)[dim]
    num_ranks, rank = mesh.size(), mesh.get_local_rank()
    if size % num_ranks:
        raise _native.InputError(f"parallelize_module: expected a multiple of {num_ranks} ranks in "
                                 f"dimension {dim}, got {size}.")
    length = size // num_ranks
    module.slice_(dim, rank * length, length)


class ColwiseParallel(ParallelStyle):
    """Each rank has some of the outputs: x is the same on all ranks, y the rank's own columns."""

    def _apply(self, module: nn.Module, device_mesh: DeviceMesh) -> nn.Module:
        _slice_in_place(_checked(module, device_mesh), 0, device_mesh)
        return module


class RowwiseParallel(ParallelStyle):
    """Each rank has some of the inputs: x has the rank's own columns (all of them where the weight
    has `input_perm`), and y is added up over the ranks."""

    def _apply(self, module: nn.Module, device_mesh: DeviceMesh) -> nn.Module:
        _slice_in_place(_checked(module, device_mesh), 1, device_mesh)
        group = device_mesh.get_group()

        def add_ranks(_: nn.Module, __: Any, y: torch.Tensor) -> torch.Tensor:
            dist.all_reduce(y, group=group)
            return y

        module.register_forward_hook(add_ranks)
        return module
