#!/usr/bin/env python3
"""Measures what the Python package adds: LLM.generate versus `halley bench throughput`.

    PYTHON tools/bench_python.py MODEL [--device cpu] [--rounds 5] [--num-prompts 64]
                                 [--input-len 128] [--output-len 128] [--output-json FILE]

PYTHON has the package installed. Both run the same number of greedy requests with random prompts,
in turns. LLM.generate also makes the texts, which the command does not. On a machine that does
other work too, the share of the processor time that the caller's thread takes says more than the
times.
"""
import argparse
import datetime
import json
import os
import random
import statistics
import subprocess
import sys
import time

from halley import LLM, SamplingParams, __version__


def engine_seconds(options):
    """The time of the command's requests."""
    command = [sys.executable, "-m", "halley", "bench", "throughput", options.model, "--json"]
    for name in ("device", "num_prompts", "input_len", "output_len"):
        command += ["--" + name.replace("_", "-"), str(getattr(options, name))]
    result = subprocess.run(command, capture_output=True, text=True, check=True)
    return json.loads(result.stdout)["elapsed_s"]


def package_seconds(options, seed):
    """The time of one call with as many requests, after a short one, and the share of the processor
    time that its thread took; limits are the command's."""
    llm = LLM(options.model, device=options.device,
              max_model_len=options.input_len + options.output_len)
    choose, vocab_size = random.Random(seed), llm.inspect()["vocab_size"]
    prompts = [[choose.randrange(vocab_size) for _ in range(options.input_len)]
               for _ in range(options.num_prompts)]
    params = SamplingParams(temperature=0, max_tokens=options.output_len, ignore_eos=True)
    llm.generate("a", SamplingParams(max_tokens=4), use_tqdm=False)
    start, thread, process = time.monotonic(), time.thread_time(), time.process_time()
    outputs = llm.generate(prompts, params, use_tqdm=False)
    seconds = time.monotonic() - start
    share = (time.thread_time() - thread) / (time.process_time() - process)
    assert all(len(output.outputs[0].token_ids) == options.output_len for output in outputs)
    return seconds, share


def main():
    """Prints every round, the medians and the least."""
    parser = argparse.ArgumentParser()
    parser.add_argument("model")
    parser.add_argument("--device", default="cpu")
    for name, default in (("rounds", 5), ("num-prompts", 64), ("input-len", 128),
                          ("output-len", 128)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--output-json", help="also write all rounds to a file")
    options = parser.parse_args()
    engine, package, shares = [], [], []
    for seed in range(options.rounds):
        engine.append(engine_seconds(options))
        seconds, share = package_seconds(options, seed)
        package.append(seconds)
        shares.append(share)
        print(f"engine {engine[-1]:.3f} s, LLM.generate {seconds:.3f} s, caller's thread "
              f"{share:.2%} of the processor time", flush=True)
    for name, of in (("medians", statistics.median), ("least", min)):
        print(f"{name}: engine {of(engine):.3f} s, LLM.generate {of(package):.3f} s "
              f"({of(package) / of(engine) - 1:+.1%}), caller's thread {of(shares):.2%}")
    if options.output_json:
        now = datetime.datetime.now(datetime.timezone.utc)
        document = {"command": " ".join(sys.argv), "date": now.isoformat(timespec="seconds"),
                    "version": __version__, "cores": len(os.sched_getaffinity(0)),
                    "result": {"engine_s": engine, "generate_s": package,
                               "share_of_callers_thread": shares}}
        with open(options.output_json, "w", encoding="utf-8") as file:
            json.dump(document, file, indent=1)
            file.write("\n")


if __name__ == "__main__":
    main()
