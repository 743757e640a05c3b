"""QoQ: the W4A8 files of QServe (omniserve), per-channel and per-group (128)."""

import numpy as np

from .layer import Layer
from .tensor_file import Tensor, tensor


def pack_tiles(q):
    """q [N, K] in 0..15 -> i8 [N, K/2]: tiles of 32 x 32, rows r and r + 16 in one byte."""
    N, K = q.shape
    tiles = q.reshape(N // 32, 2, 2, 8, K // 32, 2, 4, 4)  # half, eight, row; half, four, column
    tiles = tiles.transpose(0, 4, 3, 6, 5, 2, 7, 1)
    packed = tiles[..., 0] | (tiles[..., 1] << 4)
    return packed.reshape(N, K // 2).astype(np.uint8).view(np.int8)


def nibble_of(words, n, k, K):
    """Weight (n, k) out of the packed bytes."""
    row, column = n % 32, k % 32
    inside = ((row % 8 * 4 + column // 4 % 4) * 2 + column // 16) * 2 + row // 8 % 2
    tile = n // 32 * (K // 32) + k // 32
    byte = int(words[tile * 512 + inside * 4 + column % 4]) & 0xFF
    return (byte >> (4 * (row // 16))) & 15


def spread_features(rows):
    """[G, N] with each run of 32 features in the order 0 8 16 24 1 9 ..."""
    G, N = rows.shape
    return rows.reshape(G, N // 32, 4, 8).transpose(0, 1, 3, 2).reshape(G, N)


class Qoq(Layer):
    """qweight i8 [N, K/2] and s1_scales [N]; per channel s1_szeros [N], which is scale * zero, in
    groups s2_scales and s2_zeros i8 [K/128, N], the latter -(zero * s2_scale)."""

    kind = "qoq"
    bits = 4
    activation = "s8_token"

    def __init__(self, group):
        self.group = group

    def write_channel(self, weights):
        low, high = np.minimum(weights.min(1), 0), np.maximum(weights.max(1), 0)
        scale = ((high - low) / 15).astype(np.float16).astype(np.float32)
        zero = np.clip(np.rint(-low / scale), 0, 15)
        q = np.clip(np.rint(weights / scale[:, None]) + zero[:, None], 0, 15).astype(np.int64)
        scaled = (scale * zero.astype(np.float32)).astype(np.float16)
        exact = q * scale.astype(np.float64)[:, None] - scaled.astype(np.float64)[:, None]
        return {"qweight": Tensor("I8", pack_tiles(q)), "s1_scales": tensor("F16", scale),
                "s1_szeros": Tensor("F16", scaled)}, exact.astype(np.float32)

    def write_groups(self, weights):
        N, K = weights.shape
        outer = (np.abs(weights).max(1) / 119).astype(np.float16).astype(np.float32)
        eight = np.clip(np.rint(weights / outer[:, None]), -119, 119).astype(np.int64)
        runs = eight.reshape(N, K // self.group, self.group)
        low, high = np.minimum(runs.min(2), 0), np.maximum(runs.max(2), 0)
        inner = np.maximum(np.rint((high - low) / 15), 1).astype(np.int64)
        zero = np.clip(np.rint(-low / inner), 0, 15).astype(np.int64)
        q = np.clip(np.rint(runs / inner[:, :, None]) + zero[:, :, None], 0, 15).astype(np.int64)
        back = ((q - zero[:, :, None]) * inner[:, :, None]).reshape(N, K)
        assert back.min() >= -128 and back.max() <= 127 and (zero * inner).max() <= 128
        return {"qweight": Tensor("I8", pack_tiles(q.reshape(N, K))),
                "s1_scales": tensor("F16", outer),
                "s2_scales": Tensor("I8", spread_features(inner.T).astype(np.int8)),
                "s2_zeros": Tensor("I8", spread_features(-(zero * inner).T).astype(np.int8))}, \
            outer[:, None] * back.astype(np.float32)

    def write(self, weights, rng):
        return self.write_channel(weights) if self.group == -1 else self.write_groups(weights)

    def read(self, tensors, shape):
        N, K = shape
        words = tensors["qweight"].array.reshape(-1)
        scale = tensors["s1_scales"].values()
        out = np.empty(shape, np.float32)
        for n in range(N):
            index = n // 32 * 32 + n % 8 * 4 + n % 32 // 8  # of feature n among s2_scales
            for k in range(K):
                q = nibble_of(words, n, k, K)
                if self.group == -1:
                    szero = float(tensors["s1_szeros"].array[n])
                    out[n, k] = np.float32(q * float(scale[n]) - szero)
                else:
                    g = k // self.group
                    eight = q * int(tensors["s2_scales"].array[g, index]) + \
                        int(tensors["s2_zeros"].array[g, index])
                    out[n, k] = scale[n] * np.float32(eight)
        return out
