"""Constrained output against the Python package jsonschema.

    constraint_test.py CONSTRAINT_WALK SOURCE_DIR [unittest arguments]

Random walks through the allowed tokens must end in texts that fulfil their schema; values that
fulfil it must be accepted; what is not done must be rejected with its place.
"""
import json
import os
import re
import subprocess
import sys
import unittest
from decimal import Decimal

try:
    import jsonschema
except ImportError:
    DEBIAN = "/usr/bin/python3"  # has the package of tools/setup.sh
    if os.path.exists(DEBIAN) and os.path.realpath(sys.executable) != os.path.realpath(DEBIAN):
        os.execv(DEBIAN, [DEBIAN, "-B", *sys.argv])
    print("SKIPPED: the Python package jsonschema is missing; tools/setup.sh installs it")
    sys.exit(0)

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from instances import SEED, Instances, texts_of  # noqa: E402
from larks import OTHERWISE  # noqa: E402
from schemas import HOSTILE, NARROWER, REFUSED, SCHEMAS, WIDER  # noqa: E402

WALK, SOURCE = sys.argv[1], sys.argv[2]
NUM_WALKS = 8
TOKENIZERS = ["models/demo-21m", "testdata/tokenizers/gpt2"]

# What the package does not check by itself.
FORMATS = {
    "date-time": r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)",
    "time": r"\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)",
    "uuid": r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}",
}


def ask(tokenizer, requests):
    lines = "".join(json.dumps(request) + "\n" for request in requests)
    result = subprocess.run([WALK, os.path.join(SOURCE, tokenizer)], input=lines,
                            capture_output=True, text=True, timeout=600, check=True)
    return [json.loads(line) for line in result.stdout.splitlines()]


def request_for(schema, texts=(), num_walks=NUM_WALKS):
    return {"schema": schema, "seed": SEED, "num_walks": num_walks, "texts": list(texts)}


def reject_repeated(pairs):
    members = dict(pairs)
    if len(members) != len(pairs):
        raise ValueError("a name stands twice")
    return members


