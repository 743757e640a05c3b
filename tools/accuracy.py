#!/usr/bin/env python3
"""Measures what each method of quantization costs, and writes the tables.

    tools/accuracy.py --halley build/release/bin/halley [--models demo,twin] [--rows KEY,KEY...]
                      [--threads N] [--windows N] [--samples N] [--batch N] [--list] [--report-only]

Makes the outlier twin of the demo model (tools/outlier_twin.py; that needs NumPy, the rest Python
alone), quantizes both by each row of ROWS, compares what came out with the f16 model on two texts
(`halley compare`), and writes

    bench/results/accuracy_demo.json, accuracy_twin.json    every number, with device, date, commit
    bench/results/accuracy_ablation_*.json                  the same with one technique left out, on
                                                            the first windows of the texts
    docs/accuracy.md                                        tables, between its two marks
    docs/accuracy.svg, docs/accuracy_twin.svg               log-perplexity increase by bits

Rows that the result files hold with the same options are skipped, so that a run that was stopped
goes on where it was, and parts can run one after another or on other machines. A row that fails is
reported at the end and the exit code is 1.
"""

import argparse
import dataclasses
import datetime
import json
import os
import shutil
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
TEXTS = ["wikitext2_test", "docs_heldout"]
CALIBRATION = "wikitext2_valid"
MODELS = {"demo": "demo-21m", "twin": "outlier twin of demo-21m"}
METHOD_NAMES = {"qoq": "QoQ", "fmpq": "FMPQ"}
MARK_BEGIN, MARK_END = "<!-- accuracy:begin (tools/accuracy.py) -->", "<!-- accuracy:end -->"


@dataclasses.dataclass(frozen=True)
class Row:
    """One line of a table: what `halley quantize` is called with, and what the model runs with."""
    key: str
    label: str
    quantize: tuple = ()  # empty: the f16 model itself
    settings: str = ""    # what follows MODEL@ in `halley compare`
    is_ablation: bool = False

    def folder(self):
        """Rows of the same quantized model share it."""
        return "_".join(word.lstrip("-").replace(",", "+") for word in self.quantize)


def ablations(method, options, techniques):
    rows = [Row(f"{method}-without-{name}", f"{METHOD_NAMES[method]}, without {name}",
                ("--method", method, *options, "--without", name), is_ablation=True)
            for name in techniques]
    rows.append(Row(f"{method}-plain", f"{METHOD_NAMES[method]}, without all of these",
                    ("--method", method, *options, "--without", ",".join(techniques)),
                    is_ablation=True))
    return rows


# W4A4 by rounding to nearest: the format of FMPQ with no block in 8 bits and no technique.
W4A4 = ("--method", "fmpq", "--s8-share", "0", "--kv-bits", "16", "--without",
        "smooth-attention,input-smoothing,output-smoothing,reorder,clip,compensation,"
        "activation-clip")
