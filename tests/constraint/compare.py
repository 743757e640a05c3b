"""Halley's matcher against xgrammar and llguidance, and all of them against the specification.

    compare.py WALK SOURCE_DIR --write       makes testdata/constraint/verdicts.json anew
    compare.py WALK SOURCE_DIR --check       their verdicts are still those of the file
    compare.py WALK SOURCE_DIR --suite DIR   counts over a JSON-Schema-Test-Suite (a folder of one
                                             draft's files), which is not part of this repository

Runs in the environment of `tools/setup.sh --matcher-tests`. constraint_test.py, which needs none of
this, holds Halley to the file.
"""
import json
import os
import random
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
ENVIRONMENT = ".venv/matchers/bin/python"
try:
    import llguidance  # noqa: F401
except ImportError:
    python = os.path.abspath(os.path.join(sys.argv[2], ENVIRONMENT))
    if os.path.exists(python) and sys.executable != python:
        os.execv(python, [python, "-B", *sys.argv])
    print("SKIPPED: llguidance is missing; tools/setup.sh --matcher-tests installs it")
    sys.exit(0)

from instances import SEED, texts_of  # noqa: E402
from matchers import Halley, Llguidance, Specification, Xgrammar  # noqa: E402
from larks import LARKS  # noqa: E402
from schemas import SCHEMAS  # noqa: E402

NUM_RANDOM = 6  # random values a schema, and as many that are changed at one place


def changed(value, choose):
    """The value with one difference."""
    if isinstance(value, dict) and value:
        names = list(value)
        name = choose.choice(names)
        kind = choose.randrange(4)
        if kind == 0:
            return {n: v for n, v in value.items() if n != name}
        if kind == 1:
            return {n: value[n] for n in reversed(names)}
        if kind == 2:
            return {**value, "zz": 0}
        return {**value, name: changed(value[name], choose)}
    if isinstance(value, list) and value:
        index = choose.randrange(len(value))
        kind = choose.randrange(3)
        if kind == 0:
            return value[:index] + value[index + 1:]
        if kind == 1:
            return [*value, value[index]]
        return [*value[:index], changed(value[index], choose), *value[index + 1:]]
    if isinstance(value, str) and value and choose.random() < 0.6:
        at = choose.randrange(len(value))
        return value[:at] + choose.choice(["", "x", "9", "é"]) + value[at + 1:]
    if isinstance(value, (int, float)) and not isinstance(value, bool) and choose.random() < 0.6:
        return value + choose.choice([-1000, -1, 1, 0.5, 1e4])
    return choose.choice([None, True, 0, -1.5, "x", [], {}])


def cases(source):
    """(name, schema, texts) of our own schemas and of Pydantic's."""
    with open(os.path.join(source, "testdata/constraint/pydantic.json"), encoding="utf-8") as file:
        pydantic = json.load(file)["cases"]
    for name, (schema, good, bad) in SCHEMAS.items():
        if len(json.dumps(schema)) < 4000:
            yield name, schema, [t for t in good + bad if len(t) < 800]
    for case in pydantic:
        yield "Pydantic " + case["name"], case["schema"], case["good"] + case["bad"]


def with_random_texts(name, schema, texts):
    choose = random.Random(f"{SEED} {name}")
    try:
        some = sorted(set(texts_of(schema)))
    except (KeyError, AttributeError, TypeError, ValueError, IndexError, RecursionError):
        some = []  # the generator knows few keywords
    plain = [t for t in some if "\n" not in t and len(t) < 400]
    plain = choose.sample(plain, min(NUM_RANDOM, len(plain)))
    values = []
    for text in [*texts, *plain]:
        try:
            values.append(json.loads(text))
        except ValueError:
            continue
    for _ in range(NUM_RANDOM if values else 0):
        plain.append(json.dumps(changed(choose.choice(values), choose), ensure_ascii=False))
    return list(dict.fromkeys([*texts, *plain]))


def verdicts(source, others):
    rows = []
    for name, schema, texts in cases(source):
        all_texts = with_random_texts(name, schema, texts)
        row = {"name": name, "schema": schema, "texts": all_texts}
        for other in others:
            answer = other.accepts(schema, all_texts)
            row[other.name] = None if answer is None else "".join("01"[a] for a in answer)
        rows.append(row)
    lark = next(other for other in others if other.name == "llguidance")
    for name, (grammar, texts) in LARKS.items():
        answer = lark.accepts_lark(grammar, texts)
        rows.append({"name": "Lark " + name, "grammar": grammar, "texts": texts,
                     "llguidance": None if answer is None else "".join("01"[a] for a in answer)})
    return rows


def path_of(source):
    return os.path.join(source, "testdata", "constraint", "verdicts.json")


def write(source, rows):
    with open(path_of(source), "w", encoding="utf-8") as file:
        lines = ",\n".join(json.dumps(row, ensure_ascii=False) for row in rows)
        file.write(f"[\n{lines}\n]\n")


def check(source, rows):
    with open(path_of(source), encoding="utf-8") as file:
        known = {row["name"]: row for row in json.load(file)}
    changed_rows = [row["name"] for row in rows if row != known.get(row["name"])]
    if changed_rows or len(known) != len(rows):
        sys.exit("verdicts that are not those of the file: " + ", ".join(changed_rows))
    print(f"{sum(len(row['texts']) for row in rows)} verdicts of each matcher as before")


def suite(folder, matchers):
    groups = []
    for name in sorted(os.listdir(folder)):
        if not name.endswith(".json"):
            continue
        with open(os.path.join(folder, name), encoding="utf-8") as file:
            groups += [(name[:-5], group) for group in json.load(file)]
    print("| matcher | schemas taken | of their valid instances accepted | of their invalid ones |")
    print("|---|---:|---:|---:|")
    wrong = {}
    for matcher in matchers:
        counts = {"taken": 0, True: [0, 0], False: [0, 0]}
        for keyword, group in groups:
            schema = group["schema"]
            texts = [json.dumps(test["data"], ensure_ascii=False) for test in group["tests"]]
            answer = matcher.accepts(schema, texts)
            if answer is None:
                continue
            counts["taken"] += 1
            for test, accepted in zip(group["tests"], answer, strict=True):
                counts[test["valid"]][accepted] += 1
                if accepted and not test["valid"]:
                    wrong.setdefault(matcher.name, {}).setdefault(keyword, []).append(
                        group["description"])
        print(f"| {matcher.name} | {counts['taken']} of {len(groups)} | "
              f"{counts[True][True]} of {sum(counts[True])} | "
              f"{counts[False][True]} of {sum(counts[False])} |")
    for name, keywords in wrong.items():
        print(f"{name} accepts what is invalid:",
              ", ".join(f"{keyword} ({len(found)})" for keyword, found in keywords.items()))


def main():
    walk, source, mode = sys.argv[1], sys.argv[2], sys.argv[3]
    others = [Specification(), Xgrammar(), Llguidance()]
    if mode == "--suite":
        suite(sys.argv[4], [Halley(walk, os.path.join(source, "models/demo-21m")), *others])
    elif mode == "--write":
        write(source, verdicts(source, others))
    else:
        check(source, verdicts(source, others))


if __name__ == "__main__":
    main()
