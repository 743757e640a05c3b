"""The program under test, and runs of it: for the tests of this folder."""
import json
import os
import subprocess
import sys
import unittest

HALLEY, SOURCE = sys.argv[1], sys.argv[2]
MODEL = os.path.join(SOURCE, "models", "demo-21m")
QUANTIZED = os.path.join(SOURCE, "testdata", "quantized")


# Instrumented kernels are a hundred times slower; what they compute has unit tests of its own.
skip_if_instrumented = unittest.skipIf(os.environ.get("HALLEY_TEST_IS_INSTRUMENTED"),
                                       "takes minutes in an instrumented build")
slow = unittest.skipUnless(os.environ.get("HALLEY_TEST_IS_SLOW"), "a test of the label slow")


def run(*args, stdin="", **options):
    return subprocess.run([HALLEY, *args], input=stdin, capture_output=True, text=True, timeout=600,
                          check=False, **options)


def run_json(*args, stdin=""):
    result = run(*args, stdin=stdin)
    if result.returncode != 0:
        raise AssertionError(f"{args}: exit code {result.returncode}: {result.stderr}")
    return json.loads(result.stdout)


def golden(name):
    with open(os.path.join(MODEL, name), encoding="utf-8") as file:
        return json.load(file)


def write_excerpt(path, num_chars):
    """The beginning of a text."""
    with open(os.path.join(SOURCE, "testdata", "text", "docs_heldout.txt"),
              encoding="utf-8") as file, open(path, "w", encoding="utf-8") as out:
        out.write(file.read()[:num_chars])


def make_model_of_other_tokens(folder):
    """The demo model with a tokenizer that knows half of its merges."""
    os.mkdir(folder)
    for name in "config.json", "model.safetensors":
        os.symlink(os.path.abspath(os.path.join(MODEL, name)), os.path.join(folder, name))
    tokenizer = golden("tokenizer.json")
    tokenizer["model"]["merges"] = tokenizer["model"]["merges"][:1000]
    with open(os.path.join(folder, "tokenizer.json"), "w", encoding="utf-8") as file:
        json.dump(tokenizer, file)
