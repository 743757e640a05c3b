"""AWQ: the three layouts of AutoAWQ, all of 4 bits with zero points."""

import numpy as np

from .layer import Layer, groups_of, on_grid, round_to_grid
from .numbers import words_of
from .tensor_file import Tensor, tensor

COLUMN_OF_NIBBLE = np.array([0, 2, 4, 6, 1, 3, 5, 7])
NIBBLE_OF_COLUMN = [0, 4, 1, 5, 2, 6, 3, 7]


class AwqGemm(Layer):
    """qweight [K, N/8], qzeros [G, N/8], scales [G, N]."""

    kind = "awq_gemm"
    bits = 4

    def __init__(self, group=128):
        self.group = group

    @staticmethod
    def pack(rows):
        """[R, N] -> [R, N/8]."""
        shuffled = rows.reshape(rows.shape[0], -1, 8)[:, :, COLUMN_OF_NIBBLE]
        return np.ascontiguousarray(words_of(shuffled.reshape(rows.shape[0], -1).T, 4).T)

    @staticmethod
    def unpack(words, row, n):
        return (int(words[row, n // 8]) >> (4 * NIBBLE_OF_COLUMN[n % 8])) & 15

    def write(self, weights, rng):
        index = groups_of(weights.shape[1], self.group)
        q, scale, zero = round_to_grid(weights, 4, index, "F16", False)
        return {"qweight": Tensor("I32", self.pack(q.T)),
                "qzeros": Tensor("I32", self.pack(zero.T)),
                "scales": tensor("F16", scale.T)}, on_grid(q, scale, zero, index)

    def read(self, tensors, shape):
        N, K = shape
        words, zero_words = tensors["qweight"].array, tensors["qzeros"].array
        scales = tensors["scales"].values()
        group = K if self.group == -1 else self.group
        out = np.empty(shape, np.float32)
        for k in range(K):
            for n in range(N):
                steps = self.unpack(words, k, n) - self.unpack(zero_words, k // group, n)
                out[n, k] = scales[k // group, n] * np.float32(steps)
        return out


def zeros_width(K, group):
    """Words of zero points per feature in the gemv layout: a whole number of 1, 2 or 4."""
    words = -(-(K // group) // 8)
    step = 1 if group >= 128 else {64: 2, 32: 4}[group]
    return -(-words // step) * step


class AwqGemv(Layer):
    """qweight [N, K/8], qzeros [N, W], scales [N, 8 W]; groups that are only padding are zero."""

    kind = "awq_gemv"
    bits = 4

    def __init__(self, group=128):
        self.group = group

    def write(self, weights, rng):
        N, K = weights.shape
        index = groups_of(K, self.group)
        q, scale, zero = round_to_grid(weights, 4, index, "F16", False)
        padding = ((0, 0), (0, 8 * zeros_width(K, self.group) - scale.shape[1]))
        return {"qweight": Tensor("I32", np.ascontiguousarray(words_of(q.T, 4).T)),
                "qzeros": Tensor("I32", np.ascontiguousarray(
                    words_of(np.pad(zero, padding).T, 4).T)),
                "scales": tensor("F16", np.pad(scale, padding))}, on_grid(q, scale, zero, index)

    def read(self, tensors, shape):
        N, K = shape
        words, zero_words = tensors["qweight"].array, tensors["qzeros"].array
        scales = tensors["scales"].values()
        group = K if self.group == -1 else self.group
        out = np.empty(shape, np.float32)
        for k in range(K):
            g = k // group
            q = (words[:, k // 8].astype(np.int64) >> (4 * (k % 8))) & 15
            zero = (zero_words[:, g // 8].astype(np.int64) >> (4 * (g % 8))) & 15
            out[:, k] = scales[:, g] * (q - zero).astype(np.float32)
        return out


class AwqGemvFast(Layer):
    """qweight i16 [N/4, K], scales [8 W, N], qzeros [8 W, N] f16 = -(scale * zero), rounded."""

    kind = "awq_gemv_fast"
    bits = 4

    def __init__(self, group=128, zeros_name="qzeros"):
        self.group, self.zeros_name = group, zeros_name

    def write(self, weights, rng):
        N, K = weights.shape
        index = groups_of(K, self.group)
        q, scale, zero = round_to_grid(weights, 4, index, "F16", False)
        scaled = -(scale * zero.astype(np.float32)).astype(np.float16).astype(np.float32)
        # Each run of 32 inputs 8a + 2b + c becomes the order (b, c, a) over a, b in 0..3.
        mixed = q.reshape(N, K // 32, 4, 4, 2).transpose(0, 1, 3, 4, 2).reshape(N, K)
        blocks = mixed.reshape(N // 4, 4, K // 64, 64).transpose(0, 2, 1, 3)
        nibbles = blocks.reshape(N // 4, K, 4)
        words = (nibbles << (4 * np.arange(4))).sum(2).astype(np.uint16).view(np.int16)
        padding = ((0, 8 * zeros_width(K, self.group) - scale.shape[1]), (0, 0))
        exact = q * scale.astype(np.float64)[:, index] + scaled.astype(np.float64)[:, index]
        return {"qweight": Tensor("I16", words), "scales": tensor("F16", np.pad(scale.T, padding)),
                self.zeros_name: tensor("F16", np.pad(scaled.T, padding))}, exact.astype(np.float32)

    @staticmethod
    def position(n, k):
        """(row, column, nibble) of weight (n, k): the rows 4r..4r+3 are interleaved in
        runs of 16 of each 64 columns, and a column holds four inputs of a row that are 8 apart."""
        inside = k % 32
        position = 32 * (k // 32 % 2) + 8 * (inside % 8 // 2) + 4 * (inside % 2) + inside // 8
        return n // 4, 64 * (k // 64) + 16 * (n % 4) + position // 4, position % 4

    def read(self, tensors, shape):
        N, K = shape
        words = tensors["qweight"].array
        scales = tensors["scales"].values().astype(np.float64)
        scaled = tensors[self.zeros_name].values().astype(np.float64)
        group = K if self.group == -1 else self.group
        out = np.empty(shape, np.float32)
        for n in range(N):
            for k in range(K):
                row, column, nibble = self.position(n, k)
                q = (int(words[row, column]) >> (4 * nibble)) & 15
                out[n, k] = q * scales[k // group, n] + scaled[k // group, n]
        return out
