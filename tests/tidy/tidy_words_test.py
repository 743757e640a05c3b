#!/usr/bin/env python3
"""The rules of tools/tidy.py on words, on the first word of a comment and on equal definitions can
fail: each case plants a violation in a small tree."""

import os
import sys
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from small_tree import SmallTree  # noqa: E402
import tidy_words  # noqa: E402

# One line for each row of the vocabulary, in its order.
VIOLATIONS = (
    "// The layer's product is exact.", "int close_products = 1;", "// The copy engine reads rows.",
    "// The giver stores its part.", "// It holds f32 sums.", "// The kernel leaves codes there.",
    "// Activations stay numbers.", "// It has a form of weights.", "int early_starts = 1;",
    "void wait_for_earlier_kernels();", "void give_registers();", "int num_places = kept_places;",
    "bool is_in_fours = true;", "// A narrow kernel runs.", "// It is for few rows.",
    "int input_digits = 3;", "int input_order = 3;", "// Tiles are dealt to CTAs.",
    "// They are scaled behind the tensor cores.", "// Zero points are taken off.",
    "// There is a scale for each output.", "// A room fills it.", "// The file is refused.",
    "int stated_group = 128;", "// Untrusted or hostile.", "// A ticket is held.",
    "// A multiprocessor has one.", "// It stands beside the other.",
)
ALLOWED = (
    "// A dot product of two rows.", "// An outer product.", "// Exit codes are listed.",
    "// There is room for 4 pages.", "// A sum of squares.", "// It takes place later.",
    "// The number of tokens.", "// The order of experts.", '// It reads "a.input_order".',
    "// Connection refused", "int kNumbersMax = 3;",
)


class Words(unittest.TestCase):
    def found(self, line, path="src/halley/high/high.cc"):
        return list(tidy_words.check_vocabulary(path, line + "\n"))

    def test_every_row_finds_its_violation(self):
        self.assertEqual(len(VIOLATIONS), len(tidy_words.WORDS))
        for word, line in zip(tidy_words.WORDS, VIOLATIONS):
            self.assertTrue(any(word.instead in what for _, what in self.found(line)),
                            f"{line!r} breaks the row {word.pattern!r}")

    def test_ordinary_words_pass(self):
        for line in ALLOWED:
            with self.subTest(line=line):
                self.assertEqual([w for w in self.found(line) if "Connection" not in line], [])

    def test_folders_that_wait_for_their_new_kernels(self):
        line = "// The copy engine reads rows."
        self.assertEqual(self.found(line, "src/halley/cuda/gemv/gemv.h"), [])
        self.assertTrue(self.found(line, "src/halley/cuda/gemv/README.md"))
        self.assertTrue(self.found(line, "src/halley/cuda/attention/a.cuh"))

    def test_format_pages_may_say_code(self):
        line = "Every panel has codes of 4 bits.\n"
        self.assertEqual(self.found(line, "docs/formats/fmpq.md"), [])
        self.assertTrue(self.found(line, "docs/serving.md"))

    def test_the_line_is_named(self):
        text = "int x;\nint y;\n// The copy engine.\n"
        self.assertEqual([n for n, _ in tidy_words.check_vocabulary("src/a.cc", text)], [3])


class Rules(SmallTree):
    def test_words(self):
        self.assert_high_breaks("vocabulary", "// The copy engine reads rows.\nint x;\n", "TMA")
        self.assert_breaks("vocabulary", {"docs/x.md": "A giver.\n"}, "Stream-K")

    def test_first_words(self):
        for start in ("Of", "What", "Where", "And"):
            self.assert_high_breaks("bare-start", f"// {start} these three.\nint x;\n", start)
        self.assert_high_breaks("bare-start", "int x;  // Of them\n")
        self.assert_high_breaks("bare-start", "struct Pair {\n  int x;  ///< What it is\n};\n")
        self.assert_breaks("bare-start", {"docs/x.md": "# What it is\n"})
        self.assert_high_holds("// It knows what it does.\n// What follows goes on.\nint x;\n")
        self.assert_high_holds("// Often it is so.\nint x;\n")

    def two(self, low, high):
        """A header of each of the two modules; the second one's is included where it stands."""
        head = "#pragma once\nnamespace halley {\n"
        return {"src/halley/low/two.h": f"// Two.\n{head}{low}\n}}  // namespace halley\n",
                "src/halley/high/two.h": f"// Two.\n{head}{high}\n}}  // namespace halley\n"}

    def test_types_of_one_name_in_two_files(self):
        self.assert_breaks("definition",
                           self.two("struct Pair {\n  int x;\n};", "class Pair : Other {};"),
                           "'halley::Pair' is also defined in src/halley/high/two.h:4")
        self.assert_breaks("definition", self.two(
            "enum class Pair { kOne };", "template <class T, class V = Other<T>>\nstruct Pair {};"))
        for other in ("struct Pair;", "namespace other {\nstruct Pair {};\n}", "struct Other {};",
                      "struct Other {\n  struct Pair {};\n};", "namespace {\nstruct Pair {};\n}"):
            with self.subTest(other=other):
                self.assertEqual(self.problems(self.two("struct Pair {};", other)), [])

    def test_inline_functions_of_one_name_in_two_files(self):
        body = " { return 1; }"
        self.assert_breaks("definition", self.two("inline int f(int a, const Other& b)" + body,
                                                  "inline int f(int c,\n  const Other &d)" + body),
                           "'halley::f(int, const Other&)'")
        self.assert_breaks("definition", self.two(
            "template <int kN>\n__device__ __forceinline__ void g()" + body,
            "template <class T>\n__device__ void g()" + body), "'halley::g()'")
        for other in ("inline int f(float a)" + body, "int f(int a);", "static int f(int a)" + body,
                      "struct Other {\n  int f(int a)" + body + "\n};"):
            with self.subTest(other=other):
                self.assertEqual(self.problems(self.two("inline int f(int a)" + body, other)), [])

    def test_long_python_files_and_functions(self):
        self.assert_breaks("file-lines", {"tools/a.py": "x = 1\n" * 501}, "501 lines")
        self.assert_breaks("function-lines", {"tools/a.py": "def f():\n" + "    x = 1\n" * 71},
                           "'f' has 71 lines")
        self.assertEqual(self.problems({"tools/a.py": "def f():\n" + "    x = 1\n" * 70}), [])


if __name__ == "__main__":
    unittest.main()
