"""tools/bench_gpu.py runs every part, keeps what came out, and goes on where one fails.

    bench_gpu_test.py SOURCE_DIR [unittest arguments]

The program is a script that writes what the real one would, so that no GPU is needed.
"""
import json
import os
import subprocess
import sys
import tempfile
import unittest

SOURCE = sys.argv[1]
TOOL = os.path.join(SOURCE, "tools", "bench_gpu.py")

FAKE = f"""#!{sys.executable}
import json, sys
args = sys.argv[1:]
if "--quant-config" in args:
    print("halley: no memory", file=sys.stderr)
    sys.exit(1)
kind = args[1] if args[0] == "bench" else args[0]
if kind == "eval":
    print(json.dumps({{"perplexity": 20.5}}))
    print("a line for people", file=sys.stderr)
    sys.exit(0)
result = {{
    "latency": {{"time_to_first_token_s": 0.5, "median_time_per_output_token_s": 0.004,
                "decode_step_floor_s": 0.003, "output_len": 128, "decode_roofline_share": 0.75,
                "batch_size": 1, "packed_bytes": 5e9,
                "first_token_roofline_share": 0.5, "profile": [
                    {{"step": "prefill", "operations": [{{"name": "o", "share": 1.0}}]}},
                    {{"step": "decode", "operations": [{{"name": "o", "share": 0.75}}]}}]}},
    "throughput": {{"requests_per_s": 1, "output_tokens_per_s": 100, "total_tokens_per_s": 300,
                   "largest_batch": 7, "roofline_share": 0.25, "kv_dtype": "f16",
                   "elapsed_s": 10, "time_per_output_token_s": {{"median": 0.05, "p99": 0.0625}},
                   "device_times": {{"prefill_steps_s": 2.5, "decode_steps_s": 7,
                                    "idle_between_steps_s": 0.5}}}},
    "experts": {{"experts": [
        {{"name": "Mixtral", "weights": "f16", "M": 16, "us": 60.0, "roofline_share": 0.5}},
        {{"name": "Mixtral", "weights": "e4m3", "M": 16, "us": 40.0, "roofline_share": 0.5}}]}},
    "attention": {{"attention": [
        {{"name": "decode 1x8 f16", "median_us": 5.04, "roofline_share": 0.2}},
        {{"name": "decode 1x8 int4", "median_us": 4.0, "roofline_share": 0.9}}]}},
    "sampling": {{"sampling": [{{"name": "32 x greedy", "num_rows": 32, "median_us": 7.25,
                               "roofline_share": 0.5}}]}},
    "gemm": {{"products": [
                {{"problem": "u4_s8", "kernel": "tile", "is_chosen": True, "N": 64, "K": 32, "M": 1,
                 "us": 3.0, "us_early": 2.5, "floor_us": 1.25, "roofline_share": 0.5}},
                {{"problem": "f16", "kernel": "gemm_f16_streamed", "is_chosen": True, "N": 64,
                 "K": 32, "M": 1, "us": 7.0, "us_early": 6.0, "floor_us": 4.5,
                 "roofline_share": 0.75}},
                {{"problem": "f16", "kernel": "gemm_f16_cublaslt", "is_chosen": False, "N": 64,
                 "K": 32, "M": 1, "us": 8.0, "us_early": None, "floor_us": 4.5,
                 "roofline_share": 0.5625}}],
             "summary": {{
                "problems": [{{"problem": "u4_s8", "M": 1, "over_floor": 2.4,
                              "early_over_floor": 2.0, "cublaslt_over_floor": 6.4}},
                             {{"problem": "nested_fp8", "M": 16, "over_floor": 1.5,
                              "early_over_floor": None, "cublaslt_over_floor": None}}],
                "ratios": [{{"name": "u4_s8 / f16", "M": 1, "ratio": 0.43,
                            "early_ratio": 0.42}}]}}}},
    "ablation": {{"over_full": {{"full": 1.0, "no_pipeline": 2.345}},
                 "ablation": [{{"variant": "no_pipeline", "M": 16, "over_full": 2.345}}]}},
}}[kind]
if "--batch-size" in args:
    sizes = args[args.index("--batch-size") + 1].split(",")
    if len(sizes) > 1:
        result = [dict(result, batch_size=int(size)) for size in sizes]
with open(args[args.index("--output-json") + 1], "w") as file:
    json.dump(result, file)
"""


