#!/usr/bin/env python3
"""Draws the two pictures of docs/ARCHITECTURE.md: the life of a weight and the life of a request.

    tools/draw_architecture.py            write docs/life_of_a_{weight,request}.svg
    tools/draw_architecture.py --check    exit with 1 where a file is not what this script draws
    tools/draw_architecture.py --out DIR  another folder than docs
"""

import argparse
import os
import sys
from dataclasses import dataclass
from xml.sax.saxutils import escape

FONT = "system-ui, -apple-system, 'Segoe UI', 'DejaVu Sans', sans-serif"
# Colours for a light page, then for a dark one; viewers choose by prefers-color-scheme.
LIGHT = {"ink": "#1f2328", "soft": "#57606a", "line": "#6e7781", "page": "#ffffff",
         "host": "#eef4fc", "cpu": "#eaf6ec", "gpu": "#fdf3e1", "lane": "#f6f8fa"}
DARK = {"ink": "#e6edf3", "soft": "#9da7b3", "line": "#8b949e", "page": "#0d1117",
        "host": "#16263d", "cpu": "#15301d", "gpu": "#3a2c12", "lane": "#161b22"}

TITLE_HEIGHT = 17
LINE_HEIGHT = 14
# Average advance of a character at 11 pixels, wide enough for the fonts above.
CHARACTER_WIDTH = 6.6
ARROW = 7
WIDTH = 976
MARGIN = 14  # arrows that come from the lane above go down here
LANE_NAME = 26
LANE_GAP = 20


@dataclass(frozen=True)
class Box:
    """A step: what happens, the words below it, and its colour (host, cpu or gpu)."""
    x: int
    y: int
    width: int
    title: str
    lines: tuple
    kind: str = "host"

    @property
    def height(self):
        return 16 + TITLE_HEIGHT + LINE_HEIGHT * len(self.lines)

    @property
    def right(self):
        return self.x + self.width

    @property
    def bottom(self):
        return self.y + self.height

    @property
    def middle(self):
        return self.x + self.width // 2

    @property
    def centre(self):
        return self.y + 26


@dataclass(frozen=True)
class Arrow:
    """A line through points, which ends in an arrow head."""
    points: tuple


@dataclass(frozen=True)
class Lane:
    """A band with a name: a thread, or a stage."""
    y: int
    height: int
    name: str


@dataclass(frozen=True)
class Picture:
    title: str
    description: str
    width: int
    height: int
    lanes: tuple
    boxes: tuple
    arrows: tuple


def style():
    def rules(colours):
        return (f".page{{fill:{colours['page']}}}.lane{{fill:{colours['lane']}}}"
                f".host{{fill:{colours['host']}}}.cpu{{fill:{colours['cpu']}}}"
                f".gpu{{fill:{colours['gpu']}}}.edge{{stroke:{colours['line']}}}"
                f".head{{fill:{colours['line']}}}.ink{{fill:{colours['ink']}}}"
                f".soft{{fill:{colours['soft']}}}")

    return (f"<style>text{{font-family:{FONT};font-size:11px}}.title{{font-size:13px;"
            f"font-weight:600}}.lane-name{{font-size:12px;font-weight:600}}{rules(LIGHT)}"
            f"@media(prefers-color-scheme:dark){{{rules(DARK)}}}</style>")


def text(x, y, words, names):
    return f'<text x="{x}" y="{y}" class="{names}">{escape(words)}</text>'


def check_fits(box):
    for words, width in [(box.title, 7.4)] + [(line, CHARACTER_WIDTH) for line in box.lines]:
        if len(words) * width > box.width - 12:
            raise ValueError(f"draw_architecture: expected text that fits a box of {box.width}, "
                             f"got \"{words}\". Shorten it or widen the box.")


def draw_box(box):
    check_fits(box)
    yield (f'<rect x="{box.x}" y="{box.y}" width="{box.width}" height="{box.height}" rx="6" '
           f'class="{box.kind} edge"/>')
    yield text(box.x + 9, box.y + 21, box.title, "title ink")
    for index, line in enumerate(box.lines):
        yield text(box.x + 9, box.y + 21 + TITLE_HEIGHT + LINE_HEIGHT * index, line, "soft")


def draw_arrow(arrow):
    (from_x, from_y), (to_x, to_y) = arrow.points[-2:]
    step_x, step_y = (to_x > from_x) - (to_x < from_x), (to_y > from_y) - (to_y < from_y)
    base_x, base_y = to_x - ARROW * step_x, to_y - ARROW * step_y
    way = " ".join(f"{x},{y}" for x, y in arrow.points[:-1] + ((base_x, base_y),))
    half = ARROW // 2 + 1
    head = f"{to_x},{to_y} {base_x - half * step_y},{base_y - half * step_x} " \
           f"{base_x + half * step_y},{base_y + half * step_x}"
    yield f'<polyline points="{way}" fill="none" class="edge" stroke-width="1.4"/>'
    yield f'<polygon points="{head}" class="head"/>'


