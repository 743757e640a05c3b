"""Sends what other people's clients sent (testdata/client_bodies) to `halley serve`.

    client_bodies_test.py HALLEY_BINARY SOURCE_DIR [unittest arguments]

Each body must be answered with 200, and the header x-halley-ignored must name what
testdata/client_bodies/ignored.json says; --write as the last argument writes that file from the
answers.
"""
import json
import os
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from served import HERMES_TEMPLATE, Server  # noqa: E402

HALLEY, SOURCE = sys.argv[1], sys.argv[2]
MODEL = os.path.join(SOURCE, "models", "demo-21m")
FOLDER = os.path.join(SOURCE, "testdata", "client_bodies")
IGNORED = os.path.join(FOLDER, "ignored.json")
LENGTHS = ("max_tokens", "max_completion_tokens")
# The template does not write these; what they cost is not what is tested here.
TOKENS_MAX = 4
HEADER = "x-halley-ignored"


def load_records():
    """{file name: record}"""
    records = {}
    for name in sorted(os.listdir(FOLDER)):
        if name.endswith(".json") and name != os.path.basename(IGNORED):
            with open(os.path.join(FOLDER, name), encoding="utf-8") as file:
                records[name] = json.load(file)
    return records


def shortened(body):
    """The body with a short answer: `max_tokens`, or one of its own names, is small."""
    names = [name for name in LENGTHS if name in body] or ["max_tokens"]
    return {**body, "model": "demo-21m", **{name: TOKENS_MAX for name in names}}


class ClientBodiesTest(unittest.TestCase):
    """One server, many bodies."""

    @classmethod
    def setUpClass(cls):
        with tempfile.NamedTemporaryFile("w", suffix=".jinja") as file:
            file.write(HERMES_TEMPLATE)
            file.flush()
            cls.server = Server(HALLEY, MODEL, "--threads", "2", "--chat-template", file.name)
        cls.records = load_records()

    @classmethod
    def tearDownClass(cls):
        code = cls.server.end()
        if code != 0:
            raise AssertionError(f"exit code {code}: {cls.server.log}")
        # The log has one line for each request of which something was ignored.
        with open(IGNORED, encoding="utf-8") as file:
            expected = [text for text in json.load(file).values() if text]
        told = [json.loads(line) for line in cls.server.log.splitlines()
                if '"ignored_members"' in line]
        assert sorted(line["members"] for line in told) == sorted(expected), told

    def test_each_is_answered_and_what_was_ignored_is_told(self):
        with open(IGNORED, encoding="utf-8") as file:
            expected = json.load(file)
        self.assertEqual(sorted(expected), sorted(self.records))
        self.assertGreater(len(expected), 40)
        for name, record in self.records.items():
            with self.subTest(name):
                status, headers, text = self.server.ask("POST", record["path"],
                                                        shortened(record["body"]))
                self.assertEqual(status, 200, text)
                self.assertEqual(headers.get(HEADER, ""), expected[name])
                if record["body"].get("stream"):
                    self.assertTrue(text.endswith("data: [DONE]\n\n"), text)
                    self.assertNotIn('data: {"error"', text)


def write_ignored():
    """Writes what the server ignores today; read it before it is committed."""
    ClientBodiesTest.setUpClass()
    ignored = {}
    for name, record in ClientBodiesTest.records.items():
        status, headers, text = ClientBodiesTest.server.ask("POST", record["path"],
                                                            shortened(record["body"]))
        ignored[name] = headers.get(HEADER, "")
        print(name, status, ignored[name] if status == 200 else text)
    with open(IGNORED, "w", encoding="utf-8") as file:
        json.dump(ignored, file, indent=1)
        file.write("\n")
    ClientBodiesTest.server.end()


if __name__ == "__main__":
    if sys.argv[-1] == "--write":
        write_ignored()
    else:
        unittest.main(argv=[sys.argv[0], *sys.argv[3:]], verbosity=1)
