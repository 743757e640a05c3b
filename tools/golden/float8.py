"""FP8: E4M3 weights with per-tensor, per-channel or per-block (128 x 128) scales."""

import numpy as np

from .layer import Layer
from .numbers import E4M3_MAX, e4m3_bits, e4m3_values, rounded_to
from .tensor_file import Tensor, tensor

BLOCK = 128


class Float8(Layer):
    """`scale`: "tensor" with the shape `scale_shape`, () or (1,); "channel"; or "block"."""

    kind = "fp8"
    bits = 8

    def __init__(self, scale="tensor", activation="e4m3_token", **options):
        self.scale, self.activation = scale, activation
        self.scale_shape = options.pop("scale_shape", ())
        self.scale_dtype = options.pop("scale_dtype", "F32")
        self.input_scale_dtype = options.pop("input_scale_dtype", "F32")
        self.static = activation.endswith("_static")
        self.kind = options.pop("kind", "fp8")
        assert not options, options

    def facts(self):
        return {"format": self.kind, "bits": 8, "group": -1, "scale": self.scale}

    def name(self):
        return "weight_scale_inv" if self.scale == "block" else "weight_scale"

    def write(self, weights, rng):
        N, K = weights.shape
        if self.scale == "tensor":
            scale = rounded_to(self.scale_dtype, np.abs(weights).max() / E4M3_MAX)
            stored, spread = np.reshape(scale, self.scale_shape), scale
        elif self.scale == "channel":
            stored = spread = rounded_to(self.scale_dtype,
                                         np.abs(weights).max(1, keepdims=True) / E4M3_MAX)
        else:
            stored = np.array([[np.abs(weights[n:n + BLOCK, k:k + BLOCK]).max() / E4M3_MAX
                                for k in range(0, K, BLOCK)] for n in range(0, N, BLOCK)])
            stored = rounded_to(self.scale_dtype, stored)
            spread = np.repeat(np.repeat(stored, BLOCK, 0)[:N], BLOCK, 1)[:, :K]
        codes = e4m3_bits(weights.astype(np.float64) / spread)
        tensors = {"weight": Tensor("F8_E4M3", codes),
                   self.name(): tensor(self.scale_dtype, stored)}
        return tensors, e4m3_values(codes) * np.asarray(spread, np.float32)

    def read(self, tensors, shape):
        weight, scale = tensors["weight"].values(), tensors[self.name()].values()
        out = np.empty(shape, np.float32)
        for n in range(shape[0]):
            for k in range(shape[1]):
                factor = scale.reshape(-1)[0]
                if self.scale == "channel":
                    factor = scale.reshape(-1)[n]
                elif self.scale == "block":
                    factor = scale[n // BLOCK, k // BLOCK]
                out[n, k] = weight[n, k] * factor
        return out