def draw(picture):
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{picture.width}" '
             f'height="{picture.height}" viewBox="0 0 {picture.width} {picture.height}" '
             f'role="img" aria-labelledby="title description">',
             f'<title id="title">{escape(picture.title)}</title>',
             f'<desc id="description">{escape(picture.description)}</desc>', style(),
             f'<rect class="page" width="{picture.width}" height="{picture.height}"/>']
    for lane in picture.lanes:
        parts.append(f'<rect x="8" y="{lane.y}" width="{picture.width - 16}" '
                     f'height="{lane.height}" rx="8" class="lane"/>')
        parts.append(text(18, lane.y + 17, lane.name, "lane-name soft"))
    for box in picture.boxes:
        parts.extend(draw_box(box))
    for arrow in picture.arrows:
        parts.extend(draw_arrow(arrow))
    return "\n".join(parts + ["</svg>"]) + "\n"


def row(y, kind, steps):
    """Boxes next to each other, (title, lines) each, and the arrows from each to the next."""
    boxes = tuple(Box(26 + 238 * index, y, 214, title, lines, kind)
                  for index, (title, lines) in enumerate(steps))
    arrows = tuple(Arrow(((left.right, left.centre), (right.x, right.centre)))
                   for left, right in zip(boxes, boxes[1:]))
    return boxes, arrows


def stack(rows):
    """Lanes one below the other, (name, kind, steps) each: lanes, rows of boxes, their arrows."""
    lanes, all_boxes, all_arrows, y = [], [], [], 8
    for name, kind, steps in rows:
        boxes, arrows = row(y + LANE_NAME, kind, steps)
        height = LANE_NAME + max(box.height for box in boxes) + 8
        lanes.append(Lane(y, height, name))
        all_boxes.append(boxes)
        all_arrows.extend(arrows)
        y += height + LANE_GAP
    return lanes, all_boxes, all_arrows


def down(box, first, lanes, index):
    """From `box` through the gap ahead of lane `index` to that lane's first box."""
    gap = lanes[index].y - LANE_GAP // 2
    return Arrow(((box.middle, box.bottom), (box.middle, gap), (MARGIN, gap),
                  (MARGIN, first.centre), (first.x, first.centre)))


def picture_of(title, description, lanes, boxes, arrows):
    height = lanes[-1].y + lanes[-1].height + 8
    return Picture(title, description, WIDTH, height, tuple(lanes),
                   tuple(box for boxes_of_row in boxes for box in boxes_of_row), tuple(arrows))


WEIGHT_LANES = (
    ("PLAN: from config.json and the headers of safetensors files", "host", (
        ("Checkpoint", ("safetensors, memory-mapped", "config.json; all untrusted",
                        "checkpoint/safetensors, config")),
        ("Family", ("config.json to DecoderConfig,", "a LinearSpec for each layer",
                    "models/llama, models/qwen, ...")),
        ("Format", ("tensors to StoredWeight:", "values, scales, zeros, perm",
                    "quant/gptq, quant/fp8, ...")),
        ("Sections", ("q, k, v joined if they agree,", "each gets its kernel",
                      "quant/base/open_section.h")),
    )),
    ("LOAD AND RUN ON THE CPU", "cpu", (
        ("Pack", ("panels of 32 outputs, quads", "of 4 inputs, f32 scales, zeros",
                  "core/packed_weight.h")),
        ("Kernel", ("gemm_w4a21, gemm_w8a8, ...", "Highway, AVX512-BF16, AMX",
                    "kernels/gemm")),
        ("Self-check", ("two rows against f64 sums", "over the checkpoint's values",
                        "quant/base/self_check.h")),
        ("LinearOp::run", ("the same bits for a row", "in any batch",
                           "quant/base/linear_op.h")),
    )),
    ("LOAD AND RUN ON THE GPU", "gpu", (
        ("Pack", ("rows [N, K], packed tiles of", "128 x 128, byte or bit planes",
                  "cuda/weights")),
        ("Kernel", ("gemm, mixed_gemm, w4ax_gemm,", "nested_gemm, gemv, row_gemm",
                    "cuda/*, plans by shape")),
        ("Self-check", ("two rows against f64 sums", "over the checkpoint's values",
                        "models/cuda/cuda_self_check.h")),
        ("CudaLinear::run", ("kernel by M: small-M, then", "tiled; PDL, CUDA graphs",
                             "cuda/weights/cuda_linear.h")),
    )),
)


