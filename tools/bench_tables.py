"""The tables of docs/benchmarks.md, made from bench/results/gpu_*.json: a function for each, from
the results by part to lines of Markdown. tools/bench_gpu.py prints them and writes them into the
page between their marks."""

import dataclasses
import re
from statistics import geometric_mean

# Weights as a checkpoint stores them: the key in the names of parts, and the name in tables.
WEIGHTS = {
    "f16": "f16",
    "fp8": "FP8",
    "w4a16": "W4A16 (GPTQ, g128)",
    "w4a8": "W4A8 (QoQ, per channel)",
    "w4a8_group": "W4A8 (QoQ, g128)",
    "w4ax": "W4Ax (FMPQ)",
    "nested_full": "NestedFP, in f16",
    "nested_low": "NestedFP, in FP8",
}
BATCHES = (1, 16, 64, 128)
# Problems of `halley bench gemm`.
GEMMS = {
    "f16": "f16",
    "fp8_tensor": "FP8, per-tensor scales",
    "fp8_row": "FP8, per-token and per-channel scales",
    "s8": "INT8",
    "u4_s8": "W4A8, per channel",
    "u4_group_s8": "W4A8, g128",
    "w4ax": "W4Ax",
    "u4_f16": "W4A16, g128",
    "u4_bf16": "W4A16 in bf16, g128",
    "u8_f16": "W8A16, g128",
    "u8_bf16": "W8A16 in bf16, g128",
    "nested_f16": "NestedFP, in f16",
    "nested_fp8": "NestedFP, in FP8",
    "u3_f16": "W3A16, g128",
    "u2_f16": "W2A16, g128",
    "u1_f16": "W1A16, g128",
    "u2_s8": "W2A8, per channel",
    "u1_s8": "W1A8, per channel",
}
# Models divided among GPUs: the forms of each shape, and how many GPUs.
TP_FORMS = {"8b": ("w4a16", "fp8", "f16"), "70b": ("w4a8", "fp8", "f16")}
TP_SIZES = (1, 2)
# Mixtures of experts.
MOE_SHAPES = {"mixtral-8x7b": "Mixtral 8x7B", "qwen3-30b-a3b": "Qwen3-30B-A3B"}
MOE_FORMS = ("f16", "fp8", "w4a16", "w4a8")
MOE_BATCHES = (1, 16, 64, 256)
# Weights of `halley bench experts`.
EXPERT_WEIGHTS = {**GEMMS, "e4m3": "FP8"}


@dataclasses.dataclass(frozen=True)
class Queue:
    """Requests of one length, all queued at once."""
    num_prompts: int
    trtllm: int  # output tokens a second that are published


# Published by NVIDIA for TensorRT-LLM 1.0 on an H200 of 141 GB, FP8 checkpoints with FP8 KV caches
# (docs/source/performance/perf-overview.md of its repository), by tokens of prompt and output.
TRTLLM = {
    "8b": {
        (1000, 1000): Queue(1536, 17744),
        (128, 128): Queue(4096, 27911),
        (2048, 128): Queue(512, 3538),
        (500, 2000): Queue(1024, 20770),
        (5000, 500): Queue(256, 3902),
        (128, 2048): Queue(1024, 26221),
        (2048, 2048): Queue(768, 12194),
        (1000, 2000): Queue(1024, 16828),
        (128, 4096): Queue(768, 18027),
        (20000, 2000): Queue(96, 1804),
    },
    "70b": {
        (1000, 1000): Queue(512, 2909),
        (2048, 128): Queue(128, 442),
        (500, 2000): Queue(384, 3666),
        (128, 2048): Queue(384, 4336),
        (5000, 500): Queue(96, 566),
        (2048, 2048): Queue(256, 2003),
    },
}
# The type of the KV cache of each kind of weights.
QUEUE_FORMS = {
    "8b": {"fp8": "fp8", "w4a8": "int4", "w4a8_group": "int4", "w4a16": "fp8", "w4ax": "int4",
           "f16": "f16", "nested_low": "fp8", "nested_full": "fp8"},
    "70b": {"w4a8": "int4", "fp8": "fp8"},
}
KV_DTYPES = ("f16", "fp8", "int8", "int4")
VARIANTS = {
    "no_pipeline": "no stages, nothing ahead",
    "no_decode_ahead": "nothing decoded ahead",
    "no_interleave": "values in rows",
    "no_conversion": "plain conversion",
    "no_sharing": "no Stream-K",
    "with_none": "without all",
}


