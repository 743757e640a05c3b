#!/usr/bin/env python3
"""Measures what the Python package adds: LLM.generate versus `halley bench throughput`.

    PYTHON tools/bench_python.py MODEL [--device cpu] [--rounds 5] [--num-prompts 64]
                                 [--input-len 128] [--output-len 128]

PYTHON has the package installed. Both run the same number of greedy requests with random prompts,
in turns; the times are medians. LLM.generate also makes the texts, which the command does not.
"""
import argparse
import json
import random
import statistics
import subprocess
import sys
import time

from halley import LLM, SamplingParams


def engine_seconds(options):
    """The time of the command's requests."""
    command = [sys.executable, "-m", "halley", "bench", "throughput", options.model, "--json"]
    for name in ("device", "num_prompts", "input_len", "output_len"):
        command += ["--" + name.replace("_", "-"), str(getattr(options, name))]
    result = subprocess.run(command, capture_output=True, text=True, check=True)
    return json.loads(result.stdout)["elapsed_s"]


def package_seconds(options, seed):
    """The time of one call with as many requests, after a short one; limits are the command's."""
    llm = LLM(options.model, device=options.device,
              max_model_len=options.input_len + options.output_len)
    choose, vocab_size = random.Random(seed), llm.inspect()["vocab_size"]
    prompts = [[choose.randrange(vocab_size) for _ in range(options.input_len)]
               for _ in range(options.num_prompts)]
    params = SamplingParams(temperature=0, max_tokens=options.output_len, ignore_eos=True)
    llm.generate("a", SamplingParams(max_tokens=4), use_tqdm=False)
    start = time.monotonic()
    outputs = llm.generate(prompts, params, use_tqdm=False)
    seconds = time.monotonic() - start
    assert all(len(output.outputs[0].token_ids) == options.output_len for output in outputs)
    return seconds


def main():
    """Prints both medians and what the package adds."""
    parser = argparse.ArgumentParser()
    parser.add_argument("model")
    parser.add_argument("--device", default="cpu")
    for name, default in (("rounds", 5), ("num-prompts", 64), ("input-len", 128),
                          ("output-len", 128)):
        parser.add_argument(f"--{name}", type=int, default=default)
    options = parser.parse_args()
    engine, package = [], []
    for seed in range(options.rounds):
        engine.append(engine_seconds(options))
        package.append(package_seconds(options, seed))
        print(f"engine {engine[-1]:.3f} s, LLM.generate {package[-1]:.3f} s", flush=True)
    added = statistics.median(package) / statistics.median(engine) - 1
    print(f"medians: engine {statistics.median(engine):.3f} s, LLM.generate "
          f"{statistics.median(package):.3f} s: {added:+.1%}; least: {min(engine):.3f} s, "
          f"{min(package):.3f} s: {min(package) / min(engine) - 1:+.1%}")


if __name__ == "__main__":
    main()
