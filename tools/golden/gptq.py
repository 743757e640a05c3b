"""GPTQ: the files of AutoGPTQ and GPTQModel, and those repacked for Marlin.

testdata/quantized/README.md has the bit order and where it is from.
"""

import numpy as np

from .layer import Layer, groups_of, on_grid, round_to_grid, shuffled_groups
from .numbers import words_of
from .tensor_file import Tensor, tensor


class Gptq(Layer):
    """qweight [K*b/32, N], qzeros [G, N*b/32], scales [G, N], g_idx [K]."""

    kind = "gptq"

    def __init__(self, bits=4, group=128, symmetric=True, **options):
        self.bits, self.group, self.symmetric = bits, group, symmetric
        self.stores_zero_minus_one = options.pop("version", 1) == 1
        self.order = options.pop("order", "natural")  # "shared" and "own" are shuffled
        self.has_g_idx = options.pop("has_g_idx", True)
        self.zeros_at_zero = options.pop("zeros_at_zero", False)
        assert not options, options

    def index_of(self, K, rng):
        if self.order == "natural":
            return groups_of(K, self.group)
        if self.order == "shared":  # layers with the same input have the same g_idx
            rng = np.random.default_rng(K)
        return shuffled_groups(K, self.group, rng)

    def write(self, weights, rng):
        index = self.index_of(weights.shape[1], rng)
        if self.zeros_at_zero:  # every fourth feature is positive, so its zero point is 0
            weights = np.where((np.arange(weights.shape[0]) % 4 == 1)[:, None],
                               np.abs(weights), weights)
        q, scale, zero = round_to_grid(weights, self.bits, index, "F16", self.symmetric)
        mask = 2 ** self.bits - 1
        kept = (zero - 1) & mask if self.stores_zero_minus_one else zero
        tensors = {"qweight": Tensor("I32", words_of(q.T, self.bits)),
                   "qzeros": Tensor("I32", np.ascontiguousarray(words_of(kept, self.bits).T)),
                   "scales": tensor("F16", scale.T)}
        if self.has_g_idx:
            tensors["g_idx"] = Tensor("I32", index.astype(np.int32))
        return tensors, on_grid(q, scale, zero, index)

    def field(self, words, i):
        """Field i of a run of words [W, ...], as AutoGPTQ reads it: for 3 bits 32 fields lie in
        three words and fields 10 and 21 are split."""
        unsigned = words.astype(np.int64) & 0xFFFFFFFF
        if self.bits != 3:
            per_word = 32 // self.bits
            return (unsigned[i // per_word] >> (self.bits * (i % per_word))) & (2 ** self.bits - 1)
        first, j = 3 * (i // 32), i % 32
        if j == 10:
            return (unsigned[first] >> 30) | ((unsigned[first + 1] & 1) << 2)
        if j == 21:
            return (unsigned[first + 1] >> 31) | ((unsigned[first + 2] & 3) << 1)
        word, shift = (0, 3 * j) if j < 10 else (1, 3 * (j - 11) + 1) if j < 21 else (
            2, 3 * (j - 22) + 2)
        return (unsigned[first + word] >> shift) & 7

    def read(self, tensors, shape):
        N, K = shape
        words, zero_words = tensors["qweight"].array, tensors["qzeros"].array
        scales = tensors["scales"].values()
        mask = 2 ** self.bits - 1
        q = np.stack([self.field(words, k) for k in range(K)], 1)
        zero = np.stack([self.field(zero_words.T, n) for n in range(N)], 0)
        if self.stores_zero_minus_one:
            zero = (zero + 1) & mask
        group = K if self.group == -1 else self.group
        index = tensors["g_idx"].array if self.has_g_idx else np.arange(K) // group
        return scales.T[:, index] * (q - zero[:, index]).astype(np.float32)


def _marlin_position(lane, block, row):
    """The (k, n) in a 16 x 16 tile of row `row` (0..3) of a lane's column block."""
    k = 2 * (lane % 4) + (row % 2) + 8 * (row // 2)
    n = lane // 4 + 8 * block
    return k, n


class Marlin(Layer):
    """4 bits, symmetric, in tiles of 16 inputs x 64 features: B [K/16, N*2], s [G, N]."""

    kind = "gptq_marlin"
    bits = 4

    def __init__(self, group, names=("B", "s")):
        self.group, self.names = group, names

    def whole(self, K):
        return self.group in (-1, K)

    def write(self, weights, rng):
        N, K = weights.shape
        index = groups_of(K, self.group)
        q, scale, zero = round_to_grid(weights, 4, index, "F16", True)
        tiles = q.T.reshape(K // 16, 16, N // 64, 4, 16)  # k tile, k, n tile, 16-column part, n
        words = np.zeros((K // 16, N // 64, 32, 4), np.int64)
        for lane in range(32):
            # Nibbles 0..7 of a word: rows 0 and 2 of both column blocks, then rows 1 and 3.
            for nibble, (block, row) in enumerate(
                    [(0, 0), (0, 2), (1, 0), (1, 2), (0, 1), (0, 3), (1, 1), (1, 3)]):
                k, n = _marlin_position(lane, block, row)
                words[:, :, lane, :] |= tiles[:, k, :, :, n] << (4 * nibble)
        packed = words.reshape(K // 16, N * 2).astype(np.uint32).view(np.int32)
        rows = scale.T
        if self.whole(K):  # of 32 features, the order 0 1 8 9 16 17 24 25 2 3 10 11 ...
            permuted = rows.reshape(-1, N // 32, 4, 4, 2).transpose(0, 1, 3, 2, 4)
        else:  # of 64 features, the order 0 8 16 24 32 40 48 56 1 9 ...
            permuted = rows.reshape(-1, N // 64, 8, 8).transpose(0, 1, 3, 2)
        return {self.names[0]: Tensor("I32", packed),
                self.names[1]: tensor("F16", permuted.reshape(-1, N))}, on_grid(
                    q, scale, zero, index)

    @staticmethod
    def permutation():
        """Entry i: which of the 1024 values of a 16 x 64 tile (16 x 16 parts one after another,
        each with n fastest) stands at nibble i % 8 of word i // 8."""
        order = []
        for lane in range(32):
            column = lane // 4
            eight = [16 * row + column + 8 * block for block in (0, 1)
                     for row in (2 * (lane % 4), 2 * (lane % 4) + 1,
                                 2 * (lane % 4) + 8, 2 * (lane % 4) + 9)]
            for part in range(4):
                order += [eight[j] + 256 * part for j in (0, 2, 4, 6, 1, 3, 5, 7)]
        return np.array(order)

    def read(self, tensors, shape):
        N, K = shape
        words = tensors[self.names[0]].array.astype(np.int64) & 0xFFFFFFFF
        nibbles = (words[:, :, None] >> (4 * np.arange(8))) & 15
        values = np.empty((K // 16, N // 64, 1024), np.int64)
        values[:, :, self.permutation()] = nibbles.reshape(K // 16, N // 64, 1024)
        q = values.reshape(K // 16, N // 64, 4, 16, 16).transpose(0, 3, 1, 2, 4).reshape(K, N)
        stored = tensors[self.names[1]].values()
        if self.whole(K):
            order = np.array([32 * (n // 32) + 2 * ((n % 32) // 8) + o for n in range(0, N, 8)
                              for o in (0, 1, 8, 9, 16, 17, 24, 25)])
        else:
            order = np.array([64 * (n // 64) + (n % 64) // 8 + 8 * (n % 8) for n in range(N)])
        scales = np.empty_like(stored)
        scales[:, order] = stored
        group = K if self.group == -1 else self.group
        return (scales[np.arange(K) // group] * (q - 8).astype(np.float32)).T
