"""Perplexity of checkpoints as another library loads them, on the CPU.

    loader_perplexity.py LOADER TEXT WINDOW WINDOWS FOLDER...

Runs in an environment that has the loader (tools/setup.sh --loader-tests). Writes a line of JSON
for each folder: its perplexity over the first WINDOWS windows of WINDOW tokens, or the error with
which the loader rejected it.
"""
import json
import logging
import math
import os
import sys

os.environ.update(CUDA_VISIBLE_DEVICES="", HF_HUB_OFFLINE="1", TOKENIZERS_PARALLELISM="false")
import torch  # noqa: E402
from transformers import AutoModelForCausalLM, AutoTokenizer  # noqa: E402


def with_transformers(folder):
    """compressed-tensors, GPTQModel and others, by the declaration; computes in f32."""
    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, device_map="cpu")


def with_gptqmodel(folder):
    """Its kernels for 2, 3 and 8 bits take f16 and bf16 alone."""
    from gptqmodel import GPTQModel
    return GPTQModel.load(folder, device="cpu", dtype=torch.float16).model


LOADERS = {"transformers": with_transformers, "gptqmodel": with_gptqmodel}


def perplexity(model, windows):
    total = 0.0
    with torch.no_grad():
        for ids in windows:
            logits = model(input_ids=ids[None]).logits[0, :-1].float()
            total -= logits.log_softmax(-1).gather(1, ids[1:, None]).double().sum().item()
    return math.exp(total / sum(len(ids) - 1 for ids in windows))


def main(loader, text_path, window, num_windows, *folders):
    # What libraries print would stand among the results.
    results, sys.stdout = sys.stdout, sys.stderr
    torch.set_num_threads(len(os.sched_getaffinity(0)))
    logging.disable(logging.WARNING)
    with open(text_path, encoding="utf-8") as file:
        text = file.read()
    tokenizer = AutoTokenizer.from_pretrained(folders[0])
    ids = torch.tensor(tokenizer(text, add_special_tokens=False)["input_ids"])
    windows = ids[:window * num_windows].split(window)
    for folder in folders:
        line = {"folder": folder}
        try:
            line["perplexity"] = perplexity(LOADERS[loader](folder), windows)
        except Exception as error:  # pylint: disable=broad-exception-caught  # any is a rejection
            line["error"] = f"{type(error).__name__}: {error}"[:400]
        print(json.dumps(line), file=results, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:3], int(sys.argv[3]), int(sys.argv[4]), *sys.argv[5:])
