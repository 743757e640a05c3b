#!/usr/bin/env python3
"""Checks the rules of docs/STYLE.md that a machine can check. Prints every broken one and exits
with 1 where there are any.

    tools/tidy.py            check everything
    tools/tidy.py --write    bring the table of modules in docs/ARCHITECTURE.md up to date
    tools/tidy.py --format   check the C++ files with clang-format 14 instead
"""

import argparse
import ast
import os
import re
import shutil
import subprocess
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from tidy_definitions import check_definitions  # noqa: E402
from tidy_modules import ARCHITECTURE, CODE, HEADERS, Graph, Problem  # noqa: E402
from tidy_modules import check_table, leading_sentence, with_table  # noqa: E402
from tidy_words import check_bare_starts, check_vocabulary  # noqa: E402

RATCHET = "tools/tidy_ratchet.txt"
COLUMNS_MAX = 100
FILE_LINES_MAX = 500
FUNCTION_LINES_MAX = 70
KERNEL_LINES_MAX = 200
PARAMETERS_MAX = 6
FILE_BYTES_MAX = 45_000_000
TEXT_BYTES_MAX = 2_000_000

SKIPPED_FOLDERS = {".git", ".venv", ".carry", "build", "__pycache__", "shared"}
DATA_FOLDERS = ("testdata/", "models/")
TEXT_ENDINGS = CODE + (".py", ".cmake", ".md", ".sh", ".txt", ".yaml", ".yml", ".clang-tidy",
                       ".clang-format", "Makefile", ".ci/run")
COLUMN_ENDINGS = CODE + (".py", ".cmake", "CMakeLists.txt")
# These two hold the forbidden words as data; STYLE.md explains them.
ABOUT_THE_RULES = {"tools/tidy.py", "tests/tidy/tidy_test.py", "docs/STYLE.md"}

FORMAT_WORDS = re.compile(r"gptq|awq|qoq|fmpq|nestedfp|marlin|squeezellm|bitsandbytes|smoothquant|"
                          r"hqq|exl[23]|aqlm|modelopt(?!i)|compressed.tensors|torchao|quark|eetq|"
                          r"optimum.quanto|bitnet|spqr|vptq|fbgemm|qqq|auto[-_]?round", re.I)
# Names every module, those of formats too.
LISTS_OF_MODULES = {"src/halley/CMakeLists.txt"}
BANNED_WORDS = {"util", "utils", "helper", "helpers", "manager", "managers", "common", "misc",
                "fast", "optimized", "v2"}
# Names that are not ours to choose: a published configuration field, types of C, cuBLASLt's.
BANNED_WORD_EXCEPTIONS = re.compile(r"beta_fast|u?int_fast\d+_t|CUBLASLT_\w+")
FOREIGN_SCOPE = re.compile(r"\b(std|hn|hwy|CLI|nlohmann|testing|sentencepiece)\s*(::\s*\w+\s*)+")
SINGLE_LETTERS = set("MNKGBTHJDPERVFXWY")
FILE_NAME = re.compile(r"[a-z0-9_]+(-inl)?\.(h|cc|cu|cuh|html|css|js|svg)|CMakeLists\.txt|"
                       r"README\.md")
NOT_A_FUNCTION = {"if", "for", "while", "switch", "catch", "return", "sizeof", "alignas", "asm"}
CONTAINER = re.compile(r"\b(namespace|class|struct|union|enum)\b|^\s*extern\s*(\"[^\"]*\")?\s*$")

