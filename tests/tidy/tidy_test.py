#!/usr/bin/env python3
"""Every rule of tools/tidy.py can fail: each case breaks one in a small tree and looks for it."""

import os
import sys
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from small_tree import CLEAN, HIGH_CC, TEST_CC, SmallTree  # noqa: E402
import tidy  # noqa: E402
from tidy_modules import MARK_BEGIN, MARK_END, Graph  # noqa: E402


def long_function(lines):
    return "int f() {\n" + "  g();\n" * lines + "}\n"


class Tidy(SmallTree):
    def test_a_clean_tree_has_no_problems(self):
        self.assertEqual(self.problems({}), [])

    # Modules and includes.

    def test_a_dependency_on_an_equal_layer(self):
        self.assert_breaks("layer", {"src/halley/low/CMakeLists.txt":
                                     "halley_module(NAME low LAYER 2 SRCS low.cc)\n"},
                           "'high' (layer 2) may not depend on 'low' (layer 2)")

    def test_a_dependency_on_no_module(self):
        files = {"src/halley/low/CMakeLists.txt":
                 "halley_module(NAME low LAYER 1 SRCS low.cc DEPS nowhere)\n"}
        found = [str(p) for p in self.problems(files)]
        self.assertEqual(found, ["src/halley/low/CMakeLists.txt:1: module: 'low' depends on "
                                 "'nowhere', which is no module"])

    def test_a_module_in_another_folder(self):
        self.assert_breaks("module", {
            "src/halley/odd/CMakeLists.txt": "halley_module(NAME even LAYER 1)\n"},
            "'even' belongs in")

    def test_an_include_that_is_not_declared(self):
        self.assert_breaks("undeclared", {
            "src/halley/mid/CMakeLists.txt": "halley_module(NAME mid LAYER 1)\n",
            "src/halley/mid/mid.h": "// Mid.\n#pragma once\n",
            "src/halley/high/high.cc": '#include "halley/mid/mid.h"\n' + HIGH_CC},
            "does not declare 'mid'")

    def test_a_declared_module_that_is_not_used(self):
        self.assert_breaks("unused", {"src/halley/high/high.cc": "int high() { return 1; }\n"},
                           "declares 'low'")

    def test_a_test_that_declares_what_it_does_not_use(self):
        self.assert_breaks("unused", {"src/halley/high/high_test.cc": "int x = 1;\n"}, "high_test")

    def test_a_test_that_includes_what_it_cannot_reach(self):
        self.assert_breaks("undeclared", {
            "src/halley/mid/CMakeLists.txt": "halley_module(NAME mid LAYER 1)\n",
            "src/halley/mid/mid.h": "// Mid.\n#pragma once\n",
            "src/halley/high/high_test.cc": '#include "halley/mid/mid.h"\n' + TEST_CC},
            "do not reach 'mid'")

    def test_a_test_that_looks_up(self):
        self.assert_breaks("layer", {
            "src/halley/top/CMakeLists.txt": "halley_module(NAME top LAYER 3)\n",
            "src/halley/top/top.h": "// Top.\n#pragma once\n",
            "src/halley/high/CMakeLists.txt":
                "halley_module(NAME high LAYER 2 SRCS high.cc DEPS low)\n"
                "halley_test(NAME high_test SRCS high_test.cc DEPS low top)\n",
            "src/halley/high/high_test.cc": '#include "halley/top/top.h"\n' + TEST_CC},
            "a higher layer")

    DOUBLES = {
        "src/halley/high/testing/CMakeLists.txt":
            "halley_module(NAME high/testing LAYER 3 HEADERS_ONLY DEPS low)\n",
        "src/halley/high/testing/fake.h":
            '// A double.\n#pragma once\n#include "halley/low/low.h"\n'}

    def test_a_test_may_include_the_doubles_of_the_module_beside_it(self):
        self.assertEqual(self.problems({
            **self.DOUBLES,
            "src/halley/high/CMakeLists.txt":
                "halley_module(NAME high LAYER 2 SRCS high.cc DEPS low)\n"
                "halley_test(NAME high_test SRCS high_test.cc DEPS high/testing)\n",
            "src/halley/high/high_test.cc":
                '#include "halley/high/testing/fake.h"\n' + TEST_CC}), [])

    def test_a_product_module_may_not_use_doubles(self):
        self.assert_breaks("testing", {
            **self.DOUBLES,
            "src/halley/top/CMakeLists.txt":
                "halley_module(NAME top LAYER 4 SRCS top.cc DEPS high/testing)\n",
            "src/halley/top/top.cc": '#include "halley/high/testing/fake.h"\n'},
            "'top' may not depend on 'high/testing'")

    def test_the_table_of_modules_leaves_doubles_out(self):
        self.assertNotIn("high/testing", Graph({**CLEAN, **self.DOUBLES}).table())

    def test_a_header_of_tests_alone_may_use_what_the_tests_declare(self):
        self.assertEqual(self.problems({
            "src/halley/high/CMakeLists.txt":
                "halley_module(NAME high LAYER 2 SRCS high.cc)\n"
                "halley_test(NAME high_test SRCS high_test.cc DEPS low)\n",
            "src/halley/high/high.cc": "int high() { return 1; }\n",
            "src/halley/high/cases.h":
                '// Cases of the tests.\n#pragma once\n#include "halley/low/low.h"\n',
            "src/halley/high/high_test.cc": '#include "halley/high/cases.h"\n'}), [])

    def test_relative_and_angled_includes_of_our_headers(self):
        for include in ('"low.h"', '"../low/low.h"', "<halley/low/low.h>",
                        '"halley/high/../low/low.h"'):
            self.assert_high_breaks("include", f"#include {include}\n", "for our headers")

    def test_an_include_of_no_file(self):
        self.assert_high_breaks("include", '#include "halley/low/gone.h"\n', "no such file")

    def test_a_library_that_is_not_declared(self):
        self.assert_high_breaks("undeclared", "#include <hwy/highway.h>\n", "EXTERNAL hwy::hwy")

    def test_a_library_that_a_dependency_brings(self):
        files = {"src/halley/low/CMakeLists.txt":
                 "halley_module(NAME low LAYER 1 SRCS low.cc EXTERNAL hwy::hwy)\n",
                 "src/halley/high/high.cc": "#include <hwy/highway.h>\n" + HIGH_CC}
        self.assertEqual(self.problems(files), [])

    def test_a_source_in_no_list(self):
        self.assert_breaks("unlisted", {"src/halley/high/lost_test.cc": "int lost = 1;\n"})

    def test_an_old_table_of_modules(self):
        self.assert_breaks("architecture", {
            "docs/ARCHITECTURE.md": f"# A\n{MARK_BEGIN}\n{MARK_END}\n"}, "out of date")

    def test_no_table_of_modules(self):
        self.assert_breaks("architecture", {}, "expected the lines", with_architecture=False)

    # Words.

    def test_a_format_outside_its_room(self):
        self.assert_high_breaks("format-word", 'const char* kName = "gptq";\n', "'gptq'")
        self.assert_high_breaks("format-word", "int use_Awq = 1;\n")
        self.assert_high_breaks("format-word", "int torchao_kind = 1;\n")
        self.assert_high_breaks("format-word", "int is_auto_round = 1;\n")
        self.assert_high_holds("int model_options = 1;\n")

    def test_a_format_in_its_room(self):
        self.assertEqual(self.problems({
            "src/halley/quant/gptq/CMakeLists.txt": "halley_module(NAME quant/gptq LAYER 3)\n",
            "src/halley/quant/gptq/gptq.h": "// The gptq format.\n#pragma once\n"}), [])

    def test_the_list_of_modules_names_formats(self):
        self.assertEqual(self.problems({
            "src/halley/CMakeLists.txt": "add_subdirectory(quant/gptq)\n"}), [])

    def test_names_that_say_nothing(self):
        for name in ("string_utils", "HelperThing", "kFastPath", "gemm_v2", "misc"):
            self.assert_high_breaks("word", f"int {name} = 1;\n", name)
        self.assert_high_holds("std::common_type_t<int> breakfast; double beta_fast;\n")

    def test_a_file_name_that_says_nothing(self):
        self.assert_breaks("word", {"tools/helpers.py": "A = 1\n"}, "'helpers'")

    def test_a_file_name_that_is_not_snake_case(self):
        self.assert_breaks("file-name", {"src/halley/low/LowThing.h": "// Low.\n#pragma once\n"})

    def test_a_letter_outside_the_dictionary(self):
        self.assert_high_breaks("letter", "int Q = 1;\n", "'Q'")
        self.assert_high_holds("int M = 1, N = 0x1F, K = 'Q';  // Q of the paper\n")

    def test_todo_forms(self):
        for text in ("// TODO: later\n", "// TODO later\n", "// TODO(kv):\n"):
            self.assert_high_breaks("todo", text)
        self.assert_high_holds("// TODO(kv): when pages can be shared\n")

    def test_leftovers(self):
        self.assert_high_breaks("leftover", "// FIX" "ME now\n")

    def test_paths_of_one_machine(self):
        self.assert_high_breaks("machine-path", "// see /home/me/x\n")

    # Code.

    def test_if_0(self):
        self.assert_high_breaks("if-0", "#if 0\nint x;\n#endif\n")

    def test_using_namespace(self):
        self.assert_high_breaks("using-namespace", "using namespace std;\n")

    def test_assembly(self):
        self.assert_high_breaks("assembly", 'void f() { asm volatile("bar.sync 0;"); }\n',
                                "src/halley/cuda/ptx")
        self.assert_high_breaks("assembly", '#define HALLEY_BAR(x) \\\n  asm(x)\n')
        self.assert_high_holds("#include <asm/hwcap.h>\n// No asm.\n")
        ptx = '// Barriers.\n#pragma once\nvoid f() { asm("bar.sync 0;"); }\n'
        module = "halley_module(NAME cuda/ptx LAYER 1 HEADERS_ONLY)\n"
        self.assertEqual(self.problems({"src/halley/cuda/ptx/CMakeLists.txt": module,
                                        "src/halley/cuda/ptx/barrier.cuh": ptx}), [])

    def test_the_environment(self):
        self.assert_high_breaks("environment", 'auto x = std::getenv("HOME");\n')

    def test_printing_and_exiting(self):
        self.assert_high_breaks("prints", "void p() { std::cout << 1; }\n")
        self.assert_high_breaks("exits", "void p() { std::exit(1); }\n")
        self.assert_high_holds("// std::cout and std::exit(1) are not for libraries\n")

    def test_sleeping_tests(self):
        self.assert_breaks("sleep", {"src/halley/high/high_test.cc":
                                     TEST_CC + "void p() { sleep_for(ms(1)); }\n"})

    def test_long_functions(self):
        self.assert_high_breaks("function-lines", long_function(71), "'f' has 71 lines")
        self.assert_high_holds(long_function(70))

    def test_long_functions_of_every_form(self):
        body = "{\n" + "  g();\n" * 80 + "}"
        for head in ("A::A(int x) : a_(x), b_{x} ", "bool operator==(A x, A y) ",
                     "auto A::f(int x) const noexcept -> int ", "TEST(Suite, Claim) ",
                     "template <typename T>\n  requires(sizeof(T) > 1)\nT f(T x) "):
            with self.subTest(head=head):
                lengths = [f[2] for f in tidy.find_functions("namespace a {\n" + head + body + "}\n")]
                self.assertEqual(lengths, [80])
        nested = "struct A {\n  int n() { return 1; }\n  int x = 0;\n  void f() " + body + "\n};\n"
        self.assertEqual([f[0] for f in tidy.find_functions(nested)], ["n", "f"])
        self.assertEqual(tidy.find_functions("constexpr int kTable[] = " + body + ";\n"), [])
        self.assertEqual(tidy.find_functions('const char* kText = "void f() {";\n'), [])

    def test_parameters(self):
        seven = ",\n".join(f"std::map<int, int> x{i}" for i in range(7))
        self.assert_high_breaks("parameters", f"int f({seven}) {{ return 1; }}\n", "7 parameters")
        self.assert_high_holds("int f(int a, int b, int c, int d, int e, Map<int, int> f) {}\n")

    def test_long_files(self):
        self.assert_high_breaks("file-lines", "int x();\n" * 500, "505 lines")

    def test_long_lines(self):
        self.assert_high_breaks("columns", "// " + "x" * 98 + "\n", "101 columns")
        self.assert_breaks("columns", {"tools/a.py": "#" * 101 + "\n"})

    def test_headers(self):
        self.assert_breaks("header", {"src/halley/low/low.h": "// Low.\nint low();\n"}, "pragma")
        self.assert_breaks("header", {"src/halley/low/low.h": "#pragma once\nint low();\n"},
                           "first line")

    # Text.

    def test_white_space(self):
        self.assert_high_breaks("tab", "\tint x;\n")
        self.assert_high_breaks("trailing-space", "int x; \n")
        self.assert_high_breaks("trailing-space", "int x;\r\n")
        self.assert_high_breaks("end-of-file", "int x;")
        self.assert_high_breaks("end-of-file", "int x;\n\n")

    def test_text_that_is_not_utf8(self):
        self.assert_breaks("utf-8", {"docs/x.md": b"\xff\n"})

    def test_large_files(self):
        limit, tidy.FILE_BYTES_MAX = tidy.FILE_BYTES_MAX, 1000
        try:
            self.assert_breaks("file-size", {"models/x.bin": "x" * 1001})
        finally:
            tidy.FILE_BYTES_MAX = limit

    # The ratchet.

    def ratchet(self, entry, lines):
        return [str(p) for p in self.problems({
            "src/halley/high/high.cc": HIGH_CC + long_function(lines),
            tidy.RATCHET: entry + "\n"})]

    def test_the_ratchet_allows_what_is_there(self):
        self.assertEqual(self.ratchet("function-lines src/halley/high/high.cc:f 80", 80), [])

    def test_the_ratchet_allows_no_growth(self):
        found = self.ratchet("function-lines src/halley/high/high.cc:f 80", 81)
        self.assertEqual(len(found), 1)
        self.assertIn("function-lines", found[0])

    def test_the_ratchet_only_shrinks(self):
        entry = "function-lines src/halley/high/high.cc:f 80"
        self.assertIn("lower the entry", self.ratchet(entry, 79)[0])
        self.assertIn("delete the entry", self.ratchet(entry, 9)[0])

    def test_the_ratchet_is_read_strictly(self):
        self.assertIn("expected 'rule subject size'", self.ratchet("function-lines f", 1)[0])


if __name__ == "__main__":
    unittest.main()
