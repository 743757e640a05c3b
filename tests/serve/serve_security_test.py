"""Starts `halley serve` and tries what an untrusted web page, a careless operator and a proxy do.

    serve_security_test.py HALLEY_BINARY SOURCE_DIR [unittest arguments]
"""
import fcntl
import http.client
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from served import Background, Server  # noqa: E402

HALLEY, SOURCE = sys.argv[1], sys.argv[2]
MODEL = os.path.join(SOURCE, "models", "demo-21m")
EVIL = "https://evil.example"
PROMPT = {"prompt": "a", "max_tokens": 1}
PIPE_BYTES = 4096  # the smallest that Linux has


def copy_of_model(folder, *names):
    """A folder with these files of the demo model."""
    for name in names:
        shutil.copy(os.path.join(MODEL, name), os.path.join(folder, name))
    return folder


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Browsers(unittest.TestCase):
    """What a page of another site reaches on a server of this machine, without a key."""

    @classmethod
    def setUpClass(cls):
        cls.server = Server(HALLEY, MODEL, "--threads", "1", "--served-model-name", "org/demo:1",
                            "--allowed-origins", "https://app.example")

    @classmethod
    def tearDownClass(cls):
        assert cls.server.end() == 0, cls.server.log

    def ask(self, method, path, body=None, **headers):
        connection = self.server.connect()
        self.addCleanup(connection.close)
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        connection.request(method, path, body and json.dumps(body), named)
        answer = connection.getresponse()
        return answer.status, answer.headers, answer.read().decode()

    def code_of(self, answer):
        return json.loads(answer[2])["error"]["code"]

    def test_a_name_that_was_rebound_to_this_machine_reads_nothing(self):
        for path in "/v1/models", "/metrics", "/version", "/openapi.json":
            self.assertEqual(self.code_of(self.ask("GET", path, Host="evil.example:8000")),
                             "host_not_allowed")
        answer = self.ask("POST", "/v1/completions", PROMPT, Host="evil.example:8000",
                          Origin="http://evil.example:8000", Content_Type="application/json")
        self.assertEqual((answer[0], self.code_of(answer)), (403, "host_not_allowed"))
        for host in f"localhost:{self.server.port}", "127.0.0.1", "[::1]:80":
            self.assertEqual(self.ask("GET", "/v1/models", Host=host)[0], 200, host)

    def test_a_page_of_another_site_generates_nothing(self):
        before = self.ask("GET", "/metrics")[2]
        for headers in ({"Origin": EVIL, "Content_Type": "text/plain"},
                        {"Origin": EVIL, "Content_Type": "application/x-www-form-urlencoded"},
                        {"Origin": "null"}, {"Origin": "http://localhost:3000"},
                        {"Sec_Fetch_Site": "cross-site", "Sec_Fetch_Mode": "no-cors"}):
            for path in "/v1/completions", "/v1/chat/completions", "/tokenize", "/detokenize":
                answer = self.ask("POST", path, PROMPT, **headers)
                self.assertEqual((answer[0], self.code_of(answer)), (403, "origin_not_allowed"))
        line = "halley:generation_tokens_total{"
        counts = [[row for row in text.splitlines() if row.startswith(line)]
                  for text in (before, self.ask("GET", "/metrics")[2])]
        self.assertEqual(len(counts[0]), 1)
        self.assertEqual(*counts)

    def test_its_own_page_and_programs_are_served(self):
        own = f"http://127.0.0.1:{self.server.port}"
        for headers in ({}, {"Content_Type": "application/x-www-form-urlencoded"},  # curl -d
                        {"Content_Type": "text/plain"},
                        {"Origin": own, "Sec_Fetch_Site": "same-origin",
                         "Content_Type": "application/json"},
                        {"Origin": "https://app.example", "Sec_Fetch_Site": "cross-site",
                         "Content_Type": "application/json"}):
            self.assertEqual(self.ask("POST", "/v1/completions", PROMPT, **headers)[0], 200,
                             headers)
        answer = self.ask("POST", "/v1/completions", PROMPT, Origin=own, Content_Type="text/plain")
        self.assertEqual((answer[0], self.code_of(answer)), (415, "unsupported_media_type"))
        self.assertEqual(self.ask("GET", "/health", Origin=EVIL)[0], 200)

    def test_a_client_in_a_page_sends_its_own_headers(self):
        asked = "authorization,content-type,x-stainless-lang,x-stainless-retry-count,openai-beta"
        status, headers, _ = self.ask(
            "OPTIONS", "/v1/chat/completions", Origin="https://app.example",
            Access_Control_Request_Method="POST", Access_Control_Request_Headers=asked)
        self.assertEqual(status, 204)
        self.assertEqual(headers["Access-Control-Allow-Headers"], asked)
        self.assertEqual(headers["Access-Control-Allow-Origin"], "https://app.example")
        _, headers, _ = self.ask("OPTIONS", "/v1/chat/completions", Origin=EVIL,
                                 Access_Control_Request_Method="POST")
        self.assertNotIn("Access-Control-Allow-Origin", headers)

    def test_a_name_with_a_slash_is_found(self):
        for name in "org%2Fdemo%3A1", "org/demo:1", "org%2fdemo:1":
            status, _, text = self.ask("GET", "/v1/models/" + name)
            self.assertEqual((status, json.loads(text).get("id")), (200, "org/demo:1"))
        for name in "org%252Fdemo:1", "..%2Forg%2Fdemo%3A1", "org%2Fdemo%3A1%00":
            self.assertEqual(self.ask("GET", "/v1/models/" + name)[0], 404, name)


