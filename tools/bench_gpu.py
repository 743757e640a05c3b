#!/usr/bin/env python3
"""Measures what docs/benchmarks.md has of GPUs.

    tools/bench_gpu.py --halley build/release/bin/halley [--results bench/results] [--seconds 900]
                       [--parts PATTERN,PATTERN...] [--list] [--rows] [--write] [--check]
                       [--device cuda:0] [--commit ID]

Runs each part as a process of its own and writes

    bench/results/gpu_<part>.json    every figure, with GPU, driver, date, commit and command
    bench/results/gpu_gemm.svg       the share of the floor that GEMMs reach
    bench/results/gpu_summary.md     one line a part

and prints the tables of docs/benchmarks.md for the parts that have a file (--rows: this alone;
--write: into the page). All kinds of weights in one run:

    tools/bench_gpu.py --parts 'latency_*_batch*,throughput_*'

Weights are synthetic, with the sizes of Llama-3 8B, and 70B on two GPUs; parts for more GPUs than
there are are left out. A part that fails, or for which no time is
left, is named at the end and the others run; the exit code is then 1. All parts but trtllm_* and
moe_*, which run where they are named, take about ten minutes on an H200. Needs Python alone.
"""

import argparse
import dataclasses
import datetime
import fnmatch
import json
import os
import shlex
import subprocess
import sys
import time

from bench_tables import (BATCHES, KV_DTYPES, MOE_BATCHES, MOE_FORMS, MOE_SHAPES, QUEUE_FORMS,
                          TABLES, TP_FORMS, TP_SIZES, TRTLLM, queue_key, summary_line, with_tables)

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
CONFIGS = os.path.join(ROOT, "bench", "configs")
PAGE = os.path.join(ROOT, "docs", "benchmarks.md")
MODEL = os.path.join(ROOT, "models", "demo-21m")
TEXT = os.path.join(ROOT, "testdata", "text", "docs_heldout.txt")


def config(name, *more):
    """Options of the program for weights in this configuration."""
    return ("--quant-config", os.path.join(CONFIGS, name), *more)


OPTIONS = {
    "f16": (),
    "fp8": config("fp8_dynamic.json"),
    "w4a16": config("gptq_w4a16_g128.json"),
    "w4a8": config("qoq_w4a8.json"),
    "w4a8_group": config("qoq_w4a8_g128.json"),
    "w4ax": config("fmpq_w4ax.json"),
    "nested_full": config("nestedfp.json"),
    "nested_low": config("nestedfp.json", "--precision", "low"),
}
# Tokens that an H200 holds next to the weights, by shape and type of the KV cache.
KV_TOKENS = {("8b", "f16"): 840_000, ("8b", "fp8"): 1_760_000, ("8b", "int4"): 3_400_000,
             ("70b", "fp8"): 330_000, ("70b", "int4"): 1_000_000}
# As many sequences as the memory of an H200 holds.
MANY = ("--gpu-memory-utilization", "0.94", "--max-num-seqs")
SHAPE = ["--load-format", "dummy", "--config", "llama-3-8b", "--dtype", "float16"]


@dataclasses.dataclass(frozen=True)
class Part:
    """One run of the program: what it measures and how long it may take."""
    key: str
    args: tuple
    seconds: int  # at most
    has_model: bool = True
    has_picture: bool = False
    prints_json: bool = False  # to standard output with --json, for want of --output-json
    num_gpus: int = 1
    only_by_name: bool = False  # --parts has to name it: it takes long


def latency(key, batch_size, input_len, output_len, *more, iters=1, seconds=90):
    return Part(key, ("bench", "latency", *SHAPE, "--batch-size", str(batch_size), "--input-len",
                      str(input_len), "--output-len", str(output_len), "--num-iters", str(iters),
                      *more), seconds)


def throughput(key, num_prompts, *more, seconds=150):
    return Part(key, ("bench", "throughput", *SHAPE, "--num-prompts", str(num_prompts),
                      "--input-len", "1024", "--output-len", "512", *more), seconds)


def perplexity(kv_dtype):
    return Part(f"perplexity_kv_{kv_dtype}",
                ("eval", os.path.relpath(MODEL), "--perplexity", os.path.relpath(TEXT),
                 "--kv-dtype", kv_dtype, "--json"), 60, prints_json=True)


