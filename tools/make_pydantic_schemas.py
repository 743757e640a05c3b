#!/usr/bin/env python3
"""Makes testdata/constraint/pydantic.json: JSON schemas of field types, as Pydantic makes them.

    tools/make_pydantic_schemas.py [OUT]
    tools/make_pydantic_schemas.py --check CONSTRAINT_WALK SOURCE_DIR

Needs pydantic 2 and email-validator. Each field type has values as JSON texts: "good" ones, which
Pydantic takes, and "bad" ones, which it rejects; the script stops where Pydantic does not. --check
lets random outputs of each schema be validated by Pydantic itself.
"""

import collections
import datetime
import decimal
import enum
import ipaddress
import json
import os
import pathlib
import subprocess
import sys
import uuid
from typing import Annotated, Any, Literal, NamedTuple, Optional, Union

import pydantic
from pydantic import BaseModel, Field, create_model
from typing_extensions import TypedDict

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
OUT = os.path.join(ROOT, "testdata", "constraint", "pydantic.json")


class Color(enum.Enum):
    RED = "red"
    GREEN = "green"


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


class Address(BaseModel):
    street: str = Field(max_length=40, description="With the number")
    zip_code: str = Field(pattern=r"^\d{5}$", alias="zip")


class Node(BaseModel):
    value: int
    children: list["Node"] = []


class Cat(BaseModel):
    kind: Literal["cat"]
    lives: int = Field(ge=1, le=9)


class Dog(BaseModel):
    kind: Literal["dog"]
    name: str = "Rex"


class Point(NamedTuple):
    x: int
    y: int


class Movie(TypedDict):
    title: str
    year: int