class BenchGpu(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.halley = os.path.join(self.folder.name, "halley")
        with open(self.halley, "w", encoding="utf-8") as file:
            file.write(FAKE)
        os.chmod(self.halley, 0o755)
        self.results = os.path.join(self.folder.name, "results")

    def run_tool(self, *args):
        return subprocess.run([sys.executable, "-B", TOOL, "--halley", self.halley, "--results",
                               self.results, *args], capture_output=True, text=True, timeout=60,
                              check=False)

    def read(self, name):
        with open(os.path.join(self.results, name), encoding="utf-8") as file:
            return file.read()

    def test_goes_on_where_a_part_fails(self):
        result = self.run_tool("--parts", "latency_*,throughput_f*,attention,sampling,perplexity*,"
                               "profile_f16*,gemm,ablation,all_reduce*,tp?_8b_f16_decode,experts,"
                               "moe_mixtral*_f16_*,trtllm_8b_f*_1000_1000")
        self.assertEqual(result.returncode, 1)
        self.assertIn("failed: throughput_fp8: exit code 1: halley: no memory", result.stderr)
        files = os.listdir(self.results)
        self.assertIn("gpu_gemm.json", files)
        self.assertFalse([name for name in files if "_fp8_batch" in name or "partial" in name])
        document = json.loads(self.read("gpu_latency_f16_batch64.json"))
        self.assertIn("--batch-size 64", document["command"])
        self.assertEqual(document["result"]["decode_roofline_share"], 0.75)
        self.assertEqual(set(document) - {"result"}, {"command", "date", "commit", "gpus",
                                                      "seconds"})
        summary = self.read("gpu_summary.md")
        self.assertIn("| latency_f16_batch1 | TTFT 500.0 ms, decode step 4.00 ms (floor 3.00) | "
                      "75.0 % |", summary)
        self.assertIn("| throughput_f16 | 100 output tokens/s, 300 in all, largest batch 7 | "
                      "25.0 % |", summary)
        self.assertIn("2 shapes, 20 to 90 %", summary)
        self.assertIn("| ablation | geometric means of times: full 1.00, no_pipeline 2.35 | - |",
                      summary)
        row = "| f16, 64 | 500.0 | 4.00 | 3.00 | 1.33 | 16000 |  |\n"
        self.assertIn(row, result.stdout)
        self.assertIn("| f16, f16 | 7 | 100 | 300 | 25 % |\n", result.stdout)
        for line in ("| W4A8, per channel | 2.00 (2.40) |  |",
                     "| NestedFP, in FP8 |  | 1.50 |",
                     "| floor of W4A8, per channel | 6.40 |  |",
                     "| u4_s8 / f16 | 0.42 (0.43) |  |",
                     "| decode 1x8 | 5.0 (20 %) |  |  | 4.0 (90 %) |", "| greedy | 7.2 |",
                     "| int4 | 20.5000 |", "| f16, batch1 | decode | 75 % |",
                     "| f16, prefill8192 | prefill | 100 % |", "| 16 | 2.35 |  |  |  |  |  |",
                     "| 64 x 32, 1 | 1.2 | 2.5 |  |  | 8.0 |  |",
                     "| 8B f16, decode, batch 1 | 4.00 |  |  |",
                     "| Mixtral, f16 | 60 |", "| Mixtral, FP8 | 40 (1.5) |",
                     "| Mixtral 8x7B, f16 | 5.0 | 4.00 (1.33) | 4.00 (1.33) | 4.00 (1.33) | "
                     "4.00 (1.33) | 500 |",
                     "| 8B, 1000 / 1000, f16, f16 | 100 | 17744 | 0.01 | 7 | 25 % | 25 % | 70 % | "
                     "5 % | 50.0 | 62.5 |",
                     "left out: it needs 2 GPUs"):
            self.assertIn(line + "\n", result.stdout)
        document = json.loads(self.read("gpu_gemm.json"))
        self.assertRegex(document["command"], r"bench gemm --device 0 --svg \S*gpu_gemm\.svg$")
        again = self.run_tool("--rows")
        self.assertEqual(again.returncode, 0, again.stderr)
        self.assertIn(row, again.stdout)
        self.assertNotIn("| FP8, 1 |", again.stdout)

    def test_the_page_has_the_tables_of_the_results(self):
        result = subprocess.run([sys.executable, "-B", TOOL, "--check"], capture_output=True,
                                text=True, timeout=60, check=False)
        self.assertEqual(result.returncode, 0, result.stderr)
        result = self.run_tool("--check")  # there are no results
        self.assertEqual(result.returncode, 1)
        self.assertIn("tools/bench_gpu.py --write", result.stderr)

    def test_parts_and_time(self):
        result = self.run_tool("--parts", "gemm,attention")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual(sorted(os.listdir(self.results)),
                         ["gpu_attention.json", "gpu_gemm.json", "gpu_summary.md"])
        result = self.run_tool("--parts", "gemm", "--seconds", "1")
        self.assertIn("failed: gemm: no time left", result.stderr)
        self.assertEqual(self.run_tool("--parts", "gem").returncode, 2)

    def test_parts_by_pattern(self):
        lines = self.run_tool("--parts", "latency_*_batch16,gemm", "--list").stdout.splitlines()
        keys = [line.partition(":")[0] for line in lines]
        self.assertEqual(keys, ["latency_f16_batch16", "latency_fp8_batch16",
                                "latency_w4a16_batch16", "latency_w4a8_batch16",
                                "latency_w4a8_group_batch16", "latency_w4ax_batch16",
                                "latency_nested_full_batch16", "latency_nested_low_batch16",
                                "gemm"])
        self.assertEqual(self.run_tool("--parts", "gemm,nothing*").returncode, 2)

    def test_its_configurations_of_weights_are_there(self):
        words = self.run_tool("--list").stdout.split()
        paths = {words[i + 1] for i, word in enumerate(words) if word == "--quant-config"}
        methods = []
        for path in sorted(paths):
            with open(path, encoding="utf-8") as file:
                methods.append(json.load(file)["quant_method"])
        self.assertEqual(methods, ["fmpq", "compressed-tensors", "gptq", "nestedfp", "qoq",
                                   "qoq"])


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[2:]])
