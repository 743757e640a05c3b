"""What `halley quantize` writes, read by other people's loaders.

    loaders_test.py HALLEY_BINARY SOURCE_DIR [unittest arguments]

Every loader gets every format: where the table below says that it loads it, its perplexity is
Halley's; elsewhere it stops with an error, and never computes something else. Needs .venv/loaders,
which tools/setup.sh --loader-tests makes; exits with 77 without it.
"""
import json
import os
import re
import subprocess
import sys
import tempfile
import unittest

HALLEY, SOURCE = sys.argv[1], os.path.abspath(sys.argv[2])
MODEL = os.path.join(SOURCE, "models", "demo-21m")
TEXT = os.path.join(SOURCE, "testdata", "text", "docs_heldout.txt")
PYTHON = os.path.join(SOURCE, ".venv", "loaders", "bin", "python")
WORKER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "loader_perplexity.py")
WINDOW, NUM_WINDOWS = 256, 4
RELATIVE_TOLERANCE = 0.003
# compressed-tensors divides the largest activation of a token by half of 255 for INT8, Halley by
# 127: two roundings of the same activations, which move 1,020 tokens by 0.30 %. FP8: up to 0.25 %.
ROUNDED_TOLERANCE = 0.005
ROUNDED = ("smoothquant", "fp8", "fp8, per tensor")
TIMEOUT_S = 2700
CALIBRATION = ("--calibrate", os.path.join(SOURCE, "testdata", "text", "wikitext2_valid.txt"),
               "--num-samples", "2", "--sample-length", "128")
ALL, TRANSFORMERS, GPTQMODEL = ("transformers", "gptqmodel"), ("transformers",), ("gptqmodel",)
# Row of the table in docs/quantization.md: the command's options, and the loaders of the file.
FORMATS = {
    "rtn": ("--method rtn", ALL),
    "rtn, 8 bits": ("--method rtn --bits 8", ALL),
    "rtn, symmetric": ("--method rtn --symmetric", ALL),
    "rtn, 3 bits": ("--method rtn --bits 3", ALL),
    "rtn, 2 bits": ("--method rtn --bits 2", ALL),
    "gptq": ("--method gptq", ALL),
    "gptq, symmetric": ("--method gptq --symmetric", ALL),
    "gptq, 8 bits, per channel": ("--method gptq --bits 8 --group-size -1", ALL),
    "gptq, 3 bits": ("--method gptq --bits 3", ALL),
    "gptq, 2 bits": ("--method gptq --bits 2", ALL),
    "gptq, act order": ("--method gptq --no-static-groups", ALL),
    "gptq, layers of other bits": ("--method gptq --override *.down_proj=bits=8,group=64 "
                                   "--override *.k_proj=none", GPTQMODEL),
    "awq": ("--method awq", ALL),
    "smoothquant": ("--method smoothquant", TRANSFORMERS),
    "fp8": ("--method fp8", TRANSFORMERS),
    "fp8, per tensor": ("--method fp8 --per-tensor", TRANSFORMERS),
    "fp8, static": ("--method fp8 --per-tensor --static-activations", TRANSFORMERS),
}
NEED_A_TEXT = ("gptq", "awq", "smoothquant", "static")


class Loaders(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folders, cls.expected = {}, {}
        for number, (name, (options, _)) in enumerate(FORMATS.items()):
            path = cls.folders[name] = os.path.join(folder.name, str(number))
            text = CALIBRATION if any(word in options for word in NEED_A_TEXT) else ()
            cls.run_halley("quantize", MODEL, "--out", path, *options.split(), *text)
            out = cls.run_halley("eval", path, "--perplexity", TEXT, "--window", str(WINDOW),
                                 "--windows", str(NUM_WINDOWS), "--json")
            cls.expected[name] = json.loads(out)["perplexity"]

    @staticmethod
    def run_halley(*args):
        return subprocess.run([HALLEY, *args], capture_output=True, text=True, check=True,
                              timeout=600).stdout

    def check(self, loader):
        """One process loads all, since the import alone takes half a minute."""
        result = subprocess.run(
            [PYTHON, "-B", WORKER, loader, TEXT, str(WINDOW), str(NUM_WINDOWS),
             *self.folders.values()], capture_output=True, text=True, check=False,
            timeout=TIMEOUT_S)
        lines = [json.loads(line) for line in result.stdout.splitlines()]
        self.assertEqual(len(lines), len(FORMATS), result.stderr[-4000:])
        for name, line in zip(FORMATS, lines):
            with self.subTest(loader=loader, format=name):
                print(f"{loader}, {name}: {line.get('perplexity', line.get('error'))}, "
                      f"halley {self.expected[name]}", flush=True)
                if loader in FORMATS[name][1]:
                    self.assertIn("perplexity", line, line)
                    ratio = line["perplexity"] / self.expected[name]
                    self.assertAlmostEqual(ratio, 1, delta=ROUNDED_TOLERANCE if name in ROUNDED
                                           else RELATIVE_TOLERANCE)
                else:
                    self.assertIn("error", line, line)

    def test_transformers(self):
        self.check("transformers")

    def test_gptqmodel(self):
        self.check("gptqmodel")


class Documentation(unittest.TestCase):
    def test_names_the_loaders_of_each_format(self):
        with open(os.path.join(SOURCE, "docs", "quantization.md"), encoding="utf-8") as file:
            rows = re.findall(r"(?m)^\| ([^|]+) \| (yes|no) \| (yes|no) \|", file.read())
        expected = [(name, *("yes" if loader in loaders else "no" for loader in ALL))
                    for name, (_, loaders) in FORMATS.items()]
        self.assertEqual(rows, expected)


if __name__ == "__main__":
    if not os.path.exists(PYTHON) and sys.argv[3:] != ["Documentation"]:
        print("SKIPPED: no .venv/loaders; run tools/setup.sh --loader-tests")
        sys.exit(77)
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]], verbosity=1)
