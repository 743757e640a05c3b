"""Starts `halley serve` and checks its answers with Python's http.client.

    serve_test.py HALLEY_BINARY SOURCE_DIR [unittest arguments]

Expected texts and ids are what Hugging Face transformers gave for the shipped model
(models/demo-21m/golden.json).
"""
import http.client
import json
import os
import re
import select
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from served import HERMES_TEMPLATE, Background, Server  # noqa: E402

HALLEY, SOURCE = sys.argv[1], sys.argv[2]
MODEL = os.path.join(SOURCE, "models", "demo-21m")
GREEDY = {"temperature": 0}


def golden():
    with open(os.path.join(MODEL, "golden.json"), encoding="utf-8") as file:
        return json.load(file)["greedy"]


class ServeTest(unittest.TestCase):
    """Requests to one server."""

    @classmethod
    def setUpClass(cls):
        cls.server = Server(HALLEY, MODEL, "--max-num-seqs", "4", "--threads", "2")

    @classmethod
    def tearDownClass(cls):
        code = cls.server.end()
        if code != 0:
            raise AssertionError(f"exit code {code}: {cls.server.log}")

    def error_of(self, path, body, status):
        got, _, text = self.server.ask("POST", path, body)
        self.assertEqual(got, status, text)
        return json.loads(text)["error"]

    def test_completions_are_those_of_transformers(self):
        for case in golden():
            for prompt in case["prompt"], case["prompt_ids"]:
                answer = self.server.post("/v1/completions", {
                    "prompt": prompt, "max_tokens": len(case["ids"]), **GREEDY})
                self.assertEqual(answer["choices"][0]["text"], case["text"])
                self.assertEqual(answer["usage"]["prompt_tokens"], len(case["prompt_ids"]))
                self.assertEqual(answer["usage"]["completion_tokens"], len(case["ids"]))

    def test_a_stream_has_the_same_text(self):
        case = golden()[0]
        body = {"prompt": [case["prompt"]] * 2, "max_tokens": len(case["ids"]), **GREEDY,
                "stream_options": {"include_usage": True}}
        chunks = self.server.stream("/v1/completions", body)
        texts = ["", ""]
        for chunk in chunks[:-1]:
            self.assertIsNone(chunk["usage"])
            texts[chunk["choices"][0]["index"]] += chunk["choices"][0]["text"]
        self.assertEqual(texts, [case["text"]] * 2)
        self.assertEqual(chunks[-1]["usage"]["completion_tokens"], 2 * len(case["ids"]))

    def test_a_chat_is_the_completion_of_its_rendered_text(self):
        messages = [{"role": "user", "content": "What is Python?"}]
        chat = self.server.post("/v1/chat/completions",
                                {"messages": messages, "max_tokens": 12, **GREEDY})
        tokens = self.server.post("/tokenize", {"messages": messages})["tokens"]
        text = self.server.post("/v1/completions",
                                {"prompt": tokens, "max_tokens": 12, **GREEDY})
        self.assertEqual(chat["choices"][0]["message"]["content"], text["choices"][0]["text"])
        chunks = self.server.stream("/v1/chat/completions",
                                    {"messages": messages, "max_tokens": 12, **GREEDY})
        self.assertEqual(chunks[0]["choices"][0]["delta"], {"role": "assistant", "content": ""})
        self.assertEqual("".join(chunk["choices"][0]["delta"].get("content", "")
                                 for chunk in chunks), text["choices"][0]["text"])

    def test_echo_scores_the_prompt_as_generation_did(self):
        case = golden()[0]
        body = {"prompt": case["prompt_ids"], "max_tokens": 8, "logprobs": 1, **GREEDY}
        generated = self.server.post("/v1/completions", body)["choices"][0]["logprobs"]
        scored = self.server.post("/v1/completions", {
            "prompt": case["prompt_ids"] + case["ids"][:8], "max_tokens": 0, "echo": True,
            "logprobs": 1})["choices"][0]
        logprobs = scored["logprobs"]
        self.assertIsNone(logprobs["token_logprobs"][0])
        self.assertEqual(logprobs["tokens"][-8:], generated["tokens"])
        for got, expected in zip(logprobs["token_logprobs"][-8:], generated["token_logprobs"]):
            self.assertAlmostEqual(got, expected, places=3)
        # Greedy: each token is the most likely one. lm-eval looks at it in this way.
        for got, top in zip(logprobs["token_logprobs"][-8:], logprobs["top_logprobs"][-8:]):
            self.assertEqual(got, max(top.values()))
        self.assertEqual(len(logprobs["tokens"]), len(case["prompt_ids"]) + 8)

    def test_small_endpoints(self):
        self.assertEqual(self.server.name, "demo-21m")
        models = self.server.get("/v1/models")
        self.assertEqual(models["data"][0]["id"], "demo-21m")
        self.assertEqual(models["data"][0]["max_model_len"], 1024)
        self.assertEqual(self.server.get("/v1/models/demo-21m")["object"], "model")
        self.assertEqual(self.server.get("/health"), {"status": "ok"})
        self.assertEqual(self.server.get("/ready"), {"status": "ready"})
        version = subprocess.run([HALLEY, "--version"], capture_output=True, text=True, check=True)
        self.assertEqual("halley " + self.server.get("/version")["version"],
                         version.stdout.strip())
        self.assertIn("/v1/completions", self.server.get("/openapi.json")["paths"])
        text = "Zürich, 3.14 und 🙂"
        tokens = self.server.post("/tokenize", {"prompt": text, "add_special_tokens": False})
        self.assertEqual(tokens["count"], len(tokens["tokens"]))
        self.assertEqual(self.server.post("/detokenize", {"tokens": tokens["tokens"]}),
                         {"prompt": text})

    def test_errors_name_the_field(self):
        self.assertEqual(self.error_of("/v1/completions", "{", 400)["type"],
                         "invalid_request_error")
        self.assertEqual(self.error_of("/v1/completions", {"prompt": "a", "n": 0}, 400)["param"],
                         "n")
        error = self.error_of("/v1/completions", {"prompt": "a", "model": "x"}, 404)
        self.assertEqual(error["code"], "model_not_found")
        error = self.error_of("/v1/completions", {"prompt": "a", "max_tokens": 2000}, 400)
        self.assertEqual(error["code"], "context_length_exceeded")
        self.assertIn("1024", error["message"])
        self.assertEqual(self.server.ask("GET", "/nothing")[0], 404)
        self.assertEqual(self.server.ask("GET", "/v1/completions")[0], 405)

    def test_untrusted_bodies_are_rejected_and_the_server_lives(self):
        bodies = ["", "[", "null", "[" * 100000, '{"prompt": "\\ud800"}', '{"prompt": 1e400}',
                  '{"prompt": "a", "n": 1e18}', '{"a": 1, "a": 2}', "\0" * 100,
                  json.dumps({"prompt": "a", "logit_bias": {str(i): 1 for i in range(5000)}}),
                  json.dumps({"prompt": "a" * 5_000_000}),
                  json.dumps({"messages": [{"role": "user", "content": "x"}] * 5000})]
        for path in "/v1/completions", "/v1/chat/completions", "/tokenize", "/detokenize":
            for body in bodies:
                status, _, text = self.server.ask("POST", path, body)
                self.assertEqual(status, 400, body[:60])
                self.assertIn("message", json.loads(text)["error"])
        self.assertEqual(self.server.get("/health"), {"status": "ok"})

    def test_a_request_that_takes_too_long_ends_with_504(self):
        error = self.error_of("/v1/completions", {
            "prompt": "a", "max_tokens": 1000, "ignore_eos": True, "timeout": 0.001}, 504)
        self.assertEqual(error["code"], "timeout")

    def test_a_client_that_goes_frees_its_sequences(self):
        # Four of these fill the server; 4 x 20 of them would take minutes if they ran to their
        # end.
        body = json.dumps({"prompt": "a", "n": 4, "max_tokens": 1000, "ignore_eos": True,
                           "stream": True}).encode()
        head = ("POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n"
                f"Content-Length: {len(body)}\r\n\r\n").encode()
        for _ in range(20):
            with socket.create_connection(("127.0.0.1", self.server.port)) as client:
                client.sendall(head + body)
                self.assertTrue(client.recv(10).startswith(b"HTTP/1.1 2"))
        answer = self.server.post("/v1/completions", {"prompt": "a", "max_tokens": 2})
        self.assertEqual(len(answer["choices"]), 1)