def decodes(key, batch_size):
    """One kind of weights after 1024 tokens. The prompts of large batches take most of the time
    and take it alike, so that nothing runs before them."""
    more = () if batch_size <= 16 else ("--num-iters-warmup", "0")
    return latency(f"latency_{key}_batch{batch_size}", batch_size, 1024, 64, *OPTIONS[key],
                   *more)


def divided(shape, key, num_gpus, batch_sizes, input_len, output_len, seconds, *more):
    """A model on several GPUs, or the same on one. Several sizes of batches run on one load."""
    what = "prefill" if output_len == 1 else "decode"
    return Part(f"tp{num_gpus}_{shape}_{key}_{what}",
                ("bench", "latency", "--load-format", "dummy", "--config", f"llama-3-{shape}",
                 "--dtype", "float16", *OPTIONS[key], "--tensor-parallel-size", str(num_gpus),
                 "--batch-size", batch_sizes, "--input-len", str(input_len), "--output-len",
                 str(output_len), "--no-self-check", *more), seconds, num_gpus=num_gpus)


def divided_parts():
    """Of each shape on one GPU and on two: batches of decodes, and a prompt. Two H100s of 80 GB
    hold all of them."""
    most = ("--gpu-memory-utilization", "0.97", "--max-num-batched-tokens", "2048")
    for num_gpus in TP_SIZES:
        for key in TP_FORMS["8b"]:
            yield divided("8b", key, num_gpus, "1,32", 1024, 64, 90)
        for key in ("w4a8", "fp8"):
            yield divided("70b", key, num_gpus, "1,64", 64, 64, 200, *most)
            yield divided("70b", key, num_gpus, "1", 8191, 1, 200, *most[:2])
    yield divided("70b", "f16", 2, "1,16", 64, 64, 300, *most)


def queues():
    """The lengths that TensorRT-LLM publishes; all kinds of weights of one length come together."""
    for shape, rows in TRTLLM.items():
        config_of = {"8b": "llama-3.1-8b", "70b": "llama-3-70b"}[shape]
        for (input_len, output_len), row in rows.items():
            for key, kv_dtype in QUEUE_FORMS[shape].items():
                # As many sequences as the cache holds from start to end, so that none is preempted.
                most = KV_TOKENS[shape, kv_dtype] // (input_len + output_len)
                yield Part(queue_key(shape, key, input_len, output_len),
                           ("bench", "throughput", "--load-format", "dummy", "--config", config_of,
                            "--dtype", "float16", *OPTIONS[key], "--kv-dtype", kv_dtype,
                            "--num-prompts", str(row.num_prompts), "--input-len", str(input_len),
                            "--output-len", str(output_len), "--max-num-seqs",
                            str(min(most, row.num_prompts, 2048)), "--gpu-memory-utilization",
                            "0.94", "--no-self-check"), 300, only_by_name=True)


def mixtures():
    """Mixtures of experts: decode steps of several batches on one load, and a prompt."""
    for shape in MOE_SHAPES:
        for key in MOE_FORMS:
            model = ("bench", "latency", "--load-format", "dummy", "--config", shape, "--dtype",
                     "float16", *OPTIONS[key], "--no-self-check", "--num-iters", "1")
            yield Part(f"moe_{shape}_{key}_decode",
                       (*model, "--batch-size", ",".join(map(str, MOE_BATCHES)), "--input-len",
                        "256", "--output-len", "32"), 120, only_by_name=True)
            yield Part(f"moe_{shape}_{key}_prefill",
                       (*model, "--batch-size", "1", "--input-len", "8191", "--output-len", "1"),
                       120, only_by_name=True)


