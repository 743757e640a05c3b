"""FMPQ as docs/formats/fmpq.md has it: 4-bit weights, inputs in blocks of 8 and of 4 bits."""

import numpy as np

from .layer import Layer, groups_of, on_grid, round_to_grid
from .tensor_file import Tensor, tensor

BLOCK = 128


class Fmpq(Layer):
    """qweight u8 [N, ceil(K/2)], scales [N, blocks], block_bits u8, activation_clip; `input_order`
    where the inputs are permuted (`ordered`). The first `num_s8` blocks have 8 bits."""

    kind = "fmpq"
    bits = 4
    group = BLOCK
    activation = "s4s8_block128"

    def __init__(self, num_s8, clip=0.9, ordered=False):
        self.num_s8, self.clip, self.ordered = num_s8, clip, ordered

    def write(self, weights, rng):
        N, K = weights.shape
        order = rng.permutation(K) if self.ordered else np.arange(K)
        index = groups_of(K, BLOCK)
        q, scale, zero = round_to_grid(weights[:, order], 4, index, "F16", True)
        meant = np.empty_like(weights)
        meant[:, order] = on_grid(q, scale, zero, index)
        pairs = np.pad(q, ((0, 0), (0, K % 2))).reshape(N, -1, 2)
        bits = np.where(np.arange(scale.shape[1]) < self.num_s8, 8, 4)
        tensors = {"qweight": Tensor("U8", (pairs @ [1, 16]).astype(np.uint8)),
                   "scales": tensor("F16", scale), "block_bits": tensor("U8", bits),
                   "activation_clip": tensor("F32", [self.clip])}
        if self.ordered:
            tensors["input_order"] = tensor("I32", order)
        return tensors, meant

    def read(self, tensors, shape):
        out = np.empty(shape, np.float32)
        scales = tensors["scales"].values()
        for n in range(shape[0]):
            for k in range(shape[1]):
                code = int(tensors["qweight"].array[n, k // 2]) >> (4 if k % 2 else 0) & 15
                channel = int(tensors["input_order"].array[k]) if self.ordered else k
                out[n, channel] = scales[n, k // BLOCK] * np.float32(code - 8)
        return out


def blocks_of(tensors, name, K):
    """(inputs, bits, clip) of each block of a layer's inputs."""
    order = tensors.get(name + ".input_order")
    order = np.arange(K) if order is None else order.array
    clip = np.float64(tensors[name + ".activation_clip"].array[0])
    return [(order[i * BLOCK:(i + 1) * BLOCK], int(bits), clip)
            for i, bits in enumerate(tensors[name + ".block_bits"].array)]


FMPQ_CONFIG = {"quant_method": "fmpq", "version": 1, "bits": 4, "group_size": BLOCK, "kv_bits": 16,
               "modules_to_not_convert": ["lm_head"], "s4_share": 0.5}
