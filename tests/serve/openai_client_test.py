"""Talks to `halley serve` with OpenAI's own Python client.

    openai_client_test.py HALLEY_BINARY SOURCE_DIR [unittest arguments]

Needs the package openai (tools/setup.sh --serve-tests); exits with 77 where it is not there.
"""
import json
import math
import os
import sys
import tempfile
import unittest

try:
    import openai
except ImportError:
    print("SKIPPED: no package openai; run tools/setup.sh --serve-tests")
    sys.exit(77)

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from served import HERMES_TEMPLATE, Background, Server  # noqa: E402

HALLEY, SOURCE = sys.argv[1], sys.argv[2]
MODEL = os.path.join(SOURCE, "models", "demo-21m")
MESSAGES = [{"role": "system", "content": "You write."}, {"role": "user", "content": "Write."}]
TOOLS = [{"type": "function", "function": {
    "name": "add", "description": "Adds.", "parameters": {
        "type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "boolean"}},
        "required": ["a", "b"], "additionalProperties": False}}}]
SCHEMA = {"type": "object", "properties": {"ok": {"type": "boolean"},
                                           "kind": {"enum": ["x", "y"]}},
          "required": ["ok", "kind"], "additionalProperties": False}


class OpenAiClientTest(unittest.TestCase):
    """What people's programs do."""

    @classmethod
    def setUpClass(cls):
        with tempfile.NamedTemporaryFile("w", suffix=".jinja") as file:
            file.write(HERMES_TEMPLATE)
            file.flush()
            cls.server = Server(HALLEY, MODEL, "--threads", "2", "--chat-template", file.name,
                                env={"HALLEY_API_KEY": "key"})
        cls.client = openai.OpenAI(base_url=f"http://127.0.0.1:{cls.server.port}/v1",
                                   api_key="key", max_retries=0, timeout=120)

    @classmethod
    def tearDownClass(cls):
        cls.client.close()
        code = cls.server.end()
        if code != 0:
            raise AssertionError(f"exit code {code}: {cls.server.log}")

    def chat(self, **options):
        return self.client.chat.completions.create(
            **{"model": "demo-21m", "messages": MESSAGES, "temperature": 0, "max_tokens": 16,
               **options})

    def test_models(self):
        self.assertEqual([model.id for model in self.client.models.list()], ["demo-21m"])
        self.assertEqual(self.client.models.retrieve("demo-21m").owned_by, "halley")

    def test_comments_of_a_silent_stream_are_skipped(self):
        server = Server(HALLEY, MODEL, "--threads", "1", "--max-num-seqs", "1",
                        "--sse-keep-alive", "0.02")
        self.addCleanup(server.end)
        long = Background(lambda: server.ask("POST", "/v1/completions", {
            "prompt": "a", "max_tokens": 900, "ignore_eos": True}))
        body = {"model": "demo-21m", "prompt": "The", "max_tokens": 6, "temperature": 0}
        with openai.OpenAI(base_url=f"http://127.0.0.1:{server.port}/v1", api_key="-",
                           max_retries=0, timeout=120) as client:
            while "running 1" not in str(server.ask("GET", "/metrics")[2]).replace(
                    'halley:num_requests_running{model_name="demo-21m"}', "running"):
                self.assertTrue(long.is_alive())
            with client.completions.with_streaming_response.create(**body, stream=True) as raw:
                self.assertTrue(next(raw.iter_lines()).startswith(": keep-alive"))
            chunks = list(client.completions.create(**body, stream=True))
            whole = client.completions.create(**body)
        self.assertEqual(long.result()[0], 200)
        self.assertEqual("".join(chunk.choices[0].text for chunk in chunks),
                         whole.choices[0].text)

    def test_completions(self):
        answer = self.client.completions.create(
            model="demo-21m", prompt=["The Python", "A list"], n=2, max_tokens=5, seed=1,
            logprobs=2)
        self.assertEqual([choice.index for choice in answer.choices], [0, 1, 2, 3])
        self.assertEqual(answer.usage.completion_tokens, 20)
        self.assertEqual(len(answer.choices[3].logprobs.token_logprobs), 5)
        self.assertEqual(answer.choices[0].finish_reason, "length")
        again = self.client.completions.create(
            model="demo-21m", prompt=["The Python", "A list"], n=2, max_tokens=5, seed=1)
        self.assertEqual([choice.text for choice in answer.choices],
                         [choice.text for choice in again.choices])

    def test_a_stream_of_completions(self):
        stream = self.client.completions.create(
            model="demo-21m", prompt="The Python", max_tokens=12, temperature=0, stream=True,
            stream_options={"include_usage": True})
        chunks = list(stream)
        whole = self.client.completions.create(
            model="demo-21m", prompt="The Python", max_tokens=12, temperature=0)
        self.assertEqual("".join(chunk.choices[0].text for chunk in chunks[:-1]),
                         whole.choices[0].text)
        self.assertEqual(chunks[-1].usage.completion_tokens, 12)

    def test_a_chat_and_its_stream(self):
        whole = self.chat(logprobs=True, top_logprobs=2)
        content = whole.choices[0].logprobs.content
        self.assertEqual(len(content), whole.usage.completion_tokens)
        self.assertEqual(content[0].token, content[0].top_logprobs[0].token)
        chunks = list(self.chat(stream=True))
        self.assertEqual("".join(chunk.choices[0].delta.content or "" for chunk in chunks),
                         whole.choices[0].message.content)
        self.assertEqual(chunks[0].choices[0].delta.role, "assistant")
        self.assertEqual(chunks[-1].choices[0].finish_reason, whole.choices[0].finish_reason)

    def test_stops(self):
        free = self.chat().choices[0].message.content
        word = free.split()[1]
        stopped = self.chat(stop=[word])
        self.assertEqual(stopped.choices[0].finish_reason, "stop")
        self.assertEqual(stopped.choices[0].message.content, free[:free.index(word)])

    def test_a_named_tool_is_called_with_its_arguments(self):
        choice = {"type": "function", "function": {"name": "add"}}
        answer = self.chat(tools=TOOLS, tool_choice=choice, max_tokens=200).choices[0]
        self.assertEqual(answer.finish_reason, "tool_calls")
        call = answer.message.tool_calls[0]
        self.assertEqual(call.function.name, "add")
        arguments = json.loads(call.function.arguments)
        self.assertIsInstance(arguments["a"], int)
        self.assertIsInstance(arguments["b"], bool)
        # And the conversation goes on with it.
        messages = MESSAGES + [answer.message, {"role": "tool", "tool_call_id": call.id,
                                                "content": "5"}]
        self.assertTrue(self.chat(messages=messages, tools=TOOLS).choices[0].message.role)

    def test_required_tools_are_called(self):
        options = {"tools": TOOLS, "tool_choice": "required", "max_tokens": 200,
                   "parallel_tool_calls": False}
        answer = self.chat(**options).choices[0]
        self.assertEqual(answer.finish_reason, "tool_calls")
        self.assertIsNone(answer.message.content)
        function = answer.message.tool_calls[0].function
        self.assertEqual(function.name, "add")
        self.assertIsInstance(json.loads(function.arguments)["b"], bool)
        # In a stream the arguments come in pieces.
        pieces = [call for chunk in self.chat(**options, stream=True)
                  for call in chunk.choices[0].delta.tool_calls or []]
        self.assertGreater(len(pieces), 2)
        self.assertEqual({piece.index for piece in pieces}, {0})
        self.assertEqual([piece.function.name for piece in pieces],
                         ["add"] + [None] * (len(pieces) - 1))
        self.assertTrue(pieces[0].id)
        self.assertEqual("".join(piece.function.arguments for piece in pieces),
                         function.arguments)

    def test_calls_beside_each_other(self):
        # The model writes as many as it likes; each of them is whole, but for the last.
        answer = self.chat(tools=TOOLS, tool_choice="required", max_tokens=200, seed=2,
                           temperature=1).choices[0]
        calls = answer.message.tool_calls
        for call in calls[:-1] if answer.finish_reason == "length" else calls:
            self.assertIsInstance(json.loads(call.function.arguments)["a"], int)
        self.assertEqual(len({call.id for call in calls}), len(calls))

    def test_a_schema_is_kept(self):
        for format_of in (
                {"type": "json_schema", "json_schema": {"name": "s", "schema": SCHEMA,
                                                        "strict": True}},
                {"type": "json_object"}):
            answer = self.chat(response_format=format_of, max_tokens=400, temperature=1, seed=3)
            if answer.choices[0].finish_reason == "length":
                continue  # an object of any members need not end
            value = json.loads(answer.choices[0].message.content)
            self.assertIsInstance(value, dict)
            if format_of["type"] == "json_schema":
                self.assertIn(value["kind"], ["x", "y"])
                self.assertIsInstance(value["ok"], bool)

    def test_words_that_the_output_must_not_have(self):
        free = self.chat().choices[0].message.content
        word = free.split()[1]
        self.assertNotIn(word, self.chat(extra_body={"bad_words": [word]})
                         .choices[0].message.content)

    def test_a_prompt_is_scored_and_its_ids_are_given(self):
        answer = self.client.completions.create(
            model="demo-21m", prompt="The Python", max_tokens=3, temperature=0,
            extra_body={"prompt_logprobs": 1, "return_token_ids": True})
        choice = answer.choices[0]
        self.assertEqual(len(choice.token_ids), 3)
        self.assertEqual(len(choice.prompt_logprobs), len(choice.prompt_token_ids))
        last = choice.prompt_logprobs[-1][str(choice.prompt_token_ids[-1])]
        self.assertLess(last["logprob"], 0)
        allowed = self.client.completions.create(
            model="demo-21m", prompt="The Python", max_tokens=3, temperature=0,
            extra_body={"allowed_token_ids": choice.token_ids[:1], "return_token_ids": True})
        self.assertEqual(allowed.choices[0].token_ids, choice.token_ids[:1] * 3)

    def respond(self, **options):
        return self.client.responses.create(
            **{"model": "demo-21m", "input": "Write.", "instructions": "You write.",
               "temperature": 0, "max_output_tokens": 16, **options})

    def test_dry_ends_a_repetition(self):
        def text(**options):
            return self.client.completions.create(
                model="demo-21m", prompt="one two three four one two three four one two three",
                temperature=0, max_tokens=1, extra_body=options).choices[0].text
        strong = {"dry_multiplier": 100, "dry_allowed_length": 1, "dry_sequence_breakers": []}
        self.assertNotEqual(text(logit_bias={}, **strong), " four")
        # A breaker behind which nothing repeats.
        self.assertEqual(text(), text(**{**strong, "dry_sequence_breakers": [" three"]}))

    def test_xtc_leaves_the_likeliest_out(self):
        def choice(**options):
            return self.client.completions.create(
                model="demo-21m", prompt="The", temperature=0, max_tokens=1, logprobs=5,
                extra_body=options).choices[0]
        plain = choice()
        top = plain.logprobs.top_logprobs[0]
        threshold = 0.9 * math.exp(sorted(top.values())[-2])  # the second reaches it
        other = choice(xtc_probability=1, xtc_threshold=threshold)
        self.assertEqual(other.text, sorted(top, key=top.get)[-2])
        self.assertEqual(choice(xtc_probability=0, xtc_threshold=threshold).text, plain.text)

    def test_embeddings(self):
        texts = ["A comet of ice.", "A comet of ice.", "def f(x): return x"]
        # The client asks for base64 and decodes it; lists of numbers are the same.
        answer = self.client.embeddings.create(model="demo-21m", input=texts)
        vectors = [data.embedding for data in answer.data]
        self.assertEqual(vectors[0], vectors[1])
        self.assertAlmostEqual(sum(x * x for x in vectors[0]), 1, places=5)
        plain = self.client.embeddings.create(model="demo-21m", input=texts[2],
                                              encoding_format="float")
        for a, b in zip(plain.data[0].embedding, vectors[2], strict=True):
            self.assertAlmostEqual(a, b, places=6)
        short = self.client.embeddings.create(model="demo-21m", input=texts[2], dimensions=8)
        length = math.sqrt(sum(x * x for x in vectors[2][:8]))
        for a, b in zip(short.data[0].embedding, vectors[2], strict=False):
            self.assertAlmostEqual(a, b / length, places=5)
        self.assertEqual(answer.usage.total_tokens, answer.usage.prompt_tokens)
        with self.assertRaisesRegex(openai.BadRequestError, "dimensions: expected 1 to 512"):
            self.client.embeddings.create(model="demo-21m", input="a", dimensions=4000)

    def test_rerank_and_score(self):
        documents = ["def f(x): return x", "A comet of ice.", "An asteroid of rock."]
        body = {"query": "A comet of ice.", "documents": documents, "top_n": 2}
        answer = self.client.post("/rerank", body=body, cast_to=object)
        first = answer["results"][0]
        self.assertEqual((first["index"], first["document"]["text"]), (1, documents[1]))
        self.assertAlmostEqual(first["relevance_score"], 1, places=5)
        self.assertEqual(len(answer["results"]), 2)
        scores = self.client.post("/score", cast_to=object,
                                  body={"text_1": body["query"], "text_2": documents})["data"]
        self.assertAlmostEqual(scores[answer["results"][1]["index"]]["score"],
                               answer["results"][1]["relevance_score"], places=6)

    def test_a_response_is_what_a_chat_answers(self):
        response = self.respond(metadata={"k": "v"})
        self.assertEqual(response.output_text, self.chat().choices[0].message.content)
        self.assertEqual(response.status, "incomplete")
        self.assertEqual(response.incomplete_details.reason, "max_output_tokens")
        self.assertEqual(response.usage.output_tokens, 16)
        self.assertEqual(response.metadata, {"k": "v"})

    def test_the_events_of_a_response(self):
        whole = self.respond()
        with self.client.responses.stream(model="demo-21m", input="Write.",
                                          instructions="You write.", temperature=0,
                                          max_output_tokens=16) as stream:
            events = list(stream)
        self.assertEqual([event.sequence_number for event in events], list(range(len(events))))
        self.assertEqual("".join(event.delta for event in events
                                 if event.type == "response.output_text.delta"),
                         whole.output_text)
        self.assertEqual(events[0].type, "response.created")
        self.assertEqual(events[-1].type, "response.incomplete")
        self.assertEqual(events[-1].response.output[0].content[0].text, whole.output_text)

    def test_a_response_calls_a_tool_and_goes_on(self):
        tools = [{"type": "function", **TOOLS[0]["function"]}]
        options = {"tools": tools, "tool_choice": {"type": "function", "name": "add"},
                   "max_output_tokens": 200}
        response = self.respond(**options)
        call = response.output[0]
        self.assertEqual((response.status, call.type, call.name),
                         ("completed", "function_call", "add"))
        self.assertIsInstance(json.loads(call.arguments)["a"], int)
        events = list(self.respond(**options, stream=True))
        self.assertEqual("".join(event.delta for event in events
                                 if event.type == "response.function_call_arguments.delta"),
                         call.arguments)
        self.assertEqual(events[-1].response.output[0].arguments, call.arguments)
        # And the conversation goes on with it.
        result = {"type": "function_call_output", "call_id": call.call_id, "output": "5"}
        turns = [{"role": "user", "content": "Write."}, *response.output, result]
        again = self.respond(input=turns, tools=tools)
        self.assertEqual(again.output[0].type, "message")

    def test_a_response_keeps_a_schema(self):
        response = self.respond(max_output_tokens=400, text={"format": {
            "type": "json_schema", "name": "s", "schema": SCHEMA, "strict": True}})
        self.assertIn(json.loads(response.output_text)["kind"], ["x", "y"])

    def test_responses_are_stored_where_the_server_does(self):
        with self.assertRaises(openai.BadRequestError) as caught:
            self.respond(store=True)
        self.assertEqual(caught.exception.param, "store")
        server = Server(HALLEY, MODEL, "--threads", "1", "--stored-responses", "2")
        self.addCleanup(server.end)
        with openai.OpenAI(base_url=f"http://127.0.0.1:{server.port}/v1", api_key="-",
                           max_retries=0, timeout=120) as client:
            ask = {"model": "demo-21m", "max_output_tokens": 4, "temperature": 0}
            first = client.responses.create(input="Write.", **ask)
            self.assertEqual(client.responses.retrieve(first.id).output_text, first.output_text)
            second = client.responses.create(input="More.", previous_response_id=first.id, **ask)
            spoken = client.responses.create(
                input=[{"role": "user", "content": "Write."}, *first.output,
                       {"role": "user", "content": "More."}], **ask)
            self.assertEqual(second.output_text, spoken.output_text)
            self.assertEqual(second.usage.input_tokens, spoken.usage.input_tokens)
            with self.assertRaises(openai.NotFoundError):  # the third took its place
                client.responses.retrieve(first.id)
            client.responses.delete(second.id)
            with self.assertRaises(openai.NotFoundError):
                client.responses.retrieve(second.id)

    def test_errors_are_the_client_s(self):
        with self.assertRaises(openai.BadRequestError) as caught:
            self.chat(temperature=3)
        self.assertEqual(caught.exception.param, "temperature")
        with self.assertRaises(openai.NotFoundError) as caught:
            self.chat(model="gpt-4")
        self.assertEqual(caught.exception.code, "model_not_found")
        with self.assertRaises(openai.AuthenticationError):
            self.client.with_options(api_key="other").models.list()
        with self.assertRaises(openai.BadRequestError) as caught:
            self.chat(extra_body={"no_such_field": 1})
        self.assertEqual(caught.exception.code, "unknown_parameter")
        with self.assertRaises(openai.InternalServerError) as caught:
            self.chat(max_tokens=900, extra_body={"timeout": 0.001, "ignore_eos": True})
        self.assertEqual(caught.exception.status_code, 504)

    def test_a_client_that_gives_up_is_forgotten(self):
        with self.assertRaises(openai.APITimeoutError):
            self.client.with_options(timeout=0.05).completions.create(
                model="demo-21m", prompt="a", n=16, max_tokens=1000,
                extra_body={"ignore_eos": True})
        self.assertEqual(len(self.chat(max_tokens=1).choices), 1)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]], verbosity=1)