# In the order in which they run: what counts most comes first. A prompt of 8191 tokens and one
# more fill the 8192 positions of the shape.
PARTS = [
    *(decodes(key, batch_size) for batch_size in BATCHES for key in OPTIONS),
    *(throughput(f"throughput_{key}", 512, *OPTIONS[key]) for key in OPTIONS),
    latency("latency_f16_prefill8192", 1, 8191, 1, iters=5),
    latency("latency_f16_prefill8192_invariant", 1, 8191, 1, "--batch-invariant", iters=3),
    latency("latency_f16_batch1_invariant", 1, 1024, 64, "--batch-invariant"),
    Part("attention", ("bench", "attention"), 60, has_model=False),
    Part("sampling", ("bench", "sampling"), 60, has_model=False),
    *(perplexity(kv_dtype) for kv_dtype in KV_DTYPES),
    latency("profile_f16_batch1", 1, 1024, 128, "--profile"),
    latency("profile_f16_batch64", 64, 1024, 128, "--profile"),
    latency("profile_f16_prefill8192", 1, 8191, 1, "--profile"),
    *(latency(f"profile_{key}_batch1", 1, 1024, 64, *OPTIONS[key], "--profile")
      for key in OPTIONS if key != "f16"),
    Part("gemm", ("bench", "gemm"), 120, has_model=False, has_picture=True),
    Part("ablation", ("bench", "ablation"), 90, has_model=False),
    throughput("throughput_f16_many", 1200, *MANY, "600"),
    throughput("throughput_fp8_many", 1200, *OPTIONS["fp8"], *MANY, "1200", "--kv-dtype", "fp8"),
    *(throughput(f"throughput_{key}_many", 1200, *OPTIONS[key], *MANY, "1200", "--kv-dtype",
                 "int4") for key in ("w4a8", "w4ax")),
    *(Part(f"all_reduce_tp{n}", ("bench", "all-reduce", "--tensor-parallel-size", str(n)), 60,
           has_model=False, num_gpus=n) for n in (2, 4)),
    *divided_parts(),
    # The first requests decode together with the prompts of the last ones, for 128 steps.
    latency("profile_w4a8_batch1024", 1024, 1024, 320, *OPTIONS["w4a8"], "--kv-dtype", "int4",
            "--gpu-memory-utilization", "0.94", "--num-iters-warmup", "0", "--profile",
            seconds=120),
    latency("profile_w4a8_prefill8192", 1, 8191, 1, *OPTIONS["w4a8"], "--kv-dtype", "int4",
            "--profile"),
    Part("experts", ("bench", "experts"), 90, has_model=False),
    *mixtures(),
    *queues(),
]


def commit():
    """The checkout's, with a plus sign where files differ from it; empty outside of git or without
    it. --commit says it where the program was built elsewhere."""
    def git(*args):
        try:
            result = subprocess.run(["git", "-C", ROOT, *args], capture_output=True, text=True,
                                    check=False)
        except OSError:
            return ""
        return result.stdout.strip() if result.returncode == 0 else ""

    name = git("rev-parse", "--short=12", "HEAD")
    return name + ("+" if name and git("status", "--porcelain", "--untracked-files=no") else "")


