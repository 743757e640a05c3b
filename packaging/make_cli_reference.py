#!/usr/bin/env python3
"""Keeps the reference of the commands in docs/cli.md equal to what the program's --help says.

    packaging/make_cli_reference.py HALLEY PAGE           check; exits with 1 where they differ
    packaging/make_cli_reference.py HALLEY PAGE --write   bring PAGE up to date

Between <!-- help:begin NAME --> and <!-- help:end --> stands the help of `halley NAME`; what is
around it is written by hand and kept. Every command has one such block. A command that only builds
with CUDA have says so: <!-- help:begin NAME (builds with CUDA) -->; builds without it leave its
block as it is.
"""
import os
import re
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from make_cli_files import read_command  # noqa: E402

CUDA = " (builds with CUDA)"
BLOCK = re.compile(r"(?s)<!-- help:begin ([^>]*?) -->\n(.*?)<!-- help:end -->")


def cell(text):
    return text.replace("|", "\\|")


def value_of(option):
    """`auto` or `dummy`, TEXT, INT; empty for a flag."""
    return ", ".join(f"`{choice}`" for choice in option.choices) or option.value


def table(options):
    lines = ["| option | value | default | meaning |", "|---|---|---|---|"]
    for option in options:
        names = ", ".join(f"`{name}`" for name in option.names)
        default = "required" if option.is_required else f"`{option.default}`" if option.default \
            else ""
        lines.append(f"| {names} | {cell(value_of(option))} | {cell(default)} | "
                     f"{cell(option.text)} |")
    return lines


def help_text(command):
    """The help as Markdown."""
    lines = [command.description + ".", "", "```", command.usage, "```"]
    if command.positionals:
        lines += ["", "| argument | meaning |", "|---|---|"]
        lines += [f"| `{name}` | {cell(text)} |" for name, text in command.positionals]
    for title, options in command.groups:
        shown = [option for option in options if "--help" not in option.names]
        if shown:
            lines += ["", *([] if title == "Options" else [f"**{title}**", ""]), *table(shown)]
    examples = "\n".join(command.footer).strip()
    if examples:
        lines += ["", "```", re.sub(r"(?m)^  ", "", re.sub(r"^Examples?:\n", "", examples)), "```"]
    return "\n".join(lines) + "\n"


def commands_of(root):
    """Those that do something by themselves, by the words that call them."""
    return {" ".join(command.path): command for command in root.walk()
            if command.path and not command.subcommands}


def updated(page, commands):
    """The page with every block filled, and what is wrong with its blocks."""
    names = [match[1] for match in BLOCK.finditer(page)]
    plain = [name.removesuffix(CUDA) for name in names]
    problems = [f"no block for the help of '{name}'" for name in commands if name not in plain]
    problems += [f"{plain.count(name)} blocks for '{name}'" for name in sorted(set(plain))
                 if plain.count(name) > 1]
    problems += [f"a block for '{name}', which is no command" for name in names
                 if name not in commands and not name.endswith(CUDA)]

    def fill(match):
        command = commands.get(match[1].removesuffix(CUDA))
        body = match[2] if command is None else help_text(command)
        return f"<!-- help:begin {match[1]} -->\n{body}<!-- help:end -->"
    return BLOCK.sub(fill, page), problems


def main():
    if len(sys.argv) not in (3, 4) or sys.argv[3:] not in ([], ["--write"]):
        sys.exit(__doc__)
    program, path = sys.argv[1:3]
    with open(path, encoding="utf-8") as file:
        page = file.read()
    expected, problems = updated(page, commands_of(read_command(program, [])))
    if sys.argv[3:] and expected != page:
        with open(path, "w", encoding="utf-8") as file:
            file.write(expected)
    elif expected != page:
        problems.append("differs from what the program says. Run packaging/make_cli_reference.py "
                        "HALLEY PAGE --write")
    if problems:
        sys.exit("\n".join(f"{path}: {problem}" for problem in problems))


if __name__ == "__main__":
    main()