def queue_key(shape, key, input_len, output_len):
    """The part's name."""
    return f"trtllm_{shape}_{key}_{input_len}_{output_len}"


def first_of(*values):
    """The first that is there."""
    return next((value for value in values if value is not None), None)


def table(head, rows):
    """A Markdown table; the first column is text, the others are figures. Nothing without rows."""
    if not rows:
        return []
    lines = [head, ["---"] + ["---:"] * (len(head) - 1), *rows]
    return ["| " + " | ".join(map(str, line)) + " |" for line in lines]


def step_ms(result):
    return 1e3 * result["median_time_per_output_token_s"]


def summary(results):
    """Decode of one and of 64 sequences: step, tokens a second, share of the roofline."""
    rows = []
    for key, name in WEIGHTS.items():
        cells = []
        for batch_size in (1, 64):
            result = results.get(f"latency_{key}_batch{batch_size}")
            if result:
                cells += [f"{step_ms(result):.2f}", f"{1e3 * batch_size / step_ms(result):.0f}",
                          f"{100 * result['decode_roofline_share']:.0f} %"]
            else:
                cells += ["", "", ""]
        if any(cells):
            rows.append([name, *cells])
    return table(["weights", "step, ms, batch 1", "tokens/s", "of the roofline",
                  "step, ms, batch 64", "tokens/s", "of the roofline"], rows)


def latency(results):
    """Each kind of weights and batch: first token, decode step, floor."""
    rows = []
    for key, name in WEIGHTS.items():
        for batch_size in BATCHES:
            result = results.get(f"latency_{key}_batch{batch_size}")
            if not result:
                continue
            step, floor = step_ms(result), 1e3 * result["decode_step_floor_s"]
            idle = result.get("idle_between_decode_steps_us")
            rows.append([f"{name}, {batch_size}", f"{1e3 * result['time_to_first_token_s']:.1f}",
                         f"{step:.2f}", f"{floor:.2f}", f"{step / floor:.2f}",
                         f"{1e3 * batch_size / step:.0f}", f"{idle['median']:.0f}" if idle else ""])
    return table(["weights, batch", "first token, ms", "decode step, ms", "floor, ms",
                  "step / floor", "tokens/s", "idle between steps, us"], rows)


def throughput(results):
    """Requests of 1024 and 512 tokens, all queued at once."""
    rows = []
    for key, name in WEIGHTS.items():
        for suffix in ("", "_many"):
            result = results.get(f"throughput_{key}{suffix}")
            if result:
                rows.append([f"{name}, {result['kv_dtype']}", result["largest_batch"],
                             f"{result['output_tokens_per_s']:.0f}",
                             f"{result['total_tokens_per_s']:.0f}",
                             f"{100 * result['roofline_share']:.0f} %"])
    return table(["weights, KV cache", "largest batch", "output tokens/s", "all tokens/s",
                  "of the run's roofline"], rows)


def prefill(results):
    """A prompt of 8191 tokens, and one sequence's decode, with --batch-invariant and without."""
    rows = []
    for key, name in (("latency_f16_prefill8192", "f16, 8191 tokens"),
                      ("latency_f16_prefill8192_invariant",
                       "f16, 8191 tokens, `--batch-invariant`")):
        if key in results:
            result = results[key]
            rows.append([name, f"{1e3 * result['time_to_first_token_s']:.1f}",
                         f"{100 * result['first_token_roofline_share']:.0f} %"])
    key = "latency_f16_batch1_invariant"
    if key in results:
        rows.append(["f16, a decode step of one sequence, `--batch-invariant`",
                     f"{step_ms(results[key]):.2f}",
                     f"{100 * results[key]['decode_roofline_share']:.0f} %"])
    return table(["run", "ms", "of the roofline"], rows)


def profile(results):
    """The share that each operation has of the sum of all, each timed alone."""
    names, rows = [], []
    found = [(key, step) for key, result in results.items() if key.startswith("profile_")
             for step in result["profile"] if (step["step"] == "prefill") == ("prefill" in key)]
    for _, step in found:
        names += [op["name"] for op in step["operations"]
                  if op["share"] >= 0.01 and op["name"] not in names]
    for key, step in found:
        shares = {op["name"]: op["share"] for op in step["operations"]}
        weights, _, case = key.removeprefix("profile_").rpartition("_")
        rows.append([f"{WEIGHTS[weights]}, {case}", step["step"], *(
            f"{100 * shares[name]:.0f} %" if name in shares else "" for name in names)])
    return table(["run", "step", *names], rows)


