"""tools/bench_online.py measures the engine alone and behind the server with the same requests.

    bench_online_test.py HALLEY_BINARY SOURCE_DIR [unittest arguments]
"""
import json
import os
import subprocess
import sys
import tempfile
import unittest

HALLEY, SOURCE = sys.argv[1], sys.argv[2]


class BenchOnline(unittest.TestCase):
    def run_tool(self, *args):
        return subprocess.run(
            [sys.executable, "-B", os.path.join(SOURCE, "tools", "bench_online.py"), "--halley",
             HALLEY, "--device", "cpu", "--shape", "tiny", "--num-prompts", "6", "--input-len",
             "16", "--output-len", "8", "--max-num-seqs", "4", *args], capture_output=True,
            text=True, timeout=100, check=False)

    def test_measures_both(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "out.json")
            tool = self.run_tool("--runs", "2", "--output-json", path, "--", "--threads", "1")
            self.assertEqual(tool.returncode, 0, tool.stderr)
            with open(path, encoding="utf-8") as file:
                result = json.load(file)["result"]
        self.assertEqual(result["engine_options"], ["--threads", "1"])
        best = {}
        for kind in "offline", "online":
            rates = result[kind + "_output_tokens_per_s"]
            self.assertEqual(len(rates), 2)
            self.assertGreater(min(rates), 0)
            best[kind] = max(rates)
        self.assertAlmostEqual(result["ratio"], best["online"] / best["offline"])
        self.assertIn(f"ratio: {100 * result['ratio']:.1f} %", tool.stdout)

    def test_says_what_the_program_says(self):
        tool = self.run_tool("--", "--kv-dtype", "f17")
        self.assertEqual(tool.returncode, 1)
        self.assertIn("bench throughput", tool.stderr)
        self.assertIn("f17", tool.stderr)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
