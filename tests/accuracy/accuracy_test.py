"""The outlier twin computes what its original does, and tools/accuracy.py measures and goes on.

    accuracy_test.py HALLEY_BINARY SOURCE_DIR [unittest arguments]

Without NumPy the twin's test skips.
"""
import importlib.util
import json
import math
import os
import subprocess
import sys
import tempfile
import unittest

HALLEY, SOURCE = sys.argv[1], sys.argv[2]
MODEL = os.path.join(SOURCE, "models", "demo-21m")
TEXT = os.path.join(SOURCE, "testdata", "text", "docs_heldout.txt")
# The twin's weights are the original's times powers of two, but for subnormal ones; activations
# round alike, but for sums whose order of magnitude changed.
NLL_TOLERANCE = 2e-4


def run(*command):
    result = subprocess.run(command, capture_output=True, text=True, timeout=1200, check=False)
    if result.returncode != 0:
        raise AssertionError(f"{command}: exit code {result.returncode}: {result.stderr}")
    return result.stdout


@unittest.skipUnless(importlib.util.find_spec("numpy"), "needs NumPy: tools/setup.sh --numpy")
class OutlierTwin(unittest.TestCase):
    def test_has_the_perplexity_of_its_original(self):
        with tempfile.TemporaryDirectory() as folder:
            twin = os.path.join(folder, "twin")
            run(sys.executable, "-B", os.path.join(SOURCE, "tools", "outlier_twin.py"), MODEL, twin)
            args = ["--perplexity", TEXT, "--windows", "4", "--json"]
            result = json.loads(run(HALLEY, "eval", twin, *args, "--reference", MODEL))
            self.assertLess(abs(result["log_perplexity_increase"]["value"]), NLL_TOLERANCE)
            self.assertGreater(result["top1_agreement"]["value"], 0.99)
            self.assertTrue(math.isfinite(result["kl_max"]))


class Accuracy(unittest.TestCase):
    def test_measures_rows_writes_tables_and_skips_what_is_done(self):
        with tempfile.TemporaryDirectory() as folder:
            command = [sys.executable, "-B", os.path.join(SOURCE, "tools", "accuracy.py"),
                       "--halley", HALLEY, "--models", "demo", "--windows", "2", "--samples", "2"]
            for name in "work", "results", "docs":
                command += [f"--{name}", os.path.join(folder, name)]
            rows = "kv4,kv8,w4a16-rtn-g128"
            self.assertIn("demo, wikitext2_test: w4a16-rtn-g128, kv8, kv4",
                          run(*command, "--rows", rows))
            self.assertEqual(run(*command, "--rows", rows), "")
            with open(os.path.join(folder, "results", "accuracy_demo.json"),
                      encoding="utf-8") as file:
                results = json.load(file)
            self.assertEqual(set(results["rows"]), set(rows.split(",")))
            entry = results["rows"]["kv4"]["texts"]["docs_heldout"]
            self.assertEqual((entry["kv_dtype"], entry["num_windows"]), ("int4", 2))
            with open(os.path.join(folder, "docs", "accuracy.md"), encoding="utf-8") as file:
                report = file.read()
            self.assertIn(f"| KV4 alone | 16.00 | 16.00 | 42.2 MB | int4 | "
                          f"{entry['perplexity']:.3f} |", report)
            self.assertTrue(os.path.exists(os.path.join(folder, "docs", "accuracy.svg")))


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]], verbosity=1)
