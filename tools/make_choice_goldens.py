#!/usr/bin/env python3
"""Makes testdata/multiple_choice: synthetic items, and what transformers says of them.

    tools/make_choice_goldens.py [OUT]

Needs torch and transformers. golden.json has, for each file, the log likelihood of every choice by
models/demo-21m in f32 and the accuracies. Texts and tokens are made as lm-eval 0.4 makes them
(tasks piqa, arc_easy, hellaswag, winogrande; HFLM without a BOS), each choice alone, without cache.
"""

import json
import os
import re
import sys

import numpy as np
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
MODEL = os.path.join(ROOT, "models", "demo-21m")

ITEMS = {
    "piqa": [
        {"goal": "To see which version of a package is installed,",
         "sol1": "ask the package manager for its list.", "sol2": "paint the keyboard green.",
         "label": 0},
        {"goal": "How do you keep tea warm? ", "sol1": "Put it in the freezer.",
         "sol2": "Pour it into a thermos flask — a closed one.", "label": 1},
        {"goal": "Open a jar\n", "sol1": "turn the lid",
         "sol2": "turn the lid to the left, then lift it from the glass and set it aside",
         "label": "1"},
    ],
    "arc": [
        {"id": "a", "question": "Which of these is a planet?",
         "choices": {"text": ["Mars", "the Moon", "the Sun", "a comet"],
                     "label": ["A", "B", "C", "D"]}, "answerKey": "A"},
        {"question": {"stem": "What falls from clouds?",
                      "choices": [{"text": "stones", "label": "1"}, {"text": "rain", "label": "2"},
                                  {"text": "warm light that never ends", "label": "3"}]},
         "answerKey": "2"},
        {"question": "Where do fish live?", "choices": {"text": ["in trees", "in water"],
                                                        "label": ["A", "B"]}, "answerKey": "B"},
    ],
    "hellaswag": [
        {"activity_label": "Baking bread", "ctx_a": "A woman kneads dough on a table.",
         "ctx_b": "the dough [is] THEN", "label": "2",
         "endings": ["flies away.", "is a song about rivers.", "put into an oven.",
                     "reads  the newspaper [title] Step two [substeps] Wait."]},
        {"activity_label": "Writing a parser", "ctx_a": " How to write a parser [header] Begin.",
         "ctx_b": "", "label": 0,
         "endings": ["[title] Define the grammar. [step] Then write functions.", "Sleep."]},
        {"ctx": "Élise opens the door [x\ny] and", "label": "1",
         "endings": ["ÉTÉ.", "walks into the garden, where it is warm."]},
    ],
    "winogrande": [
        {"sentence": "The trophy does not fit into the case because the _ is too large.",
         "option1": "trophy", "option2": "case", "answer": "1"},
        {"sentence": "_ thanked Maria for the help that she had given.", "option1": "Anna",
         "option2": "Maria", "answer": "1"},
        {"sentence": "The server waited for the client since the _ was slow to answer. ",
         "option1": "server", "option2": "client", "answer": "2"},
    ],
}


def clean(text):
    text = text.strip().replace(" [title]", ". ")
    return re.sub(r"\[.*?\]", "", text).replace("  ", " ")


def choices_of(layout, item):
    """Pairs of context and continuation, and the index of the answer."""
    if layout == "piqa":
        context = f"Question: {item['goal']}\nAnswer:"
        return [(context, " " + item[name]) for name in ("sol1", "sol2")], int(item["label"])
    if layout == "winogrande":
        blank = item["sentence"].index("_")
        rest = item["sentence"][blank + 1:].strip()
        return ([(item["sentence"][:blank] + item[name], " " + rest)
                 for name in ("option1", "option2")], int(item["answer"]) - 1)
    if layout == "hellaswag":
        context = (item["ctx_a"] + " " + item["ctx_b"].capitalize() if "ctx_a" in item
                   else item["ctx"])
        if "activity_label" in item:
            context = item["activity_label"] + ": " + context
        return [(clean(context), " " + clean(ending)) for ending in item["endings"]], \
            int(item["label"])
    question = item["question"]
    stem = question["stem"] if isinstance(question, dict) else question
    choices = question["choices"] if isinstance(question, dict) else item["choices"]
    if isinstance(choices, list):
        choices = {name: [choice[name] for choice in choices] for name in ("text", "label")}
    return ([(f"Question: {stem}\nAnswer:", " " + text) for text in choices["text"]],
            choices["label"].index(item["answerKey"]))


def encode(tokenizer, context, continuation):
    num_spaces = len(context) - len(context.rstrip())
    if num_spaces > 0:
        continuation = context[-num_spaces:] + continuation
        context = context[:-num_spaces]
    whole = tokenizer.encode(context + continuation, add_special_tokens=False)
    return whole, len(whole) - len(tokenizer.encode(context, add_special_tokens=False))


def log_likelihood(model, ids, num_continuation):
    with torch.no_grad():
        logits = model(torch.tensor([ids[:-1]])).logits[0, -num_continuation:].double()
    targets = torch.tensor(ids[-num_continuation:])
    return torch.log_softmax(logits, -1).gather(1, targets[:, None]).sum().item()


def share_and_error(hits):
    return [float(np.mean(hits)), float(np.std(hits, ddof=1) / np.sqrt(len(hits)))]


def main():
    out = sys.argv[1] if len(sys.argv) > 1 else os.path.join(ROOT, "testdata", "multiple_choice")
    os.makedirs(out, exist_ok=True)
    tokenizer = AutoTokenizer.from_pretrained(MODEL)
    model = AutoModelForCausalLM.from_pretrained(MODEL, dtype=torch.float32)
    golden = {}
    for layout, items in ITEMS.items():
        with open(os.path.join(out, f"{layout}.jsonl"), "w", encoding="utf-8") as file:
            for item in items:
                file.write(json.dumps(item, ensure_ascii=False) + "\n")
        scores, hits, hits_by_bytes = [], [], []
        for item in items:
            choices, answer = choices_of(layout, item)
            item_scores = [log_likelihood(model, *encode(tokenizer, *choice)) for choice in choices]
            num_bytes = [len(continuation.encode()) - 1 for _, continuation in choices]
            hits.append(int(np.argmax(item_scores) == answer))
            hits_by_bytes.append(int(np.argmax(np.divide(item_scores, num_bytes)) == answer))
            scores += item_scores
        golden[layout] = {"log_likelihoods": scores, "accuracy": share_and_error(hits),
                          "accuracy_norm": share_and_error(hits_by_bytes)}
    with open(os.path.join(out, "golden.json"), "w", encoding="utf-8") as file:
        file.write(json.dumps(golden, indent=1) + "\n")


if __name__ == "__main__":
    main()