UUID4 = '"1b4e28ba-2fa1-41d2-883f-0016d3cca427"'
# name: (type, good texts, bad texts)
TYPES = {
    "str": (str, ['"a"', '""'], ["1"]),
    "int": (int, ["-3", "0"], ["1.5", '"x"']),
    "float": (float, ["0.5", "-1e3"], ['"x"']),
    "bool": (bool, ["true"], ["3"]),
    "none": (None, ["null"], ["0"]),
    "any": (Any, ["null", '{"a": [1]}'], []),
    "list": (list[int], ["[]", "[1, 2]"], ['["x"]']),
    "set": (set[int], ["[1, 2]", "[]"], ['["x"]']),
    "frozenset": (frozenset[str], ['["a", "b"]'], ["[1]"]),
    "set of enum": (set[Color], ['["red", "green"]', "[]", '["green"]'], ['["blue"]']),
    "set of bool": (Annotated[set[bool], Field(min_length=1)], ["[true]", "[false, true]"], ["[]"]),
    "tuple": (tuple[int, str], ['[1, "a"]'], ["[1]", '["a", 1]']),
    "open tuple": (tuple[int, ...], ["[]", "[1, 2, 3]"], ['["a"]']),
    "named tuple": (Point, ["[1, 2]"], ["[1]"]),
    "typed dict": (Movie, ['{"title": "M", "year": 1931}'], ['{"title": "M"}']),
    "deque": (collections.deque[int], ["[1]"], ['["a"]']),
    "dict": (dict[str, int], ["{}", '{"a": 1}'], ['{"a": "b"}']),
    "dict of int": (dict[int, str], ['{"1": "a"}'], ['{"1": 2}']),
    "dict of literals": (dict[Literal["a", "b"], int], ['{"a": 1}'], ['{"c": 1}']),
    "dict of pattern": (dict[Annotated[str, Field(pattern="^k")], int], ['{"k1": 1}'],
                        ['{"a": 1}']),
    "dict of length": (Annotated[dict[str, int], Field(min_length=1, max_length=2)],
                       ['{"a": 1}', '{"a": 1, "b": 2}'], ["{}", '{"a": 1, "b": 2, "c": 3}']),
    "literal": (Literal["a", 1, None, True], ['"a"', "1", "null"], ['"b"', "2"]),
    "enum": (Color, ['"red"'], ['"blue"']),
    "int enum": (Level, ["2"], ["3"]),
    "optional": (Optional[int], ["null", "1"], ['"x"']),
    "union": (Union[int, str, list[bool]], ["1", '"a"', "[true]"], ["[3]"]),
    "model": (Address, ['{"street": "A 1", "zip": "12345"}'],
              ['{"street": "A 1", "zip": "1234"}', '{"zip": "12345"}']),
    "recursive model": (Node, ['{"value": 1, "children": [{"value": 2}]}'],
                        ['{"value": 1, "children": [2]}']),
    "discriminated union": (Annotated[Union[Cat, Dog], Field(discriminator="kind")],
                            ['{"kind": "cat", "lives": 9}', '{"kind": "dog"}'],
                            ['{"kind": "cat", "lives": 10}', '{"kind": "cow"}']),
    "datetime": (datetime.datetime, ['"2024-02-29T23:59:59Z"'], ['"2023-02-29T00:00:00Z"']),
    "date": (datetime.date, ['"2024-02-29"'], ['"2023-02-29"', '"2024-1-1"']),
    "time": (datetime.time, ['"23:59:59Z"', '"01:02:03.5+01:00"'], ['"24:00:00Z"']),
    "timedelta": (datetime.timedelta, ['"P3DT4H5M"', '"PT0S"', '"P2W"'], ['"P"', '"P1"']),
    "uuid": (uuid.UUID, [UUID4], ['"1b4e28ba"']),
    "uuid4": (pydantic.UUID4, [UUID4], ['"1b4e28ba-2fa1-11d2-883f-0016d3cca427"']),
    "email": (pydantic.EmailStr, ['"ann@example.com"'], ['"ann"', '"a@b@c.de"']),
    "http url": (pydantic.HttpUrl, ['"https://example.com/a?b=c#d"', '"http://1.2.3.4:80"'],
                 ['"example"', '"http://a b"']),
    "any url": (pydantic.AnyUrl, ['"mailto:a@b.de"', '"ftp://[::1]/x"'], ['"x y"']),
    "postgres dsn": (pydantic.PostgresDsn, ['"postgres://u@db.example.com:5432/x"'], ['"x"']),
    "ipv4": (ipaddress.IPv4Address, ['"127.0.0.1"'], ['"256.0.0.1"', '"1.2.3"']),
    "ipv6": (ipaddress.IPv6Address, ['"::1"', '"2001:db8::ff00:42:8329"', '"::ffff:1.2.3.4"',
                                     '"1:2:3:4:5:6:7:8"'],
             ['"1::2::3"', '"12345::"', '"1:2:3"', '"1:2:3:4:5:6:7:8:9"']),
    "ip address": (pydantic.IPvAnyAddress, ['"10.0.0.1"', '"fe80::"'], ['"a.b.c.d"']),
    "ipv4 network": (ipaddress.IPv4Network, ['"172.16.0.0/12"', '"0.0.0.0/0"', '"1.2.3.4/32"'],
                     ['"172.16.0.1/12"', '"10.0.0.0/33"']),
    "ipv6 network": (ipaddress.IPv6Network, ['"2001:db8::/32"', '"::/0"'], ['"2001:db8::1/129"']),
    "ipv4 interface": (ipaddress.IPv4Interface, ['"10.1.2.3/8"'], ['"10.1.2.3/40"']),
    "ipv6 interface": (ipaddress.IPv6Interface, ['"fe80::1/64"'], ['"fe80::1/200"']),
    "bytes": (bytes, ['"abc"', '""'], ["1"]),
    "base64": (pydantic.Base64Bytes, ['"QUJD"', '"QQ=="', '""'], ['"Q"']),
    "decimal": (decimal.Decimal, ["1.5", '"2.25"'], ["true"]),
    "multiple of int": (Annotated[int, Field(multiple_of=5)], ["10", "-5", "0"], ["7"]),
    "multiple of float": (Annotated[float, Field(multiple_of=0.25, gt=0)], ["0.75", "3"],
                          ["0.3", "0"]),
    "bounded int": (Annotated[int, Field(gt=0, le=150)], ["1", "150"], ["0", "151"]),
    "bounded float": (Annotated[float, Field(gt=0.5, lt=2.75)], ["0.51", "2.7", "1"],
                      ["0.5", "2.75", "0.4999"]),
    "bounded float, inclusive": (Annotated[float, Field(ge=-0.125, le=0.1)],
                                 ["-0.125", "0.1", "0"], ["0.11", "-0.2"]),
    "pattern": (Annotated[str, Field(pattern=r"^[A-Z]{2}-\d+$")], ['"AB-12"'], ['"AB-"']),
    "pattern and length": (Annotated[str, Field(pattern=r"^[a-z0-9_]+$", min_length=3,
                                                max_length=20)],
                           ['"a_1"', '"abcdefghij0123456789"'],
                           ['"ab"', '"abcdefghij0123456789x"', '"a-b"']),
    "found pattern and length": (Annotated[str, Field(pattern=r"\d", max_length=4)],
                                 ['"ab1"', '"1é€😀"'], ['"abcd"', '"abcd1"']),
    "length": (Annotated[str, Field(min_length=2, max_length=3)], ['"ab"', '"😀é€"'],
               ['"a"', '"abcd"']),
    "conlist": (Annotated[list[int], Field(min_length=1, max_length=2)], ["[1]", "[1, 2]"],
                ["[]", "[1, 2, 3]"]),
    "path": (pathlib.Path, ['"/tmp/x"', '"a b"'], ["1"]),
    "secret": (pydantic.SecretStr, ['"x"'], ["1"]),
    "json": (pydantic.Json, ['"{}"'], ["1"]),
    "byte size": (pydantic.ByteSize, ["12", '"3 KB"'], ["-1"]),
    "alias": (Annotated[int, Field(alias="the value")], ["1"], ['"x"']),
    "default": (Annotated[Color, Field(default=Color.RED, description="A color")], ['"green"'],
                ['"blue"']),
}


