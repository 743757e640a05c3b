"""Constrained output against the Python package jsonschema.

    constraint_test.py CONSTRAINT_WALK SOURCE_DIR [unittest arguments]

Random walks through the allowed tokens must end in texts that fulfil their schema; values that
fulfil it must be accepted; what is not done must be rejected with its place.
"""
import json
import os
import random
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
from schemas import HOSTILE, REFUSED, SCHEMAS  # noqa: E402

WALK, SOURCE = sys.argv[1], sys.argv[2]
NUM_WALKS = 8
SEED = 20240229
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


class Instances:
    """Random values of a schema whose $ref are few: for one keyword at a time it is the definition
    of JSON Schema, written the other way round."""

    def __init__(self, root, seed):
        self.root, self.random = root, random.Random(seed)

    def value(self, schema, depth=0):
        if schema is True or schema == {}:
            return self.random.choice([None, True, 1, "x", [], {"k": [0.5]}])
        if "$ref" in schema:
            target = self.root
            for part in schema["$ref"].split("/")[1:]:
                target = target[part.replace("%20", " ").replace("~1", "/").replace("~0", "~")]
            return self.value(target, depth + 1)
        for form in ("anyOf", "oneOf", "allOf"):
            if form in schema:
                options = [s for s in schema[form] if s is not False]
                return self.value(self.random.choice(options[-1:] if depth > 4 else options), depth)
        if "const" in schema:
            return schema["const"]
        if "enum" in schema:
            return self.random.choice([v for v in schema["enum"] if self.fulfils(v, schema)])
        kinds = schema.get("type") or ("object" if "properties" in schema else "array")
        kind = self.random.choice(kinds if isinstance(kinds, list) else [kinds])
        return getattr(self, "some_" + kind)(schema, depth)

    @staticmethod
    def fulfils(value, schema):
        return jsonschema.Draft202012Validator(schema).is_valid(value)

    def some_null(self, _schema, _depth):
        return None

    def some_boolean(self, _schema, _depth):
        return self.random.random() < 0.5

    def some_number(self, schema, depth):
        low, high = self.bounds(schema)
        return self.random.choice([round(self.random.uniform(low + 0.01, high - 0.01), 3),
                                   self.some_integer(schema, depth)])

    def some_integer(self, schema, _depth):
        low, high = self.bounds(schema)
        return self.random.randint(low, high)

    @staticmethod
    def bounds(schema):
        low = schema.get("minimum", schema.get("exclusiveMinimum", -1001) + 1)
        high = schema.get("maximum", schema.get("exclusiveMaximum", 1001) - 1)
        return int(low), int(high)

    def some_string(self, schema, _depth):
        if "pattern" in schema or "format" in schema:
            return None  # the tables have examples
        size = self.random.randint(schema.get("minLength", 0),
                                   schema.get("maxLength", schema.get("minLength", 0) + 20))
        alphabet = "abc XYZ019_\"\\/\b\f\n\r\t\x01\x7fé€😀"
        return "".join(self.random.choice(alphabet) for _ in range(size))

    def some_array(self, schema, depth):
        first = schema.get("prefixItems", [])
        low = schema.get("minItems", 0)
        most = len(first) if schema.get("items") is False else len(first) + 3
        size = self.random.randint(low, min(schema.get("maxItems", most), most))
        if depth > 4:
            size = low
        rest = schema.get("items", True)
        return [self.value(first[i] if i < len(first) else rest, depth + 1) for i in range(size)]

    def some_object(self, schema, depth):
        required = schema.get("required", [])
        value = {}
        for name, member in schema.get("properties", {}).items():
            if member is not False and (name in required or self.random.random() < 0.5):
                value[name] = self.value(member, depth + 1)
        for name in required:
            value.setdefault(name, 1)
        other = schema.get("additionalProperties", "properties" not in schema)
        if other is not False:
            value["other"] = self.value(other, depth + 1)
        return value


def texts_of(schema):
    instances = Instances(schema, SEED)
    values = [instances.value(schema) for _ in range(20)]
    values = [v for v in values if Instances.fulfils(v, schema)]
    texts = [json.dumps(v, ensure_ascii=False) for v in values]
    texts += [json.dumps(v, ensure_ascii=False, separators=(",", ":")) for v in values]
    return texts + [json.dumps(v, ensure_ascii=False, indent=2) for v in values]


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
