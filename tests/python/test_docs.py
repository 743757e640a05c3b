"""The snippets of docs/python.md and the examples, as their readers run them."""
import doctest
import os
import re
import subprocess
import sys

import pytest

SOURCE = os.environ["HALLEY_TEST_SOURCE"]
MODEL = os.path.join(SOURCE, "models", "demo-21m")


def test_the_snippets_of_the_page(monkeypatch):
    page = os.path.join(SOURCE, "docs", "python.md")
    with open(page, encoding="utf-8") as file:
        snippets = re.findall(r"(?s)```python\n(.*?)```", file.read())
    assert len(snippets) > 10
    monkeypatch.chdir(SOURCE)
    test = doctest.DocTestParser().get_doctest("".join(snippets), {}, "python.md", page, 0)
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
    runner.run(test)
    assert runner.summarize().failed == 0
    assert runner.tries > 30


@pytest.mark.parametrize("name, arguments, text", [
    ("python_generate.py", [MODEL], "The Python"),
    ("python_quantize.py", [MODEL, os.path.join(SOURCE, "testdata/text/docs_heldout.txt")],
     "perplexity")])
def test_examples(tmp_path, name, arguments, text):
    example = os.path.join(SOURCE, "examples", name)
    result = subprocess.run([sys.executable, example, *arguments], capture_output=True, text=True,
                            timeout=120, check=False, cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    assert text in result.stdout