ROWS = [
    Row("w8a8-smoothquant", "W8A8 SmoothQuant", ("--method", "smoothquant")),
    Row("w8a8-fp8", "FP8 (e4m3)", ("--method", "fp8")),
    Row("nestedfp16", "NestedFP16", ("--method", "nestedfp")),
    Row("nestedfp8", "NestedFP8", ("--method", "nestedfp"), "precision=low"),
    Row("w4a16-rtn-g128", "W4A16 RTN g128", ("--method", "rtn", "--bits", "4", "--group-size",
                                             "128")),
    Row("w4a16-rtn-g128-sym", "W4A16 RTN g128, symmetric",
        ("--method", "rtn", "--bits", "4", "--group-size", "128", "--symmetric")),
    Row("w4a16-gptq-g128", "W4A16 GPTQ g128", ("--method", "gptq", "--bits", "4", "--group-size",
                                               "128")),
    Row("w4a16-awq-g128", "W4A16 AWQ g128", ("--method", "awq", "--group-size", "128")),
    Row("w4a4-rtn-g128", "W4A4 RTN g128", W4A4),
    Row("w4ax-fmpq", "W4Ax FMPQ", ("--method", "fmpq", "--kv-bits", "16")),
    Row("w4axkv4-fmpq", "W4AxKV4 FMPQ", ("--method", "fmpq")),
    Row("w4a8kv4-qoq-channel", "W4A8KV4 QoQ per channel", ("--method", "qoq", "--group-size",
                                                           "-1")),
    Row("w4a8kv4-qoq-g128", "W4A8KV4 QoQ g128", ("--method", "qoq", "--group-size", "128")),
    Row("kv8", "KV8 alone", (), "kv=int8"),
    Row("kv-fp8", "KV FP8 alone", (), "kv=fp8"),
    Row("kv4", "KV4 alone", (), "kv=int4"),
    Row("kv4-smooth-attention", "KV4 with SmoothAttention", ("--method", "none"), "kv=int4"),
    *ablations("qoq", ("--group-size", "128"),
               ["rotation", "smooth-attention", "output-smoothing", "reorder", "block-clip", "clip",
                "compensation"]),
    *ablations("fmpq", (), ["smooth-attention", "input-smoothing", "output-smoothing", "reorder",
                            "clip", "compensation", "activation-clip"]),
]
# What a technique is worth shows on a part of the texts; the whole would take days on a laptop.
ABLATION_BASES = ("w4a8kv4-qoq-g128", "w4axkv4-fmpq")
ABLATION_WINDOWS, ABLATION_SAMPLES = 8, 8


@dataclasses.dataclass(frozen=True)
class Study:
    """Rows that are measured alike and reported in one table."""
    prefix: str  # of the result files
    rows: list
    windows: int
    samples: int


def studies_of(args):
    windows = min(args.windows or ABLATION_WINDOWS, ABLATION_WINDOWS)
    return [Study("accuracy", [row for row in ROWS if not row.is_ablation], args.windows,
                  args.samples),
            Study("accuracy_ablation",
                  [row for row in ROWS if row.is_ablation or row.key in ABLATION_BASES], windows,
                  min(args.samples, ABLATION_SAMPLES))]


class Failure(Exception):
    """A command failed; the text says how."""


def run(command):
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    if result.returncode != 0:
        lines = result.stderr.strip().splitlines() or [f"exit code {result.returncode}"]
        raise Failure(lines[-1])
    return result.stdout


def commit_of_tree():
    """Nothing to ask on a machine without git."""
    try:
        return run(["git", "-C", ROOT, "rev-parse", "HEAD"]).strip()
    except (OSError, Failure):
        return "unknown"


def read_json(path, default):
    if not os.path.exists(path):
        return default
    with open(path, encoding="utf-8") as file:
        return json.load(file)


def write_text(path, text):
    """The file is whole at any time: a stopped run leaves the old one."""
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path + ".partial", "w", encoding="utf-8") as file:
        file.write(text)
    os.replace(path + ".partial", path)


