#!/usr/bin/env python3
"""Makes the manual page and the completions of bash and zsh from what the program's --help says.

    packaging/make_cli_files.py HALLEY FOLDER

writes FOLDER/halley.1, FOLDER/halley.bash and FOLDER/_halley.
"""
import os
import re
import subprocess
import sys

TEXT_COLUMN = 30  # of CLI11's help
HEADING = re.compile(r"^(\S.*):$")


class Command:
    """What `halley PATH --help` says."""

    def __init__(self, path):
        self.path = path  # ["bench", "serve"]
        self.description = ""
        self.usage = ""
        self.positionals = []  # (name, text)
        self.groups = []       # (title, [Option])
        self.subcommands = []  # Command
        self.footer = []       # lines

    @property
    def name(self):
        return " ".join(["halley", *self.path])

    @property
    def options(self):
        return [option for _, options in self.groups for option in options]

    def walk(self):
        yield self
        for command in self.subcommands:
            yield from command.walk()


class Option:
    def __init__(self, entry, text):
        names, _, kind = entry.partition(" ")
        self.names = [re.sub(r"\{.*\}", "", name) for name in names.split(",")]
        kind = re.sub(r"\s*(Excludes|Needs):.*", "", kind).strip()
        self.is_required = "REQUIRED" in kind
        self.kind = kind.replace("REQUIRED", "").strip()  # empty: a flag
        self.text = text

    @property
    def choices(self):
        match = re.search(r":\{([^}]*)\}", self.kind)
        return match.group(1).split(",") if match else []

    @property
    def default(self):
        match = re.search(r"=(\S+)$", re.sub(r"\s\.\.\.$", "", self.kind))
        return match.group(1) if match else ""

    @property
    def value(self):
        """The word for its value: TEXT, INT, ..."""
        return re.split(r"[:=\s]", self.kind)[0]


def entries(lines):
    """(entry, text) of a section's lines; a text stands behind its entry or on the next lines."""
    found = []
    for line in lines:
        if not line.strip():
            continue
        if line[:TEXT_COLUMN].strip() == "":  # goes on
            found[-1][1] = (found[-1][1] + " " + line.strip()).strip()
        elif len(line) > TEXT_COLUMN and line[TEXT_COLUMN - 1] == " " \
                and line[TEXT_COLUMN] != " " and "  " not in line[2:TEXT_COLUMN - 1].rstrip() \
                and not re.search(r" in$|\[[^]]*$", line[:TEXT_COLUMN - 1]) \
                and not line[TEXT_COLUMN:].startswith("in ["):  # a range goes on
            found.append([line[:TEXT_COLUMN].strip(), line[TEXT_COLUMN:].strip()])
        else:
            found.append([line.strip(), ""])
    return found


def read_command(program, path):
    text = subprocess.run([program, *path, "--help"], capture_output=True, text=True, timeout=60,
                          check=True).stdout
    command = Command(path)
    lines = text.split("\n")
    begin = next(i for i, line in enumerate(lines) if line.startswith("Usage: "))
    command.description = " ".join(lines[:begin]).strip()
    command.usage = lines[begin].removeprefix("Usage: ")
    sections = []  # (title, lines)
    in_footer = False
    for number, line in enumerate(lines[begin + 1:], begin + 2):
        heading = HEADING.match(line)
        if heading and heading.group(1) not in ("Positionals", "Subcommands") and \
                not "".join(lines[number:number + 1]).startswith("  -"):
            heading = None  # a list of the footer
        is_footer = line and not line.startswith(" ") and not heading
        in_footer = in_footer or bool(is_footer) or bool(re.match("Examples?:", line))
        if in_footer:
            command.footer.append(line)
        elif heading:
            sections.append((heading.group(1), []))
        elif sections:
            sections[-1][1].append(line)
    for title, body in sections:
        if title == "Positionals":
            command.positionals = [(entry.split(" ")[0], note) for entry, note in entries(body)]
        elif title == "Subcommands":
            command.subcommands = [read_command(program, [*path, entry.split(" ")[0]])
                                   for entry, _ in entries(body)]
        else:
            command.groups.append((title, [Option(entry, note) for entry, note in entries(body)]))
    return command


# The manual page --------------------------------------------------------------------------------

def roff(text):
    """Text that is no request and no escape."""
    text = text.replace("\\", "\\e").replace("-", "\\-")
    return re.sub(r"^(['.])", r"\\&\1", text)


def bold(text):
    return f"\\fB{roff(text)}\\fR"


def man_option(option):
    names = ", ".join(bold(name) for name in option.names)
    value = f" \\fI{roff(option.value)}\\fR" if option.kind else ""
    notes = []
    if option.choices:
        notes.append("One of " + ", ".join(option.choices) + ".")
    if option.default:
        notes.append(f"Default: {option.default}.")
    if option.is_required:
        notes.append("Required.")
    text = option.text if not notes or option.text.endswith(".") else option.text + "."
    return [".TP", names + value, roff(" ".join([text, *notes]))]


