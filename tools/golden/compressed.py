"""compressed-tensors: packed integers and 8-bit integers (its floats are float8.py's)."""

import numpy as np

from .layer import Layer, groups_of, on_grid, round_to_grid, shuffled_groups
from .numbers import padded_words_of, rounded_to, words_of
from .tensor_file import Tensor, tensor


class Packed(Layer):
    """pack-quantized: weight_packed [N, words], weight_scale [N, G], weight_shape, and
    weight_zero_point [words, G] and weight_g_idx [K] where they are needed."""

    kind = "ct_packed"

    def __init__(self, bits=4, group=128, symmetric=True, **options):
        self.bits, self.group, self.symmetric = bits, group, symmetric
        self.scale_dtype = options.pop("scale_dtype", "F16")
        self.scattered = options.pop("scattered", False)
        self.padded = options.pop("padded", False)
        assert not options, options

    def pack(self, values):
        return (padded_words_of if self.padded else words_of)(values, self.bits)

    def write(self, weights, rng):
        N, K = weights.shape
        index = shuffled_groups(K, self.group, np.random.default_rng(K)) if self.scattered else \
            groups_of(K, self.group)
        q, scale, zero = round_to_grid(weights, self.bits, index, self.scale_dtype, self.symmetric)
        tensors = {"weight_packed": Tensor("I32", np.ascontiguousarray(self.pack(q.T).T)),
                   "weight_scale": tensor(self.scale_dtype, scale),
                   "weight_shape": Tensor("I64", np.array([N, K]))}
        if not self.symmetric:
            tensors["weight_zero_point"] = Tensor("I32", self.pack(zero))
        if self.scattered:
            tensors["weight_g_idx"] = Tensor("I32", index.astype(np.int32))
        return tensors, on_grid(q, scale, zero, index)

    def code(self, words, i):
        """Value i of runs of words [W, ...], without the offset that makes it unsigned."""
        unsigned = words.astype(np.int64) & 0xFFFFFFFF
        if self.padded:
            per_word = 32 // self.bits
            raw = unsigned[i // per_word] >> (self.bits * (i % per_word))
        else:
            word, shift = divmod(i * self.bits, 32)
            raw = unsigned[word] >> shift
            if shift + self.bits > 32:
                raw = raw | (unsigned[word + 1] << (32 - shift))
        return (raw & (2 ** self.bits - 1)) - 2 ** (self.bits - 1)

    def read(self, tensors, shape):
        N, K = (int(v) for v in tensors["weight_shape"].array)
        assert (N, K) == tuple(shape)
        scale = tensors["weight_scale"].values()
        q = np.stack([self.code(tensors["weight_packed"].array.T, k) for k in range(K)], 1)
        zero = np.zeros(scale.shape, np.int64)
        if not self.symmetric:
            zero = np.stack([self.code(tensors["weight_zero_point"].array, n) for n in range(N)])
        index = np.arange(K) // (K if self.group == -1 else self.group)
        if self.scattered:
            index = tensors["weight_g_idx"].array
        out = np.empty(shape, np.float32)
        for k in range(K):
            out[:, k] = scale[:, index[k]] * (q[:, k] - zero[:, index[k]]).astype(np.float32)
        return out


class Int8(Layer):
    """int-quantized: weight i8 [N, K], weight_scale [N, 1] or of one number."""

    kind = "ct_int8"
    bits = 8

    def __init__(self, activation, scale="channel", scale_dtype="F32"):
        self.activation, self.scale, self.scale_dtype = activation, scale, scale_dtype
        self.static = activation.endswith("_static")
        self.input_scale_dtype = scale_dtype

    def facts(self):
        return {"format": self.kind, "bits": 8, "group": -1, "scale": self.scale}

    def write(self, weights, rng):
        largest = np.abs(weights).max(1, keepdims=True) if self.scale == "channel" else \
            np.abs(weights).max().reshape(1)
        scale = rounded_to(self.scale_dtype, 2 * largest / 255)
        q = np.clip(np.rint(weights / scale), -128, 127).astype(np.int8)
        return {"weight": Tensor("I8", q), "weight_scale": tensor(self.scale_dtype, scale)}, \
            scale * q.astype(np.float32)

    def read(self, tensors, shape):
        scale = tensors["weight_scale"].values().reshape(-1)
        q = tensors["weight"].array
        rows = [scale[n if self.scale == "channel" else 0] * q[n].astype(np.float32)
                for n in range(shape[0])]
        return np.stack(rows)
