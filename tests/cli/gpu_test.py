"""Runs the program on a GPU as a user does.

    gpu_test.py HALLEY_BINARY SOURCE_DIR [unittest arguments]
"""
import json
import os
import subprocess
import sys
import unittest

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
        # docs/ARCHITECTURE.md, "KV cache".
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


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
