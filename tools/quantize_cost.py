#!/usr/bin/env python3
"""Measure what a method costs for one layer of a large model.

    quantize_cost.py --halley build/release/bin/halley [--shape llama-3-8b] [--methods gptq,awq]
                     [--samples 32] [--length 512] [--threads 0] [--json FILE]

Writes a checkpoint of one layer of the shape with random weights and the demo model's vocabulary,
and quantizes it by each method. Prints the seconds of that layer and, times the number of layers,
of the whole model. Time, unlike accuracy, does not ask whether the weights mean anything. Needs
numpy.
"""
import argparse
import json
import pathlib
import shutil
import subprocess
import tempfile
import time

import numpy as np

from golden.tensor_file import tensor, write_tensors

ROOT = pathlib.Path(__file__).resolve().parent.parent
METHODS = ["rtn", "gptq", "awq", "smoothquant", "fp8", "qoq", "fmpq", "nestedfp"]
# hidden, heads, kv heads, MLP, layers of config.json of these models.
SHAPES = {
    "llama-3-8b": (4096, 32, 8, 14336, 32),
    "llama-3-70b": (8192, 64, 8, 28672, 80),
    "qwen2-7b": (3584, 28, 4, 18944, 28),
}


def write_checkpoint(folder, shape):
    hidden, heads, kv_heads, mlp, _ = SHAPES[shape]
    demo = ROOT / "models" / "demo-21m"
    config = json.loads((demo / "config.json").read_text())
    config.update(hidden_size=hidden, num_attention_heads=heads, num_key_value_heads=kv_heads,
                  head_dim=hidden // heads, intermediate_size=mlp, num_hidden_layers=1)
    layer = "model.layers.0."
    kv = kv_heads * hidden // heads
    shapes = {
        "model.embed_tokens.weight": (config["vocab_size"], hidden),
        "model.norm.weight": (hidden,),
        layer + "input_layernorm.weight": (hidden,),
        layer + "post_attention_layernorm.weight": (hidden,),
        layer + "self_attn.q_proj.weight": (hidden, hidden),
        layer + "self_attn.k_proj.weight": (kv, hidden),
        layer + "self_attn.v_proj.weight": (kv, hidden),
        layer + "self_attn.o_proj.weight": (hidden, hidden),
        layer + "mlp.gate_proj.weight": (mlp, hidden),
        layer + "mlp.up_proj.weight": (mlp, hidden),
        layer + "mlp.down_proj.weight": (hidden, mlp),
    }
    rng = np.random.default_rng(1)
    tensors = {}
    for name, dims in shapes.items():
        if len(dims) == 1:
            values = np.ones(dims, np.float16)
        else:
            values = rng.standard_normal(dims, np.float32)
            values *= 1.0 if "embed" in name else dims[1] ** -0.5
        tensors[name] = tensor("F16", values)
    write_tensors(folder / "model.safetensors", tensors)
    (folder / "config.json").write_text(json.dumps(config))
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(demo / name, folder)


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--halley", default=str(ROOT / "build" / "release" / "bin" / "halley"))
    parser.add_argument("--shape", default="llama-3-8b", choices=SHAPES)
    parser.add_argument("--methods", default=",".join(METHODS))
    parser.add_argument("--samples", type=int, default=32)
    parser.add_argument("--length", type=int, default=512)
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--json")
    options = parser.parse_args()
    num_layers = SHAPES[options.shape][4]
    results = {"shape": options.shape, "num_layers": num_layers,
               "tokens": options.samples * options.length, "threads": options.threads,
               "methods": {}}
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        (folder / "model").mkdir()
        write_checkpoint(folder / "model", options.shape)
        print(f"{options.shape}, {results['tokens']} calibration tokens")
        for method in options.methods.split(","):
            begin = time.monotonic()
            run = subprocess.run(
                [options.halley, "quantize", str(folder / "model"), "--method", method, "--out",
                 str(folder / method), "--calibrate",
                 str(ROOT / "testdata" / "text" / "wikitext2_valid.txt"), "--num-samples",
                 str(options.samples), "--sample-length", str(options.length), "--threads",
                 str(options.threads), "--json"], check=True, capture_output=True, text=True)
            seconds = json.loads(run.stdout)["seconds"]
            shutil.rmtree(folder / method)
            results["methods"][method] = {"layer_s": seconds,
                                          "model_h": seconds * num_layers / 3600}
            print(f"{method:12} {seconds:8.1f} s a layer, {seconds * num_layers / 3600:6.2f} h for "
                  f"{num_layers} layers ({time.monotonic() - begin:.1f} s in all)", flush=True)
    if options.json:
        pathlib.Path(options.json).write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