def attention(results):
    """One layer's attention by shape and type of the cache: us, and the share of the floor."""
    times = {}
    for row in results.get("attention", {}).get("attention", []):
        name, _, dtype = row.get("name", "").rpartition(" ")
        if name:
            times.setdefault(name, {})[dtype] = (f"{row['median_us']:.1f} "
                                                 f"({100 * row['roofline_share']:.0f} %)")
    rows = [[name, *(by_dtype.get(dtype, "") for dtype in KV_DTYPES)]
            for name, by_dtype in times.items()]
    return table(["sequences x tokens", *KV_DTYPES], rows)


def sampling(results):
    """Choosing tokens, us by number of rows."""
    times = {}
    for row in results.get("sampling", {}).get("sampling", []):
        name = row["name"].partition(" x ")[2]
        times.setdefault(name, {})[row["num_rows"]] = f"{row['median_us']:.1f}"
    counts = sorted({count for by_count in times.values() for count in by_count})
    rows = [[name, *(by_count.get(count, "") for count in counts)]
            for name, by_count in times.items()]
    return table(["rows of 128256 logits, us", *counts], rows)


def perplexity(results):
    """models/demo-21m on the GPU by type of the KV cache."""
    rows = [[dtype, f"{results[f'perplexity_kv_{dtype}']['perplexity']:.4f}"]
            for dtype in KV_DTYPES if f"perplexity_kv_{dtype}" in results]
    return table(["KV cache", "perplexity, docs_heldout"], rows)


def ablation(results):
    """Time without a part by the whole kernel's, geometric means over layers, by tokens."""
    ratios = {}
    for row in results.get("ablation", {}).get("ablation", []):
        ratios.setdefault(row["M"], {}).setdefault(row["variant"], []).append(row["over_full"])
    rows = [[M, *(f"{geometric_mean(by_variant[key]):.2f}" if key in by_variant else ""
                  for key in VARIANTS)] for M, by_variant in sorted(ratios.items())]
    return table(["tokens", *VARIANTS.values()], rows)


def means_table(first, rows_of_x, named):
    """`named`: (name, mean by M, key, key with PDL or nothing). The figure with PDL stands first,
    that without it in brackets."""
    lines = []
    for name, mean_of, key, early_key in named:
        cells = []
        for M in rows_of_x:
            mean = mean_of(M)
            cell = "" if mean is None or mean[key] is None else f"{mean[key]:.2f}"
            if cell and early_key and mean[early_key] is not None:
                cell = f"{mean[early_key]:.2f} ({cell})"
            cells.append(cell)
        if any(cells):
            lines.append([name, *cells])
    return table([first, *rows_of_x], lines)


def gemm_means(results, which):
    found = results.get("gemm", {}).get("summary")
    if not found:
        return []
    means = {(mean["problem"], mean["M"]): mean for mean in found["problems"]}
    ratios = {(mean["name"], mean["M"]): mean for mean in found["ratios"]}
    rows_of_x = sorted({M for _, M in means})
    if which == "floor":
        return means_table("time / floor, M", rows_of_x, (
            (name, lambda M, key=key: means.get((key, M)), "over_floor", "early_over_floor")
            for key, name in GEMMS.items()))
    if which == "cublaslt":
        return means_table("cuBLASLt's best / floor, M", rows_of_x, (
            (f"floor of {GEMMS[key]}", lambda M, key=key: means.get((key, M)),
             "cublaslt_over_floor", None) for key in ("f16", "u4_s8", "u4_f16")))
    return means_table("times, M", rows_of_x, (
        (name, lambda M, name=name: ratios.get((name, M)), "ratio", "early_ratio")
        for name in dict.fromkeys(name for name, _ in ratios)))


def gemm_times(results):
    """Microseconds of every layer, with PDL where the kernels have it."""
    columns = {"floor": {}, "W4A8": {}, "W4A16": {}, "W4Ax": {}, "cuBLASLt f16": {},
               "cuBLASLt FP8": {}}
    for row in results.get("gemm", {}).get("products", []):
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
    shapes = dict.fromkeys(shape for column in columns.values() for shape in column)
    return table(["layer, M", *columns], [
        [f"{shape[0]}, {shape[1]}", *(f"{column[shape]:.1f}" if shape in column else ""
                                      for column in columns.values())] for shape in shapes])


