"""A running `halley serve`, for the tests of this folder."""
import http.client
import json
import os
import re
import signal
import subprocess
import tempfile
import threading

HERMES_TEMPLATE = (
    "{% if tools %}<tool_call>{% endif %}{% for m in messages %}<|start_header_id|>{{ m.role }}"
    "<|end_header_id|>\n\n{{ m.content }}<|eot_id|>{% endfor %}{% if add_generation_prompt %}"
    "<|start_header_id|>assistant<|end_header_id|>\n\n{% endif %}")


class Server:
    """Starts the program and waits for the line with its URL. What it writes to stderr is in `log`
    once it has ended."""

    def __init__(self, binary, model, *options, env=None, port=0, folder=None, launcher=()):
        self.stderr = tempfile.TemporaryFile("w+", encoding="utf-8")
        self.log = ""
        self.is_signalled = False
        self.process = subprocess.Popen(
            [*launcher, os.path.abspath(binary), "serve", os.path.abspath(model), "--port",
             str(port), *options],
            stdout=subprocess.PIPE, stderr=self.stderr, text=True, cwd=folder,
            env={**os.environ, **(env or {})})
        self.first_line = self.process.stdout.readline()
        match = re.fullmatch(r"serving (\S+) at http://127\.0\.0\.1:(\d+)\n", self.first_line)
        if not match:
            self.process.wait(60)
            self.read_log()
            raise AssertionError(f"expected the URL, got {self.first_line!r}: {self.log}")
        self.name, self.port = match[1], int(match[2])

    def read_log(self):
        self.stderr.seek(0)
        self.log = self.stderr.read()
        self.stderr.close()

    def connect(self):
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)

    def ask(self, method, path, body=None, headers=None):
        """(status, headers, text) of an answer."""
        connection = self.connect()
        try:
            text = body if body is None or isinstance(body, str) else json.dumps(body)
            connection.request(method, path, text,
                               {"Content-Type": "application/json", **(headers or {})})
            answer = connection.getresponse()
            return answer.status, answer.headers, answer.read().decode()
        finally:
            connection.close()

    def post(self, path, body):
        """The JSON of an answer with status 200."""
        status, _, text = self.ask("POST", path, body)
        if status != 200:
            raise AssertionError(f"{path}: {status}: {text}")
        return json.loads(text)

    def get(self, path):
        status, _, text = self.ask("GET", path)
        if status != 200:
            raise AssertionError(f"{path}: {status}: {text}")
        return json.loads(text)

    def stream(self, path, body):
        """The JSON of a stream's events; the last must be [DONE]."""
        status, headers, text = self.ask("POST", path, {**body, "stream": True})
        assert status == 200, text
        assert headers["Content-Type"].startswith("text/event-stream"), headers
        events = text.split("\n\n")
        assert events[-2:] == ["data: [DONE]", ""], events[-2:]
        assert all(event.startswith("data: ") for event in events[:-1]), events
        return [json.loads(event[len("data: "):]) for event in events[:-2]]

    def signal(self, number=signal.SIGTERM):
        self.is_signalled = True
        self.process.send_signal(number)

    def end(self):
        """Ends it, without a second signal; its exit code."""
        if not self.is_signalled:
            self.signal()
        try:
            code = self.process.wait(120)
        finally:
            if self.process.poll() is None:
                self.process.kill()
            if not self.stderr.closed:
                self.process.stdout.close()
                self.read_log()
        return code


class Background(threading.Thread):
    """Runs a function in a thread; result() gives what it returned or raises what it threw."""

    def __init__(self, function):
        super().__init__()
        self.function, self.value, self.error = function, None, None
        self.start()

    def run(self):
        try:
            self.value = self.function()
        except Exception as error:  # pylint: disable=broad-except
            self.error = error

    def result(self):
        self.join(120)
        if self.is_alive():
            raise AssertionError("the thread has not ended")
        if self.error:
            raise self.error
        return self.value
