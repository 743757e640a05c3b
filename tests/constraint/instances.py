"""Random values of JSON schemas, for constraint_test.py and compare.py."""
import json
import random

import jsonschema

SEED = 20240229


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
