#!/usr/bin/env python3
"""Measures what docs/benchmarks.md has of GPUs.

    tools/bench_gpu.py --halley build/release/bin/halley [--results bench/results] [--seconds 900]
                       [--parts PATTERN,PATTERN...] [--list] [--rows] [--device cuda:0]
                       [--commit ID]

Runs each part as a process of its own and writes

    bench/results/gpu_<part>.json    every number, with GPU, driver, date, commit and command
    bench/results/gpu_gemm.svg       what share of the floor products reach
    bench/results/gpu_summary.md     one line a part

and prints the rows of the tables in docs/benchmarks.md for the parts that have a file (--rows: this
alone). All forms of weights beside each other:

    tools/bench_gpu.py --parts 'latency_*_batch*,throughput_*'

Weights are made up, with the sizes of Llama-3 8B. A part that fails, or for which no time is left,
is named at the end and the others run; the exit code is then 1. All parts take about ten minutes
on an H200. Needs Python alone.
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

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
CONFIGS = os.path.join(ROOT, "bench", "configs")


@dataclasses.dataclass(frozen=True)
class Form:
    """Weights as a checkpoint stores them: what tables call them, and their configuration."""
    name: str
    args: tuple = ()


def form(name, config, *more):
    return Form(name, ("--quant-config", os.path.join(CONFIGS, config), *more))


FORMS = {
    "f16": Form("f16"),
    "fp8": form("FP8", "fp8_dynamic.json"),
    "w4a16": form("W4A16 (GPTQ, groups of 128)", "gptq_w4a16_g128.json"),
    "w4a8": form("W4A8 (QoQ, a scale for each output)", "qoq_w4a8.json"),
    "w4a8_group": form("W4A8 (QoQ, groups of 128)", "qoq_w4a8_g128.json"),
    "w4ax": form("W4Ax (FMPQ)", "fmpq_w4ax.json"),
    "nested_full": form("NestedFP, in f16", "nestedfp.json"),
    "nested_low": form("NestedFP, in FP8", "nestedfp.json", "--precision", "low"),
}
BATCHES = (1, 16, 64, 128)
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


def latency(key, batch_size, input_len, output_len, *more, iters=1, seconds=90):
    return Part(key, ("bench", "latency", *SHAPE, "--batch-size", str(batch_size), "--input-len",
                      str(input_len), "--output-len", str(output_len), "--num-iters", str(iters),
                      *more), seconds)


def throughput(key, num_prompts, *more, seconds=150):
    return Part(key, ("bench", "throughput", *SHAPE, "--num-prompts", str(num_prompts),
                      "--input-len", "1024", "--output-len", "512", *more), seconds)


def decodes(key, batch_size):
    """Of one form behind 1024 tokens. The prompts of large batches take most of the time and all
    of it alike, so that nothing runs before them."""
    more = () if batch_size <= 16 else ("--num-iters-warmup", "0")
    return latency(f"latency_{key}_batch{batch_size}", batch_size, 1024, 64, *FORMS[key].args,
                   *more)


# In the order in which they run: what counts most comes first. A prompt of 8191 tokens and one
# more fill the 8192 positions of the shape.
PARTS = [
    *(decodes(key, batch_size) for batch_size in BATCHES for key in FORMS),
    *(throughput(f"throughput_{key}", 512, *FORMS[key].args) for key in FORMS),
    latency("latency_f16_prefill8192", 1, 8191, 1, iters=5),
    Part("attention", ("bench", "attention"), 60, has_model=False),
    latency("profile_f16_batch1", 1, 1024, 128, "--profile"),
    latency("profile_f16_batch64", 64, 1024, 128, "--profile"),
    latency("profile_f16_prefill8192", 1, 8191, 1, "--profile"),
    *(latency(f"profile_{key}_batch1", 1, 1024, 64, *FORMS[key].args, "--profile")
      for key in FORMS if key != "f16"),
    Part("gemm", ("bench", "gemm"), 120, has_model=False, has_picture=True),
    Part("ablation", ("bench", "ablation"), 90, has_model=False),
    throughput("throughput_f16_many", 1200, *MANY, "600"),
    throughput("throughput_fp8_many", 1200, *FORMS["fp8"].args, *MANY, "1200", "--kv-dtype", "fp8"),
    *(throughput(f"throughput_{key}_many", 1200, *FORMS[key].args, *MANY, "1200", "--kv-dtype",
                 "int4") for key in ("w4a8", "w4ax")),
]


def commit():
    """The checkout's, with a plus sign where files differ from it; empty outside of git. --commit
    says it where the program was built elsewhere."""
    def git(*args):
        result = subprocess.run(["git", "-C", ROOT, *args], capture_output=True, text=True,
                                check=False)
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
    start = time.monotonic()
    try:
        result = subprocess.run([*command, "--output-json", raw], capture_output=True, text=True,
                                timeout=min(part.seconds, seconds_left), check=False)
    except subprocess.TimeoutExpired:
        return f"took more than {min(part.seconds, seconds_left):.0f} s"
    except OSError as error:
        return str(error)
    sys.stderr.write(result.stderr)
    print(result.stdout, end="", flush=True)
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


def summary_line(key, result):
    """The numbers of a part that people ask for first."""
    if "requests_per_s" in result:
        return (f"| {key} | {result['output_tokens_per_s']:.0f} output tokens/s, "
                f"{result['total_tokens_per_s']:.0f} in all, largest batch "
                f"{result['largest_batch']} | {100 * result['roofline_share']:.1f} % |")
    if "decode_step_floor_s" in result:
        text = f"TTFT {1e3 * result['time_to_first_token_s']:.1f} ms"
        share = result["first_token_roofline_share"]
        if result["output_len"] > 1:
            text += (f", decode step {1e3 * result['median_time_per_output_token_s']:.2f} ms "
                     f"(floor {1e3 * result['decode_step_floor_s']:.2f})")
            share = result["decode_roofline_share"]
        return f"| {key} | {text} | {100 * share:.1f} % |"
    if "over_full" in result:
        ratios = ", ".join(f"{name} {ratio:.2f}" for name, ratio in result["over_full"].items())
        return f"| {key} | geometric means of times: {ratios} | - |"
    rows = result.get("attention") or result.get("products") or []
    # Of products those that layers run.
    shares = sorted(row["roofline_share"] for row in rows if row.get("is_chosen", True))
    if not shares:
        return f"| {key} | nothing measured | - |"
    return (f"| {key} | {len(shares)} shapes, {100 * shares[0]:.0f} to {100 * shares[-1]:.0f} % | "
            f"{100 * shares[len(shares) // 2]:.1f} % (median) |")


def measured_parts(options):
    """(part, result) of all that have a file, of this run or an earlier one."""
    for part in PARTS:
        path = os.path.join(options.results, f"gpu_{part.key}.json")
        if os.path.exists(path):
            with open(path, encoding="utf-8") as file:
                yield part, json.load(file)["result"]


def write_summary(options):
    lines = ["| part | measured | of the roofline |", "|---|---|---|"]
    lines += [summary_line(part.key, result) for part, result in measured_parts(options)]
    with open(os.path.join(options.results, "gpu_summary.md"), "w", encoding="utf-8") as file:
        file.write("\n".join(lines) + "\n")
    print("\n".join(lines))


def latency_row(name, batch_size, result):
    step = result["median_time_per_output_token_s"]
    floor = result["decode_step_floor_s"]
    return (f"| {name}, {batch_size} | {1e3 * result['time_to_first_token_s']:.1f} | "
            f"{1e3 * step:.2f} | {1e3 * floor:.2f} | {step / floor:.2f} | "
            f"{batch_size / step:.0f} |")


# Problems of `halley bench gemm`: what tables call them.
PRODUCTS = {
    "f16": "f16",
    "fp8_tensor": "FP8, one scale each",
    "fp8_row": "FP8, a scale for each row and output",
    "s8": "INT8",
    "u4_s8": "W4A8, a scale for each output",
    "u4_group_s8": "W4A8, groups of 128",
    "w4ax": "W4Ax",
    "u4_f16": "W4A16, groups of 128",
    "u4_bf16": "W4A16 in bf16",
    "u8_f16": "W8A16, groups of 128",
    "u8_bf16": "W8A16 in bf16",
    "nested_f16": "NestedFP, in f16",
    "nested_fp8": "NestedFP, in FP8",
    "u3_f16": "W3A16, groups of 128",
    "u2_f16": "W2A16, groups of 128",
    "u1_f16": "W1A16, groups of 128",
    "u2_s8": "W2A8, a scale for each output",
    "u1_s8": "W1A8, a scale for each output",
}


def first_of(*numbers):
    """The first that is there."""
    return next((number for number in numbers if number is not None), None)


def print_product_means(result):
    """Times by floors; in brackets without early starts, where the kernels have them."""
    means = {(mean["problem"], mean["M"]): mean for mean in result["summary"]["problems"]}
    ratios = {(mean["name"], mean["M"]): mean for mean in result["summary"]["ratios"]}
    rows = sorted({M for _, M in means})

    def line(name, by_rows, key, early_key):
        cells = []
        for M in rows:
            mean = by_rows(M)
            cell = "" if mean is None or mean[key] is None else f"{mean[key]:.2f}"
            if cell and early_key and mean[early_key] is not None:
                cell = f"{mean[early_key]:.2f} ({cell})"
            cells.append(cell)
        if any(cells):
            print(f"| {name} | {' | '.join(cells)} |")

    def head(first):
        print(f"\n| {first} | {' | '.join(map(str, rows))} |\n|---|{'---:|' * len(rows)}")

    head("time / floor, rows of X")
    for key, name in PRODUCTS.items():
        line(name, lambda M, key=key: means.get((key, M)), "over_floor", "early_over_floor")
    head("cuBLASLt's best / floor, rows of X")
    for key in ("f16", "u4_s8", "u4_f16"):
        line(f"floor of {PRODUCTS[key]}", lambda M, key=key: means.get((key, M)),
             "cublaslt_over_floor", None)
    head("times, rows of X")
    for name in dict.fromkeys(name for name, _ in ratios):
        line(name, lambda M, name=name: ratios.get((name, M)), "ratio", "early_ratio")


def print_product_times(result):
    """Microseconds, with early starts where the kernels have them."""
    columns = {"floor": {}, "W4A8": {}, "W4A16": {}, "W4Ax": {}, "cuBLASLt f16": {},
               "cuBLASLt FP8": {}}
    for row in result["products"]:
        shape = (f"{row['N']} x {row['K']}", row["M"])
        microseconds = first_of(row.get("us_early"), row["us"])
        column = {"u4_s8": "W4A8", "u4_f16": "W4A16", "w4ax": "W4Ax"}.get(row["problem"])
        if column and row["is_chosen"]:
            columns[column][shape] = microseconds
            if column == "W4A8":
                columns["floor"][shape] = row["floor_us"]
        column = {"f16": "cuBLASLt f16", "fp8_tensor": "cuBLASLt FP8"}.get(row["problem"])
        if column and "cublaslt" in row["kernel"]:
            best = columns[column].get(shape, row["us"])
            columns[column][shape] = min(best, row["us"], microseconds)
    print(f"\n| layer | rows | {' | '.join(columns)} |\n|---|---:|{'---:|' * len(columns)}")
    for shape in dict.fromkeys(shape for column in columns.values() for shape in column):
        cells = [f"{column[shape]:.1f}" if shape in column else "" for column in columns.values()]
        print(f"| {shape[0]} | {shape[1]} | {' | '.join(cells)} |")


def print_rows(options):
    """The tables of docs/benchmarks.md that compare forms of weights."""
    results = {part.key: result for part, result in measured_parts(options)}
    if results.get("gemm", {}).get("summary"):
        print_product_means(results["gemm"])
        print_product_times(results["gemm"])
    rows = []
    for key, weights in FORMS.items():
        for batch_size in BATCHES:
            result = results.get(f"latency_{key}_batch{batch_size}")
            if result:
                rows.append(latency_row(weights.name, batch_size, result))
    print("\n| weights, batch | first token, ms | decode step, ms | floor, ms | step / floor | "
          "tokens/s |\n|---|---:|---:|---:|---:|---:|", *rows, sep="\n")
    rows = []
    for key, weights in FORMS.items():
        for suffix in ("", "_many"):
            result = results.get(f"throughput_{key}{suffix}")
            if result:
                rows.append(f"| {weights.name}, {result['kv_dtype']} | {result['largest_batch']} | "
                            f"{result['output_tokens_per_s']:.0f} | "
                            f"{result['total_tokens_per_s']:.0f} | "
                            f"{100 * result['roofline_share']:.0f} % |")
    print("\n| weights, KV cache | sequences at a time | output tokens/s | all tokens/s | of the "
          "run's roofline |\n|---|---:|---:|---:|---:|", *rows, sep="\n")


def parts_of(patterns):
    """Parts that match one of the patterns, and the patterns that no part matches."""
    named = [part for part in PARTS
             if any(fnmatch.fnmatchcase(part.key, pattern) for pattern in patterns)]
    unknown = [pattern for pattern in patterns
               if not any(fnmatch.fnmatchcase(part.key, pattern) for part in PARTS)]
    return named, unknown


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--halley", default=os.path.join(ROOT, "build", "release", "bin", "halley"))
    parser.add_argument("--results", default=os.path.join(ROOT, "bench", "results"))
    parser.add_argument("--parts", default="*",
                        help="only these, separated by commas; * and ? stand for any characters")
    parser.add_argument("--seconds", type=float, default=900, help="for all parts together")
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--commit", help="what the program was built from, where not here")
    parser.add_argument("--list", action="store_true", help="print the commands and end")
    parser.add_argument("--rows", action="store_true",
                        help="print the rows of the results that are there and end")
    options = parser.parse_args()
    parts, unknown = parts_of(options.parts.split(","))
    if unknown:
        parser.error(f"--parts: expected some of {', '.join(part.key for part in PARTS)}, got "
                     f"{', '.join(unknown)}")
    if options.rows:
        print_rows(options)
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
        failure = "no time left" if left < 5 else run_part(part, options, facts, left)
        if failure:
            failures.append(f"{part.key}: {failure}")
            print(f"failed: {failure}", flush=True)
    write_summary(options)
    print_rows(options)
    for failure in failures:
        print(f"failed: {failure}", file=sys.stderr)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