# (rule, pattern, what is wrong, on what): "code" sees C++ without comments and texts, "text" all.
LINE_RULES = (
    ("todo", re.compile(r"\bTODO\b(?!\([a-z0-9_ -]+\): \S)"),
     "expected 'TODO(topic): condition under which it is done'", "text"),
    ("leftover", re.compile(r"\b(FIXME|XXX)\b"), "finish it or state a TODO(topic)", "text"),
    ("machine-path", re.compile(r"(?<![\w./}])/(home|root|work|opt)/\w"),
     "a path of one machine", "text"),
    ("tab", re.compile(r"\t"), "a tab", "text"),
    ("trailing-space", re.compile(r"[ \r]+$"), "spaces at the end of the line", "text"),
    ("if-0", re.compile(r"^\s*#\s*if\s+(0|false)\b"), "delete what is not compiled", "code"),
    ("using-namespace", re.compile(r"^using\s+namespace\b"), "not at file scope", "code"),
    ("assembly", re.compile(r"\b(asm|__asm__)\b(?!/)"),
     "PTX stands in src/halley/cuda/ptx alone: call its function there, or add one", "code"),
    ("environment", re.compile(r"\b(secure_)?getenv\s*\("),
     "only halley/base/env reads the environment", "library"),
    ("prints", re.compile(r"\bstd\s*::\s*(cout|cerr|clog)\b|\b(printf|puts|fprintf)\s*\("),
     "the library never prints: throw, or return", "library"),
    ("exits", re.compile(r"\b(exit|_Exit|quick_exit|abort)\s*\("),
     "the library never ends the process: throw, or HALLEY_CHECK", "library"),
    ("sleep", re.compile(r"\b(sleep_for|sleep_until|usleep|nanosleep|sleep)\s*\("),
     "tests may not sleep: wait for what must happen", "test"),
)
RULE_EXCEPTIONS = {
    # All but the first are code of CPUs.
    "assembly": ("src/halley/cuda/ptx/", "src/halley/core/spin_wait.h",
                 "src/halley/kernels/gemm/dot_core-inl.h",
                 "src/halley/kernels/gemm/panel_kernel_amx_bf16.cc"),
    "environment": ("src/halley/base/env.",),
    "prints": ("src/halley/base/check.", "src/halley/cli/"),
    "exits": ("src/halley/base/check.", "src/halley/cli/"),
    "tab": ("Makefile",),
}

TOKEN = re.compile(r'//[^\n]*|/\*.*?\*/|R"([^\s()\\]{0,16})\(.*?\)\1"|"(?:\\.|[^"\\\n])*"|'
                   r"(?<![0-9A-Fa-f])'(?:\\.|[^'\\\n])+'|^[ \t]*#(?:\\\n|[^\n])*", re.S | re.M)


def strip_code(text, keep_directives=True):
    """C++ text with comments and the contents of literals blanked, line for line."""
    def blank(match):
        token = match.group(0)
        if token.lstrip().startswith("#") and keep_directives:
            return token
        mark = '"' if token.startswith(('"', 'R"')) else "'" if token.startswith("'") else ""
        return mark + "\n" * token.count("\n") + mark
    return TOKEN.sub(blank, text)


def match_brace(text, start):
    """The index behind the brace that closes the one at `start`, or the end."""
    depth = 0
    for match in re.compile(r"[{}]").finditer(text, start):
        depth += 1 if match.group() == "{" else -1
        if depth == 0:
            return match.end()
    return len(text)


def drop_nested(text, opening, closing):
    """`text` without what stands between brackets, the brackets kept."""
    out, depth = [], 0
    for char in text:
        depth -= char == closing and depth > 0
        if depth == 0:
            out.append(char)
        depth += char == opening
    return "".join(out)


def function_of(head):
    """(name, number of parameters) where `head`, the text before a '{', begins a function."""
    flat = drop_nested(head, "(", ")")
    if CONTAINER.search(flat.split("()")[0].split("<")[0]) and "()" not in flat:
        return None
    named = re.search(r"(operator\s*(?:\(\)|[^\s(\w]+|\s\w+)|~?\w+)\s*\(\)", flat)
    if not named or named.group(1) in NOT_A_FUNCTION:
        return None
    if "=" in re.sub(r"operator\s*\S+", "", flat[:named.start()]):
        return None
    begin = head.find("(", head.find(named.group(1).split("(")[0]))
    depth, end = 0, begin
    for end in range(begin, len(head)):
        depth += {"(": 1, ")": -1}.get(head[end], 0)
        if depth == 0:
            break
    inside = head[begin + 1:end]
    for opening, closing in ("()", "{}", "[]", "<>"):
        inside = drop_nested(inside, opening, closing)
    return named.group(1), inside.count(",") + 1 if inside.strip() else 0