class ModelRun:
    """A study's rows of one model: what is done, and how the rest is done."""

    def __init__(self, name, study, args):
        self.name, self.study, self.args = name, study, args
        self.results_path = os.path.join(args.results, f"{study.prefix}_{name}.json")
        self.results = read_json(self.results_path, {"model": MODELS[name], "reference": {},
                                                     "quantized": {}, "rows": {}})
        self.work = os.path.join(args.work, f"{name}_{study.samples}")
        self.model = (os.path.join(ROOT, "models", "demo-21m") if name == "demo"
                      else os.path.join(args.work, "demo-21m-twin"))

    def save(self):
        write_text(self.results_path, json.dumps(self.results, indent=1) + "\n")

    def make_model(self):
        if self.name == "demo" or os.path.exists(os.path.join(self.model, "model.safetensors")):
            return
        run([sys.executable, os.path.join(ROOT, "tools", "outlier_twin.py"),
             os.path.join(ROOT, "models", "demo-21m"), self.model])

    def identity(self, row):
        """What a result depends on besides the program; a row with another is measured again."""
        return {"quantize": list(row.quantize), "settings": row.settings,
                "windows": self.study.windows,
                "samples": self.study.samples if row.quantize else 0}

    def is_done(self, row, text):
        entry = self.results["rows"].get(row.key, {})
        return entry.get("identity") == self.identity(row) and text in entry.get("texts", {})

    def quantize(self, row):
        """The folder of the row's model, made where it is not there."""
        if not row.quantize:
            return self.model
        out = os.path.join(self.work, row.folder())
        made = self.results["quantized"].get(row.folder(), {})
        if os.path.exists(os.path.join(out, "config.json")) \
                and made.get("samples") == self.study.samples:
            return out
        shutil.rmtree(out, ignore_errors=True)
        os.makedirs(self.work, exist_ok=True)
        print(f"{self.name}: quantizing {' '.join(row.quantize)}", flush=True)
        report = json.loads(run(
            [self.args.halley, "quantize", self.model, *row.quantize, "--out", out, "--calibrate",
             text_path(CALIBRATION), "--num-samples", str(self.study.samples), "--threads",
             str(self.args.threads), "--json"]))
        self.results["quantized"][row.folder()] = {
            "command": list(row.quantize), "samples": self.study.samples,
            "seconds": report["seconds"], "s4_share": report.get("s4_share", 0),
            "notes": report.get("notes", [])}
        self.save()
        return out

    def measure(self, rows, text):
        """Compares the rows on one text, which runs the reference once."""
        models = [self.quantize(row) + (f"@{row.settings}" if row.settings else "")
                  for row in rows]
        print(f"{self.name}, {text}: {', '.join(row.key for row in rows)}", flush=True)
        result = json.loads(run(
            [self.args.halley, "compare", *models, "--reference", self.model, "--perplexity",
             text_path(text), "--windows", str(self.study.windows), "--threads",
             str(self.args.threads), "--json", "--speed" if self.args.speed else "--no-speed"]))
        about = {name: result[name] for name in ("device", "threads", "window", "num_windows",
                                                 "num_tokens", "intervals")}
        about.update(date=datetime.date.today().isoformat(), commit=self.args.commit)
        self.results["reference"][text] = {**about, **result["reference"], "name": self.name}
        for row, measured in zip(rows, result["models"]):
            entry = self.results["rows"].setdefault(row.key, {})
            if entry.get("identity") != self.identity(row):
                entry.clear()
                entry.update(label=row.label, identity=self.identity(row), texts={})
            entry["texts"][text] = {**about, **measured, "name": row.label}
        self.save()

    def run(self, rows, failures):
        """All rows that are not done, a few together; one by one where a group fails."""
        self.make_model()
        for text in TEXTS:
            missing = [row for row in rows if not self.is_done(row, text)]
            for begin in range(0, len(missing), self.args.batch):
                group = missing[begin:begin + self.args.batch]
                try:
                    self.measure(group, text)
                except Failure:
                    for row in group:
                        try:
                            self.measure([row], text)
                        except Failure as error:
                            failures.append(f"{self.name}, {text}, {row.key}: {error}")

    def draw(self, path):
        """The main rows on the first text, by the program that measured them."""
        text = TEXTS[0]
        rows = [self.results["rows"][row.key]["texts"][text] for row in self.study.rows
                if self.is_done(row, text)]
        if not rows:
            return
        about = self.results["reference"][text]
        document = {"text": text, "window": about["window"], "num_windows": about["num_windows"],
                    "num_tokens": about["num_tokens"], "intervals": about["intervals"],
                    "reference": {**about, "name": MODELS[self.name]}, "models": rows}
        saved = os.path.join(self.args.work, f"plot_{self.name}.json")
        write_text(saved, json.dumps(document))
        run([self.args.halley, "compare", "--from", saved, "--svg", path])


def text_path(name):
    return os.path.join(ROOT, "testdata", "text", f"{name}.txt")


