"""The one-definition rule as tools/tidy.py sees it: no two files define a type of one name, or an
inline function of one name and one list of parameter types, in one namespace. The linker takes any
one of two such definitions, without a word."""

import re
from collections import defaultdict

from tidy_modules import CODE, HEADERS, Problem

MARK = re.compile(r"[{};]")
TEMPLATE = re.compile(r"\s*template\s*<")
NAMESPACE = re.compile(r"(?:inline\s+)?namespace\b\s*([\w:]*)\s*$")
TYPE = re.compile(r"(?:struct|class|union|enum(?:\s+(?:class|struct))?)\s+"
                  r"(?:__align__\(\d+\)\s*|alignas\([^)]*\)\s*|\[\[[^\]]*\]\]\s*)?(\w+)\s*"
                  r"(?:final\s*)?(?::(?!:)[^;]*)?$", re.S)
LANGUAGE = re.compile(r"extern\s*(\"[^\"]*\")?\s*$")
# A function outside of a header counts where it may be defined in several files all the same.
MERGED = re.compile(r"\b(inline|constexpr|template)\b")


def skip_brackets(text, start, opening, closing):
    """The index behind the bracket that closes the one at `start`."""
    depth = 0
    for index in range(start, len(text)):
        depth += (text[index] == opening) - (text[index] == closing)
        if depth == 0:
            return index + 1
    return len(text)


def without_template(head):
    """(`head` without its template parameters, whether there were any)."""
    is_template = False
    while match := TEMPLATE.match(head):
        head = head[skip_brackets(head, match.end() - 1, "<", ">"):]
        is_template = True
    return head.strip(), is_template


def parameter_types(parameters):
    """The types of a parameter list, without names and defaults."""
    types, depth, word = [], 0, ""
    for char in parameters + ",":
        depth += (char in "(<[{") - (char in ")>]}")
        if char == "," and depth == 0:
            word = re.sub(r"\s*=.*", "", word, flags=re.S)
            word = re.sub(r"\s+", " ", word).strip()
            named = re.fullmatch(r"(.*[\w>&*\]\)]\s*[ &*>])\w+((?:\[\w*\])*)", word)
            types.append(re.sub(r"\s*([&*<>,])\s*", r"\1", "".join(named.groups()) if named
                                else word).strip())
            word = ""
        else:
            word += char
    return ", ".join(t for t in types if t)


def function_key(head):
    """`name(types)` of a function whose body follows `head`, or nothing."""
    begin = head.find("(")
    name = re.search(r"(operator\s*\S+|[\w:~]+)\s*$", head[:begin]) if begin > 0 else None
    if not name or "::" in name.group(1) or "=" in head[:begin].replace("operator=", ""):
        return ""
    end = skip_brackets(head, begin, "(", ")")
    if name.group(1) in ("__launch_bounds__", "__align__", "alignas", "requires", "decltype"):
        return function_key(head[:name.start()] + head[end:])
    return f"{name.group(1)}({parameter_types(head[begin + 1:end - 1])})"


def definitions(text, is_header):
    """(what, line) for the types and inline functions that `text`, code without comments, defines
    in named namespaces."""
    spaces, start, position = [], 0, 0
    while match := MARK.search(text, position):
        position = match.end()
        if match.group() == "}" and spaces:
            spaces.pop()
        if match.group() != "{":
            start = position
            continue
        whole = text[start:match.start()]
        head, is_template = without_template(whole)
        line = text.count("\n", 0, start + len(whole) - len(whole.lstrip())) + 1
        space = NAMESPACE.match(head)
        if space or LANGUAGE.match(head):
            spaces.append(space.group(1) or "?" if space else "")
            start = position
            continue
        position = start = skip_brackets(text, match.start(), "{", "}")
        if "?" in spaces:  # an anonymous namespace
            continue
        scope = "::".join(s for s in spaces if s)
        if named := TYPE.match(head):
            yield f"{scope}::{named.group(1)}", line
        elif not re.match(r"static\b", head) and (is_header or is_template or MERGED.search(head)):
            if key := function_key(head):
                yield f"{scope}::{key}", line


def check_definitions(sources):
    """Problems of `sources`, code by path without comments and directives: definitions under one
    name in two files."""
    positions = defaultdict(list)
    for path, code in sorted(sources.items()):
        if path.startswith("src/") and path.endswith(CODE) and not path.endswith("_test.cc"):
            for what, line in definitions(code, path.endswith(HEADERS)):
                positions[what].append((path, line))
    for what, found in sorted(positions.items()):
        first = found[0]
        for path, line in found[1:]:
            if path != first[0]:
                yield Problem("definition", path, line, f"'{what}' is also defined in "
                              f"{first[0]}:{first[1]}: name one of them otherwise, or share one")
