#!/usr/bin/env python3
"""Makes testdata/quantizers/awq/model.safetensors: one linear layer quantized by AWQ.

    python tools/make_awq_golden.py [--seed 1] [--out testdata/quantizers/awq]

The method is that of Lin et al. 2023 as AutoAWQ runs it, written plainly and slowly here:
1. Scales. For a = 0, 1/20, ..., 19/20 each input channel k gets s_k = mean|x_k|^a (at least 1e-4),
   divided by sqrt(largest * smallest). The a with the least mean squared error of the outputs x W^T
   wins, where W is quantize(w * s) / s.
2. Clipping. For w * s and the inputs x / s, each output's group of weights has its range shrunk by
   1, 0.95, ..., 0.5; the ratio whose share of the output has the least mean squared error wins.
3. Rounding of w * s with these ranges.
Asymmetric grids reach from min(w, 0) to max(w, 0) with both ends shrunk, symmetric ones from
-max|w| to max|w|, in 2^bits - 1 steps; the scale is rounded to f16, the zero point to an integer.

The file has `x` [tokens, K], `w` [N, K] and for each case `factors` [K], `errors` [2] (of the best
exponent and of 0), `ratio` [1], `clip` [N, K / group] and `weight` [N, K], the dequantized
w * s. Layers where rounding could decide between two candidates are drawn again. Needs numpy only.
"""

import argparse
import pathlib

import numpy as np

from golden.tensor_file import tensor, write_tensors

TOKENS, OUTPUTS, INPUTS = 40, 48, 192
CASES = {  # group size, symmetric
    "asym_g32": (32, False),
    "sym_g32": (32, True),
    "asym_g64": (64, False),
    "sym_g64": (64, True),
}
LEVELS = 15  # of 4 bits
MARGIN = 1e-4  # relative distance of the best candidate from the next
F32 = np.float32


class TooClose(Exception):
    """Rounding could decide."""


def fit_grid(group, ratio, symmetric):
    """Scale and zero point of one group [G]."""
    if symmetric:
        high = F32(np.abs(group).max() * F32(ratio))
        low = -high
    else:
        high = F32(max(group.max(), F32(0)) * F32(ratio))
        low = F32(min(group.min(), F32(0)) * F32(ratio))
    step = F32(np.float16((high - low) / F32(LEVELS)))
    zero = 8 if symmetric else int(np.clip(np.rint(-low / step), 0, LEVELS))
    return step, zero


def quantize_group(group, ratio, symmetric):
    step, zero = fit_grid(group, ratio, symmetric)
    qweight = np.clip(np.rint(group / step) + zero, 0, LEVELS)
    return step * (qweight - zero).astype(F32)


def quantize(w, size, symmetric, clip=None):
    result = np.empty_like(w)
    for n in range(w.shape[0]):
        for g in range(w.shape[1] // size):
            part = slice(g * size, (g + 1) * size)
            ratio = 1.0 if clip is None else clip[n, g]
            result[n, part] = quantize_group(w[n, part], ratio, symmetric)
    return result


def pick(losses):
    """The index of the least, if no other comes near."""
    best = int(np.argmin(losses))
    others = np.delete(losses, best)
    if others.min() < losses[best] * (1 + MARGIN):
        raise TooClose
    return best


def search_scales(x, w, size, symmetric):
    means = np.abs(x.astype(np.float64)).mean(axis=0).astype(F32).astype(np.float64)
    target = x.astype(np.float64) @ w.astype(np.float64).T
    losses, candidates = [], []
    for i in range(20):
        powers = np.maximum(means ** (i / 20), 1e-4)
        factors = (powers / np.sqrt(powers.max() * powers.min())).astype(F32)
        changed = quantize(w * factors, size, symmetric) / factors
        output = x.astype(np.float64) @ changed.astype(np.float64).T
        losses.append(np.mean((output - target) ** 2))
        candidates.append(factors)
    best = pick(np.array(losses))
    return best / 20, candidates[best], (losses[best], losses[0])


def search_clip(x, w, size, symmetric):
    groups = w.shape[1] // size
    clip = np.empty((w.shape[0], groups), dtype=F32)
    ratios = [1 - i / 20 for i in range(11)]
    for n in range(w.shape[0]):
        for g in range(groups):
            part = slice(g * size, (g + 1) * size)
            losses = []
            for ratio in ratios:
                change = quantize_group(w[n, part], ratio, symmetric) - w[n, part]
                share = x[:, part].astype(np.float64) @ change.astype(np.float64)
                losses.append(np.mean(share**2))
            clip[n, g] = ratios[pick(np.array(losses))]
    return clip


def random_layer(rng):
    """Inputs with outlier channels, weights with heavy tails: both searches find something."""
    loudness = np.exp(rng.normal(0, 1.2, INPUTS))
    x = (rng.normal(0, 1, (TOKENS, INPUTS)) * loudness).astype(F32)
    w = (rng.standard_t(4, (OUTPUTS, INPUTS)) * 0.02).astype(F32)
    return x, w


def solve(x, w):
    tensors = {"x": x, "w": w}
    for name, (size, symmetric) in CASES.items():
        ratio, factors, losses = search_scales(x, w, size, symmetric)
        clip = search_clip((x / factors).astype(F32), w * factors, size, symmetric)
        tensors[f"{name}.ratio"] = np.array([ratio], dtype=F32)
        tensors[f"{name}.factors"] = factors
        tensors[f"{name}.errors"] = np.array(losses, dtype=F32)
        tensors[f"{name}.clip"] = clip
        tensors[f"{name}.weight"] = quantize(w * factors, size, symmetric, clip)
    return tensors


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=pathlib.Path, default="testdata/quantizers/awq")
    args = parser.parse_args()
    rng = np.random.default_rng(args.seed)
    tensors = None
    while tensors is None:
        try:
            tensors = solve(*random_layer(rng))
        except TooClose:
            continue
    args.out.mkdir(parents=True, exist_ok=True)
    path = args.out / "model.safetensors"
    write_tensors(path, {name: tensor("F32", values) for name, values in tensors.items()})
    for name in CASES:
        best, unscaled = tensors[f"{name}.errors"]
        print(f"{name}: a = {tensors[f'{name}.ratio'][0]:.2f}, error {best:.3e} of {unscaled:.3e}")
    print(f"{path}: {path.stat().st_size} bytes")


if __name__ == "__main__":
    main()