def with_margin(estimate, digits, factor=1):
    """Value and half of its interval."""
    value = f"{estimate['value'] * factor:.{digits}f}"
    if estimate["low"] is None:
        return value
    return f"{value} ± {(estimate['high'] - estimate['low']) / 2 * factor:.{digits}f}"


def line(cells):
    return "| " + " | ".join(cells) + " |\n"


def entries(model, text):
    """The rows that were measured on as many tokens as the reference."""
    num_tokens = model.results["reference"][text]["num_tokens"]
    for row in model.study.rows:
        entry = model.results["rows"].get(row.key, {}).get("texts", {}).get(text)
        if entry is not None and entry["num_tokens"] == num_tokens:
            yield row, entry


def loss_cells(entry):
    return [with_margin(entry["log_perplexity_increase"], 4),
            with_margin(entry["kl_divergence"], 4), f"{entry['kl_p99']:.3f}",
            with_margin(entry["top1_agreement"], 1, 100) + " %"]


def table(model, text):
    heads = ["", "bits a weight", "of the whole", "in memory", "KV", "perplexity",
             "log-perplexity increase", "KL divergence", "KL, 99th percentile",
             "same top token", "seconds to quantize"]
    about = model.results["reference"][text]

    def cells(label, entry, losses, seconds):
        return line([label, f"{entry['bits_per_weight']:.2f}",
                     f"{entry['bits_per_weight_all']:.2f}",
                     f"{entry['packed_bytes'] / 1e6:.1f} MB", entry["kv_dtype"],
                     f"{entry['perplexity']:.3f}", *losses, seconds])

    result = line(heads) + line(["---"] * len(heads))
    result += cells("f16", about, ["0", "0", "0", "100 %"], "")
    for row, entry in entries(model, text):
        made = model.results["quantized"].get(row.folder())
        result += cells(row.label, entry, loss_cells(entry),
                        f"{made['seconds']:.1f}" if made and row.quantize else "")
    return result


def ablation_table(model, text):
    heads = ["", "perplexity", "log-perplexity increase", "KL divergence", "KL, 99th percentile",
             "same top token"]
    about = model.results["reference"][text]
    result = line(heads) + line(["---"] * len(heads))
    result += line(["f16", f"{about['perplexity']:.3f}", "0", "0", "0", "100 %"])
    for method in METHOD_NAMES:  # the whole method first
        for row, entry in sorted(entries(model, text), key=lambda pair: pair[0].is_ablation):
            if method == row.quantize[1]:
                result += line([row.label, f"{entry['perplexity']:.3f}", *loss_cells(entry)])
    return result


def report(runs):
    """The generated part of docs/accuracy.md."""
    parts = []
    for run_of_model in runs:
        is_ablation = run_of_model.study.prefix != "accuracy"
        title = MODELS[run_of_model.name]
        parts.append(f"## {title}{', one technique left out' if is_ablation else ''}\n\n")
        for text in TEXTS:
            about = run_of_model.results["reference"].get(text)
            if about is None:
                continue
            samples = (f" {run_of_model.study.samples} calibration sequences." if is_ablation
                       else "")
            parts.append(f"### {text}\n\n{about['num_tokens']} tokens scored in "
                         f"{about['num_windows']} windows of {about['window']}.{samples} "
                         f"{about['device']}, {about['threads']} threads, {about['date']}.\n\n")
            make_table = ablation_table if is_ablation else table
            parts.append(make_table(run_of_model, text) + "\n")
    return "".join(parts).rstrip("\n") + "\n"