class Proxies(unittest.TestCase):
    def serve(self, *options, **arguments):
        server = Server(HALLEY, MODEL, "--threads", "1", *options, **arguments)
        self.addCleanup(server.end)
        return server

    def test_names_of_a_proxy_are_given(self):
        server = self.serve("--allowed-hosts", "llm.example.org,b.example")
        for host, status in (("llm.example.org", 200), ("b.example:81", 200), ("c.example", 403)):
            self.assertEqual(server.ask("GET", "/v1/models", headers={"Host": host})[0], status)

    def test_a_key_is_enough(self):
        server = self.serve("--api-key", "secret")
        headers = {"Host": "c.example", "Origin": EVIL, "Sec-Fetch-Site": "cross-site"}
        self.assertEqual(server.ask("POST", "/v1/completions", PROMPT, headers)[0], 401)
        headers["Authorization"] = "Bearer secret"
        self.assertEqual(server.ask("POST", "/v1/completions", PROMPT, headers)[0], 200)

    def test_a_stream_that_waits_sends_comments(self):
        server = self.serve("--max-num-seqs", "1", "--sse-keep-alive", "0.02")
        body = {"prompt": "a", "max_tokens": 250, "ignore_eos": True, "temperature": 0,
                "stream": True}
        first = server.connect()
        self.addCleanup(first.close)
        first.request("POST", "/v1/completions", json.dumps(body))
        answer = first.getresponse()
        while not answer.readline().startswith(b"data: "):  # then it has the one place
            self.assertFalse(answer.isclosed())
        text = server.ask("POST", "/v1/completions", {**PROMPT, "stream": True})[2]
        self.assertTrue(text.startswith(": keep-alive\n\n"), text)
        self.assertTrue(text.endswith("data: [DONE]\n\n"), text)
        self.assertTrue(answer.read().endswith(b"data: [DONE]\n\n"))


