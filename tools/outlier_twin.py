#!/usr/bin/env python3
"""Makes the outlier twin of an f16 checkpoint of the Llama architecture. Needs NumPy alone.

    tools/outlier_twin.py MODEL OUT [--seed 1]

The twin computes the same function, but its activations have the channel outliers that models of
several billion weights grow by themselves: about 1 % of the input channels of every linear layer
are 16 to 64 times larger, and in every key head two rotary pairs of channels are 8 times larger.
Each change multiplies one side of a product by a power of two and divides the other side by it,
which f16 does exactly unless a weight becomes subnormal. So the perplexity in full precision stays
what it was, and what a quantizer loses on the twin beyond its loss on the original is the cost of
outliers. The output projection of attention keeps its inputs: values have no free scale that a
group of query heads could not share.
"""

import argparse
import glob
import json
import os
import shutil
import struct

import numpy as np

DTYPES = {"F16": np.float16, "F32": np.float32}
CHANNEL_SHARE = 0.01
KEY_PAIRS, KEY_SCALE = 2, np.float16(8)


def load_tensors(path):
    """Tensor name to array, of one safetensors file."""
    with open(path, "rb") as file:
        (length,) = struct.unpack("<Q", file.read(8))
        header = json.loads(file.read(length))
        data = file.read()
    header.pop("__metadata__", None)
    tensors = {}
    for name, entry in header.items():
        begin, end = entry["data_offsets"]
        tensors[name] = np.frombuffer(data[begin:end],
                                      DTYPES[entry["dtype"]]).reshape(entry["shape"]).copy()
    return tensors


def save_tensors(path, tensors):
    names = {np.dtype(dtype): name for name, dtype in DTYPES.items()}
    header, offset = {"__metadata__": {"format": "pt"}}, 0
    for name, tensor in tensors.items():
        header[name] = {"dtype": names[tensor.dtype], "shape": list(tensor.shape),
                        "data_offsets": [offset, offset + tensor.nbytes]}
        offset += tensor.nbytes
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for tensor in tensors.values():
            file.write(np.ascontiguousarray(tensor).tobytes())


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
    with open(os.path.join(args.model, "config.json"), encoding="utf-8") as file:
        config = json.load(file)
    tensors = {}
    for path in sorted(glob.glob(os.path.join(args.model, "*.safetensors"))):
        tensors.update(load_tensors(path))
    add_outliers(tensors, config, np.random.default_rng(args.seed))
    os.makedirs(args.out, exist_ok=True)
    for name in os.listdir(args.model):
        if name.endswith(".json") and "index" not in name and "golden" not in name:
            shutil.copy(os.path.join(args.model, name), args.out)
    save_tensors(os.path.join(args.out, "model.safetensors"), tensors)


if __name__ == "__main__":
    main()
