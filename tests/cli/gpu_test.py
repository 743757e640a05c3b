"""Runs the program on a GPU as a user does.

    gpu_test.py HALLEY_BINARY SOURCE_DIR [unittest arguments]
"""
import json
import os
import subprocess
import sys
import tempfile
import unittest
import xml.etree.ElementTree

HALLEY, SOURCE = sys.argv[1], sys.argv[2]
MODEL = os.path.join(SOURCE, "models", "demo-21m")
TEXT = os.path.join(SOURCE, "testdata", "text", "wikitext2_test.txt")


def run(*args):
    result = subprocess.run([HALLEY, *args], capture_output=True, text=True, timeout=300,
                            check=False)
    if result.returncode != 0:
        raise AssertionError(f"{args}: exit code {result.returncode}: {result.stderr}")
    return result


class Gpu(unittest.TestCase):
    def perplexity(self, *args):
        result = run("eval", MODEL, "--device", "cuda", "--perplexity", TEXT, "--json", *args)
        return json.loads(result.stdout)["perplexity"]

    def test_perplexity_is_the_cpus(self):
        # src/halley/kernels/kv/README.md.
        for kv_dtype, expected in ("f16", 31.5836), ("int8", 31.5835), ("fp8", 31.6125), \
                ("int4", 32.0240):
            with self.subTest(kv_dtype=kv_dtype):
                self.assertAlmostEqual(self.perplexity("--kv-dtype", kv_dtype), expected,
                                       delta=0.02)

    def test_perplexity_in_bf16(self):
        self.assertAlmostEqual(self.perplexity("--dtype", "bfloat16"), 31.5836, delta=0.3)

    def test_the_gpu_is_taken_where_there_is_one(self):
        result = run("generate", MODEL, "--prompt", "The", "--max-tokens", "4", "--temperature",
                     "0")
        self.assertRegex(result.stderr, r"; device NVIDIA .*, activations f16")
        self.assertNotIn("_hwy", result.stderr)

    def test_tokens_are_the_cpus(self):
        # Prompts whose most probable tokens are clear: no ties that f16 would decide otherwise.
        outputs = [run("generate", MODEL, "--device", device, "--prompt",
                       "The Python programming language", "--max-tokens", "12", "--temperature",
                       "0").stdout for device in ("cpu", "cuda")]
        self.assertEqual(outputs[0], outputs[1])

    def test_part_of_the_memory(self):
        small = run("serve", "--help").stdout
        self.assertIn("--gpu-memory-utilization", small)
        result = subprocess.run([HALLEY, "generate", MODEL, "--device", "cuda", "--prompt", "x",
                                 "--gpu-memory-utilization", "0.0001"], capture_output=True,
                                text=True, timeout=300, check=False)
        self.assertEqual(result.returncode, 1, result.stderr)
        self.assertIn("GPU memory: expected room for weights", result.stderr)

    def test_times_of_gemms(self):
        with tempfile.TemporaryDirectory() as folder:
            svg = os.path.join(folder, "shares.svg")
            args = ("bench", "gemm", "--shape", "256x512", "--problems", "f16,u4_s8,u3_f16")
            result = json.loads(run(*args, "--rows", "1,16", "--svg", svg, "--json").stdout)
            lines = xml.etree.ElementTree.parse(svg).getroot().findall(
                "{http://www.w3.org/2000/svg}polyline")
            self.assertEqual(len(lines), 2)  # u4_s8 and its line of the legend
        for gemm in result["products"]:
            with self.subTest(gemm=gemm):
                self.assertGreater(gemm["us"], 0)
                self.assertGreater(gemm["floor_us"], 0)
                if "cublaslt" not in gemm["kernel"]:
                    self.assertGreater(gemm["us_early"], 0)
                    self.assertAlmostEqual(gemm["roofline_share"],
                                           gemm["floor_us"] / gemm["us_early"])
        means = {(mean["problem"], mean["M"]): mean for mean in result["summary"]["problems"]}
        # u3_f16 has kernels for small M only.
        self.assertEqual(set(means), {("f16", 1), ("f16", 16), ("u4_s8", 1), ("u4_s8", 16),
                                      ("u3_f16", 1)})
        chosen = next(gemm for gemm in result["products"]
                      if gemm["problem"] == "u4_s8" and gemm["M"] == 16)
        mean = means["u4_s8", 16]
        self.assertAlmostEqual(mean["over_floor"], chosen["us"] / chosen["floor_us"])
        self.assertAlmostEqual(mean["early_over_floor"], chosen["us_early"] / chosen["floor_us"])
        self.assertGreater(mean["cublaslt_over_floor"], 1)
        # Ratios of problems that were not timed are left out.
        self.assertEqual(result["summary"]["ratios"], [])
        table = run(*args, "--rows", "16").stdout
        self.assertIn("Time / floor, geometric mean over the shapes", table)
        rejected = subprocess.run([HALLEY, *args[:-1], "u3_f16", "--rows", "64"],
                                 capture_output=True, text=True, timeout=300, check=False)
        self.assertEqual(rejected.returncode, 2, rejected.stderr)
        self.assertIn("--rows: expected M up to 8", rejected.stderr)

    def test_all_plans_of_a_layer(self):
        args = ("bench", "gemm", "--shape", "512x1024", "--problems", "w4ax", "--rows", "16",
                "--all-plans")
        plans = json.loads(run(*args, "--json").stdout)["products"]
        self.assertGreater(len(plans), 1)
        self.assertEqual(sum(plan["is_chosen"] for plan in plans), 1)
        fastest = min(plans, key=lambda plan: plan["us_early"])
        self.assertEqual(json.loads(fastest["tuned"])["rows"], 16)
        lines = run(*args).stdout.split("Fastest plans\n")[1].splitlines()
        self.assertEqual(len(lines), 1)
        self.assertEqual(json.loads(lines[0].rstrip(","))["rows"], 16)

    def test_experts_of_a_layer(self):
        rows = json.loads(run("bench", "experts", "--rows", "1,4", "--json").stdout)["experts"]
        self.assertEqual([row["M"] for row in rows], [1, 4, 1, 4])
        for row in rows:
            with self.subTest(row=row):
                self.assertGreater(row["us"], row["floor_us"])
                self.assertGreater(row["us"], row["routing_us"] + row["sum_us"])

    def test_gemms_of_odd_shapes(self):
        args = ("bench", "gemm", "--shape", "250x1000", "--rows", "1,3,100", "--json")
        result = run(*args)
        self.assertRegex(result.stderr, r"(?m)^left out: u2_s8: .* 1000 inputs are no multiple")
        problems = {mean["problem"] for mean in json.loads(result.stdout)["summary"]["problems"]}
        self.assertIn("u4_group_s8", problems)
        self.assertNotIn("u2_s8", problems)
        rejected = subprocess.run([HALLEY, *args, "--problems", "u2_s8"], capture_output=True,
                                 text=True, timeout=300, check=False)
        self.assertEqual(rejected.returncode, 4, rejected.stderr)


