#!/usr/bin/env python3
"""Keeps docs/python_api.md equal to the types and docstrings of the Python package.

    packaging/make_python_reference.py          check; exits with 1 where they differ
    packaging/make_python_reference.py --write  write the page

The page has what halley.__all__ and halley.eval name, in order: for a dataclass its fields with
their comments, for another class its methods.
"""
import ast
import os

from made_file import check_or_write

SOURCE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
PACKAGE = os.path.join(SOURCE, "python", "halley")
PAGE = os.path.join(SOURCE, "docs", "python_api.md")
TITLE = """# The Python package: reference

`packaging/make_python_reference.py --write` makes this page of the package's types and docstrings;
[python.md](python.md) shows how to use it. Exceptions are in
[python.md](python.md#errors).
"""
COLUMNS = 96


class Module:
    """A source file of the package."""

    def __init__(self, name):
        path = os.path.join(PACKAGE, *name.split(".")[1:])
        path = os.path.join(path, "__init__.py") if os.path.isdir(path) else path + ".py"
        with open(path, encoding="utf-8") as file:
            text = file.read()
        self.lines = text.splitlines()
        self.tree = ast.parse(text)

    def find(self, name):
        """The syntax node that defines a name; None: the module imports it."""
        for node in self.tree.body:
            if getattr(node, "name", None) == name:
                return node
            if isinstance(node, ast.AnnAssign) and ast.unparse(node.target) == name:
                return node
        return None

    def comment(self, node):
        """The text behind a node on its line."""
        rest = self.lines[node.end_lineno - 1][node.end_col_offset:]
        return rest.partition("# ")[2]


def arguments_of(function):
    """The arguments as text, one by one, without self."""
    given = function.args

    def with_default(argument, default):
        text = ast.unparse(argument)
        if default is None:
            return text
        return f"{text} = {ast.unparse(default)}" if argument.annotation else \
            f"{text}={ast.unparse(default)}"
    plain = [*given.posonlyargs, *given.args]
    defaults = [None] * (len(plain) - len(given.defaults)) + given.defaults
    texts = [with_default(*pair) for pair in zip(plain, defaults)]
    if given.kwonlyargs:
        texts.append("*")
        texts += [with_default(*pair) for pair in zip(given.kwonlyargs, given.kw_defaults)]
    if given.kwarg:
        texts.append(f"**{ast.unparse(given.kwarg)}")
    return [text for text in texts if text != "self"]


def signature(function, title):
    """`title(arguments) -> result`, in lines that fit."""
    result = "" if function.name == "__init__" else f" -> {ast.unparse(function.returns)}"
    arguments = arguments_of(function)
    line = f"{title}({', '.join(arguments)}){result}"
    if len(line) <= COLUMNS:
        return line
    return f"{title}(\n" + "".join(f"    {each},\n" for each in arguments) + f"){result}"


def code(text):
    return f"```python\n{text}\n```\n"


def paragraphs(node):
    text = ast.get_docstring(node) or ""
    return text + "\n" if text else ""


def cell(text):
    return text.replace("|", "\\|")


def table(module, node):
    """The fields of a dataclass."""
    lines = ["| field | type | default | |", "|---|---|---|---|"]
    for field in node.body:
        if isinstance(field, ast.AnnAssign):
            default = "" if field.value is None else \
                "`[]`" if "default_factory" in ast.unparse(field.value) else \
                f"`{ast.unparse(field.value)}`"
            lines.append(f"| `{ast.unparse(field.target)}` | "
                         f"`{cell(ast.unparse(field.annotation))}` | {default} | "
                         f"{cell(module.comment(field))} |")
    return "\n".join(lines) + "\n"


def methods_of(node, bases):
    """Public methods, those of base classes of the package too."""
    for each in [*bases, node]:
        for method in each.body:
            if isinstance(method, (ast.FunctionDef, ast.AsyncFunctionDef)):
                if method.name == "__init__" or not method.name.startswith("_"):
                    yield method


def class_text(module, name, node):
    parts = [f"## {name}\n", paragraphs(node)]
    decorators = [ast.unparse(each) for each in node.decorator_list]
    if "dataclass" in decorators or any(
            isinstance(each, ast.AnnAssign) for each in node.body):
        parts.append(table(module, node))
    bases = [base for base in (definition(module, ast.unparse(each))[1] for each in node.bases)
             if isinstance(base, ast.ClassDef)]
    if any(ast.unparse(base) == "Protocol" for base in node.bases):
        return parts
    for method in methods_of(node, bases):
        is_property = "property" in [ast.unparse(each) for each in method.decorator_list]
        title = name if method.name == "__init__" else f"{name}.{method.name}"
        text = f"{title}: {ast.unparse(method.returns)}" if is_property else \
            ("async " if isinstance(method, ast.AsyncFunctionDef) else "") + \
            signature(method, title)
        parts += [code(text), paragraphs(method)]
    return parts


def definition(module, name):
    """The module that defines a name, and its node; None for one of another package."""
    node = module.find(name)
    if node is not None:
        return module, node
    for imported in module.tree.body:
        if isinstance(imported, ast.ImportFrom) and (imported.module or "").startswith("halley"):
            for alias in imported.names:
                if (alias.asname or alias.name) == name and imported.module not in (
                        "halley", "halley._native"):
                    return definition(Module(imported.module), alias.name)
    return module, None


def describe(module, name, title):
    module, node = definition(module, name)
    if isinstance(node, ast.ClassDef):
        return class_text(module, title, node)
    if isinstance(node, ast.FunctionDef):
        return [f"## {title}\n", code(signature(node, title)), paragraphs(node)]
    if isinstance(node, ast.AnnAssign):
        text = module.comment(node)
        return [f"## {title}\n", code(f"{title} = {ast.unparse(node.value)}"),
                f"{text}\n" if text else ""]
    return []


def page():
    """The text of the whole page."""
    package, evaluation = Module("halley"), Module("halley.eval")
    names, = (ast.literal_eval(node.value) for node in package.tree.body
              if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__")
    parts = [TITLE]
    for name in names:
        parts += describe(package, name, name)
    for node in evaluation.tree.body:
        name = getattr(node, "name", None)
        if name and not name.startswith("_"):
            parts += describe(evaluation, name, f"eval.{name}")
    return "\n".join(part for part in parts if part)


def main():
    """Checks or writes."""
    check_or_write(PAGE, page(), "the package")


if __name__ == "__main__":
    main()