def run_line(documents):
    """The device and the commits of the files of one GPU."""
    documents = [document for key, document in documents.items()
                 if not key.startswith(("tp", "all_reduce"))]
    gpus = sorted({gpu["name"] + ", driver " + gpu["driver_version"]
                   for document in documents for gpu in document["gpus"]})
    commits = sorted({document["commit"] for document in documents})
    return [f"Measured on {'; '.join(gpus) or 'no GPU'}; commit {', '.join(commits)}."]


def divided(results):
    """Times on one GPU, on two, and their ratio."""
    rows = []
    for shape, forms in TP_FORMS.items():
        for key in forms:
            times = {}
            for size in TP_SIZES:
                decode = results.get(f"tp{size}_{shape}_{key}_decode", [])
                for result in decode if isinstance(decode, list) else [decode]:
                    times.setdefault(f"decode, batch {result['batch_size']}", {})[size] = \
                        step_ms(result)
                prefill = results.get(f"tp{size}_{shape}_{key}_prefill")
                if prefill:
                    times.setdefault("prefill of 8191", {})[size] = \
                        1e3 * prefill["time_to_first_token_s"]
            for what, by_size in times.items():
                one, two = (by_size.get(size) for size in TP_SIZES)
                rows.append([f"{shape.upper()} {WEIGHTS[key].partition(' ')[0]}, {what}",
                             f"{one:.2f}" if one else "does not fit",
                             f"{two:.2f}" if two else "",
                             f"{two / one:.2f}" if one and two else ""])
    return table(["", "1 GPU, ms", "2 GPUs, ms", "ratio"], rows)


def all_reduce(results):
    """One-shot sums next to NCCL's better way, in microseconds, with and without the norm."""
    rows = []
    for size in (2, 4):
        for row in results.get(f"all_reduce_tp{size}", {}).get("all_reduce", []):
            cells = []
            for what in ("sum_us", "sum_add_norm_us"):
                nccl = min(row[way][what] for way in ("nccl", "nccl_registered") if row.get(way))
                cells += [f"{row['one_shot'][what]:.1f}", f"{nccl:.1f}"]
            rows.append([f"{size} GPUs, {row['num_bytes'] // 1024} KiB", *cells])
    return table(["", "sum, us", "NCCL", "sum, residual and norm, us", "NCCL and a kernel"], rows)


def queues(results):
    """Requests of one length, all queued at once, next to what TensorRT-LLM publishes."""
    rows = []
    for shape, lengths in TRTLLM.items():
        for (input_len, output_len), queue in lengths.items():
            for key, kv_dtype in QUEUE_FORMS[shape].items():
                result = results.get(queue_key(shape, key, input_len, output_len))
                if not result:
                    continue
                times, elapsed = result["device_times"], result["elapsed_s"]
                rate = result["output_tokens_per_s"]
                rows.append([
                    f"{shape.upper()}, {input_len} / {output_len}, {WEIGHTS[key]}, {kv_dtype}",
                    f"{rate:.0f}", queue.trtllm, f"{rate / queue.trtllm:.2f}",
                    result["largest_batch"],
                    f"{100 * result['roofline_share']:.0f} %",
                    *(f"{100 * times[name] / elapsed:.0f} %" for name in
                      ("prefill_steps_s", "decode_steps_s", "idle_between_steps_s")),
                    f"{1e3 * result['time_per_output_token_s']['median']:.1f}",
                    f"{1e3 * result['time_per_output_token_s']['p99']:.1f}"])
    return table(["shape, prompt / output, weights, KV cache", "output tokens/s", "TensorRT-LLM",
                  "ratio", "largest batch", "of the roofline", "steps with prompts",
                  "decodes alone", "idle", "TPOT, ms", "p99"], rows)


def experts(results):
    """One layer's experts in microseconds, and how many times faster than f16."""
    times = {}
    for row in results.get("experts", {}).get("experts", []):
        times.setdefault(row["name"], {}).setdefault(row["weights"], {})[row["M"]] = row["us"]
    rows = []
    counts = sorted({M for by_weights in times.values() for by_M in by_weights.values()
                     for M in by_M})
    for layer, by_weights in times.items():
        for weights, by_M in by_weights.items():
            base = by_weights.get("f16", {})
            cells = []
            for M in counts:
                cell = f"{by_M[M]:.0f}" if M in by_M else ""
                if cell and weights != "f16" and M in base:
                    cell += f" ({base[M] / by_M[M]:.1f})"
                cells.append(cell)
            rows.append([f"{layer}, {EXPERT_WEIGHTS[weights]}", *cells])
    return table(["one layer, rows", *counts], rows)