class LifeTest(unittest.TestCase):
    """Servers with options of their own."""

    def serve(self, *options, **arguments):
        server = Server(HALLEY, MODEL, "--threads", "2", *options, **arguments)
        self.addCleanup(server.end)
        return server

    def test_rejects_what_the_queue_has_no_place_for(self):
        server = self.serve("--max-num-seqs", "1", "--max-num-queued-reqs", "2")
        body = {"prompt": "a", "max_tokens": 300, "ignore_eos": True}
        threads = [Background(lambda: server.ask("POST", "/v1/completions", body))
                   for _ in range(12)]
        answers = [thread.result() for thread in threads]
        statuses = [status for status, _, _ in answers]
        self.assertEqual(set(statuses), {200, 503})
        for status, headers, text in answers:
            if status == 503:
                self.assertGreaterEqual(int(headers["Retry-After"]), 1)
                self.assertEqual(json.loads(text)["error"]["code"], "overloaded")
        # More than can ever wait is wrong, not too much for now.
        status, _, _ = server.ask("POST", "/v1/completions", {"prompt": "a", "n": 3})
        self.assertEqual(status, 400)

    def test_says_that_connections_need_more_files_than_it_may_open(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        limited = os.path.join(folder.name, "limited")
        with open(limited, "w", encoding="utf-8") as file:
            file.write(f'#!/bin/sh\nulimit -n 300 && exec "{os.path.abspath(HALLEY)}" "$@"\n')
        os.chmod(limited, 0o700)
        for num_connections, is_enough in ("40", True), ("45", False):
            server = Server(limited, MODEL, "--threads", "1", "--max-connections", num_connections)
            self.assertEqual(server.end(), 0)
            self.assertEqual('"event":"file_limit"' not in server.log, is_enough, server.log)

    def stream_in_background(self, server, body):
        """A client that has its first piece, and the thread that reads the rest."""
        connection = server.connect()
        connection.request("POST", "/v1/completions", json.dumps({**body, "stream": True}))
        answer = connection.getresponse()
        first = answer.readline()
        self.assertTrue(first.startswith(b"data: {"), first)
        self.addCleanup(connection.close)
        return Background(lambda: (first + answer.read()).decode())

    def test_a_signal_lets_requests_end(self):
        server = self.serve()
        client = self.stream_in_background(
            server, {"prompt": "a", "max_tokens": 500, "ignore_eos": True, **GREEDY})
        server.signal()
        events = client.result().split("\n\n")
        self.assertEqual(events[-2], "data: [DONE]")
        self.assertEqual(json.loads(events[-3][6:])["choices"][0]["finish_reason"], "length")
        self.assertEqual(server.end(), 0)

    def test_a_signal_under_load_loses_no_request(self):
        # 4 run, the others wait: both kinds were admitted.
        server = self.serve("--max-num-seqs", "4")
        body = {"prompt": "a", "ignore_eos": True, "stream": True}
        lengths = [60 + 3 * i for i in range(24)]
        clients = [Background(lambda length=length: server.ask(
            "POST", "/v1/completions", {**body, "max_tokens": length})) for length in lengths]
        self.wait_until("20 requests wait",
                        lambda: self.metric(server, "num_requests_waiting") >= 20)
        server.signal()
        self.wait_until("the signal has arrived", lambda: server.ask("GET", "/ready")[0] == 503)
        status, headers, text = server.ask("POST", "/v1/completions", {"prompt": "a"})
        self.assertEqual(status, 503)
        self.assertGreaterEqual(int(headers["Retry-After"]), 1)
        self.assertEqual(json.loads(text)["error"]["code"], "overloaded")
        self.assertEqual(server.get("/health"), {"status": "ok"})
        for client, length in zip(clients, lengths):
            status, _, text = client.result()
            self.assertEqual(status, 200)
            events = text.split("\n\n")
            self.assertEqual(events[-2], "data: [DONE]")
            chunks = [json.loads(event[6:]) for event in events[:-2]]
            self.assertEqual(chunks[-1]["choices"][0]["finish_reason"], "length")
            self.assertGreater(len(chunks), length / 4)  # some tokens have no text of their own
        self.assertEqual(server.end(), 0)

    def wait_until(self, what, is_so):
        """Asks again and again: each answer of a server or of /proc takes a moment of its own."""
        deadline = time.monotonic() + 60
        while not is_so():
            self.assertLess(time.monotonic(), deadline, f"expected that {what}")

    def metric(self, server, name):
        text = server.ask("GET", "/metrics")[2]
        return float(re.search(rf"^halley:{name}{{[^}}]*}} (\S+)$", text, re.M)[1])

    @staticmethod
    def has_written(process):
        return bool(select.select([process.stdout], [], [], 60)[0])

    @staticmethod
    def has_mapped_weights(process):
        """Or is past it: the file is mapped only while it is read."""
        with open(f"/proc/{process.pid}/maps", encoding="utf-8") as file:
            is_loading = ".safetensors" in file.read()
        return is_loading or bool(select.select([process.stdout], [], [], 0)[0])

    def test_a_killed_server_leaves_nothing_behind(self):
        with tempfile.TemporaryDirectory() as folder:
            options = {"folder": folder, "env": {"TMPDIR": folder, "HOME": folder}}
            # As it starts, while it loads, and as soon as it serves.
            for is_time in (lambda process: True, self.has_mapped_weights, self.has_written):
                with subprocess.Popen(
                        [os.path.abspath(HALLEY), "serve", os.path.abspath(MODEL), "--port", "0"],
                        cwd=folder, env={**os.environ, **options["env"]}, stdout=subprocess.PIPE,
                        stderr=subprocess.DEVNULL) as process:
                    self.wait_until("the server comes so far",
                                    lambda is_time=is_time, it=process: is_time(it))
                    process.kill()
                    self.assertEqual(process.wait(60), -signal.SIGKILL)
            # In the middle of answers, and then again at the same port.
            port = 0
            for _ in range(3):
                server = self.serve(port=port, **options)
                port = server.port
                clients = [self.stream_in_background(
                    server, {"prompt": "a", "n": 4, "max_tokens": 1000, "ignore_eos": True})
                           for _ in range(4)]
                server.process.kill()
                self.assertEqual(server.process.wait(60), -signal.SIGKILL)
                for client in clients:  # what broke off does not look whole
                    with self.assertRaises((http.client.IncompleteRead, ConnectionError)):
                        client.result()
            server = self.serve(port=port, **options)
            self.assertEqual(len(server.post("/v1/completions", {"prompt": "a"})["choices"]), 1)
            self.assertEqual(server.end(), 0)
            self.assertEqual(os.listdir(folder), [])

    def test_a_signal_ends_requests_that_pass_its_limit(self):
        server = self.serve("--shutdown-timeout", "0")
        client = self.stream_in_background(
            server, {"prompt": "a", "n": 8, "max_tokens": 1000, "ignore_eos": True})
        server.signal(signal.SIGINT)
        events = client.result().split("\n\n")
        self.assertEqual(events[-2], "data: [DONE]")
        self.assertEqual(json.loads(events[-3][6:])["error"]["code"], "overloaded")
        self.assertEqual(server.end(), 0)

    def test_a_second_signal_ends_at_once(self):
        server = self.serve()
        self.stream_in_background(
            server, {"prompt": "a", "n": 16, "max_tokens": 1000, "ignore_eos": True})
        # Two of one kind could be delivered as one.
        server.signal(signal.SIGINT)
        server.signal(signal.SIGTERM)
        self.assertIn(server.process.wait(60), (130, 0))

    def test_keys_guard_all_but_health(self):
        with tempfile.TemporaryDirectory() as folder:
            keys = os.path.join(folder, "keys")
            with open(keys, "w", encoding="utf-8") as file:
                file.write("secret-one\n\nsecret-two\n")
            server = self.serve("--api-key-file", keys, "--served-model-name", "a", "b")
        self.assertEqual(server.name, "a")
        for path in "/v1/models", "/version", "/openapi.json":
            self.assertEqual(server.ask("GET", path)[0], 401)
        self.assertEqual(server.ask("POST", "/v1/completions", {"prompt": "a"})[0], 401)
        self.assertEqual(server.ask("GET", "/health")[0], 200)
        self.assertEqual(server.ask("GET", "/ready")[0], 200)
        for key in "secret-one", "secret-two":
            status, _, text = server.ask("GET", "/v1/models", headers={
                "Authorization": "Bearer " + key})
            self.assertEqual(status, 200)
            self.assertEqual([model["id"] for model in json.loads(text)["data"]], ["a", "b"])
        self.assertEqual(server.ask("GET", "/v1/models", headers={
            "Authorization": "Bearer secret"})[0], 401)

    def test_options_that_are_wrong_say_so(self):
        no_keys = tempfile.NamedTemporaryFile()
        self.addCleanup(no_keys.close)
        for options, message in (
                (["--api-key-file", no_keys.name], "--api-key-file"),
                (["--max-num-seqs", "-1"], "--max-num-seqs"),
                (["--num-mask-threads", "257"], "num_mask_threads: expected 0 to 256, got 257"),
                (["--tool-call-parser", "x"], "--tool-call-parser"),
                (["--precision", "half"], "--precision"),
                (["--slo", "e2el=5s"], "--slo: expected ttft and tpot"),
                (["--chat-template", "no-such-file"], "no-such-file"),
                (["--host", "192.0.2.1"], "192.0.2.1")):
            result = subprocess.run([HALLEY, "serve", MODEL, "--port", "0", *options],
                                    capture_output=True, text=True, timeout=120, check=False)
            self.assertEqual(result.returncode, 2, result.stderr)
            self.assertIn(message, result.stderr)

    def test_tools_need_a_template_that_shows_them(self):
        tools = [{"type": "function", "function": {"name": "f"}}]
        body = {"messages": [{"role": "user", "content": "a"}], "tools": tools, "max_tokens": 4}
        with tempfile.NamedTemporaryFile("w", suffix=".jinja") as file:
            file.write(HERMES_TEMPLATE)
            file.flush()
            server = self.serve("--chat-template", file.name)
        server.post("/v1/chat/completions", body)
        with_tools = server.post("/tokenize", {k: body[k] for k in ("messages", "tools")})
        without = server.post("/tokenize", {"messages": body["messages"]})
        self.assertGreater(with_tools["count"], without["count"])


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]], verbosity=1)
