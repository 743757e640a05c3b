"""Sends what other people's clients sent (testdata/client_bodies) to `halley serve`.

    client_bodies_test.py HALLEY_BINARY SOURCE_DIR [unittest arguments]

Each body must be answered with 200, and the header x-halley-ignored must name what
testdata/client_bodies/ignored.json says. Those of rejected.json ask for what no server of a text
model can do: the error must be a 400 that names their member. --write as the last argument writes
both files from the answers.
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
# File name -> header, and file name -> `param` of the error.
IGNORED, REJECTED = (os.path.join(FOLDER, name) for name in ("ignored.json", "rejected.json"))
LENGTHS = ("max_tokens", "max_completion_tokens")
# The template does not write these; what they cost is not what is tested here.
TOKENS_MAX = 4
HEADER = "x-halley-ignored"


def load(path):
    with open(path, encoding="utf-8") as file:
        return json.load(file)


def load_records():
    """{file name: record}"""
    paths = {name: os.path.join(FOLDER, name) for name in sorted(os.listdir(FOLDER))}
    return {name: load(path) for name, path in paths.items()
            if name.endswith(".json") and path not in (IGNORED, REJECTED)}


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
        expected = [text for text in load(IGNORED).values() if text]
        told = [json.loads(line) for line in cls.server.log.splitlines()
                if '"ignored_members"' in line]
        assert sorted(line["members"] for line in told) == sorted(expected), told

    @classmethod
    def answer(cls, name):
        """(status, the header's text, text) of the answer to a recorded body."""
        record = cls.records[name]
        status, headers, text = cls.server.ask("POST", record["path"], shortened(record["body"]))
        return status, headers.get(HEADER, ""), text

    def test_each_is_answered_and_what_was_ignored_is_told(self):
        expected = load(IGNORED)
        self.assertEqual(sorted([*expected, *load(REJECTED)]), sorted(self.records))
        self.assertGreater(len(expected), 40)
        for name, ignored in expected.items():
            with self.subTest(name):
                status, header, text = self.answer(name)
                self.assertEqual(status, 200, text)
                self.assertEqual(header, ignored)
                if self.records[name]["body"].get("stream"):
                    self.assertTrue(text.endswith("data: [DONE]\n\n"), text)
                    self.assertNotIn('data: {"error"', text)

    def test_what_cannot_be_done_is_rejected_by_name(self):
        for name, param in load(REJECTED).items():
            with self.subTest(name):
                status, _, text = self.answer(name)
                self.assertEqual(status, 400, text)
                error = json.loads(text)["error"]
                self.assertEqual((error["type"], error["param"]), ("invalid_request_error", param))


def write_answers():
    """Writes what the server ignores and rejects today; read both before they are committed."""
    ClientBodiesTest.setUpClass()
    ignored, rejected = {}, {}
    for name in ClientBodiesTest.records:
        status, header, text = ClientBodiesTest.answer(name)
        print(name, status, header if status == 200 else text)
        if status == 200:
            ignored[name] = header
        else:
            rejected[name] = json.loads(text)["error"]["param"]
    for path, answers in (IGNORED, ignored), (REJECTED, rejected):
        with open(path, "w", encoding="utf-8") as file:
            json.dump(answers, file, indent=1)
            file.write("\n")
    ClientBodiesTest.server.end()


if __name__ == "__main__":
    if sys.argv[-1] == "--write":
        write_answers()
    else:
        unittest.main(argv=[sys.argv[0], *sys.argv[3:]], verbosity=1)
