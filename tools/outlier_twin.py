#!/usr/bin/env python3
"""Makes the outlier twin of an f16 checkpoint of the Llama architecture. Needs NumPy alone.

    tools/outlier_twin.py MODEL OUT [--seed 1]

The twin computes the same function, but its activations have the channel outliers that models of
several billion weights grow by themselves: about 1 % of the input channels of every linear layer
are 16 to 64 times larger, and in every key head two rotary pairs of channels are 8 times larger.
Each change multiplies one operand of a matmul by a power of two and divides the other one by it,
which f16 does exactly unless a weight becomes subnormal. So the perplexity in full precision stays
what it was, and what a quantizer loses on the twin beyond its loss on the original is the cost of
outliers. The output projection of attention keeps its inputs: values have no free scale that a
group of query heads could not share.
"""

import argparse
import json
import pathlib
import shutil

import numpy as np

from golden.tensor_file import Tensor, read_tensors, write_tensors

CHANNEL_SHARE = 0.01
KEY_PAIRS, KEY_SCALE = 2, np.float16(8)


def add_outliers(tensors, config, rng):
    """Changes the tensors of all layers in place."""
    heads, kv_heads = config["num_attention_heads"], config["num_key_value_heads"]
    head_dim = config.get("head_dim") or config["hidden_size"] // heads

    def channels(count):
        return rng.choice(count, max(2, round(count * CHANNEL_SHARE)), replace=False)

    def scale():
        return np.float16(2.0 ** rng.integers(4, 7))

    for layer in range(config["num_hidden_layers"]):
        def weight(name, layer=layer):
            return tensors[f"model.layers.{layer}.{name}.weight"]

        for norm, users in (("input_layernorm", ["self_attn.q_proj", "self_attn.k_proj",
                                                 "self_attn.v_proj"]),
                            ("post_attention_layernorm", ["mlp.gate_proj", "mlp.up_proj"])):
            for channel in channels(config["hidden_size"]):
                factor = scale()
                weight(norm)[channel] *= factor
                for user in users:
                    weight(user)[:, channel] /= factor
        for channel in channels(config["intermediate_size"]):
            factor = scale()
            weight("mlp.up_proj")[channel] *= factor
            weight("mlp.down_proj")[:, channel] /= factor
        group = heads // kv_heads
        for head in range(kv_heads):
            for pair in rng.choice(head_dim // 2, KEY_PAIRS, replace=False):
                for row in (pair, pair + head_dim // 2):
                    weight("self_attn.k_proj")[head * head_dim + row] *= KEY_SCALE
                    for query in range(head * group, (head + 1) * group):
                        weight("self_attn.q_proj")[query * head_dim + row] /= KEY_SCALE


def main():
    parser = argparse.ArgumentParser(description="Makes the outlier twin of a Llama checkpoint.")
    parser.add_argument("model")
    parser.add_argument("out")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    model, out = pathlib.Path(args.model), pathlib.Path(args.out)
    config = json.loads((model / "config.json").read_text(encoding="utf-8"))
    stored = {}
    for path in sorted(model.glob("*.safetensors")):
        stored.update(read_tensors(path))
    weights = {name: entry.array.copy() for name, entry in stored.items()}
    add_outliers(weights, config, np.random.default_rng(args.seed))
    out.mkdir(parents=True, exist_ok=True)
    for path in model.glob("*.json"):
        if "index" not in path.name and "golden" not in path.name:
            shutil.copy(path, out)
    write_tensors(out / "model.safetensors",
                  {name: Tensor(stored[name].dtype, array) for name, array in weights.items()})


if __name__ == "__main__":
    main()
