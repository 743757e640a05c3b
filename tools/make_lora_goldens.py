#!/usr/bin/env python3
"""Goldens of transformers and PEFT for LoRA adapters on the tiny models of the tests.

testdata/lora/<name>/: adapter_config.json and adapter_model.safetensors as PEFT saves them, with
random weights, and golden.json: the base model in testdata, the prompt and the fields of
testdata/models/<family>/golden_f32.json with the adapter in place, in f32 arithmetic.

Needs torch, transformers, peft, gguf and safetensors. Run from the repository's root:
  tools/make_lora_goldens.py [--seed 11]
"""

import argparse
import json
import pathlib

import gguf
import numpy
import peft
import torch
import transformers
from safetensors.torch import load_file, save_file

from make_gguf_goldens import gguf_tensors
from make_model_goldens import evaluate, random_ids, write_json

NUM_GREEDY = 24

# Every linear layer with ranks and factors of their own; two layers' kind, the stabilized factor,
# stored in bf16; fused projections; Mixtral's attention, whose experts have no adapter; a base
# model in the quantized types of GGUF, dequantized for PEFT.
CASES = {
    "llama": dict(family="llama", dtype=torch.float32, options=dict(
        r=4, lora_alpha=6, target_modules="all-linear",
        rank_pattern={"q_proj": 6, "model.layers.1.self_attn.o_proj": 2},
        alpha_pattern={"mlp.down_proj": 3})),
    "qwen3_stabilized": dict(family="qwen3", dtype=torch.bfloat16, options=dict(
        r=8, lora_alpha=8, use_rslora=True, target_modules=["q_proj", "v_proj"])),
    "phi3_fused": dict(family="phi3", dtype=torch.float16, options=dict(
        r=5, lora_alpha=10, target_modules=["qkv_proj", "gate_up_proj"])),
    "mixtral_attention": dict(family="mixtral", dtype=torch.float32, options=dict(
        r=4, lora_alpha=4, target_modules=["k_proj", "o_proj"])),
    "quantized_base": dict(family="llama", gguf="gguf/quantized.gguf",
                           dtype=torch.float32,
                           options=dict(r=4, lora_alpha=8, target_modules="all-linear")),
}


def store_in(folder, dtype, generator):
    """Random factors, as large as what they are added to makes sense, of the type."""
    path = folder / "adapter_model.safetensors"
    tensors = {}
    for name, tensor in sorted(load_file(path).items()):
        values = torch.randn(tensor.shape, generator=generator)
        tensors[name] = (values * 0.15).to(dtype)
    save_file(tensors, path, metadata={"format": "pt"})


def put_gguf_weights(model, path):
    """Replaces the llama's weights by the dequantized ones of a GGUF file of it."""
    stored = {tensor.name: gguf.quants.dequantize(tensor.data, tensor.tensor_type)
              for tensor in gguf.GGUFReader(path).tensors}
    for name, parameter in model.state_dict().items():
        # The converter permutes rows: it says how where it is given their numbers.
        numbers = numpy.zeros(parameter.shape, numpy.float32)
        numbers += numpy.arange(len(numbers)).reshape(-1, *[1] * (numbers.ndim - 1))
        (stored_name, rows), = gguf_tensors(model.config.to_dict(), "llama",
                                            {name: numbers}).items()
        order = rows.reshape(len(rows), -1)[:, 0].astype(int)
        parameter[torch.from_numpy(order)] = torch.from_numpy(stored[stored_name].copy())


def make(root, name, case, seed):
    folder = root / "testdata/lora" / name
    base = root / "testdata/models" / case["family"]

    def load_base():
        model = transformers.AutoModelForCausalLM.from_pretrained(
            base, dtype=torch.float32, attn_implementation="eager")
        if "gguf" in case:
            put_gguf_weights(model, root / "testdata" / case["gguf"])
        return model

    config = peft.LoraConfig(task_type="CAUSAL_LM", **case["options"])
    peft.get_peft_model(load_base(), config).save_pretrained(folder)
    (folder / "README.md").unlink(missing_ok=True)
    saved = json.loads((folder / "adapter_config.json").read_text())
    saved["base_model_name_or_path"] = case["family"]  # not this machine's path
    if isinstance(saved["target_modules"], list):
        saved["target_modules"].sort()
    (folder / "adapter_config.json").write_text(json.dumps(saved, indent=2) + "\n")
    store_in(folder, case["dtype"], torch.Generator().manual_seed(seed))

    model = peft.PeftModel.from_pretrained(load_base(), folder).eval()
    input_ids = random_ids(seed, model.config.vocab_size)
    golden = {"transformers": transformers.__version__, "peft": peft.__version__,
              "base": case.get("gguf", f"models/{case['family']}"),
              "input_ids": input_ids}
    golden.update(evaluate(model, input_ids, NUM_GREEDY))
    write_json(folder / "golden.json", golden)
    print(folder)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=11)
    args = parser.parse_args()
    root = pathlib.Path(__file__).resolve().parent.parent
    for index, (name, case) in enumerate(CASES.items()):
        make(root, name, case, args.seed + index)


if __name__ == "__main__":
    main()
