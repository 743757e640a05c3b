"""The manual page and the completions that are made from --help.

    cli_files_test.py HALLEY_BINARY SOURCE_DIR [unittest arguments]
"""
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

HALLEY, SOURCE = sys.argv[1], sys.argv[2]
MAKER = os.path.join(SOURCE, "packaging", "make_cli_files.py")
REFERENCE_MAKER = os.path.join(SOURCE, "packaging", "make_cli_reference.py")
# What zsh's completion functions would be called with.
ZSH_STUBS = """
compadd() { shift; print -l -- "$@" }
_files() { print FILES }
_describe() {
  local -a entries; [[ $1 == -o ]] && shift
  entries=("${(@P)2}"); print -l -- "${entries[@]%%:*}"
}
"""


def help_of(*path):
    return subprocess.run([HALLEY, *path, "--help"], capture_output=True, text=True, timeout=60,
                          check=True).stdout


def subcommands_of(text):
    match = re.search(r"^Subcommands:\n((?:  .*\n)*)", text, re.M)
    return re.findall(r"^  ([\w-]+)", match.group(1), re.M) if match else []


def all_paths():
    """Every command, found here by other means than the maker's."""
    paths = []
    for name in subcommands_of(help_of()):
        below = subcommands_of(help_of(name))
        paths += [(name, sub) for sub in below] or [(name,)]
    return paths


class CliFiles(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = folder.name
        subprocess.run([sys.executable, "-B", MAKER, HALLEY, cls.folder], check=True, timeout=120)

    def read(self, name):
        with open(os.path.join(self.folder, name), encoding="utf-8") as file:
            return file.read()

    def test_every_command_of_the_program_is_known(self):
        with open(os.path.join(SOURCE, "src", "halley", "cli", "main.cc"),
                  encoding="utf-8") as file:
            names = re.findall(r'^    \{"(\w+)", add_\w+\},$', file.read(), re.M)
        self.assertIn("tune", names)
        self.assertEqual({path[0] for path in all_paths()}, set(names))
        page = self.read("halley.1")
        completions = {name: self.read(name) for name in ("halley.bash", "_halley")}
        for name in names:
            self.assertIn(f".SS halley {name}", page)
            for file, text in completions.items():
                self.assertRegex(text, rf"\b{name}\b", file)

    def test_the_page_has_every_command_and_every_option(self):
        page = self.read("halley.1")
        for path in all_paths():
            section = page.split(f".SS halley {' '.join(path)}\n")[1].split("\n.SS ")[0]
            names = set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", re.sub(
                r"(?s)^Examples?:.*", "", help_of(*path), flags=re.M)))
            self.assertGreater(len(names), 1, path)
            for name in names:
                self.assertIn(name.replace("-", "\\-"), section, (path, name))

    def test_what_the_services_give_to_serve_are_its_options(self):
        text = help_of("serve")
        options = set(re.findall(r"--[a-z][a-z-]+", text))
        for path in "systemd/halley.service", "docker/Dockerfile", "nginx/halley.conf":
            with open(os.path.join(SOURCE, "packaging", path), encoding="utf-8") as file:
                commands = re.findall(r"halley[ #]+serve (.*)", file.read().replace("\\\n", " "))
            given = set(re.findall(r"--[a-z][a-z-]+", " ".join(commands)))
            self.assertTrue(given, path)
            self.assertLessEqual(given, options, path)
        # nginx takes bodies as large as the server does.
        with open(os.path.join(SOURCE, "packaging", "nginx", "halley.conf"),
                  encoding="utf-8") as file:
            megabytes = int(re.search(r"client_max_body_size (\d+)m;", file.read())[1])
        self.assertIn(f"={megabytes << 20}\n", text.split("--max-body-bytes", 1)[1][:200])

    def test_the_page_is_correct_roff(self):
        mandoc = shutil.which("mandoc")
        if not mandoc:
            self.skipTest("no mandoc is there")
        result = subprocess.run([mandoc, "-T", "lint", "-W", "error",
                                 os.path.join(self.folder, "halley.1")], capture_output=True,
                                text=True, timeout=60, check=False)
        self.assertEqual((result.returncode, result.stdout), (0, ""))
        text = subprocess.run([mandoc, "-T", "ascii", os.path.join(self.folder, "halley.1")],
                              capture_output=True, text=True, timeout=60, check=True).stdout
        plain = re.sub(".\b", "", text)
        self.assertIn("--max-tokens INT", plain)
        self.assertIn("Default: 128.", plain)
        self.assertIn("halley generate models/demo-21m --prompt", plain)
        self.assertIn("Exit codes: 0 success;", plain)

    def complete(self, *words):
        """What bash offers for the last of the words."""
        script = f"""source {self.folder}/halley.bash
COMP_WORDS=("$@"); COMP_CWORD=$(( $# - 1 )); _halley; printf '%s\\n' "${{COMPREPLY[@]}}" """
        result = subprocess.run(["bash", "--norc", "-c", script, "bash", *words],
                                capture_output=True, text=True, timeout=60, check=True)
        self.assertEqual(result.stderr, "")
        return result.stdout.split()

    def zsh(self, *words):
        script = ZSH_STUBS + f"""words=("$@"); CURRENT=$#; PREFIX=$words[-1]
source {self.folder}/_halley | grep -- "^$PREFIX" """
        result = subprocess.run(["zsh", "-f", "-c", script, "zsh", *words], capture_output=True,
                                text=True, timeout=60, check=False)
        self.assertEqual(result.stderr, "")
        return result.stdout.split()

    def check(self, complete):
        commands = set(subcommands_of(help_of()))
        self.assertEqual(set(complete("halley", "")), commands)
        self.assertEqual(complete("halley", "gen"), ["generate"])
        self.assertEqual(set(complete("halley", "bench", "")),
                         set(subcommands_of(help_of("bench"))))
        self.assertEqual(complete("halley", "generate", "--max-to"), ["--max-tokens"])
        self.assertEqual(set(complete("halley", "--")), {"--help", "--version"})
        self.assertEqual(complete("halley", "generate", "--load-format", "d"), ["dummy"])
        self.assertIn("--request-rate", complete("halley", "bench", "serve", "--"))
        self.assertNotIn("--request-rate", complete("halley", "bench", "latency", "--"))

    def test_bash(self):
        self.check(self.complete)
        # A value of any text, and a model: the shell's own file names.
        self.assertEqual(self.complete("halley", "generate", "--config", ""), [])
        self.assertEqual(self.complete("halley", "generate", ""), [])
        # bash cuts at the equals sign.
        self.assertEqual(self.complete("halley", "generate", "--load-format", "=", "d"), ["dummy"])
        self.assertEqual(self.complete("halley", "generate", "--load-format", "="),
                         ["auto", "dummy"])

    def test_zsh(self):
        if not shutil.which("zsh"):
            self.skipTest("no zsh is there")
        self.check(self.zsh)
        self.assertEqual(self.zsh("halley", "generate", "--config", "F"), ["FILES"])

    def test_every_option_completes_everywhere(self):
        for path in all_paths():
            offered = self.complete("halley", *path, "-")
            expected = re.findall(r"^  ((?:-\w,)?--[\w-]+)", help_of(*path), re.M)
            for names in expected:
                for name in names.split(","):
                    self.assertIn(name, offered, path)


