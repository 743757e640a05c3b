#!/usr/bin/env python3
"""Writes the measured speeds in README.md and the picture docs/speed.svg from bench/results and
bench/peers.json.

    tools/plot_readme.py           check that both are what the files give; exits with 1 if not
    tools/plot_readme.py --write   bring both up to date

The speed of a decode step is the batch size divided by the median step; its floor is the longer of
the time to read what the step must read and the time to compute what it must compute
(docs/benchmarks.md).
"""
import html
import json
import os
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
README, PICTURE = "README.md", "docs/speed.svg"
BEGIN, END = "<!-- speed:begin (tools/plot_readme.py --write) -->", "<!-- speed:end -->"
# Key of bench/results/gpu_latency_<key>_batch<n>.json, name, file of many requests at once.
WEIGHTS = (("f16", "f16", "gpu_throughput_f16_many"),
           ("fp8", "FP8 (e4m3, per-channel)", "gpu_throughput_fp8_many"),
           ("w4a16", "W4A16 (GPTQ, g128)", "gpu_throughput_w4a16"),
           ("w4a8", "W4A8 (QoQ, per-channel)", "gpu_throughput_w4a8"))
BATCHES = (1, 64)


def read_json(root, *path):
    with open(os.path.join(root, *path), encoding="utf-8") as file:
        return json.load(file)


def latency(root, key, batch):
    """(tokens/s, tokens/s at the floor, document) of one file."""
    name = f"gpu_latency_{key}_batch{batch}.json"
    document = read_json(root, "bench", "results", name)
    result = document["result"]
    if (result["model"], result["batch_size"]) != ("llama-3-8b", batch):
        raise ValueError(f"{name}: expected llama-3-8b at batch {batch}, got {result['model']} at "
                         f"{result['batch_size']}")
    return (batch / result["median_time_per_output_token_s"],
            batch / result["decode_step_floor_s"], document)


def short(device):
    return device.removeprefix("NVIDIA ")


def link(figure):
    return f"[{figure['source']}]({figure['url']})"


def lengths_of(result):
    """"1024 in, 512 out", of a run of `halley bench throughput`."""
    num = result["num_prompts"]
    return f"{result['num_prompt_tokens'] // num} in, {result['num_output_tokens'] // num} out"


def only(values, what):
    """The value that all have."""
    if len(set(values)) != 1:
        raise ValueError(f"expected one {what}, got {sorted(set(values))}")
    return values[0]


def halley_rows(root):
    """Rows of the table, and all documents that they come from: of latency, of load."""
    rows, decodes, loads = [], [], []
    for key, name, load_name in WEIGHTS:
        load = read_json(root, "bench", "results", load_name + ".json")
        cells, files = [], []
        for batch in BATCHES:
            speed, floor, document = latency(root, key, batch)
            decodes.append(document)
            cells.append(f"**{speed:,.0f}** ({100 * speed / floor:.0f} %)")
            files.append(f"[{batch}](bench/results/gpu_latency_{key}_batch{batch}.json)")
        result = load["result"]
        loads.append(load)
        cells.append(f"**{result['output_tokens_per_s']:,.0f}** "
                     f"({100 * result['roofline_share']:.0f} %)")
        files.append(f"[load](bench/results/{load_name}.json)")
        rows.append(f"| Halley, {name} | {' | '.join(cells)} | {short(result['device'])} | "
                    f"{', '.join(files)} |")
    return rows, decodes, loads


def table(root, peers):
    """The table of speeds, and what it was measured with."""
    rows, decodes, loads = halley_rows(root)
    results = [document["result"] for document in decodes]
    device = only([document["result"]["device"] for document in decodes + loads], "device")
    after = only([result["input_len"] for result in results], "length of prompts")
    kv_dtype = only([result["kv_dtype"] for result in results], "type of the KV cache")
    fp8_load = dict(zip((key for key, _, _ in WEIGHTS), loads))["fp8"]["result"]
    commits = sorted({document["commit"][:7] for document in decodes + loads})
    for peer in peers["decode"]:
        cells = [f"{peer['tokens_per_s']:,.0f}" if peer["batch_size"] == batch else ""
                 for batch in BATCHES]
        rows.append(f"| {peer['engine']}, {peer['weights']} | {' | '.join(cells)} |  | "
                    f"{short(peer['device'])} | {link(peer)} |")
    for peer in peers["load"]:
        rows.append(f"| {peer['engine']}, {peer['weights']} |  |  | "
                    f"{peer['output_tokens_per_s']:,} ({peer['input_len']} in, "
                    f"{peer['output_len']} out) | {short(peer['device'])} | {link(peer)} |")
    model = only([peer["model"] for peer in peers["decode"] + peers["load"]], "model of peers")
    load_lengths = only([lengths_of(load["result"]) for load in loads], "length under load")
    at_once = ", ".join(f"{load['result']['largest_batch']} ({name.split()[0].rstrip(',')})"
                        for (_, name, _), load in zip(WEIGHTS, loads))
    return [f"| Llama-3-8B, output tokens/s | batch 1 | batch 64 | load: {load_lengths} | GPU | "
            "source |", "|---|---:|---:|---:|---|---|", *rows, "",
            f"Halley, on one {device}, commits {', '.join(commits)}: synthetic weights; decoding "
            f"after {after} tokens with a KV cache in {kv_dtype};",
            f"load: at most {at_once} sequences at a time, FP8 with a KV cache in "
            f"{fp8_load['kv_dtype']}: this column does not compare formats.",
            "In brackets the share of the [roofline](docs/GLOSSARY.md). Peers as published, with "
            f"{model}, whose shapes are the same;",
            "an H100 reads memory at 0.7 times the rate of an H200."]