def is_member_brace(head):
    """Whether '{' behind `head` initialises a member in a constructor's list: `: a_(a), b_{`."""
    flat = drop_nested(head, "(", ")")
    return bool(re.search(r"\(\)\s*(noexcept\s*)?:[^:]", flat)) and \
        bool(re.search(r"[,:]\s*\w+\s*(<[^<>]*>)?\s*$", flat))


def find_functions(text):
    """(name, line, lines of the body, number of parameters) of every function with a body."""
    code = strip_code(text, keep_directives=False)
    functions, head_start = [], 0
    position = 0
    marks = re.compile(r"[{};]|\b(public|private|protected)\s*:")
    while match := marks.search(code, position):
        position = match.end()
        if match.group() != "{":
            if code.count("(", head_start, match.start()) == code.count(
                    ")", head_start, match.start()):
                head_start = position
            continue
        head = code[head_start:match.start()]
        flat = drop_nested(head, "(", ")")
        if is_member_brace(head) or flat.count("(") != flat.count(")"):
            position = match_brace(code, match.start())  # an initialiser; the head goes on
            continue
        found = function_of(head)
        if found:
            end = match_brace(code, match.start())
            lines = code.count("\n", match.start(), end) - 1
            name_at = head_start + len(head) - len(head.lstrip())
            functions.append((found[0], code.count("\n", 0, name_at) + 1, lines, found[1]))
            position = head_start = end
        elif CONTAINER.search(flat):
            head_start = position
        else:
            position = head_start = match_brace(code, match.start())
    return functions


