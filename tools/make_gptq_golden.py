#!/usr/bin/env python3
"""Makes testdata/quantizers/gptq: small layers quantized by GPTQ, column by column.

    python tools/make_gptq_golden.py [--seed 1] [--output DIRECTORY]

The algorithm is that of Frantar et al. 2022 (arXiv 2210.17323) without its blocks: every column's
error goes to all later columns at once, in f64. Scales are rounded to f16, as files hold them,
before anything is rounded to the grid. A channel that was always zero gets a diagonal of 1 and
weights of 0; the damping is 1 % of the mean diagonal.

Tensors: `gram` F32 [K, K]; of each case `settings` I32 (bits, group size, symmetric, act-order,
static groups), `w` F16 [N, K], `codes` U8 [N, K], `scales` F16 and `zeros` U8 [N, groups], `groups`
I32 [K], the group of each input. Weights are drawn again where rounding errors of f32 could decide
a code. Needs numpy only.
"""

import argparse
import pathlib

import numpy as np

from golden.tensor_file import tensor, write_tensors

ROWS, CHANNELS, TOKENS = 48, 192, 500
DEAD_CHANNEL = 77
# bits, group size (-1: per-channel), symmetric, act-order, static groups
CASES = [
    (4, 32, False, False, False),
    (4, 64, True, False, False),
    (4, -1, False, False, False),
    (4, 32, True, True, False),
    (4, 64, False, True, True),
    (4, 32, False, False, True),
    (3, 64, False, True, False),
    (3, 32, True, True, True),
    (8, -1, True, True, False),
    (8, 64, False, False, False),
]


class Margin:
    """How near the closest decision was to falling the other way, in units of what f32 may err."""

    def __init__(self):
        self.least = np.inf

    def see_rounding(self, values, error):
        """Values that are rounded to integers and may be wrong by `error`."""
        distance = np.abs(np.abs(values - np.floor(values)) - 0.5)
        self.least = min(self.least, float(np.min(distance)) / error)

    def see_f16(self, values):
        """Values that are rounded to f16 and may be wrong by a 2^-21 part."""
        _, exponent = np.frexp(values)
        self.see_rounding(np.ldexp(values, 11 - exponent), 2.0 ** -10)


def fit_grids(weights, bits, is_symmetric, margin):
    """The grid of each row of `weights`: scales representable in f16, and zero points."""
    top = 2 ** bits - 1
    low = np.minimum(weights.min(axis=1), 0)
    high = np.maximum(weights.max(axis=1), 0)
    if is_symmetric:
        high = np.maximum(-low, high)
        low = -high
    is_empty = low == high
    low = np.where(is_empty, -1, low)
    high = np.where(is_empty, 1, high)
    margin.see_f16((high - low) / top)
    scales = ((high - low) / top).astype(np.float16).astype(np.float64)
    if is_symmetric:
        return scales, np.full(len(scales), 2.0 ** (bits - 1))
    margin.see_rounding(-low / scales, top * 2.0 ** -21)
    return scales, np.clip(np.rint(-low / scales), 0, top)


def gptq(w, gram, settings, margin):
    """qweight [N, K], scales and zero points [N, groups], and g_idx."""
    bits, group_size, is_symmetric, has_act_order, has_static_groups = settings
    num_rows, num_channels = w.shape
    group_size = num_channels if group_size < 0 else group_size
    top = 2 ** bits - 1
    w, hessian = w.astype(np.float64), gram.astype(np.float64)

    dead = np.diag(hessian) == 0
    hessian[dead, dead] = 1
    w[:, dead] = 0

    num_groups = -(-num_channels // group_size)
    scales = np.zeros((num_rows, num_groups))
    zeros = np.zeros((num_rows, num_groups))
    if has_static_groups:
        for group in range(num_groups):
            weights = w[:, group * group_size:(group + 1) * group_size]
            scales[:, group], zeros[:, group] = fit_grids(weights, bits, is_symmetric, margin)

    order = np.arange(num_channels)
    if has_act_order:
        order = np.argsort(-np.diag(hessian), kind="stable")
    w, hessian = w[:, order], hessian[np.ix_(order, order)]

    hessian += np.eye(num_channels) * 0.01 * np.mean(np.diag(hessian))
    upper = np.linalg.cholesky(np.linalg.inv(hessian)).T

    qweight = np.zeros((num_rows, num_channels), np.uint8)
    groups = np.zeros(num_channels, np.int32)
    for i in range(num_channels):
        group = (order[i] if has_static_groups else i) // group_size
        if not has_static_groups and i % group_size == 0:
            weights = w[:, i:i + group_size]
            scales[:, group], zeros[:, group] = fit_grids(weights, bits, is_symmetric, margin)
        steps = w[:, i] / scales[:, group]
        margin.see_rounding(steps, top * 2.0 ** -21)
        code = np.clip(np.rint(steps) + zeros[:, group], 0, top)
        value = scales[:, group] * (code - zeros[:, group])
        error = (w[:, i] - value) / upper[i, i]
        w[:, i:] -= np.outer(error, upper[i, i:])
        qweight[:, order[i]] = code
        groups[order[i]] = group
    return qweight, scales, zeros, groups


def random_gram(rng):
    """The Gram matrix of tokens whose channels are correlated and of different size."""
    shared = rng.normal(size=(TOKENS, 8)) @ rng.normal(size=(8, CHANNELS))
    x = rng.normal(size=(TOKENS, CHANNELS)) + 0.5 * shared
    x *= np.exp(0.5 * rng.normal(size=CHANNELS))
    x[:, DEAD_CHANNEL] = 0
    return (x.T @ x).astype(np.float32)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--output", default="testdata/quantizers/gptq")
    args = parser.parse_args()
    rng = np.random.default_rng(args.seed)
    gram = random_gram(rng)
    tensors = {"gram": tensor("F32", gram)}
    for index, settings in enumerate(CASES):
        tries = 0
        while True:
            tries += 1
            w = (0.05 * rng.standard_t(5, size=(ROWS, CHANNELS))).astype(np.float16)
            margin = Margin()
            qweight, scales, zeros, groups = gptq(w, gram, settings, margin)
            if margin.least > 1:
                break
        print(f"case {index}: {settings}, draw {tries}, margin {margin.least:.2f}", flush=True)
        tensors.update({
            f"{index}.settings": tensor("I32", settings),
            f"{index}.w": tensor("F16", w),
            f"{index}.codes": tensor("U8", qweight),
            f"{index}.scales": tensor("F16", scales),
            f"{index}.zeros": tensor("U8", zeros),
            f"{index}.groups": tensor("I32", groups),
        })
    path = pathlib.Path(args.output) / "model.safetensors"
    path.parent.mkdir(parents=True, exist_ok=True)
    write_tensors(path, tensors)
    print(f"{path}: {len(CASES)} cases, {path.stat().st_size} bytes")


if __name__ == "__main__":
    main()