INTRODUCTION = f"""# What low precision costs

Made by `make accuracy` (tools/accuracy.py); every number lies in `bench/results/accuracy_*.json`.
All models come from `models/demo-21m` or from its outlier twin, which computes the same function
with activations that have the outliers of large models (tools/outlier_twin.py). Quantizers see the
validation text of WikiText-2; perplexity is measured on its test text and on technical prose.

- **bits a weight**: of the layers' linear weights as stored, with scales and zeros; **of the
  whole**: with embedding and norms; **in memory**: the packed weights of the loaded model.
- **log-perplexity increase**: mean negative log likelihood of a token less that of the f16 model
  (nats); its exponential is the ratio of the perplexities.
- **KL divergence**: mean over tokens of D(f16 || model), in nats; **same top token**: share of
  tokens where both find the same token most likely.
- ± is half of a 95 % interval: for means with windows as clusters and Student's t, since the
  tokens of a window are correlated; for shares Wilson's, which takes tokens for independent.

![Log-perplexity increase by bits per weight](accuracy.svg)

{MARK_BEGIN}
{MARK_END}
"""


def write_report(runs, docs):
    path = os.path.join(docs, "accuracy.md")
    text = INTRODUCTION
    if os.path.exists(path):
        with open(path, encoding="utf-8") as file:
            text = file.read()
    before, _, rest = text.partition(MARK_BEGIN)
    after = rest.partition(MARK_END)[2]
    if not rest or MARK_END not in rest:
        raise SystemExit(f"{path}: expected the marks {MARK_BEGIN!r} and {MARK_END!r}.")
    write_text(path, f"{before}{MARK_BEGIN}\n\n{report(runs)}\n{MARK_END}{after}")
    for run_of_model in runs:
        if run_of_model.study.prefix == "accuracy":
            suffix = "" if run_of_model.name == "demo" else f"_{run_of_model.name}"
            run_of_model.draw(os.path.join(docs, f"accuracy{suffix}.svg"))


def parse_args():
    parser = argparse.ArgumentParser(description="Measures what each method of quantization costs.")
    parser.add_argument("--halley", default=os.path.join(ROOT, "build", "release", "bin", "halley"))
    parser.add_argument("--models", default=",".join(MODELS), help="of demo, twin")
    parser.add_argument("--rows", default="", help="keys of rows (see --list); default: all")
    parser.add_argument("--threads", type=int, default=0, help="0: all cores")
    parser.add_argument("--windows", type=int, default=0, help="the first N windows; 0: all")
    parser.add_argument("--samples", type=int, default=64, help="calibration sequences")
    parser.add_argument("--batch", type=int, default=8, help="rows that share a reference run")
    parser.add_argument("--speed", action="store_true", help="also measure speed, shortly")
    parser.add_argument("--work", default=os.path.join(ROOT, "build", "accuracy"),
                        help="where quantized models go")
    parser.add_argument("--results", default=os.path.join(ROOT, "bench", "results"))
    parser.add_argument("--docs", default=os.path.join(ROOT, "docs"))
    parser.add_argument("--commit", default="", help="for the results, where there is no git")
    parser.add_argument("--list", action="store_true", help="list the rows")
    parser.add_argument("--report-only", action="store_true", help="only write the tables again")
    return parser.parse_args()


def main():
    args = parse_args()
    if args.list:
        for row in ROWS:
            print(f"{row.key:32} {' '.join(row.quantize)} {row.settings}")
        return 0
    names = args.models.split(",")
    keys = args.rows.split(",") if args.rows else [row.key for row in ROWS]
    unknown = sorted(set(names) - set(MODELS)) + sorted(set(keys) - {row.key for row in ROWS})
    if unknown:
        raise SystemExit(f"accuracy: expected models of {list(MODELS)} and rows of --list, got "
                         f"{unknown}.")
    args.commit = args.commit or commit_of_tree()
    args.halley = os.path.abspath(args.halley)
    failures = []
    for study in studies_of(args):
        rows = [row for row in study.rows if row.key in keys]
        has_work = any(row.is_ablation for row in rows) or study.prefix == "accuracy"
        for name in names if has_work and not args.report_only else []:
            ModelRun(name, study, args).run(rows, failures)
    runs = [ModelRun(name, study, args) for study in studies_of(args) for name in MODELS]
    write_report([each for each in runs if each.results["reference"]], args.docs)
    for failure in failures:
        print(f"FAILED {failure}", file=sys.stderr)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