class Reference(unittest.TestCase):
    """docs/cli.md, whose tables are made from the same help."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.path = os.path.join(folder.name, "cli.md")
        with open(os.path.join(SOURCE, "docs", "cli.md"), encoding="utf-8") as file:
            self.page = file.read()

    def run_maker(self, page, *args):
        with open(self.path, "w", encoding="utf-8") as file:
            file.write(page)
        return subprocess.run([sys.executable, "-B", REFERENCE_MAKER, HALLEY, self.path, *args],
                              capture_output=True, text=True, timeout=120, check=False)

    def test_the_page_says_what_the_program_says(self):
        result = self.run_maker(self.page)
        self.assertEqual((result.returncode, result.stderr), (0, ""),
                         "packaging/make_cli_reference.py HALLEY docs/cli.md --write")
        for path in all_paths():
            block = self.page.split(f"<!-- help:begin {' '.join(path)}")[1].split("help:end")[0]
            for name in re.findall(r"^  (?:-\w,)?(--[\w-]+)", help_of(*path), re.M):
                if name != "--help":
                    self.assertIn(f"`{name}`", block, path)

    def test_no_option_is_cut_within_its_range(self):
        with open(os.path.join(SOURCE, "docs", "cli.md"), encoding="utf-8") as file:
            rows = re.findall(r"^\| `--.*", file.read(), re.M)
        self.assertGreater(len(rows), 50)
        self.assertEqual([row for row in rows if re.search(r"\d\]=|(Needs|Excludes): -", row)], [])

    def test_what_differs_is_found_and_mended_and_what_is_written_by_hand_stays(self):
        stale = self.page.replace("| `--max-model-len` |", "| `--max-model-length` |")
        self.assertNotEqual(stale, self.page)
        result = self.run_maker(stale)
        self.assertEqual(result.returncode, 1)
        self.assertIn("differs from what the program says", result.stderr)
        self.assertEqual(self.run_maker(stale, "--write").returncode, 0)
        with open(self.path, encoding="utf-8") as file:
            self.assertEqual(file.read(), self.page)

    def test_every_command_has_one_block(self):
        without = re.sub(r"(?s)<!-- help:begin eval -->.*?<!-- help:end -->\n", "", self.page)
        self.assertIn("no block for the help of 'eval'", self.run_maker(without).stderr)
        self.assertIn("2 blocks for 'eval'", self.run_maker(
            self.page + "<!-- help:begin eval -->\n<!-- help:end -->\n").stderr)
        self.assertIn("a block for 'evil', which is no command", self.run_maker(
            self.page + "<!-- help:begin evil -->\n<!-- help:end -->\n").stderr)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