def mixtures(results):
    """Decode steps of mixtures and their floors, and a prompt."""
    rows = []
    for shape, name in MOE_SHAPES.items():
        for key in MOE_FORMS:
            decodes = results.get(f"moe_{shape}_{key}_decode")
            if not decodes:
                continue
            prefill = results.get(f"moe_{shape}_{key}_prefill")
            cells = {}
            for result in decodes:
                step, floor = step_ms(result), 1e3 * result["decode_step_floor_s"]
                cells[result["batch_size"]] = f"{step:.2f} ({step / floor:.2f})"
            rows.append([
                f"{name}, {WEIGHTS[key]}", f"{decodes[0]['packed_bytes'] / 1e9:.1f}",
                *(cells.get(batch_size, "") for batch_size in MOE_BATCHES),
                f"{1e3 * prefill['time_to_first_token_s']:.0f}" if prefill else ""])
    first, *others = MOE_BATCHES
    return table(["", "GB", f"batch {first}, ms (of the floor)", *others, "prompt of 8191, ms"],
                 rows)


# The tables by the name of their marks in docs/benchmarks.md.
TABLES = {
    "summary": summary,
    "latency": latency,
    "throughput": throughput,
    "prefill": prefill,
    "profile": profile,
    "attention": attention,
    "sampling": sampling,
    "perplexity": perplexity,
    "ablation": ablation,
    "gemm_floor": lambda results: gemm_means(results, "floor"),
    "gemm_cublaslt": lambda results: gemm_means(results, "cublaslt"),
    "gemm_ratios": lambda results: gemm_means(results, "ratios"),
    "gemm_times": gemm_times,
    "divided": divided,
    "experts": experts,
    "mixtures": mixtures,
    "queues": queues,
    "all_reduce": all_reduce,
}
MARKED = re.compile(r"(<!-- gpu:(\w+):begin[^>]*-->\n).*?(<!-- gpu:\2:end -->)", re.S)


def with_tables(page, documents):
    """`page` with every marked table made anew from the files' documents by part."""
    results = {key: document["result"] for key, document in documents.items()}

    def fill(match):
        name = match.group(2)
        lines = run_line(documents) if name == "run" else TABLES[name](results)
        return match.group(1) + "\n" + "".join(line + "\n" for line in lines) + "\n" + \
            match.group(3)

    return MARKED.sub(fill, page)


def summary_line(key, result):
    """The figures of a part that people ask for first."""
    if isinstance(result, list):
        return "\n".join(summary_line(f"{key}, batch {one['batch_size']}", one) for one in result)
    if "requests_per_s" in result:
        return (f"| {key} | {result['output_tokens_per_s']:.0f} output tokens/s, "
                f"{result['total_tokens_per_s']:.0f} in all, largest batch "
                f"{result['largest_batch']} | {100 * result['roofline_share']:.1f} % |")
    if "decode_step_floor_s" in result:
        text = f"TTFT {1e3 * result['time_to_first_token_s']:.1f} ms"
        share = result["first_token_roofline_share"]
        if result["output_len"] > 1:
            text += (f", decode step {step_ms(result):.2f} ms "
                     f"(floor {1e3 * result['decode_step_floor_s']:.2f})")
            share = result["decode_roofline_share"]
        return f"| {key} | {text} | {100 * share:.1f} % |"
    if "over_full" in result:
        ratios = ", ".join(f"{name} {ratio:.2f}" for name, ratio in result["over_full"].items())
        return f"| {key} | geometric means of times: {ratios} | - |"
    if "perplexity" in result:
        return f"| {key} | perplexity {result['perplexity']:.4f} | - |"
    if "all_reduce" in result:
        ratios = sorted(row["sum_over_nccl"] for row in result["all_reduce"])
        return f"| {key} | {ratios[0]:.2f} to {ratios[-1]:.2f} of NCCL's time | - |"
    rows = first_of(result.get("attention"), result.get("sampling"), result.get("experts"),
                    result.get("products"), [])
    # Only the GEMMs that layers run count.
    shares = sorted(row["roofline_share"] for row in rows if row.get("is_chosen", True))
    if not shares:
        return f"| {key} | nothing measured | - |"
    return (f"| {key} | {len(shares)} shapes, {100 * shares[0]:.0f} to {100 * shares[-1]:.0f} % | "
            f"{100 * shares[len(shares) // 2]:.1f} % (median) |")