def model_of(name):
    kind = TYPES[name][0]
    field = (kind, ...) if name not in ("alias", "default") else kind
    return create_model("Model", value=field)


def member_of(name):
    return "the value" if name == "alias" else "value"


def case_of(name):
    _, good, bad = TYPES[name]
    model = model_of(name)
    wrap = [f'{{"{member_of(name)}": {text}}}' for text in good + bad]
    for i, text in enumerate(wrap):
        try:
            model.model_validate_json(text)
            is_good = True
        except pydantic.ValidationError:
            is_good = False
        if is_good != (i < len(good)):
            sys.exit(f"{name}: Pydantic says {is_good} of {text}")
    return {"name": name, "schema": model.model_json_schema(), "good": wrap[:len(good)],
            "bad": wrap[len(good):]}


def check(walk, source):
    cases = json.load(open(OUT, encoding="utf-8"))["cases"]
    requests = "".join(json.dumps({"schema": case["schema"], "seed": 1, "num_walks": 50,
                                   "texts": []}) + "\n" for case in cases)
    output = subprocess.run([walk, os.path.join(source, "testdata/tokenizers/gpt2")],
                            input=requests, capture_output=True, text=True, check=True).stdout
    num_texts, num_bad = 0, 0
    for case, line in zip(cases, output.splitlines(), strict=True):
        model = model_of(case["name"])
        for text in json.loads(line).get("walks", []):
            num_texts += 1
            try:
                model.model_validate_json(text)
            except pydantic.ValidationError as error:
                num_bad += 1
                print(case["name"], text, str(error).splitlines()[2], sep="\n  ")
    print(f"{num_texts} texts, {num_bad} of which Pydantic {pydantic.VERSION} rejects")


def main():
    if len(sys.argv) == 4 and sys.argv[1] == "--check":
        check(sys.argv[2], sys.argv[3])
        return
    out = {"pydantic": pydantic.VERSION, "cases": [case_of(name) for name in TYPES]}
    path = sys.argv[1] if len(sys.argv) > 1 else OUT
    with open(path, "w", encoding="utf-8") as file:
        head, tail = '{"pydantic": ' + json.dumps(out["pydantic"]) + ', "cases": [\n', "\n]}\n"
        file.write(head + ",\n".join(json.dumps(case, ensure_ascii=False) for case in out["cases"])
                   + tail)


if __name__ == "__main__":
    main()
