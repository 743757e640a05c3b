#!/usr/bin/env python3
"""Writes src/halley/simulation/measured_ratios.cc: how much longer steps take than their roofline
time, from the files of bench/results that were measured on an NVIDIA H200.

    tools/make_step_ratios.py
"""

import json
import os

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
RESULTS = os.path.join(ROOT, "bench", "results")
OUTPUT = os.path.join(ROOT, "src", "halley", "simulation", "measured_ratios.cc")
PRECISIONS = ("f16", "fp8", "nested_full", "nested_low", "w4a16", "w4a8", "w4a8_group", "w4ax")
LATENCY_BATCHES = (1, 16, 64, 128)

HEAD = """// Step times over roofline times. Made by tools/make_step_ratios.py from bench/results.
#include "halley/simulation/step_ratios.h"

namespace halley {
namespace {

constexpr MeasuredRatio kRatios[] = {
"""
TAIL = """};

}  // namespace

std::span<const MeasuredRatio> measured_ratios() { return kRatios; }

}  // namespace halley
"""


def result_of(name):
    with open(os.path.join(RESULTS, name), encoding="utf-8") as file:
        return json.load(file)["result"]


def rows_of(precision):
    """(rows, ratio, file, whether it is of prefill steps), by ascending rows."""
    for batch in LATENCY_BATCHES:
        name = f"gpu_latency_{precision}_batch{batch}.json"
        result = result_of(name)
        yield (batch, result["median_time_per_output_token_s"] / result["decode_step_floor_s"],
               name, False)
    name = f"gpu_throughput_{precision}.json"
    result = result_of(name)
    times = result["device_times"]
    yield (round(times["decode_step_sequences"]),
           times["decode_step_s"] / times["decode_step_floor_s"], name, False)
    first = f"gpu_latency_{precision}_batch1.json"
    single = result_of(first)
    yield (single["input_len"], single["time_to_first_token_s"] / single["first_token_floor_s"],
           first, True)
    yield (result["max_num_batched_tokens"],
           times["prefill_steps_s"] / result["prefill_floor_s"], name, True)


def main():
    with open(OUTPUT, "w", encoding="utf-8") as file:
        file.write(HEAD)
        for precision in PRECISIONS:
            for rows, ratio, name, is_prefill in rows_of(precision):
                kind = "true" if is_prefill else "false"
                file.write(f'    {{"{precision}", {rows}, {ratio:.4f}, "{name}", {kind}}},\n')
        file.write(TAIL)


if __name__ == "__main__":
    main()