def life_of_a_weight():
    lanes, boxes, arrows = stack(WEIGHT_LANES)
    arrows.append(down(boxes[0][3], boxes[1][0], lanes, 1))
    # To the GPU's lane the same way and further down.
    arrows.append(Arrow(((MARGIN, boxes[1][0].centre), (MARGIN, boxes[2][0].centre),
                         (boxes[2][0].x, boxes[2][0].centre))))
    return picture_of(
        "Life of a weight", "A weight goes from the checkpoint through family, format and sections "
        "to a packed layout, a kernel, a self-check and the run, on the CPU or on the GPU.",
        lanes, boxes, arrows)


REQUEST_LANES = (
    ("HTTP THREADS", "host", (
        ("Connection", ("head, key, limits, then body", "server/http")),
        ("Admission", ("503 where the queue is full", "server/app")),
    )),
    ("PREPROCESSING THREADS, 2 to 8", "host", (
        ("Request", ("JSON by one table of fields", "server/openai")),
        ("Prompt", ("chat template, token ids", "chat_template, tokenizer")),
        ("Constraint", ("JSON Schema to token masks", "constraint")),
        ("Engine::submit", ("queued, or an answer at once", "engine/engine.h")),
    )),
    ("ENGINE THREAD: plans and launches a step while the one before runs, then starts over", "host",
     (
         ("Plan a step", ("decodes, then prefill chunks,", "KV pages, prefix cache",
                          "engine/scheduler.h")),
         ("Launch step n + 1", ("ragged batch, page tables", "while step n still runs",
                                "engine/step_pipeline.h")),
         ("Wait for step n", ("tokens, or logits for the", "host sampler (constraints)",
                              "models/base/step_runner.h")),
         ("Deliver", ("detokenize, stop strings,", "callback with token and text",
                      "engine/live_request.h")),
     )),
    ("DEVICE (on the CPU: the thread pool, one step at a time)", "gpu", (
        ("Embedding", ("ids, or a slot's last token", "cuda/ops")),
        ("Layers", ("norm, q/k/v, rope + KV write,", "attention, o, norm, MLP")),
        ("Logits", ("only of rows that asked", "models/cuda, models/base")),
        ("Sampling", ("one cluster of 8 CTAs a row", "sampling/cuda")),
    )),
    ("RESPONSE THREAD", "host", (
        ("Deltas", ("text, tool calls, logprobs", "server/openai")),
        ("Stream", ("server-sent events", "HttpExchange::write")),
    )),
)


def life_of_a_request():
    lanes, boxes, arrows = stack(REQUEST_LANES)
    http, prepare, engine, device, answer = boxes
    wait, deliver, sampling = engine[2], engine[3], device[3]
    device_gap, answer_gap = (lanes[index].y - LANE_GAP // 2 for index in (3, 4))
    right = deliver.right + 12
    arrows += [
        down(http[1], prepare[0], lanes, 1), down(prepare[3], engine[0], lanes, 2),
        down(engine[1], device[0], lanes, 3),
        Arrow(((sampling.middle, sampling.y), (sampling.middle, device_gap),
               (wait.middle, device_gap), (wait.middle, wait.bottom))),
        Arrow(((deliver.right, deliver.centre), (right, deliver.centre), (right, answer_gap),
               (MARGIN, answer_gap), (MARGIN, answer[0].centre), (answer[0].x, answer[0].centre))),
    ]
    return picture_of(
        "Life of a request", "A request goes through HTTP threads, preprocessing threads, the "
        "engine's thread with two steps in flight on the device, and the response thread.",
        lanes, boxes, arrows)


PICTURES = {"life_of_a_weight.svg": life_of_a_weight, "life_of_a_request.svg": life_of_a_request}


def check(folder):
    """The names of the files that are not what this script draws."""
    for name, make in PICTURES.items():
        try:
            with open(os.path.join(folder, name), encoding="utf-8") as file:
                found = file.read()
        except FileNotFoundError:
            found = ""
        if found != draw(make()):
            yield name


def main():
    root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    parser = argparse.ArgumentParser(description="Draws the pictures of docs/ARCHITECTURE.md.")
    parser.add_argument("--check", action="store_true", help="compare, write nothing")
    parser.add_argument("--out", default=os.path.join(root, "docs"), help="the folder")
    options = parser.parse_args()
    if options.check:
        wrong = list(check(options.out))
        for name in wrong:
            print(f"draw_architecture: expected {name} as this script draws it, got another. "
                  "Run tools/draw_architecture.py.", file=sys.stderr)
        return 1 if wrong else 0
    for name, drawn in {name: draw(make()) for name, make in PICTURES.items()}.items():
        with open(os.path.join(options.out, name), "w", encoding="utf-8") as file:
            file.write(drawn)
    return 0


if __name__ == "__main__":
    sys.exit(main())
