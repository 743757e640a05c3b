#!/usr/bin/env python3
"""Makes testdata/sampling/golden.json: what the sampler must compute, by an independent script.

    python tools/make_sampling_goldens.py [--seed 1] [--output testdata/sampling/golden.json]

Each case has logits, sampling parameters, the prompt's and the output's token ids, and from these
the distribution that is sampled (`probabilities`, pairs of id and probability, those above 0), and
the log-probabilities of the untouched logits (`top_logprobs`, the best three). The definition is
vLLM's: min_tokens mask, logit bias, repetition, frequency and presence penalty, temperature, min_p,
top_k, top_p. Of equal logits the lower id ranks first. Needs numpy only.
"""

import argparse
import json
import pathlib

import numpy as np


def softmax(scores):
    weights = np.exp(scores - scores.max())
    return weights / weights.sum()


def log_softmax(logits):
    shifted = logits - logits.max()
    return shifted - np.log(np.exp(shifted).sum())


def penalize(logits, case):
    scores = np.array(logits, dtype=np.float64)
    params = case["params"]
    prompt, output = case["prompt_ids"], case["output_ids"]
    if len(output) < params.get("min_tokens", 0):
        scores[case["stop_ids"]] = -np.inf
    for token, bias in params.get("logit_bias", {}).items():
        scores[int(token)] += bias
    seen = np.zeros(len(scores), dtype=bool)
    seen[prompt + output] = True
    penalty = params.get("repetition_penalty", 1.0)
    scores = np.where(seen, np.where(scores > 0, scores / penalty, scores * penalty), scores)
    counts = np.bincount(np.array(output, dtype=np.int64), minlength=len(scores))
    scores = scores - params.get("frequency_penalty", 0.0) * counts
    return scores - params.get("presence_penalty", 0.0) * (counts > 0)


def distribution(logits, case):
    """The probabilities, and how far the nearest decision was from falling the other way."""
    params = case["params"]
    scores = penalize(logits, case)
    if params.get("temperature", 1.0) == 0:
        result = np.zeros(len(scores))
        result[int(np.argmax(scores))] = 1.0
        return result, 1.0
    margin = 1.0
    probabilities = softmax(scores / params.get("temperature", 1.0))
    min_p = params.get("min_p", 0.0)
    if min_p > 0:
        ratio = probabilities / probabilities.max()
        margin = min(margin, np.abs(ratio - min_p).min())
        probabilities = np.where(ratio >= min_p, probabilities, 0.0)
    # Stable, so that the lower id comes first of equals.
    order = np.argsort(-scores, kind="stable")
    top_k = params.get("top_k", 0)
    if top_k > 0:
        probabilities[order[top_k:]] = 0.0
    top_p = params.get("top_p", 1.0)
    if top_p < 1:
        ranked = probabilities[order] / probabilities.sum()
        before = np.cumsum(ranked) - ranked
        margin = min(margin, np.abs(before[ranked > 0] - top_p).min())
        probabilities[order[before >= top_p]] = 0.0
    return probabilities / probabilities.sum(), margin


def random_params(rng):
    params = {"temperature": float(rng.choice([0.0, 0.3, 0.7, 1.0, 1.0, 1.5, 2.0]))}

    def sometimes(name, value, chance=0.35):
        if rng.random() < chance:
            params[name] = value

    sometimes("top_k", int(rng.choice([-1, 0, 1, 3, 10, 500])))
    sometimes("top_p", round(float(rng.uniform(0.05, 1.0)), 3))
    sometimes("min_p", round(float(rng.uniform(0.0, 0.5)), 3))
    sometimes("repetition_penalty", round(float(rng.uniform(0.5, 2.0)), 3))
    sometimes("presence_penalty", round(float(rng.uniform(-2, 2)), 3))
    sometimes("frequency_penalty", round(float(rng.uniform(-2, 2)), 3))
    sometimes("min_tokens", int(rng.integers(0, 8)))
    return params


def random_case(rng):
    vocab_size = int(rng.choice([5, 17, 40]))
    logits = rng.normal(0, rng.choice([0.5, 2.0, 6.0]), vocab_size)
    if rng.random() < 0.3:  # many equal logits
        logits = np.round(logits)
    # Exact in f32, so that both sides read the same numbers.
    logits = np.round(logits * 256) / 256

    def ids(count):
        return [int(i) for i in rng.integers(0, vocab_size, count)]

    case = {
        "logits": [float(x) for x in logits],
        "params": random_params(rng),
        "prompt_ids": ids(int(rng.integers(1, 6))),
        "output_ids": ids(int(rng.integers(0, 6))),
        "stop_ids": ids(2),
    }
    if rng.random() < 0.35:
        biases = {i: round(float(rng.uniform(-5, 5)), 3) for i in ids(3)}
        if rng.random() < 0.3:
            biases[ids(1)[0]] = -100.0
        case["params"]["logit_bias"] = {str(i): bias for i, bias in biases.items()}
    return case, logits


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--cases", type=int, default=100)
    parser.add_argument("--output", default="testdata/sampling/golden.json")
    args = parser.parse_args()
    rng = np.random.default_rng(args.seed)
    cases = []
    while len(cases) < args.cases:
        case, logits = random_case(rng)
        probabilities, margin = distribution(logits, case)
        if margin < 1e-6:  # rounding would decide
            continue
        case["probabilities"] = [
            [i, float(f"{p:.10g}")] for i, p in enumerate(probabilities) if p > 0
        ]
        logprobs = log_softmax(logits)
        best = np.argsort(-logits, kind="stable")[:3]
        case["top_logprobs"] = [[int(i), float(f"{logprobs[i]:.10g}")] for i in best]
        cases.append(case)
    golden = {"made_by": "tools/make_sampling_goldens.py", "seed": args.seed, "cases": cases}
    path = pathlib.Path(args.output)
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = ",\n".join(json.dumps(case, separators=(",", ":")) for case in cases)
    header = json.dumps({k: v for k, v in golden.items() if k != "cases"})[:-1]
    path.write_text(f'{header}, "cases": [\n{lines}\n]}}\n')
    print(f"{path}: {len(cases)} cases, {path.stat().st_size} bytes")


if __name__ == "__main__":
    main()
