"""FP4: E2M1 weights, two a byte, in groups: of 16 with E4M3 scales and one f32 scale (NVFP4, as
compressed-tensors or ModelOpt stores it), or of 32 with E8M0 scales (MXFP4)."""

import numpy as np

from .layer import Layer
from .numbers import e4m3_bits, e4m3_values
from .tensor_file import Tensor, tensor

E2M1_VALUES = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6], np.float32)
E2M1_MAX, E4M3_MAX = 6.0, 448.0


def e2m1_codes(values):
    """f64 -> the code of the nearest E2M1 number, ties to even, saturating; the sign of a zero is
    kept in the code."""
    magnitude = np.minimum(np.abs(values), E2M1_MAX)
    codes = np.zeros(values.shape, np.int64)
    for code in range(1, 8):
        middle = (float(E2M1_VALUES[code - 1]) + float(E2M1_VALUES[code])) / 2
        codes = np.where(magnitude >= middle if code % 2 == 0 else magnitude > middle, code, codes)
    return codes | (np.signbit(values).astype(np.int64) << 3)


def e2m1_value(code):
    """A zero has no sign."""
    magnitude = E2M1_VALUES[code & 7]
    return -magnitude if code & 8 and magnitude else magnitude


class Float4(Layer):
    """`store`: "ct", "modelopt" (NVFP4) or "mx" (compressed-tensors' MXFP4)."""

    kind = "fp4"
    bits = 4

    def __init__(self, store):
        self.store = store
        self.group = 32 if store == "mx" else 16

    def names(self):
        """The suffixes of the packed weight and of the scale of all."""
        if self.store == "modelopt":
            return "weight", "weight_scale_2"
        return "weight_packed", "weight_global_scale"

    def write(self, weights, rng):
        N, K = weights.shape
        packed_name, global_name = self.names()
        grouped = weights.astype(np.float64).reshape(N, K // self.group, self.group)
        largest = np.abs(grouped).max(2)
        if self.store == "mx":
            exponents = np.floor(np.log2(largest)).astype(np.int64) - 2
            scales = (2.0 ** exponents).astype(np.float32)
            tensors = {"weight_scale": Tensor("U8", (exponents + 127).astype(np.uint8))}
        else:
            whole = np.float32(largest.max() / (E2M1_MAX * E4M3_MAX))
            if self.store == "ct":
                stored_global = np.float32(1) / whole
                tensors = {global_name: tensor("F32", np.array([stored_global])),
                           "input_global_scale": tensor("F32", np.array([37.5]))}
            else:
                tensors = {global_name: tensor("F32", np.float32(whole).reshape(())),
                           "input_scale": tensor("F32", np.float32(0.0125).reshape(()))}
            codes = e4m3_bits(largest / E2M1_MAX / float(whole))
            tensors["weight_scale"] = Tensor("F8_E4M3", codes)
            scales = (e4m3_values(codes) / stored_global if self.store == "ct"
                      else e4m3_values(codes) * whole)
        values = np.divide(grouped, scales[:, :, None].astype(np.float64),
                           where=scales[:, :, None] != 0, out=np.zeros_like(grouped))
        codes = e2m1_codes(values).reshape(N, K)
        tensors[packed_name] = Tensor("U8", (codes[:, ::2] | codes[:, 1::2] << 4).astype(np.uint8))
        signed = np.where(codes & 8, -1, 1) * E2M1_VALUES[codes & 7]
        signed = np.where(signed == 0, 0, signed).astype(np.float32)
        return tensors, signed * np.repeat(scales, self.group, 1)

    def read(self, tensors, shape):
        packed_name, global_name = self.names()
        packed, scale = tensors[packed_name].array, tensors["weight_scale"]
        whole = np.float32(1)
        if self.store != "mx":
            whole = np.float32(tensors[global_name].values().reshape(-1)[0])
        out = np.empty(shape, np.float32)
        for n in range(shape[0]):
            for k in range(shape[1]):
                byte = int(packed[n, k // 2])
                g = k // self.group
                if self.store == "mx":
                    factor = np.float32(2.0 ** (int(scale.array[n, g]) - 127))
                else:
                    value = e4m3_values(scale.array[n, g])
                    factor = value / whole if self.store == "ct" else value * whole
                out[n, k] = e2m1_value(byte >> 4 if k % 2 else byte & 15) * factor
        return out