# The picture ------------------------------------------------------------------------------------

STYLE = """<style>
  .paper { fill: #ffffff } .ink { fill: #24292f } .soft { fill: #57606a }
  .ours { fill: #0969da } .peer { fill: #8c959f } .floor { fill: none; stroke: #57606a;
  stroke-dasharray: 3 2 } text { font: 12px sans-serif }
  @media (prefers-color-scheme: dark) {
    .paper { fill: #0d1117 } .ink { fill: #e6edf3 } .soft { fill: #8b949e }
    .ours { fill: #58a6ff } .peer { fill: #6e7681 } .floor { stroke: #8b949e }
  }
</style>"""
WIDTH, LABEL_RIGHT, BAR_LEFT, BAR_RIGHT = 860, 268, 276, 760
ROW, BAR = 24, 16


def text(x, y, words, kind="ink", anchor="start"):
    return (f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">'
            f"{html.escape(words)}</text>")


def bar(kind, y, width):
    return f'<rect class="{kind}" x="{BAR_LEFT}" y="{y:.1f}" width="{width:.1f}" height="{BAR}"/>'


def panel(top, title, rows):
    """Horizontal bars; `rows` are (label, speed, floor or None for a peer)."""
    largest = max(floor or speed for _, speed, floor in rows)
    shapes = [text(16, top, title)]
    for index, (label, speed, floor) in enumerate(rows):
        y = top + 12 + ROW * index
        scale = (BAR_RIGHT - BAR_LEFT) / largest
        shapes += [text(LABEL_RIGHT, y + 12.5, label, anchor="end"),
                   bar("ours" if floor else "peer", y, speed * scale)]
        label = f"{speed:,.0f}"
        if floor:
            shapes.append(bar("floor", y, floor * scale))
            label += f" ({100 * speed / floor:.0f} %)"
        shapes.append(text(BAR_LEFT + (floor or speed) * scale + 6, y + 12.5, label, "soft"))
    return shapes, top + 12 + ROW * len(rows)


def picture(root, peers):
    shapes, bottom = [], 50
    for batch in BATCHES:
        rows = []
        for key, name, _ in WEIGHTS:
            speed, floor, document = latency(root, key, batch)
            rows.append((f"Halley, {name}", speed, floor))
        rows += [(f"{peer['engine'].removesuffix(' (speculative)')}, "
                  f"{peer['weights'].split(',')[0]} ({short(peer['device'])})",
                  peer["tokens_per_s"], None)
                 for peer in peers["decode"] if peer["batch_size"] == batch]
        more, bottom = panel(bottom + 16, f"batch {batch}", rows)
        shapes += more
    title = f"Decoding with Llama-3-8B, tokens/s; Halley on one {document['result']['device']}"
    height = bottom + 30
    return "\n".join([
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:.0f}" role="img">',
        f"<title>{title}</title>", STYLE,
        f'<rect class="paper" width="{WIDTH}" height="{height:.0f}"/>',
        text(16, 28, title).replace("<text ", '<text style="font-size: 15px" ', 1), *shapes,
        text(BAR_LEFT, bottom + 16, "numbers: solid bars; dashed: the roofline of the step; "
             "grey: published by others", "soft"), "</svg>"]) + "\n"


def main():
    arguments = sys.argv[1:]
    if arguments not in ([], ["--write"]):
        sys.exit(__doc__)
    root = os.environ.get("HALLEY_ROOT", ROOT)
    peers = read_json(root, "bench", "peers.json")
    with open(os.path.join(root, README), encoding="utf-8") as file:
        readme = file.read()
    if readme.count(BEGIN) != 1 or readme.count(END) != 1:
        sys.exit(f"{README}: expected the lines '{BEGIN}' and '{END}' once each")
    before, _, rest = readme.partition(BEGIN)
    _, _, after = rest.partition(END)
    expected = {README: "\n".join([before + BEGIN, *table(root, peers), END + after]),
                PICTURE: picture(root, peers)}
    stale = []
    for path, content in expected.items():
        full = os.path.join(root, path)
        found = None
        if os.path.exists(full):
            with open(full, encoding="utf-8") as file:
                found = file.read()
        if found == content:
            continue
        stale.append(path)
        if arguments:
            with open(full, "w", encoding="utf-8") as file:
                file.write(content)
    if stale and not arguments:
        sys.exit(f"{', '.join(stale)}: not what bench/results gives. Run "
                 "tools/plot_readme.py --write.")


if __name__ == "__main__":
    main()
