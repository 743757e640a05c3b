"""What every format of a linear layer offers, and rounding to nearest on a grid of integers."""

import numpy as np

from .numbers import rounded_to
from .tensor_file import tensor

ACTIVATIONS = ("none", "s8_token", "s8_tensor_static", "e4m3_token", "e4m3_tensor_static",
               "e4m3_token_group128", "s4s8_block128")


class Layer:
    """One format with its parameters. write() quantizes f32 W [N, K] and returns (tensors by
    suffix, the f32 weights that they mean); read() gets the tensors back from the file."""

    kind = "none"
    bits = 16
    group = -1           # inputs that share a scale; -1: all of them
    activation = "none"
    static = False       # an input_scale is stored, which set_input_scale() of a model fills

    def write(self, weights, rng):
        raise NotImplementedError

    def read(self, tensors, shape):
        raise NotImplementedError

    def facts(self):
        return {"format": self.kind, "bits": self.bits, "group": self.group}


class Dense(Layer):
    """Unquantized."""

    def __init__(self, dtype="F16"):
        self.dtype = dtype
        self.kind = {"F16": "f16", "BF16": "bf16", "F32": "f32"}[dtype]
        self.bits = 32 if dtype == "F32" else 16

    def write(self, weights, rng):
        return {"weight": tensor(self.dtype, weights)}, rounded_to(self.dtype, weights)

    def read(self, tensors, shape):
        return tensors["weight"].values().reshape(shape)


def groups_of(K, group):
    """g_idx of consecutive groups: the group of each input."""
    return np.arange(K) // (K if group == -1 else group)


def shuffled_groups(K, group, rng):
    """g_idx of act-order: the group of each input, groups of equal size, scattered."""
    index = np.empty(K, np.int64)
    index[rng.permutation(K)] = np.arange(K) // group
    return index


def round_to_grid(weights, bits, index, scale_dtype, symmetric):
    """(q [N, K] in 0..2^bits-1, scale [N, groups] f32, zero [N, groups]) with
    weights ~ scale[n][index[k]] * (q - zero[n][index[k]])."""
    top = 2 ** bits - 1
    num_groups = int(index.max()) + 1
    low = np.stack([weights[:, index == g].min(1) for g in range(num_groups)], 1)
    high = np.stack([weights[:, index == g].max(1) for g in range(num_groups)], 1)
    if symmetric:
        scale = rounded_to(scale_dtype, 2 * np.maximum(-low, high) / top)
        zero = np.full(scale.shape, 2 ** (bits - 1))
    else:
        low, high = np.minimum(low, 0), np.maximum(high, 0)
        scale = rounded_to(scale_dtype, (high - low) / top)
        zero = np.clip(np.rint(-low / scale), 0, top).astype(np.int64)
    q = np.clip(np.rint(weights / scale[:, index]) + zero[:, index], 0, top).astype(np.int64)
    return q, scale, zero


def on_grid(q, scale, zero, index):
    """scale * (q - zero) in f32."""
    return scale[:, index] * (q - zero[:, index]).astype(np.float32)