def man_page(root, version):
    lines = ['.\\" Made by packaging/make_cli_files.py from the program\'s --help.',
             f'.TH HALLEY 1 "" "{version}" "User Commands"', ".SH NAME",
             "halley \\- " + roff(root.description.split(": ", 1)[1]), ".SH SYNOPSIS"]
    for command in root.walk():
        if not command.subcommands:
            usage = roff(command.usage.removeprefix(command.name).strip())
            lines += [f".B {command.name}", usage, ".br"]
    lines[-1:] = [".SH DESCRIPTION", roff(root.description) + "."]
    for option in root.options:
        lines += man_option(option)
    lines.append(".SH COMMANDS")
    for command in root.walk():
        if command is root:
            continue
        lines += [f".SS {command.name}", roff(command.description)]
        for name, text in command.positionals:
            lines += [".TP", f"\\fI{roff(name)}\\fR", roff(text)]
        for title, options in command.groups:
            if title != "Options":
                lines += [".PP", f"{roff(title)}:"]
            for option in options:
                lines += man_option(option)
        lines += man_footer(command.footer)
    lines += [".SH NOTES", *man_footer(root.footer)[1:]]
    return "\n".join(lines) + "\n"


def man_footer(lines):
    lines = "\n".join(lines).strip().split("\n")
    return [".PP", ".nf", *[roff(line) if line else ".sp" for line in lines], ".fi"]


# Completions ------------------------------------------------------------------------------------

def quoted(text):
    return "'" + text.replace("'", "'\\''") + "'"


def case(pattern_lines, indent="  "):
    return [f"{indent}{pattern})\n{indent}  {body}\n{indent}  ;;"
            for pattern, body in pattern_lines]


def path_cases(root):
    return [(quoted(command.name), f"where={quoted(command.name)}")
            for command in root.walk() if command.path]


def value_options(root):
    """(command, option, name) of every option with a value."""
    for command in root.walk():
        for option in command.options:
            if option.kind:
                for name in option.names:
                    yield command, option, name


BASH = """# Completion of halley for bash. Made by packaging/make_cli_files.py.
_halley() {{
  local cur="${{COMP_WORDS[COMP_CWORD]}}" before="${{COMP_WORDS[COMP_CWORD-1]}}" where=halley i
  local options="" commands=""
  COMPREPLY=()
  for ((i = 1; i < COMP_CWORD; i++)); do
    case "$where ${{COMP_WORDS[i]}}" in
{paths}
    esac
  done
  # bash cuts --option=value at the equals sign.
  if [[ $cur == "=" ]]; then
    cur=""
  elif [[ $before == "=" ]]; then
    before="${{COMP_WORDS[COMP_CWORD-2]}}"
  fi
  case "$where $before" in
{values}
  esac
  case "$where" in
{words}
  esac
  if [[ $cur == -* ]]; then
    mapfile -t COMPREPLY < <(compgen -W "$options" -- "$cur")
  elif [[ -n $commands ]]; then
    mapfile -t COMPREPLY < <(compgen -W "$commands" -- "$cur")
  fi
}}
complete -o default -F _halley halley
"""

ZSH = """#compdef halley
# Completion of halley for zsh. Made by packaging/make_cli_files.py.
_halley() {{
  local where=halley word
  local -a options commands
  for word in "${{(@)words[2,CURRENT-1]}}"; do
    case "$where $word" in
{paths}
    esac
  done
  case "$where ${{words[CURRENT-1]}}" in
{values}
  esac
  case "$where" in
{words}
  esac
  if [[ $PREFIX == -* ]]; then
    _describe -o option options
  elif (( $#commands )); then
    _describe command commands
  else
    _files
  fi
}}
_halley "$@"
"""


def bash_completion(root):
    def body(choices):
        if not choices:
            return "return"
        words = quoted(" ".join(choices))
        return f'mapfile -t COMPREPLY < <(compgen -W {words} -- "$cur")\n    return'
    values = [(quoted(f"{command.name} {name}"), body(option.choices))
              for command, option, name in value_options(root)]
    words = []
    for command in root.walk():
        options = quoted(" ".join(name for option in command.options for name in option.names))
        commands = quoted(" ".join(sub.path[-1] for sub in command.subcommands))
        words.append((quoted(command.name), f"options={options} commands={commands}"))
    return BASH.format(paths="\n".join(case(path_cases(root), "      ")),
                       values="\n".join(case(values, "    ")),
                       words="\n".join(case(words, "    ")))


def zsh_completion(root):
    def described(pairs):
        return " ".join(quoted(name.replace(":", "\\:") + ":" + text) for name, text in pairs)
    values = [(quoted(f"{command.name} {name}"),
               (f"compadd -- {' '.join(map(quoted, option.choices))}" if option.choices
                else "_files") + "\n    return")
              for command, option, name in value_options(root)]
    words = []
    for command in root.walk():
        options = described((name, option.text) for option in command.options
                            for name in option.names)
        commands = described((sub.path[-1], sub.description) for sub in command.subcommands)
        words.append((quoted(command.name), f"options=({options})\n      commands=({commands})"))
    return ZSH.format(paths="\n".join(case(path_cases(root), "      ")),
                      values="\n".join(case(values, "    ")), words="\n".join(case(words, "    ")))


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    program, folder = sys.argv[1:]
    root = read_command(program, [])
    version = subprocess.run([program, "--version"], capture_output=True, text=True, timeout=60,
                             check=True).stdout.strip()
    os.makedirs(folder, exist_ok=True)
    for name, text in (("halley.1", man_page(root, version)),
                       ("halley.bash", bash_completion(root)), ("_halley", zsh_completion(root))):
        with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
            file.write(text)


if __name__ == "__main__":
    main()