class Loading(unittest.TestCase):
    """A server is held while it loads: it cannot write its log, as nobody reads that."""

    def setUp(self):
        self.port = free_port()
        self.log, write_end = os.pipe()
        fcntl.fcntl(write_end, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
        os.write(write_end, b" " * PIPE_BYTES)
        self.process = subprocess.Popen(
            [HALLEY, "serve", MODEL, "--port", str(self.port), "--disable-access-log",
             "--threads", "1"], stdout=subprocess.PIPE, stderr=write_end, text=True)
        os.close(write_end)

    def tearDown(self):
        os.close(self.log)
        self.process.kill()
        self.process.wait(60)
        self.process.stdout.close()

    def ask(self, method, path):
        deadline = time.monotonic() + 60
        while True:
            connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
            try:
                connection.request(method, path)
                answer = connection.getresponse()
                return answer.status, answer.headers, answer.read().decode()
            except ConnectionError:  # the program has only begun
                self.assertIsNone(self.process.poll())
                self.assertLess(time.monotonic(), deadline)
            finally:
                connection.close()

    def test_all_routes_say_so(self):
        for method, path in (("GET", "/health"), ("GET", "/ready"), ("GET", "/v1/models"),
                             ("POST", "/v1/chat/completions"), ("GET", "/none")):
            status, headers, text = self.ask(method, path)
            self.assertEqual((status, json.loads(text)["error"]["code"]), (503, "loading"), path)
            self.assertGreaterEqual(int(headers["Retry-After"]), 1)
        self.assertIn("<html", self.ask("GET", "/")[2])
        reader = Background(lambda: self.read_log())  # lets it go on
        self.assertRegex(self.process.stdout.readline(),
                         rf"^serving demo-21m at http://127\.0\.0\.1:{self.port}$")
        self.assertEqual(self.ask("GET", "/ready")[0], 200)
        self.process.send_signal(signal.SIGTERM)
        self.assertEqual(self.process.wait(60), 0)
        self.assertIn(f'"event":"listening","url":"http://127.0.0.1:{self.port}"',
                      reader.result().replace('": "', '":"').replace('", "', '","'))

    def read_log(self):
        text = b""
        while piece := os.read(self.log, 65536):
            text += piece
        return text.decode()

    def test_a_signal_ends_it(self):
        for number in signal.SIGTERM, signal.SIGINT:
            self.assertEqual(self.ask("GET", "/health")[0], 503)
            self.process.send_signal(number)
            self.assertEqual(self.process.wait(60), 130)
            self.tearDown()
            self.setUp()


class Options(unittest.TestCase):
    """What is wrong is told before the weights are read: the model of these tests has none."""

    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.model = os.path.join(self.folder.name, "org", "model")
        os.makedirs(self.model)
        copy_of_model(self.model, "config.json", "tokenizer.json", "tokenizer_config.json")

    def write(self, name, text):
        path = os.path.join(self.folder.name, name)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        return path

    def message_of(self, *options, env=None):
        result = subprocess.run(
            [HALLEY, "serve", self.model, *options], capture_output=True, text=True, timeout=120,
            check=False, env={**os.environ, **(env or {})})
        self.assertNotEqual(result.returncode, 0)
        self.assertEqual(result.stdout, "")
        return result.stderr.splitlines()[-1]

    def test_the_model_has_no_weights(self):
        self.assertIn("safetensors", self.message_of("--port", "0"))

    def test_wrong_options_come_first(self):
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            port = str(taken.getsockname()[1])
            for options, message in (
                    (["--port", port], "Choose another port"),
                    (["--host", "no.such.name.invalid"], "expected an address or a name"),
                    (["--api-key", "two words"], "API key 1: expected 1 to 512"),
                    (["--api-key-file", self.write("keys", "one\ntwo words\n")], "API key 2"),
                    (["--api-key-file", self.write("none", "\n\n")], "expected a key on each line"),
                    (["--api-key-file", "no-such-file"], "no-such-file: cannot open"),
                    (["--allowed-origins", "app.example"], "expected \"*\" or scheme and host"),
                    (["--allowed-origins", "https://a.example/x"], "without a path"),
                    (["--allowed-hosts", "https://a.example"], "Change --allowed-hosts"),
                    (["--served-model-name", "a", "b", "a"], "expected each name once"),
                    (["--served-model-name", "a\nb"], "expected 1 to 256 bytes"),
                    (["--served-model-name", "x" * 257], "expected 1 to 256 bytes"),
                    (["--chat-template", "no-such-file"], "no-such-file: cannot open"),
                    (["--chat-template", self.write("broken.jinja", "{% if %}")],
                     "chat template:1")):
                self.assertIn(message, self.message_of(*(["--port", "0"] if "--port" not in options
                                                         else []), *options))

    def test_an_empty_key_does_not_leave_the_server_open(self):
        message = self.message_of("--port", "0", env={"HALLEY_API_KEY": ""})
        self.assertIn("HALLEY_API_KEY: expected a key, got an empty text", message)
        self.assertIn("API key 1", self.message_of("--port", "0", "--api-key", ""))

    def test_a_template_outside_of_the_model_is_not_read(self):
        link = os.path.join(self.model, "chat_template.jinja")
        os.symlink(self.write("private", "private key"), link)
        message = self.message_of("--port", "0")
        self.assertIn("expected a file of the model's folder, got a link out of it", message)
        self.assertNotIn("private key", message)
        os.remove(link)
        # Hugging Face's cache: a folder next to the revisions has the files.
        cache = os.path.join(self.folder.name, "models--org--model")
        os.makedirs(os.path.join(cache, "blobs"))
        self.write("models--org--model/blobs/0123", "{% if %}")
        os.symlink("../../blobs/0123", link)
        os.rename(os.path.join(self.folder.name, "org"), os.path.join(cache, "snapshots"))
        self.model = os.path.join(cache, "snapshots", "model")
        self.assertIn("chat template:1", self.message_of("--port", "0"))


class Paths(unittest.TestCase):
    def test_no_answer_says_where_the_model_lies(self):
        with tempfile.TemporaryDirectory(prefix="private_place_") as folder:
            copy_of_model(folder, *os.listdir(MODEL))
            with open(os.path.join(folder, "tokenizer.json"), encoding="utf-8") as file:
                tokenizer = json.load(file)
            tokenizer["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": [
                {"type": "Split", "pattern": {"Regex": "(?:z|zz)+[bc]"}, "behavior": "Isolated",
                 "invert": False}, tokenizer["pre_tokenizer"]]}
            with open(os.path.join(folder, "tokenizer.json"), "w", encoding="utf-8") as file:
                json.dump(tokenizer, file)
            with open(os.path.join(folder, "chat_template.jinja"), "w", encoding="utf-8") as file:
                file.write("{{ messages[0].no.such }}")
            server = Server(HALLEY, folder, "--threads", "1", "--served-model-name", "name")
            self.addCleanup(server.end)
        slow = "z" * 5000
        message = [{"role": "user", "content": "a"}]
        for path, body, status in (
                ("/v1/completions", {"prompt": slow}, 400), ("/tokenize", {"prompt": slow}, 400),
                ("/v1/chat/completions", {"messages": message}, 400),
                ("/tokenize", {"messages": message}, 400),
                ("/v1/completions", {"prompt": "a", "model": "x"}, 404)):
            got, _, text = server.ask("POST", path, body)
            self.assertEqual(got, status, text)
            self.assertNotIn("private_place_", text)
        for path in "/v1/models", "/v1/models/name", "/openapi.json", "/metrics", "/version":
            got, _, text = server.ask("GET", path)
            self.assertEqual(got, 200)
            self.assertNotIn("private_place_", text)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]], verbosity=1)
