"""README.md: its length, its links and its numbers, which tools/plot_readme.py makes; and the
pages that it leads to.

    readme_test.py SOURCE_DIR [unittest arguments]
"""
import glob
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

SOURCE = sys.argv[1]
TOOL = os.path.join(SOURCE, "tools", "plot_readme.py")
LINES_MAX = 150
PAGES = ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "docs/*.md", "examples/*/*.md")


def read(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


def anchors_of(text):
    """Of the headings, as GitHub makes them."""
    headings = re.findall(r"(?m)^#+ +(.*)$", re.sub(r"(?ms)^```.*?^```", "", text))
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


class Speed(unittest.TestCase):
    """The table and the picture, in a copy of what they are made from."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = folder.name
        os.makedirs(self.path("docs"))
        os.makedirs(self.path("bench", "results"))
        for name in "README.md", "docs/speed.svg", "bench/peers.json":
            shutil.copy(os.path.join(SOURCE, name), self.path(name))
        for name in glob.glob(os.path.join(SOURCE, "bench", "results", "gpu_*.json")):
            shutil.copy(name, self.path("bench", "results"))

    def path(self, *names):
        return os.path.join(self.root, *names)

    def run_tool(self, *args):
        return subprocess.run([sys.executable, "-B", TOOL, *args], capture_output=True, text=True,
                              timeout=60, check=False, env={**os.environ, "HALLEY_ROOT": self.root})

    def change(self, name, **values):
        path = self.path("bench", "results", name)
        document = json.loads(read(path))
        document["result"].update(values)
        with open(path, "w", encoding="utf-8") as file:
            json.dump(document, file)

    def test_are_what_the_results_give(self):
        result = self.run_tool()
        self.assertEqual(result.returncode, 0, result.stderr)

    def test_another_result_gives_another_table_and_picture(self):
        self.change("gpu_latency_w4a8_batch1.json", median_time_per_output_token_s=0.001)
        result = self.run_tool()
        self.assertEqual(result.returncode, 1)
        self.assertIn("README.md, docs/speed.svg: not what bench/results gives", result.stderr)
        self.assertEqual(self.run_tool("--write").returncode, 0)
        self.assertEqual(self.run_tool().returncode, 0)
        for name in "README.md", "docs/speed.svg":
            self.assertIn(">1,000 (" if name.endswith("svg") else "**1,000**",
                          read(self.path(name)))
        before = re.sub(r"(?s)<!-- speed:begin.*speed:end -->", "", read(self.path("README.md")))
        self.assertEqual(before, re.sub(r"(?s)<!-- speed:begin.*speed:end -->", "",
                                        read(os.path.join(SOURCE, "README.md"))))

    def test_results_that_cannot_stand_side_by_side_are_rejected(self):
        self.change("gpu_latency_f16_batch64.json", batch_size=16)
        self.assertIn("expected llama-3-8b at batch 64, got llama-3-8b at 16",
                      self.run_tool().stderr)
        self.change("gpu_latency_f16_batch64.json", batch_size=64, device="NVIDIA H100")
        self.assertIn("expected one device, got ['NVIDIA H100', 'NVIDIA H200']",
                      self.run_tool().stderr)


class Pages(unittest.TestCase):
    def test_the_readme_is_short(self):
        self.assertLessEqual(len(read(os.path.join(SOURCE, "README.md")).splitlines()), LINES_MAX)

    def test_links_lead_somewhere(self):
        pages = [page for pattern in PAGES for page in glob.glob(os.path.join(SOURCE, pattern))]
        self.assertGreater(len(pages), 15)
        broken = []
        for page in pages:
            text = re.sub(r"(?ms)^```.*?^```", "", read(page))
            for link in re.findall(r"\]\(([^)\s]+)\)", text):
                if re.match(r"\w+:", link):
                    continue
                path, _, anchor = link.partition("#")
                target = os.path.normpath(os.path.join(os.path.dirname(page), path)) if path \
                    else page
                if not os.path.exists(target) or \
                        anchor and anchor not in anchors_of(read(target)):
                    broken.append(f"{os.path.relpath(page, SOURCE)}: {link}")
        self.assertEqual(broken, [])

    def test_the_messages_to_look_up_are_the_programs(self):
        """Those in the first column of docs/troubleshooting.md, `...` for what varies."""
        texts = []
        for folder, endings in (("src/halley", (".cc", ".cu", ".h")), ("cmake", (".cmake",)),
                                ("tools", (".sh",))):
            for where, _, names in os.walk(os.path.join(SOURCE, folder)):
                texts += [read(os.path.join(where, name)) for name in names
                          if name.endswith(endings)]
        # Adjacent literals are one text.
        program = re.sub(r'\\\n|"\s*"', "", "\n".join(texts)).replace("\\\"", "\"")
        page = read(os.path.join(SOURCE, "docs", "troubleshooting.md"))
        cells = re.findall(r"(?m)^\| (?:\d+ )?`([^`]+)` \|", page)
        cells += re.findall(r"(?m)^- `([^`]+)`:", page)
        self.assertGreater(len(cells), 25)
        for cell in cells:
            for piece in re.split(r"\.\.\.", cell):
                self.assertIn(piece.strip(" .,()"), program, cell)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[2:]])
