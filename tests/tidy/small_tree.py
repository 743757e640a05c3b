"""A small tree that breaks no rule of tools/tidy.py, and what tidy says of changes to it."""

import os
import sys
import tempfile
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "tools"))
import tidy  # noqa: E402
from tidy_modules import MARK_BEGIN, MARK_END, Graph, with_table  # noqa: E402

LOW_H = "// Reads low things. More words.\n#pragma once\nint low();\n"
HIGH_CC = '#include "halley/low/low.h"\n\n#include <vector>\n\nint high() { return low(); }\n'
TEST_CC = '#include "halley/low/low.h"\nTEST(High, IsLow) { EXPECT_EQ(low(), 1); }\n'
CLEAN = {
    "src/halley/low/CMakeLists.txt": "halley_module(NAME low LAYER 1 SRCS low.cc)\n",
    "src/halley/low/low.h": LOW_H,
    "src/halley/low/low.cc": '#include "halley/low/low.h"\nint low() { return 1; }\n',
    "src/halley/high/CMakeLists.txt":
        "halley_module(NAME high LAYER 2 SRCS high.cc DEPS low)\n"
        "halley_test(NAME high_test SRCS high_test.cc DEPS low)\n",
    "src/halley/high/high.cc": HIGH_CC,
    "src/halley/high/high_test.cc": TEST_CC,
}


class SmallTree(unittest.TestCase):
    def problems(self, changes, with_architecture=True):
        """What tidy says of the clean tree with `changes` (path -> text, None: no such file)."""
        files = {k: v for k, v in {**CLEAN, **changes}.items() if v is not None}
        if with_architecture:
            empty = f"# A\n{MARK_BEGIN}\n{MARK_END}\n"
            files.setdefault("docs/ARCHITECTURE.md", with_table(empty, Graph(files).table()))
        with tempfile.TemporaryDirectory() as root:
            for path, text in files.items():
                full = os.path.join(root, path)
                os.makedirs(os.path.dirname(full), exist_ok=True)
                with open(full, "wb") as file:
                    file.write(text if isinstance(text, bytes) else text.encode())
            return tidy.check_tree(root)

    def assert_breaks(self, rule, changes, words="", **options):
        found = [str(p) for p in self.problems(changes, **options)]
        hits = [p for p in found if f": {rule}: " in p and words in p]
        self.assertTrue(hits, f"expected '{rule}' with '{words}', got {found}")
        others = [p for p in found if f": {rule}: " not in p]
        self.assertEqual(others, [], "only the rule in question is broken")

    def assert_high_breaks(self, rule, code, words=""):
        self.assert_breaks(rule, {"src/halley/high/high.cc": HIGH_CC + code}, words)

    def assert_high_holds(self, code):
        self.assertEqual([str(p) for p in self.problems(
            {"src/halley/high/high.cc": HIGH_CC + code})], [])
