#!/usr/bin/env python3
"""The sizing table of docs/deployment.md: how many replicas a load of conversations needs, by
`halley simulate`.

    tools/make_sizing_table.py HALLEY_BINARY   simulate, write bench/results/sizing.json
    tools/make_sizing_table.py --write         bring the page up to date with that file
    tools/make_sizing_table.py --check         exit with 1 where it is not
"""
import datetime
import json
import os
import shlex
import subprocess
import sys
import tempfile

SOURCE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(SOURCE, "tests", "serve"))
import result_file  # noqa: E402

RESULT = os.path.join(SOURCE, "bench", "results", "sizing.json")
PAGE = os.path.join(SOURCE, "docs", "deployment.md")
BEGIN, END = "<!-- sizing:begin (tools/make_sizing_table.py --write) -->\n", "<!-- sizing:end -->"
TRACE = "testdata/traces/azure_llm_2023_conv.csv"
TRACE_REQUESTS_PER_S = 5
REQUESTS_PER_S = (10, 40, 160)
# A quarter of each device stays unused (docs/simulate.md, "How far to trust it").
HEADROOM = 4 / 3
SLO = "ttft=500ms,tpot=50ms"
# (device, quant-config, precision, name)
CASES = (("h100", "f16", "full", "f16"), ("h100", "fp8", "full", "FP8"),
         ("h100", "w4a16", "full", "4 bits, W4A16"), ("h200", "f16", "full", "f16"),
         ("h200", "fp8", "full", "FP8"), ("h200", "nestedfp", "auto", "NestedFP, `auto`"),
         ("h200", "w4a16", "full", "4 bits, W4A16"), ("h200", "w4a8", "full", "4 bits, W4A8"))


def simulate(binary, device, quant_config, precision, requests_per_s):
    scale = requests_per_s / TRACE_REQUESTS_PER_S * HEADROOM
    command = ["halley", "simulate", "--config", "llama-3.1-8b", "--quant-config", quant_config,
               "--device", device, "--precision", precision, "--trace", TRACE, "--rate-scale",
               f"{scale:.4f}", "--slo", SLO, "--find-num-gpus", "99"]
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "result.json")
        subprocess.run([binary, *command[1:], "--output-json", path], check=True, cwd=SOURCE,
                       stdout=subprocess.DEVNULL)
        with open(path, encoding="utf-8") as file:
            result = json.load(file)
    return {"command": shlex.join(command), "requests_per_s": requests_per_s,
            **{name: result["simulation"][name] for name in (
                "num_gpus", "meets_goal", "seconds_that_keep_slo", "seconds", "kv_cache_tokens",
                "peak_kv_cache_usage", "device_busy_share")},
            **{name: result[name] for name in ("p90_ttft_ms", "p90_tpot_ms")}}


def make_result(binary):
    cases = []
    for device, quant_config, precision, name in CASES:
        runs = [simulate(binary, device, quant_config, precision, rate) for rate in REQUESTS_PER_S]
        cases.append({"device": device, "weights": name, "runs": runs})
    now = datetime.datetime.now(datetime.timezone.utc)
    return {"command": "tools/make_sizing_table.py HALLEY_BINARY",
            "date": now.isoformat(timespec="seconds"), "commit": result_file.commit_of(SOURCE),
            "slo": SLO, "result": cases}


def table_of(result):
    lines = ["| GPU | weights | " + " | ".join(f"{rate} requests/s" for rate in REQUESTS_PER_S)
             + " | KV cache, tokens |", "|---|---|" + "---:|" * (len(REQUESTS_PER_S) + 1)]
    for case in result["result"]:
        counts = [str(run["num_gpus"]) if run["meets_goal"] else "none found"
                  for run in case["runs"]]
        lines.append(f"| {case['device'].upper()} | {case['weights']} | " + " | ".join(counts)
                     + f" | {case['runs'][0]['kv_cache_tokens']:,} |")
    return "\n".join(lines) + "\n"


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    if not sys.argv[1].startswith("--"):
        result = make_result(os.path.abspath(sys.argv[1]))
        with open(RESULT, "w", encoding="utf-8") as file:
            json.dump(result, file, indent=1)
            file.write("\n")
        print(table_of(result), end="")
        return
    with open(RESULT, encoding="utf-8") as file:
        table = table_of(json.load(file))
    with open(PAGE, encoding="utf-8") as file:
        page = file.read()
    begin, end = page.index(BEGIN) + len(BEGIN), page.index(END)
    made = page[:begin] + "\n" + table + "\n" + page[end:]
    if sys.argv[1] == "--check":
        if made != page:
            sys.exit("docs/deployment.md: the table is not that of bench/results/sizing.json. Run "
                     "tools/make_sizing_table.py --write.")
        return
    with open(PAGE, "w", encoding="utf-8") as file:
        file.write(made)


if __name__ == "__main__":
    main()
