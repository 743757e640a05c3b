"""Talks to `halley serve` with Anthropic's own Python client.

    anthropic_client_test.py HALLEY_BINARY SOURCE_DIR [unittest arguments]

Needs the package anthropic (tools/setup.sh --serve-tests); exits with 77 where it is not there.
"""
import json
import os
import sys
import tempfile
import unittest

try:
    import anthropic
except ImportError:
    print("SKIPPED: no package anthropic; run tools/setup.sh --serve-tests")
    sys.exit(77)

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from served import HERMES_TEMPLATE, Server  # noqa: E402

HALLEY, SOURCE = sys.argv[1], sys.argv[2]
MODEL = os.path.join(SOURCE, "models", "demo-21m")
MESSAGES = [{"role": "user", "content": "Write."}]
TOOLS = [{"name": "add", "description": "Adds.", "input_schema": {
    "type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "boolean"}},
    "required": ["a", "b"], "additionalProperties": False}}]


class AnthropicClientTest(unittest.TestCase):
    """What coding assistants do."""

    @classmethod
    def setUpClass(cls):
        with tempfile.NamedTemporaryFile("w", suffix=".jinja") as file:
            file.write(HERMES_TEMPLATE)
            file.flush()
            cls.server = Server(HALLEY, MODEL, "--threads", "2", "--chat-template", file.name,
                                env={"HALLEY_API_KEY": "key"})
        cls.url = f"http://127.0.0.1:{cls.server.port}"
        cls.client = anthropic.Anthropic(base_url=cls.url, api_key="key", max_retries=0,
                                         timeout=120)

    @classmethod
    def tearDownClass(cls):
        cls.client.close()
        code = cls.server.end()
        if code != 0:
            raise AssertionError(f"exit code {code}: {cls.server.log}")

    def options(self, **options):
        return {"model": "demo-21m", "system": "You write.", "messages": MESSAGES, "max_tokens": 16,
                "extra_body": {"temperature": 0}, **options}

    def ask(self, **options):
        return self.client.messages.create(**self.options(**options))

    def test_a_message_is_what_a_chat_answers(self):
        message = self.ask()
        status, _, text = self.server.ask(
            "POST", "/v1/chat/completions",
            {"messages": [{"role": "system", "content": "You write."}, *MESSAGES],
             "temperature": 0, "max_tokens": 16}, {"Authorization": "Bearer key"})
        self.assertEqual(status, 200)
        self.assertEqual(message.content[0].text,
                         json.loads(text)["choices"][0]["message"]["content"])
        self.assertEqual(message.stop_reason, "max_tokens")
        self.assertEqual(message.usage.output_tokens, 16)

    def test_a_stream_has_the_same(self):
        whole = self.ask()
        with self.client.messages.stream(**self.options()) as stream:
            text = "".join(stream.text_stream)
            message = stream.get_final_message()
        self.assertEqual(text, whole.content[0].text)
        self.assertEqual(message.content[0].text, text)
        self.assertEqual(message.stop_reason, "max_tokens")
        self.assertEqual(message.usage.output_tokens, 16)

    def test_a_stop_sequence_ends_it(self):
        free = self.ask().content[0].text
        word = free.split()[1]
        message = self.ask(stop_sequences=[word])
        self.assertEqual((message.stop_reason, message.stop_sequence), ("stop_sequence", word))
        self.assertEqual("".join(block.text for block in message.content),
                         free[:free.index(word)])

    def test_a_tool_is_used_and_its_result_goes_back(self):
        options = {"tools": TOOLS, "tool_choice": {"type": "tool", "name": "add"},
                   "max_tokens": 200}
        message = self.ask(**options)
        self.assertEqual(message.stop_reason, "tool_use")
        use = message.content[0]
        self.assertEqual((use.type, use.name), ("tool_use", "add"))
        self.assertIsInstance(use.input["a"], int)
        with self.client.messages.stream(**self.options(**options)) as stream:
            streamed = stream.get_final_message()
        self.assertEqual(streamed.content[0].input, use.input)
        self.assertEqual(streamed.stop_reason, "tool_use")
        turns = [*MESSAGES, {"role": "assistant", "content": message.content},
                 {"role": "user", "content": [{"type": "tool_result", "tool_use_id": use.id,
                                               "content": "5"}]}]
        self.assertEqual(self.ask(messages=turns, tools=TOOLS).role, "assistant")

    def test_tokens_are_counted_as_they_are_used(self):
        options = self.options()
        for name in "max_tokens", "extra_body":
            del options[name]
        usage = self.ask(max_tokens=1).usage
        self.assertEqual(self.client.messages.count_tokens(**options).input_tokens,
                         usage.input_tokens + usage.cache_read_input_tokens)

    def test_either_header_has_the_key(self):
        with anthropic.Anthropic(base_url=self.url, auth_token="key", max_retries=0) as client:
            self.assertTrue(client.messages.create(**self.options(max_tokens=1)).content)

    def test_errors_are_the_client_s(self):
        with self.assertRaises(anthropic.BadRequestError) as caught:
            self.ask(messages=[{"role": "user", "content": [{"type": "image", "source": {}}]}])
        self.assertEqual(caught.exception.body["error"]["type"], "invalid_request_error")
        self.assertIn("image", caught.exception.body["error"]["message"])
        with self.assertRaises(anthropic.NotFoundError) as caught:
            self.ask(model="claude")
        self.assertEqual(caught.exception.body["error"]["type"], "not_found_error")
        with self.assertRaises(anthropic.AuthenticationError) as caught:
            self.client.with_options(api_key="other").messages.create(**self.options())
        self.assertEqual(caught.exception.body["error"]["type"], "authentication_error")


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]], verbosity=1)
