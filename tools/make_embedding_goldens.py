#!/usr/bin/env python3
"""Writes testdata/embeddings/golden.json: hidden states of the tiny models by Hugging Face
transformers in f32, behind the final norm: those of the last token, and the mean of all tokens'.

Each model's logits are first compared with its golden_f32.json, so that another version of
transformers that reads a configuration otherwise is noticed.

Needs torch and transformers 5 (made with 5.24). Run from the repository's root:
  tools/make_embedding_goldens.py
"""

import json
import pathlib

import torch
import transformers

MODELS = pathlib.Path("testdata/models")
OUT = pathlib.Path("testdata/embeddings/golden.json")
FAMILIES = ("gemma2", "llama", "opt", "phi3", "qwen3", "qwen3_moe")
LOGITS_TOLERANCE = 1e-4


def load(folder):
    return transformers.AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32, attn_implementation="eager").eval()


def check_logits(model, golden, family):
    with torch.no_grad():
        logits = model(torch.tensor([golden["input_ids"]])).logits[0]
    worst = max(float((logits[row] - torch.tensor(golden[name])).abs().max())
                for row, name in ((0, "logits_row_0"), (-1, "logits_row_last")))
    if worst > LOGITS_TOLERANCE:
        raise SystemExit(f"{family}: logits differ from golden_f32.json by {worst}")
    return worst


def rounded(values):
    return [round(float(value), 6) for value in values]


def hidden_states(model, ids):
    with torch.no_grad():
        states = model.model(torch.tensor([ids])).last_hidden_state[0].double()
    return {"ids": ids, "last": rounded(states[-1]), "mean": rounded(states.mean(0))}


def main():
    goldens = {}
    for family in FAMILIES:
        golden = json.loads((MODELS / family / "golden_f32.json").read_text())
        model = load(MODELS / family)
        print(family, "logits differ by", check_logits(model, golden, family))
        ids = golden["input_ids"]
        goldens[family] = [hidden_states(model, ids), hidden_states(model, ids[:7])]
    OUT.parent.mkdir(exist_ok=True)
    OUT.write_text(json.dumps(goldens) + "\n")


if __name__ == "__main__":
    main()