class ConstraintTest(unittest.TestCase):
    def check_walk(self, schema, text):
        value = json.loads(text, object_pairs_hook=self.pairs_hook(schema))
        checker = jsonschema.FormatChecker(["date", "email", "ipv4"])
        jsonschema.Draft202012Validator(schema, format_checker=checker).validate(value)
        pattern = FORMATS.get(schema.get("format")) if isinstance(schema, dict) else None
        if pattern:
            self.assertTrue(re.fullmatch(pattern, value), value)

    @staticmethod
    def pairs_hook(schema):
        # Only declared names are kept from standing twice.
        is_declared = isinstance(schema, dict) and "properties" in schema
        is_open = is_declared and "additionalProperties" in schema
        return reject_repeated if is_declared and not is_open else dict

    def test_walks_end_in_values_of_the_schema(self):
        for tokenizer in TOKENIZERS:
            names = list(SCHEMAS)
            answers = ask(tokenizer, [request_for(SCHEMAS[name][0]) for name in names])
            for name, answer in zip(names, answers, strict=True):
                with self.subTest(tokenizer=tokenizer, schema=name):
                    self.assertNotIn("error", answer)
                    self.assertEqual(len(answer["walks"]), NUM_WALKS)
                    for text in answer["walks"]:
                        self.check_walk(SCHEMAS[name][0], text)

    def test_walks_of_json_object_are_objects(self):
        answer = ask(TOKENIZERS[0], [request_for("json_object", num_walks=60)])[0]
        self.assertNotIn("error", answer)
        for text in answer["walks"]:
            self.assertIsInstance(json.loads(text), dict, text)

    def test_values_of_the_schema_are_accepted(self):
        names = list(SCHEMAS)
        texts = {name: SCHEMAS[name][1] + texts_of(SCHEMAS[name][0]) for name in names}
        self.assertGreater(sum(len(t) for t in texts.values()), 1000)
        answers = ask(TOKENIZERS[0],
                      [request_for(SCHEMAS[name][0], texts[name], num_walks=0) for name in names])
        for name, answer in zip(names, answers, strict=True):
            with self.subTest(schema=name):
                self.assertNotIn("error", answer)
                bad = [(t, at) for t, at in zip(texts[name], answer["accepted"], strict=True)
                       if at != -1]
                self.assertEqual(bad, [])

    def test_other_texts_are_not_accepted(self):
        names = list(SCHEMAS)
        answers = ask(TOKENIZERS[0],
                      [request_for(SCHEMAS[name][0], SCHEMAS[name][2], 0) for name in names])
        for name, answer in zip(names, answers, strict=True):
            with self.subTest(schema=name):
                self.assertNotIn("error", answer)
                self.assertNotIn(-1, answer["accepted"], SCHEMAS[name][2])

    def test_bounds_and_multiples_of_numbers_are_exact(self):
        numbers = [Decimal(n) / 40 for n in range(-130, 130)]
        numbers += [n + Decimal("0.000000000000000001") for n in numbers[::7]]
        texts = [f"{n:f}" for n in numbers if n] + [f"{n.normalize():f}" for n in numbers if n]
        schemas = [{bound: low, other: high} for bound in ("minimum", "exclusiveMinimum")
                   for other in ("maximum", "exclusiveMaximum")
                   for low in (-3, -1.275, -0.5, 0, 0.025, 1.1, 5e-1)
                   for high in (-0.525, -0.5, 0, 0.1, 1.1, 1.125, 3)]
        schemas += [{"multipleOf": step, "minimum": -2.25} for step in
                    (0.05, 0.1, 0.125, 0.25, 1, 1.5, 0.75)]
        schemas = [{"type": "number", **schema} for schema in schemas]
        answers = ask(TOKENIZERS[0], [request_for(schema, texts, 0) for schema in schemas])
        for schema, answer in zip(schemas, answers, strict=True):
            exact = json.loads(json.dumps(schema), parse_float=Decimal)
            validator = jsonschema.Draft202012Validator(exact)
            expected = [t for t in texts if validator.is_valid(Decimal(t))]
            if "multipleOf" in exact:  # no more digits behind the point than the divisor has
                digits = len(str(exact["multipleOf"]).partition(".")[2])
                expected = [t for t in expected if len(t.partition(".")[2]) <= digits]
            if "error" in answer:
                self.assertIn("that some finite value fulfils", answer["error"])
                self.assertEqual(expected, [], schema)
                continue
            accepted = [t for t, at in zip(texts, answer["accepted"], strict=True) if at == -1]
            self.assertEqual(accepted, expected, schema)

    def test_bounds_of_integers_are_exact(self):
        cases = [(low, high) for low in (-1000, -105, -99, -10, -1, 0, 1, 7, 10, 88, 100)
                 for high in (-100, -11, -1, 0, 5, 9, 10, 99, 109, 777) if low <= high]
        integers = list(range(-1200, 1200, 1))
        answers = ask(TOKENIZERS[0], [
            request_for({"type": "integer", "minimum": low, "maximum": high},
                        [str(n) for n in integers], 0) for low, high in cases])
        for (low, high), answer in zip(cases, answers, strict=True):
            accepted = [n for n, at in zip(integers, answer["accepted"], strict=True) if at == -1]
            self.assertEqual(accepted, [n for n in integers if low <= n <= high], (low, high))

    def test_field_types_of_pydantic(self):
        with open(os.path.join(SOURCE, "testdata/constraint/pydantic.json"), encoding="utf-8") as f:
            cases = json.load(f)["cases"]
        self.assertGreater(len(cases), 60)
        for tokenizer in TOKENIZERS:
            answers = ask(tokenizer, [request_for(case["schema"], case["good"] + case["bad"], 4)
                                      for case in cases])
            for case, answer in zip(cases, answers, strict=True):
                with self.subTest(tokenizer=tokenizer, type=case["name"]):
                    self.assertNotIn("error", answer)
                    accepted = [t for t, at in zip(case["good"] + case["bad"], answer["accepted"],
                                                   strict=True) if at == -1]
                    self.assertEqual(accepted, case["good"])
                    for text in answer["walks"]:
                        self.check_exact(case["schema"], text)

    def test_verdicts_of_other_matchers(self):
        """What is accepted fulfils the specification, and what all others accept is accepted."""
        with open(os.path.join(SOURCE, "testdata/constraint/verdicts.json"), encoding="utf-8") as f:
            rows = [row for row in json.load(f) if "schema" in row]
        answers = ask(TOKENIZERS[0], [request_for(row["schema"], row["texts"], 0) for row in rows])
        num_accepted, narrower, wider = 0, set(), set()
        for row, answer in zip(rows, answers, strict=True):
            self.assertNotIn("error", answer, row["name"])
            others = [row[name] for name in ("xgrammar", "llguidance") if row[name]]
            for i, (text, at) in enumerate(zip(row["texts"], answer["accepted"], strict=True)):
                is_good = row["jsonschema"][i] == "1"
                num_accepted += at == -1
                if at == -1 and not is_good:
                    wider.add(row["name"])
                if at != -1 and is_good and others and all(v[i] == "1" for v in others):
                    narrower.add(row["name"])
                    self.assertIn(row["name"], NARROWER, text)
        self.assertGreater(num_accepted, 800)
        self.assertEqual(narrower, set(NARROWER))
        self.assertEqual(wider, set(WIDER))

    def test_lark_grammars_have_the_texts_of_llguidance(self):
        with open(os.path.join(SOURCE, "testdata/constraint/verdicts.json"), encoding="utf-8") as f:
            rows = [row for row in json.load(f) if "grammar" in row]
        self.assertGreater(len(rows), 10)
        answers = ask(TOKENIZERS[0], [
            {"grammar": row["grammar"], "seed": SEED, "num_walks": 0, "texts": row["texts"]}
            for row in rows])
        for row, answer in zip(rows, answers, strict=True):
            with self.subTest(row["name"]):
                self.assertNotIn("error", answer)
                accepted = "".join("01"[at == -1] for at in answer["accepted"])
                differs = [text for text, a, b in
                           zip(row["texts"], accepted, row["llguidance"], strict=True) if a != b]
                self.assertEqual(differs, OTHERWISE.get(row["name"], []))

    def check_exact(self, schema, text):
        """Decimals are no floats here: 0.3 is a multiple of 0.1."""
        exact = json.loads(json.dumps(schema), parse_float=Decimal)
        validator = jsonschema.Draft202012Validator(exact)
        errors = list(validator.iter_errors(json.loads(text, parse_float=Decimal)))
        # A grammar keeps the items of a set from standing twice where they are listed.
        is_enforced = "$defs" in schema or "boolean" in json.dumps(schema)
        errors = [e for e in errors if e.validator != "uniqueItems" or is_enforced]
        self.assertEqual(errors, [], text)

    def test_schemas_that_ask_for_much_end_soon(self):
        answers = ask(TOKENIZERS[0], [request_for(schema, [text] if text else [], 0)
                                      for schema, text, _ in HOSTILE])
        for (schema, text, message), answer in zip(HOSTILE, answers, strict=True):
            with self.subTest(schema=str(schema)[:100]):
                if message:
                    self.assertIn(message, answer.get("error", "was accepted"))
                else:
                    self.assertEqual(answer.get("accepted", answer), [-1] if text else [])

    def test_what_is_not_done_is_rejected_with_its_place(self):
        answers = ask(TOKENIZERS[0], [request_for(schema) for schema, _ in REFUSED])
        for (schema, expected), answer in zip(REFUSED, answers, strict=True):
            with self.subTest(schema=str(schema)[:100]):
                self.assertIn(expected, answer.get("error", "was accepted"))


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
