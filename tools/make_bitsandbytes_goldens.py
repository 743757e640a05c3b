#!/usr/bin/env python3
"""Makes testdata/quantized/bnb_*: tiny Llamas that bitsandbytes quantized, through transformers.

    PYTHONPATH=... python tools/make_bitsandbytes_goldens.py [testdata/quantized]

Needs torch, transformers, accelerate and bitsandbytes (made with 2.9.1, 4.57.6, 1.15.0 and
0.50.2), on the CPU.
expected.json is that of tools/make_golden.py: weights are what bitsandbytes dequantizes,
logits those of transformers in f64 with them.
"""
import json
import os
import shutil
import sys

import torch
from bitsandbytes import functional
from transformers import AutoModelForCausalLM, BitsAndBytesConfig, LlamaConfig, LlamaForCausalLM

SEED = 3
TOKENS = [4, 17, 37, 63, 52, 51, 41, 3, 0, 57, 19, 39]
CASES = {
    "bnb_nf4": ("bfloat16", dict(load_in_4bit=True, bnb_4bit_quant_type="nf4")),
    "bnb_nf4_nested": ("float16", dict(load_in_4bit=True, bnb_4bit_quant_type="nf4",
                                       bnb_4bit_use_double_quant=True)),
    "bnb_nf4_storage": ("float16", dict(load_in_4bit=True, bnb_4bit_quant_type="nf4",
                                        bnb_4bit_quant_storage=torch.bfloat16)),
    "bnb_fp4_nested": ("float16", dict(load_in_4bit=True, bnb_4bit_quant_type="fp4",
                                       bnb_4bit_use_double_quant=True)),
    "bnb_int8": ("float16", dict(load_in_8bit=True, llm_int8_skip_modules=["lm_head", "o_proj"])),
}
GOLDEN_RATIO = 0x9E3779B97F4A7C15


def tiny_llama(dtype):
    torch.manual_seed(SEED)
    config = LlamaConfig(hidden_size=128, intermediate_size=192, num_hidden_layers=1,
                         num_attention_heads=4, num_key_value_heads=1, head_dim=32, vocab_size=64,
                         max_position_embeddings=64, rms_norm_eps=1e-5, tie_word_embeddings=True,
                         bos_token_id=1, eos_token_id=2)
    model = LlamaForCausalLM(config).to(getattr(torch, dtype))
    for name, parameter in model.named_parameters():
        # Outliers, and magnitudes that differ from block to block.
        if parameter.dim() == 2:
            with torch.no_grad():
                parameter.mul_(4 * torch.rand(parameter.shape[0], 1).to(parameter.dtype) + 0.5)
    return model


def dequantized(module):
    """The weight [N, K] that bitsandbytes multiplies, in f32."""
    weight = module.weight
    if getattr(weight, "quant_state", None) is not None:
        # FP4's second zero has a sign in the tool's kernel and none in the file's table.
        return functional.dequantize_4bit(weight.data, weight.quant_state).float() + 0.0
    if weight.dtype == torch.int8:
        scales = getattr(weight, "SCB", None)
        scales = module.state.SCB if scales is None else scales
        # Code * f32(SCB / 127), rounded once, as Halley's layouts have it.
        return (weight.data.double() * (scales / 127).double()[:, None]).float()
    return weight.data.float()


def hash_of(weight):
    bits = weight.contiguous().view(torch.int32).flatten().tolist()
    total = 0
    for i, value in enumerate(bits):
        total += (value & 0xFFFFFFFF) * ((i * GOLDEN_RATIO) % 2**64 | 1)
    return "%016x" % (total % 2**64)


def first_of(weight):
    return ["%08x" % (value & 0xFFFFFFFF)
            for value in weight.contiguous().view(torch.int32).flatten()[:8].tolist()]


def make(folder, name, dtype, options):
    out = os.path.join(folder, name)
    shutil.rmtree(out, ignore_errors=True)
    plain = os.path.join(folder, name + ".plain")
    tiny_llama(dtype).save_pretrained(plain)
    model = AutoModelForCausalLM.from_pretrained(
        plain, quantization_config=BitsAndBytesConfig(**options), device_map="cpu",
        dtype=getattr(torch, dtype))
    model.save_pretrained(out)
    reference = LlamaForCausalLM.from_pretrained(plain, dtype=torch.float64)
    shutil.rmtree(plain)
    linears = []
    modules = dict(model.named_modules())
    for path, module in reference.named_modules():
        if not isinstance(module, torch.nn.Linear) or path == "lm_head":
            continue
        quantized = modules[path]
        weight = dequantized(quantized)
        is_quantized = not type(quantized) is torch.nn.Linear
        module.weight.data = weight.double()
        linears.append({"name": path, "shape": list(weight.shape),
                        "format": "bitsandbytes" if is_quantized else "none",
                        # 4-bit tables are floats of 16 bits once they are loaded.
                        "bits": 8 if quantized.weight.dtype == torch.int8 else 16,
                        "quantized": is_quantized, "activation": "none", "hash": hash_of(weight),
                        "first": first_of(weight)})
    with torch.no_grad():
        logits = reference(torch.tensor([TOKENS])).logits[0]
    expected = {"name": name, "seed": SEED, "note": "by bitsandbytes", "warnings": [],
                "activation": "none", "margin": None, "tokens": TOKENS, "linears": linears,
                "logits": [["%.7g" % value for value in row] for row in logits.tolist()]}
    expected["logits"] = [[float(value) for value in row] for row in expected["logits"]]
    with open(os.path.join(out, "expected.json"), "w", encoding="utf-8") as file:
        json.dump(expected, file)
        file.write("\n")
    for extra in ("generation_config.json",):
        if os.path.exists(os.path.join(out, extra)):
            os.remove(os.path.join(out, extra))


def main():
    folder = sys.argv[1] if len(sys.argv) > 1 else "testdata/quantized"
    for name, (dtype, options) in CASES.items():
        make(folder, name, dtype, options)
        print(name, sorted(os.listdir(os.path.join(folder, name))))


if __name__ == "__main__":
    main()
