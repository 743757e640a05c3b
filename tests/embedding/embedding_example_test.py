"""The example of docs/embedding.md, and that Halley can be a part of another project's build.

    embedding_example_test.py EXAMPLE_BINARY HALLEY_BINARY SOURCE_DIR CMAKE [unittest arguments]
"""
import os
import re
import subprocess
import sys
import tempfile
import unittest

EXAMPLE, HALLEY, SOURCE, CMAKE = sys.argv[1:5]
MODEL = os.path.join(SOURCE, "models", "demo-21m")
PROMPT = "The Python programming language"
PROJECT = os.path.join(SOURCE, "examples", "embedding")


def run(*command):
    return subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)


def read(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


class Example(unittest.TestCase):
    def test_it_says_what_halley_generate_says(self):
        result = run(EXAMPLE, MODEL, PROMPT)
        self.assertEqual(result.returncode, 0, result.stderr)
        expected = run(HALLEY, "generate", MODEL, "--prompt", PROMPT, "--max-tokens", "24",
                       "--temperature", "0", "--device", "cpu")
        self.assertGreater(len(result.stdout.strip()), 20)
        self.assertEqual(result.stdout, expected.stdout)

    def test_errors_are_messages(self):
        for arguments, code, text in (((), 2, "usage: "),
                                      (("no-such-folder", PROMPT), 1, "no-such-folder"),
                                      ((MODEL, "word " * 2000), 1, "1024")):
            result = run(EXAMPLE, *arguments)
            self.assertEqual((result.returncode, result.stdout.strip()), (code, ""), arguments)
            self.assertIn(text, result.stderr)

    def test_the_guide_shows_the_example(self):
        code = re.sub(r"\s+", " ", read(os.path.join(PROJECT, "main.cc")))
        guide = read(os.path.join(SOURCE, "docs", "embedding.md"))
        blocks = re.findall(r"(?s)```cpp\n(.*?)```", guide)
        self.assertGreater(len(blocks), 2)
        for block in blocks:
            self.assertIn(re.sub(r"\s+", " ", block).strip(), code)
        cmake = re.sub(r"\s+", " ", read(os.path.join(PROJECT, "CMakeLists.txt")))
        block, = re.findall(r"(?s)```cmake\n(add_subdirectory.*?)```", guide)
        block = block.replace("third_party/halley", "../.. halley")
        self.assertIn(re.sub(r"\s+", " ", block).strip(), cmake)


class Project(unittest.TestCase):
    def test_another_project_takes_halley_as_a_folder(self):
        with tempfile.TemporaryDirectory() as folder:
            result = run(CMAKE, "-G", "Ninja", "-S", PROJECT, "-B", folder, "-DHALLEY_CUDA=OFF")
            self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
            rules = read(os.path.join(folder, "build.ninja"))
            everything = re.search(r"(?m)^build all: phony (.*)$", rules)[1].split()
            self.assertEqual([name for name in everything if not name.endswith("/all")],
                             ["embedding"])
            self.assertNotIn("GTest", rules)
            # Halley's install rules and tests stay out of the other project.
            script = read(os.path.join(folder, "cmake_install.cmake"))
            self.assertNotIn("file(INSTALL", script)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[5:]])