class SavedGemms(unittest.TestCase):
    """`halley bench gemm --from` needs no GPU."""

    def gemm(self, problem, kernel, N, us, us_early, floor_us, rejected="rejected"):
        return {"problem": problem, "kernel": kernel, "is_chosen": "cublaslt" not in kernel,
                rejected: "[]", "N": N, "K": 64, "M": 1, "us": us, "us_early": us_early,
                "floor_us": floor_us, "weight_tera_bytes_per_s": 2.5}

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.path = os.path.join(folder.name, "result.json")
        self.svg = os.path.join(folder.name, "shares.svg")
        self.gemms = [self.gemm("u4_s8", "tile", 64, 4, 2, 1),
                      self.gemm("u4_s8", "tile", 128, 9, 8, 1),
                      self.gemm("u4_group_s8", "tile", 64, 8, 3, 1),
                      self.gemm("f16", "gemm_f16_cublaslt", 64, 6, None, 5),
                      # A file of 0.1.0.
                      self.gemm("f16", "gemm_f16_cublaslt", 128, 6, None, 5, "refused")]

    def show(self, document, *args):
        with open(self.path, "w", encoding="utf-8") as file:
            json.dump(document, file)
        return subprocess.run([HALLEY, "bench", "gemm", "--from", self.path, *args],
                              capture_output=True, text=True, timeout=60, check=False)

    def test_are_summed_up_again(self):
        # As tools/bench_gpu.py keeps it.
        result = self.show({"result": {"products": self.gemms}}, "--json", "--svg", self.svg)
        self.assertEqual(result.returncode, 0, result.stderr)
        shown = json.loads(result.stdout)
        self.assertEqual([row["us_early"] for row in shown["products"]], [2, 8, 3, None, None])
        mean = shown["summary"]["problems"][0]
        self.assertEqual((mean["problem"], mean["M"], mean["num_shapes"]), ("u4_s8", 1, 2))
        for key, expected in (("over_floor", 6), ("early_over_floor", 4),
                              ("cublaslt_over_floor", 6), ("above_floor_us", 5.5),
                              ("early_above_floor_us", 4)):
            self.assertAlmostEqual(mean[key], expected, msg=key)
        ratio, = (ratio for ratio in shown["summary"]["ratios"]
                  if ratio["name"] == "u4_group_s8 / u4_s8")
        self.assertEqual((ratio["num_shapes"], ratio["ratio"], ratio["early_ratio"]), (1, 2, 1.5))
        self.assertEqual(xml.etree.ElementTree.parse(self.svg).getroot().tag,
                         "{http://www.w3.org/2000/svg}svg")
        table = self.show({"products": self.gemms}).stdout
        self.assertRegex(table, r"\nu4_s8, best cuBLASLt +6\.000\n")
        self.assertRegex(table, r"\nu4_group_s8 / u4_s8, PDL +1\.500\n")

    def test_that_are_wrong_are_rejected(self):
        for change, message in (({"us": 0}, "expected times above 0"),
                                ({"us": None}, "expected what `halley bench gemm --json` printed"),
                                ({"floor_us": -1}, "expected times above 0")):
            result = self.show({"products": [{**self.gemms[0], **change}]})
            self.assertEqual(result.returncode, 2, result.stderr)
            self.assertIn(message, result.stderr)
        neither = {key: value for key, value in self.gemms[0].items() if key != "rejected"}
        for document in [], {"products": [neither]}:
            self.assertIn("expected what", self.show(document).stderr)
        result = self.show({"products": []}, "--rows", "1")
        self.assertIn("excludes", result.stderr)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