def find_python_functions(text):
    """(name, line, lines of the body, None) of every function of a Python file."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield node.name, node.lineno, node.end_lineno - node.lineno, None


def check_functions(path, text):
    if path.endswith(".py"):
        functions = find_python_functions(text)
    else:
        functions = find_functions(text)
    limit = KERNEL_LINES_MAX if path.endswith((".cu", ".cuh")) else FUNCTION_LINES_MAX
    for name, line, lines, parameters in functions:
        subject = re.sub(r"\s+", "", f"{path}:{name}")
        if lines > limit:
            yield Problem("function-lines", path, line,
                          f"'{name}' has {lines} lines, at most {limit}", subject, lines)
        if parameters is not None and parameters > PARAMETERS_MAX:
            yield Problem("parameters", path, line, f"'{name}' has {parameters} parameters, at "
                          f"most {PARAMETERS_MAX}, then a struct", subject, parameters)


def check_words(path, code):
    for number, line in enumerate(code.split("\n"), 1):
        if line.lstrip().startswith("#"):
            continue
        line = BANNED_WORD_EXCEPTIONS.sub("", FOREIGN_SCOPE.sub("", line))
        for name in re.findall(r"[A-Za-z_]\w*", line):
            words = re.sub(r"([a-z0-9])([A-Z])", r"\1_\2", name).lower().split("_")
            if BANNED_WORDS & set(words):
                yield Problem("word", path, number, f"'{name}' does not say what it does")
        for letter in set(re.findall(r"(?<![\w'.])[A-Z](?![\w'])", line)) - SINGLE_LETTERS:
            yield Problem("letter", path, number, f"'{letter}' is not in STYLE.md's dictionary")


def check_name(path):
    words = set(re.split(r"[^a-z0-9]+", path.lower()))
    if BANNED_WORDS & words:
        yield Problem("word", path, 1, f"'{(BANNED_WORDS & words).pop()}' does not say what it is")
    if path.startswith("src/") and not FILE_NAME.fullmatch(os.path.basename(path)):
        yield Problem("file-name", path, 1, "expected snake_case with .h .cc .cu .cuh or -inl.h")


def check_header(path, text):
    if not re.search(r"^#pragma once$", text, re.M) and not (
            path.endswith("-inl.h") and "HWY_TARGET_TOGGLE" in text):
        yield Problem("header", path, 1, "expected #pragma once")
    if not leading_sentence(text):
        yield Problem("header", path, 1, "expected a first line '// <what this file is for>.'")


def rule_applies(rule, where, path):
    if any(part in path for part in RULE_EXCEPTIONS.get(rule, ())):
        return False
    is_test = path.endswith(("_test.cc", "_fuzz.cc")) or path.startswith("tests/")
    if where == "library":
        return path.startswith("src/") and path.endswith(CODE) and not is_test
    if where == "test":
        return is_test and path.endswith(CODE)
    return where == "text" or path.endswith(CODE)


def check_lines(path, text, code):
    for rule, pattern, what, where in LINE_RULES:
        if not rule_applies(rule, where, path):
            continue
        subject = text if where == "text" else code
        if pattern.search(subject) or pattern.flags & re.M or "^" in pattern.pattern or \
                "$" in pattern.pattern:
            for number, line in enumerate(subject.split("\n"), 1):
                if pattern.search(line):
                    yield Problem(rule, path, number, what)
    if text and not text.endswith("\n") or text.endswith("\n\n"):
        yield Problem("end-of-file", path, text.count("\n") + 1, "expected one newline at the end")
    if path.endswith(COLUMN_ENDINGS):
        for number, line in enumerate(text.split("\n"), 1):
            if len(line) > COLUMNS_MAX:
                yield Problem("columns", path, number,
                              f"{len(line)} columns, at most {COLUMNS_MAX}")


def check_file(path, text):
    """All rules that look at one text file."""
    yield from check_name(path)
    code = strip_code(text) if path.endswith(CODE) else ""
    if path not in ABOUT_THE_RULES:
        yield from check_lines(path, text, code)
    if path.startswith("src/") and not path.startswith("src/halley/quant/") and \
            path not in LISTS_OF_MODULES and not path.endswith("_test.cc"):
        for number, line in enumerate(text.split("\n"), 1):
            if found := FORMAT_WORDS.search(line + path):
                yield Problem("format-word", path, number, f"'{found.group()}' belongs under "
                              "src/halley/quant/: nothing else knows a format")
    for line, what in check_vocabulary(path, text):
        yield Problem("vocabulary", path, line, what)
    for line, what in check_bare_starts(path, text):
        yield Problem("bare-start", path, line, what)
    if path.endswith(CODE + (".py",)):
        lines = text.count("\n")
        if lines > FILE_LINES_MAX:
            yield Problem("file-lines", path, 1, f"{lines} lines, at most {FILE_LINES_MAX}", path,
                          lines)
        yield from check_functions(path, text)
    if path.endswith(CODE):
        yield from check_words(path, code)
    if path.endswith(HEADERS):
        yield from check_header(path, text)


def read_tree(root):
    """(texts by path, problems found on the way). Data and build folders are not read."""
    texts, problems = {}, []
    for folder, folders, files in os.walk(root):
        inside = os.path.relpath(folder, root)
        inside = "" if inside == "." else inside + "/"
        folders[:] = sorted(f for f in folders if f not in SKIPPED_FOLDERS and
                            not (inside == "" and f.startswith("build-")))
        for name in sorted(files):
            path = inside + name
            full = os.path.join(folder, name)
            size = os.path.getsize(full) if os.path.isfile(full) else 0
            if size > FILE_BYTES_MAX:
                problems.append(Problem("file-size", path, 1, f"{size} bytes, at most "
                                        f"{FILE_BYTES_MAX}"))
            elif path.endswith(TEXT_ENDINGS) and size <= TEXT_BYTES_MAX and (
                    path.endswith(".md") or not path.startswith(DATA_FOLDERS)):
                try:
                    with open(full, encoding="utf-8", newline="") as file:
                        texts[path] = file.read()
                except UnicodeDecodeError as error:
                    problems.append(Problem("utf-8", path, 1, str(error)))
    return texts, problems


def apply_ratchet(problems, text):
    """Drops what the ratchet allows. An entry that allows more than is there is a problem too."""
    allowed, kept = {}, []
    for number, line in enumerate(text.split("\n"), 1):
        words = line.split("#")[0].split()
        if len(words) == 3 and words[2].isdigit():
            allowed[(words[0], words[1])] = (int(words[2]), number)
        elif words:
            kept.append(Problem("ratchet", RATCHET, number, "expected 'rule subject size'"))
    for problem in problems:
        size, number = allowed.pop((problem.rule, problem.subject), (0, 0))
        if problem.size == 0 or problem.size > size:
            kept.append(problem)
        elif problem.size < size:
            kept.append(Problem("ratchet", RATCHET, number, f"{problem.subject} is down to "
                                f"{problem.size}: lower the entry"))
    for (rule, subject), (_, number) in allowed.items():
        kept.append(Problem("ratchet", RATCHET, number,
                            f"'{rule} {subject}' is no longer needed: delete the entry"))
    return kept


def check_tree(root):
    """Every problem of the tree at `root`."""
    texts, problems = read_tree(root)
    for path, text in sorted(texts.items()):
        problems += check_file(path, text)
    problems += check_definitions({path: strip_code(text, keep_directives=False)
                                   for path, text in texts.items() if path.endswith(CODE)})
    problems += Graph(texts).check()
    problems += check_table(texts)
    return apply_ratchet(problems, texts.get(RATCHET, ""))


def write_table(root):
    texts, _ = read_tree(root)
    document = with_table(texts[ARCHITECTURE], Graph(texts).table())
    if document is None:
        sys.exit(f"{ARCHITECTURE}: the markers of the table are missing")
    with open(os.path.join(root, ARCHITECTURE), "w", encoding="utf-8") as file:
        file.write(document)


def find_clang_format():
    """clang-format of version 14, which the project pins, or None."""
    for name in ("clang-format-14", "clang-format"):
        program = shutil.which(name)
        if program and " 14." in subprocess.run([program, "--version"], capture_output=True,
                                                text=True, check=False).stdout:
            return program
    return None


def check_format(root):
    program = find_clang_format()
    if program is None:
        print("tidy: SKIPPED the check of the format: there is no clang-format 14 "
              "(tools/setup.sh --dev installs it)")
        return 0
    files = sorted(p for p in read_tree(root)[0] if p.endswith(CODE))
    shares = [files[i::4] for i in range(4)]
    runs = [subprocess.Popen([program, "--dry-run", "-Werror", *share], cwd=root)
            for share in shares if share]
    failed = [run.wait() for run in runs]
    print(f"tidy: {len(files)} files checked with {program}")
    return int(any(failed))


def main():
    parser = argparse.ArgumentParser(description="Checks the rules of docs/STYLE.md.")
    parser.add_argument("--root", default=os.path.dirname(os.path.dirname(
        os.path.abspath(__file__))), help="the tree to check (default: this one)")
    parser.add_argument("--write", action="store_true", help="update docs/ARCHITECTURE.md")
    parser.add_argument("--format", action="store_true", help="check with clang-format 14")
    options = parser.parse_args()
    if options.write:
        write_table(options.root)
        return 0
    if options.format:
        return check_format(options.root)
    problems = check_tree(options.root)
    for problem in problems:
        print(problem)
    print(f"tidy: {len(problems)} problems" if problems else "tidy: all rules hold")
    return int(bool(problems))


if __name__ == "__main__":
    sys.exit(main())