def nvidia_smi():
    """Name, driver and clocks of the GPUs; nothing where there is no nvidia-smi."""
    fields = "name,driver_version,memory.total,clocks.max.sm,clocks.max.mem,power.limit"
    try:
        result = subprocess.run(["nvidia-smi", f"--query-gpu={fields}", "--format=csv,noheader"],
                                capture_output=True, text=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return []
    if result.returncode != 0:
        return []
    return [dict(zip(fields.split(","), map(str.strip, line.split(","))))
            for line in result.stdout.splitlines()]


def command_of(part, options):
    device = ["--device", options.device] if part.has_model else \
        ["--device", options.device.partition(":")[2] or "0"]
    picture = ["--svg", os.path.join(options.results, f"gpu_{part.key}.svg")] \
        if part.has_picture else []
    return [options.halley, *part.args, *device, *picture]


def run_part(part, options, facts, seconds_left):
    """Runs a part and writes its file. Returns what went wrong, or nothing."""
    path = os.path.join(options.results, f"gpu_{part.key}.json")
    command = command_of(part, options)
    raw = path + ".partial"
    output = [] if part.prints_json else ["--output-json", raw]
    start = time.monotonic()
    try:
        result = subprocess.run([*command, *output], capture_output=True, text=True,
                                timeout=min(part.seconds, seconds_left), check=False)
    except subprocess.TimeoutExpired:
        return f"took more than {min(part.seconds, seconds_left):.0f} s"
    except OSError as error:
        return str(error)
    sys.stderr.write(result.stderr)
    print(result.stdout, end="", flush=True)
    if part.prints_json:
        with open(raw, "w", encoding="utf-8") as file:
            file.write(result.stdout)
    try:
        if result.returncode != 0:
            lines = result.stderr.strip().splitlines() or ["no message"]
            return f"exit code {result.returncode}: {lines[-1]}"
        with open(raw, encoding="utf-8") as file:
            measured = json.load(file)
    finally:
        if os.path.exists(raw):
            os.remove(raw)
    shown = [os.path.relpath(word, ROOT) if os.path.isabs(word) else word for word in command]
    document = {"command": shlex.join(shown), **facts, "seconds": time.monotonic() - start,
                "result": measured}
    with open(path, "w", encoding="utf-8") as file:
        json.dump(document, file, indent=1)
        file.write("\n")
    return ""


def measured_parts(options):
    """The documents by part of all that have a file, of this run or an earlier one."""
    documents = {}
    for part in PARTS:
        path = os.path.join(options.results, f"gpu_{part.key}.json")
        if os.path.exists(path):
            with open(path, encoding="utf-8") as file:
                documents[part.key] = json.load(file)
    return documents


def write_summary(options):
    lines = ["| part | measured | of the roofline |", "|---|---|---|"]
    lines += [summary_line(key, document["result"])
              for key, document in measured_parts(options).items()]
    with open(os.path.join(options.results, "gpu_summary.md"), "w", encoding="utf-8") as file:
        file.write("\n".join(lines) + "\n")
    print("\n".join(lines))


def print_tables(options):
    """The tables of docs/benchmarks.md that have something measured."""
    results = {key: document["result"] for key, document in measured_parts(options).items()}
    for make in TABLES.values():
        if lines := make(results):
            print("", *lines, sep="\n")


def update_page(options):
    """Writes the tables into docs/benchmarks.md, or with --check compares them. Returns the exit
    code: 1 where --check finds others."""
    with open(PAGE, encoding="utf-8") as file:
        page = file.read()
    wanted = with_tables(page, measured_parts(options))
    if not options.check:
        with open(PAGE, "w", encoding="utf-8") as file:
            file.write(wanted)
    elif page != wanted:
        print(f"{os.path.relpath(PAGE, ROOT)}: expected the tables of bench/results. Run "
              "tools/bench_gpu.py --write.", file=sys.stderr)
        return 1
    return 0


def parts_of(patterns):
    """Parts that match one of the patterns, and the patterns that no part matches. Without any,
    the parts that need not be named."""
    if not patterns:
        return [part for part in PARTS if not part.only_by_name], []
    named = [part for part in PARTS
             if any(fnmatch.fnmatchcase(part.key, pattern) for pattern in patterns)]
    unknown = [pattern for pattern in patterns
               if not any(fnmatch.fnmatchcase(part.key, pattern) for part in PARTS)]
    return named, unknown


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--halley", default=os.path.join(ROOT, "build", "release", "bin", "halley"))
    parser.add_argument("--results", default=os.path.join(ROOT, "bench", "results"))
    parser.add_argument("--parts",
                        help="only these, separated by commas; * and ? stand for any characters; "
                        "default: all but trtllm_* and moe_*")
    parser.add_argument("--seconds", type=float, default=900, help="for all parts together")
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--commit", help="what the program was built from, where not here")
    parser.add_argument("--list", action="store_true", help="print the commands and end")
    parser.add_argument("--rows", action="store_true",
                        help="print the tables of the results that are there and end")
    parser.add_argument("--write", action="store_true",
                        help="write these tables into docs/benchmarks.md and end")
    parser.add_argument("--check", action="store_true",
                        help="say whether docs/benchmarks.md has these tables and end")
    options = parser.parse_args()
    parts, unknown = parts_of(options.parts.split(",") if options.parts else [])
    if unknown:
        parser.error(f"--parts: expected some of {', '.join(part.key for part in PARTS)}, got "
                     f"{', '.join(unknown)}")
    if options.write or options.check:
        return update_page(options)
    if options.rows:
        print_tables(options)
        return 0
    if options.list:
        for part in parts:
            print(f"{part.key}: {shlex.join(command_of(part, options))}")
        return 0
    os.makedirs(options.results, exist_ok=True)
    facts = {"date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
             "commit": options.commit or commit(), "gpus": nvidia_smi()}
    end = time.monotonic() + options.seconds
    failures = []
    for part in parts:
        left = end - time.monotonic()
        print(f"== {part.key} ({left:.0f} s left)", flush=True)
        if part.num_gpus > max(1, len(facts["gpus"])):
            print(f"left out: it needs {part.num_gpus} GPUs")
            continue
        failure = "no time left" if left < 5 else run_part(part, options, facts, left)
        if failure:
            failures.append(f"{part.key}: {failure}")
            print(f"failed: {failure}", flush=True)
    write_summary(options)
    print_tables(options)
    for failure in failures:
        print(f"failed: {failure}", file=sys.stderr)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
