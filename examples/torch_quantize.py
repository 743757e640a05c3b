"""Makes a Hugging Face model one of low precision and continues a prompt:

    python torch_quantize.py models/demo-21m "The Python language" int4

The third argument is a configuration: int4, int8, w4a8, w8a8, float8 or nestedfp. Needs PyTorch and
transformers; runs on the GPU where there is one.
"""
import sys

import torch
import transformers

import halley.torch

CONFIGS = {"int4": halley.torch.Int4WeightOnlyConfig(),
           "int8": halley.torch.Int8WeightOnlyConfig(),
           "w4a8": halley.torch.Int8DynamicActivationInt4WeightConfig(),
           "w8a8": halley.torch.Int8DynamicActivationInt8WeightConfig(),
           "float8": halley.torch.Float8DynamicActivationFloat8WeightConfig(),
           "nestedfp": halley.torch.NestedFpConfig()}


def main(folder: str, prompt: str, config: str) -> None:
    """Prints the prompt and its continuation."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float16)
    halley.torch.quantize_(model, CONFIGS[config], lambda module, name: name != "lm_head")
    model.to(device)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    ids = tokenizer(prompt, return_tensors="pt").input_ids.to(device)
    tokens = model.generate(ids, max_new_tokens=32, do_sample=False)
    print(tokenizer.decode(tokens[0]))


if __name__ == "__main__":
    main(*sys.argv[1:])
