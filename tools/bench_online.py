#!/usr/bin/env python3
"""The server next to the engine alone: the same requests by `bench throughput` and over HTTP.

    tools/bench_online.py --halley build/release/bin/halley [--device cuda:0] [--output-json FILE]
                          [--num-prompts 512] [--input-len 256] [--output-len 256] ...

Weights are made up; all requests come at once, greedy, of exact lengths. Prints output tokens a
second of each run, and the ratio of the best runs. With --output-json everything is written to a
file, with GPU, driver, date, commit and command. Needs Python alone.
"""
import argparse
import datetime
import json
import os
import shlex
import subprocess
import sys
import tempfile

import bench_gpu

SHAPES = {
    "llama-3-8b": {"hidden_size": 4096, "num_hidden_layers": 32, "intermediate_size": 14336,
                   "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 128256,
                   "max_position_embeddings": 8192},
    "llama-1b": {"hidden_size": 2048, "num_hidden_layers": 22, "intermediate_size": 5632,
                 "num_attention_heads": 32, "num_key_value_heads": 4, "vocab_size": 32000,
                 "max_position_embeddings": 8192},
    "tiny": {"hidden_size": 64, "num_hidden_layers": 2, "intermediate_size": 128,
             "num_attention_heads": 2, "num_key_value_heads": 2, "vocab_size": 512,
             "max_position_embeddings": 1024},
}


def write_model(folder, shape):
    """A checkpoint without weights: the shape, and a tokenizer that has all its ids."""
    config = {"model_type": "llama", "dtype": "float16", "hidden_act": "silu",
              "rms_norm_eps": 1e-5, "rope_theta": 500000.0, "tie_word_embeddings": False,
              **SHAPES[shape]}
    vocabulary = {f"\u0120{i:06}": i for i in range(config["vocab_size"])}
    tokenizer = {"version": "1.0", "added_tokens": [],
                 "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False},
                 "decoder": {"type": "ByteLevel"},
                 "model": {"type": "BPE", "vocab": vocabulary, "merges": []}}
    for name, data in (("config", config), ("tokenizer", tokenizer), ("tokenizer_config", {})):
        with open(os.path.join(folder, name + ".json"), "w", encoding="utf-8") as file:
            json.dump(data, file)


def run(command, path):
    """The JSON that a command wrote to `path`."""
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    if result.returncode != 0:
        raise SystemExit(f"{shlex.join(command)}: exit code {result.returncode}: {result.stderr}")
    with open(path, encoding="utf-8") as file:
        return json.load(file)


def offline_runs(options, model, engine, path):
    command = [options.halley, "bench", "throughput", model, *engine, "--num-prompts",
               str(options.num_prompts), "--input-len", str(options.input_len), "--output-len",
               str(options.output_len), "--output-json", path]
    return [run(command, path) for _ in range(options.runs)]


def online_runs(options, model, engine, path):
    server = subprocess.Popen([options.halley, "serve", model, *engine, "--port", "0",
                               "--log-level", "warning", "--served-model-name", "model"],
                              stdout=subprocess.PIPE, text=True)
    try:
        line = server.stdout.readline()
        if not line.startswith("serving "):
            raise SystemExit("the server did not start")
        command = [options.halley, "bench", "serve", "--base-url", line.split()[-1], "--model",
                   "model", "--tokenizer", model, "--random-input-len", str(options.input_len),
                   "--ignore-eos", "--temperature", "0", "--json", path]

        def load(seed, num_prompts, output_len):
            return run([*command, "--seed", str(seed), "--num-prompts", str(num_prompts),
                        "--random-output-len", str(output_len)], path)

        load(0, 1, min(4, options.output_len))  # what is made at the first use is not measured
        return [load(seed, options.num_prompts, options.output_len)
                for seed in range(1, options.runs + 1)]
    finally:
        server.terminate()
        server.wait()


def check(options, online):
    for report in online:
        num_tokens = options.num_prompts * options.output_len
        if report["completed"] != options.num_prompts or \
                report["total_output_tokens"] != num_tokens:
            raise SystemExit(f"expected {options.num_prompts} answers of {num_tokens} tokens, got "
                             f"{report['completed']} of {report['total_output_tokens']}")


def measure(options):
    engine = ["--load-format", "dummy", "--dtype", "float16", "--device", options.device,
              "--max-model-len", str(options.input_len + options.output_len), "--max-num-seqs",
              str(options.max_num_seqs), *options.engine]
    with tempfile.TemporaryDirectory() as model:
        write_model(model, options.shape)
        path = os.path.join(model, "report.json")
        offline = offline_runs(options, model, engine, path)
        online = online_runs(options, model, engine, path)
    check(options, online)
    rates = {"offline": [report["output_tokens_per_s"] for report in offline],
             "online": [report["output_throughput"] for report in online]}
    kept = ("duration", "mean_ttft_ms", "mean_tpot_ms", "mean_itl_ms")
    return {"shape": options.shape, "device": offline[0]["device"],
            "num_prompts": options.num_prompts, "input_len": options.input_len,
            "output_len": options.output_len, "max_num_seqs": options.max_num_seqs,
            "engine_options": options.engine,
            "offline_output_tokens_per_s": rates["offline"],
            "online_output_tokens_per_s": rates["online"],
            "ratio": max(rates["online"]) / max(rates["offline"]),
            "online": [{key: report[key] for key in kept} for report in online]}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--halley", default=os.path.join("build", "release", "bin", "halley"))
    parser.add_argument("--shape", choices=sorted(SHAPES), default="llama-3-8b")
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--num-prompts", type=int, default=512)
    parser.add_argument("--input-len", type=int, default=256)
    parser.add_argument("--output-len", type=int, default=256)
    parser.add_argument("--max-num-seqs", type=int, default=256, help="that run together")
    parser.add_argument("--runs", type=int, default=2, help="of each kind")
    parser.add_argument("--commit", help="what the program was built from, where not here")
    parser.add_argument("--output-json", help="write all figures to a file")
    parser.add_argument("engine", nargs="*", help="behind --: more options of serve and throughput")
    options = parser.parse_args()
    result = measure(options)
    for kind in "offline", "online":
        print(f"{kind}: " + ", ".join(f"{rate:.0f}" for rate in
                                      result[kind + "_output_tokens_per_s"]) + " output tokens/s")
    print(f"ratio: {100 * result['ratio']:.1f} %")
    if options.output_json:
        document = {"command": shlex.join(["tools/bench_online.py", *sys.argv[1:]]),
                    "date": datetime.datetime.now(datetime.timezone.utc).isoformat(
                        timespec="seconds"),
                    "commit": options.commit or bench_gpu.commit(), "gpus": bench_gpu.nvidia_smi(),
                    "result": result}
        with open(options.output_json, "w", encoding="utf-8") as file:
            json.dump(document, file, indent=1)
            file.write("\n")


if __name__ == "__main__":
    main()
