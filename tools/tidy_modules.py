"""The module wall as tools/tidy.py sees it: the graph that the CMake files declare, what the
sources include, and the table of modules in docs/ARCHITECTURE.md."""

import os
import re
from dataclasses import dataclass, field

CODE = (".h", ".cc", ".cu", ".cuh")
HEADERS = (".h", ".cuh")
SOURCE_ROOT = "src/halley/"
ARCHITECTURE = "docs/ARCHITECTURE.md"
MARK_BEGIN = "<!-- modules:begin (tools/tidy.py --write) -->"
MARK_END = "<!-- modules:end -->"

INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*([<"])([^>"\n]+)[>"]', re.M)
CALL = re.compile(r"\b(halley_module|halley_test|halley_fuzzer)\s*\(([^)]*)\)")
KEYWORDS = {"NAME", "LAYER", "SRCS", "DEPS", "PRIVATE_DEPS", "EXTERNAL", "HEADERS_ONLY", "LABELS",
            "ARGS", "TIMEOUT", "UNSANITIZED", "CUDA_SRCS", "CUDA_DEPS", "NO_CUDA_SRCS"}
# Headers of other projects belong to whoever declares the library in EXTERNAL.
EXTERNAL_INCLUDES = (("hwy/", "hwy::hwy"), ("nlohmann/", "nlohmann_json::nlohmann_json"),
                     ("CLI/", "CLI11::CLI11"), ("pcre2", "PkgConfig::PCRE2"),
                     ("utf8proc", "PkgConfig::UTF8PROC"),
                     ("sentencepiece", "PkgConfig::SENTENCEPIECE"))
# The module X/testing has the test doubles of module X. Only tests and its like use it.
TESTING = "/testing"
# Except that kernels/base brings Highway for all kernels.
EXTERNAL_OF_DEPS = {"hwy::hwy"}


@dataclass(frozen=True)
class Problem:
    """One broken rule: `size` is set where a limit was passed and the ratchet may allow it."""
    rule: str
    path: str
    line: int
    text: str
    subject: str = ""
    size: int = 0

    def __str__(self):
        return f"{self.path}:{self.line}: {self.rule}: {self.text}"


@dataclass
class Target:
    """One halley_module, halley_test or halley_fuzzer call."""
    kind: str
    path: str
    line: int
    words: dict = field(default_factory=dict)

    @property
    def name(self):
        return (self.words.get("NAME") or ["?"])[0]

    @property
    def layer(self):
        text = (self.words.get("LAYER") or ["-1"])[0]
        return int(text) if text.isdigit() else -1

    @property
    def deps(self):
        return [d for k in ("DEPS", "PRIVATE_DEPS", "CUDA_DEPS") for d in self.words.get(k, [])]

    @property
    def sources(self):
        folder = os.path.dirname(self.path)
        return [os.path.normpath(os.path.join(folder, s))
                for k in ("SRCS", "CUDA_SRCS", "NO_CUDA_SRCS")
                for s in self.words.get(k, [])]


def parse_targets(path, text):
    """The calls of one CMakeLists.txt."""
    text = re.sub(r"#[^\n]*", "", text)
    targets = []
    for call in CALL.finditer(text):
        words, keyword = {}, ""
        for word in call.group(2).split():
            if word in KEYWORDS:
                keyword = word
                words.setdefault(keyword, [])
            else:
                words.setdefault(keyword, []).append(word.strip('"'))
        line = text.count("\n", 0, call.start()) + 1
        targets.append(Target(call.group(1), path, line, words))
    return targets


class Graph:
    """All declared targets and the includes of all C++ files of a tree (path -> text)."""

    def __init__(self, texts):
        self.texts = texts
        targets = [t for path, text in texts.items() if path.endswith("CMakeLists.txt")
                   and path.startswith(("src/", "tests/", "bench/"))
                   for t in parse_targets(path, text)]
        self.modules = {t.name: t for t in targets if t.kind == "halley_module"}
        self.binaries = [t for t in targets if t.kind != "halley_module"]
        self.includes = {}
        for path, text in texts.items():
            if path.endswith(CODE) and path.startswith(("src/", "tests/", "bench/")):
                self.includes[path] = [(text.count("\n", 0, m.start()) + 1, m.group(1), m.group(2))
                                       for m in INCLUDE.finditer(text)]
        self.test_only = self._find_test_only()

    def module_of(self, path):
        """The module whose folder holds `path`, or None."""
        folder = os.path.dirname(path)
        while folder.startswith(SOURCE_ROOT):
            name = folder[len(SOURCE_ROOT):]
            if name in self.modules:
                return self.modules[name]
            folder = os.path.dirname(folder)
        return None

    def included_module(self, include):
        return self.module_of("src/" + include)

    def _find_test_only(self):
        """Sources of tests and fuzzers, and headers that only those of the same folder include."""
        library = {s for m in self.modules.values() for s in m.sources}
        found = {s for b in self.binaries for s in b.sources} - library
        found |= {p for p in self.includes if not p.startswith(SOURCE_ROOT)}
        users = {}
        for path, includes in self.includes.items():
            for _, _, include in includes:
                users.setdefault("src/" + include, set()).add(path)
        grown = True
        while grown:
            more = {h for h, by in users.items() if h.endswith(HEADERS) and by <= found
                    and {os.path.dirname(p) for p in by} == {os.path.dirname(h)}}
            grown = not more <= found
            found |= more
        return found

    def reachable(self, names):
        """The modules `names` and all that they depend on."""
        seen, waiting = set(), list(names)
        while waiting:
            name = waiting.pop()
            if name not in seen:
                seen.add(name)
                waiting += self.modules[name].deps if name in self.modules else []
        return seen

    def check(self):
        yield from self._check_declarations()
        yield from self._check_include_forms()
        for module in self.modules.values():
            yield from self._check_module(module)
        for binary in self.binaries:
            yield from self._check_binary(binary)

    def _check_declarations(self):
        for module in self.modules.values():
            expected = SOURCE_ROOT + module.name + "/CMakeLists.txt"
            if module.path != expected:
                yield Problem("module", module.path, module.line,
                              f"module '{module.name}' belongs in {expected}")
            for dep in module.deps:
                if dep not in self.modules:
                    yield Problem("module", module.path, module.line,
                                  f"'{module.name}' depends on '{dep}', which is no module")
                elif self.modules[dep].layer >= module.layer:
                    yield Problem("layer", module.path, module.line,
                                  f"'{module.name}' (layer {module.layer}) may not depend on "
                                  f"'{dep}' (layer {self.modules[dep].layer})")
                elif dep.endswith(TESTING) and not module.name.endswith(TESTING):
                    yield Problem("testing", module.path, module.line, f"'{module.name}' may not "
                                  f"depend on '{dep}', which is for tests alone")
        listed = {s for t in [*self.modules.values(), *self.binaries] for s in t.sources}
        # A binary of its own (the command line's main.cc, a library that is opened at run time) is
        # listed where CMake makes it.
        plain = " ".join(t for p, t in self.texts.items() if p.endswith("CMakeLists.txt"))
        in_binary = set(re.findall(r"\S+", " ".join(
            re.findall(r"add_(?:executable|library|module)\s*\(([^)]*)\)", plain))))
        for path in sorted(self.includes):
            if path.endswith((".cc", ".cu")) and path not in listed and \
                    os.path.basename(path) not in in_binary:
                yield Problem("unlisted", path, 1,
                              "expected this file in SRCS of a CMakeLists.txt, it is in none")

    def _check_include_forms(self):
        for path, includes in sorted(self.includes.items()):
            for line, mark, include in includes:
                if mark == "<" and not include.startswith("halley/"):
                    continue
                if mark == "<" or not include.startswith("halley/") or ".." in include:
                    yield Problem("include", path, line, f'expected "halley/<module>/<file>" for '
                                  f"our headers and <...> for others, got {mark}{include}")
                elif "src/" + include not in self.texts:
                    yield Problem("include", path, line, f"no such file: src/{include}")
                elif self.included_module(include) is None:
                    yield Problem("include", path, line, f"{include} is in no module")

    def _check_module(self, module):
        used, own = set(), {module.name}
        for path in sorted(self.includes):
            if self.module_of(path) is not module or path in self.test_only:
                continue
            for line, mark, include in self.includes[path]:
                target = self.included_module(include) if mark == '"' else None
                if target is None:
                    yield from self._check_external(module, path, line, include)
                    continue
                used.add(target.name)
                if target.name not in own and target.name not in module.deps:
                    yield Problem("undeclared", path, line, f"includes {include}, but "
                                  f"'{module.name}' does not declare '{target.name}' in DEPS")
        for dep in module.deps:
            if dep in self.modules and dep not in used:
                yield Problem("unused", module.path, module.line, f"'{module.name}' declares "
                              f"'{dep}' and includes nothing of it. Remove it from DEPS.")

    def _check_external(self, module, path, line, include):
        declared = set(module.words.get("EXTERNAL", []))
        for dep in module.deps:
            if dep in self.modules:
                declared |= EXTERNAL_OF_DEPS & set(self.modules[dep].words.get("EXTERNAL", []))
        for prefix, library in EXTERNAL_INCLUDES:
            if include.startswith(prefix) and library not in declared:
                yield Problem("undeclared", path, line, f"includes <{include}>, but "
                              f"'{module.name}' does not declare EXTERNAL {library}")

    def _check_binary(self, binary):
        """A test may include what its DEPS reach, but nothing above the module of its folder and
        that module's test doubles."""
        allowed = self.reachable(binary.deps)
        own = self.module_of(binary.path)
        used, waiting, seen = set(), list(binary.sources), set()
        while waiting:
            path = waiting.pop()
            if path in seen or path not in self.includes:
                continue
            seen.add(path)
            for line, mark, include in self.includes[path]:
                target = self.included_module(include) if mark == '"' else None
                if target is None:
                    continue
                used.add(target.name)
                if "src/" + include in self.test_only:
                    waiting.append("src/" + include)
                elif target.name not in allowed:
                    yield Problem("undeclared", path, line, f"includes {include}, but "
                                  f"DEPS of '{binary.name}' do not reach '{target.name}'")
                elif own and target.layer > own.layer and \
                        target.name != own.name + TESTING:
                    yield Problem("layer", path, line, f"a test of '{own.name}' may not "
                                  f"include '{target.name}' of a higher layer. Move it there.")
        for dep in binary.deps:
            if dep not in self.modules:
                yield Problem("module", binary.path, binary.line,
                              f"'{binary.name}' depends on '{dep}', which is no module")
            elif dep not in used:
                yield Problem("unused", binary.path, binary.line, f"'{binary.name}' declares "
                              f"'{dep}' and includes nothing of it. Remove it from DEPS.")

    def sentence_of(self, module):
        """What a module is for: a comment on line 1 of its CMakeLists.txt, else its header's."""
        first = self.texts[module.path].split("\n", 1)[0]
        if first.startswith("# "):
            return first[2:].strip()
        folder = os.path.dirname(module.path)
        headers = sorted(p for p in self.texts if os.path.dirname(p) == folder
                         and p.endswith(HEADERS) and p not in self.test_only)
        named = f"{folder}/{os.path.basename(folder)}.h"
        for header in [named] * (named in headers) + headers:
            return leading_sentence(self.texts[header])
        return ""

    def table(self):
        """The graph as a Markdown table, lowest layer first, without the test doubles."""
        rows = ["| layer | module | what it is for | depends on |", "|---:|---|---|---|"]
        for module in sorted(self.modules.values(), key=lambda m: (m.layer, m.name)):
            if module.name.endswith(TESTING):
                continue
            deps = ", ".join(f"`{d}`" for d in sorted(module.deps)) or "nothing"
            sentence = self.sentence_of(module).replace("|", "\\|")
            rows.append(f"| {module.layer} | `{module.name}` | {sentence} | {deps} |")
        return "\n".join(rows)


def leading_sentence(text):
    """The first sentence of the comment at the head of a C++ file; empty where there is none."""
    words = []
    for line in text.split("\n"):
        if not line.startswith("// "):
            break
        words.append(line[3:].strip())
    match = re.match(r"(.+?\.)(?:\s|$)", " ".join(words))
    return match.group(1) if match else ""


def with_table(document, table):
    """`document` with the table between its markers, or None where it has no markers."""
    begin, end = document.find(MARK_BEGIN), document.find(MARK_END)
    if begin < 0 or end < begin:
        return None
    return document[:begin] + MARK_BEGIN + "\n\n" + table + "\n\n" + document[end:]


def check_table(texts):
    document = texts.get(ARCHITECTURE)
    expected = None if document is None else with_table(document, Graph(texts).table())
    if expected is None:
        yield Problem("architecture", ARCHITECTURE, 1,
                      f"expected the lines '{MARK_BEGIN}' and '{MARK_END}'")
    elif expected != document:
        line = document.count("\n", 0, document.find(MARK_BEGIN)) + 1
        yield Problem("architecture", ARCHITECTURE, line,
                      "the table of modules is out of date. Run tools/tidy.py --write")
