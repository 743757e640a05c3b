"""Records what other people's clients send, for tests/serve/client_bodies_test.py.

    record_clients.py SOURCE_DIR [--openai-js MODULE] [--continue-core MODULE] [CLIENT]...

Runs the calls of client_calls.py, each under the client's own Python (.venv/clients/CLIENT, made by
tools/setup.sh --client-tests; --python CLIENT=PATH names another), against a server that answers
from this file, and writes testdata/client_bodies/CLIENT_SCENARIO_N.json in place of those that were
there. With --openai-js and --continue-core it runs the clients in JavaScript too: MODULE is the
client as one module (testdata/client_bodies/README.md). Texts of more than 64 characters are cut.
"""
import argparse
import http.server
import json
import os
import re
import subprocess
import sys
import threading

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
from client_calls import CALLS  # noqa: E402

TEXT_MAX = 64  # that of names of functions, which stay as they are
MODEL = "demo-21m"
# With these words in a question the answer is a call.
USE_TOOL = "Use a tool."
# Clients in JavaScript, each as one module, and the file of their calls.
JS_CALLS = {"openai_js": "openai_js_calls.mjs", "continue_core": "continue_core_calls.mjs"}


def cut(value):
    """The value with the beginnings of long texts, which belong to the client's authors and do not
    change what the server does; arguments of calls stay JSON."""
    if isinstance(value, str):
        return value if len(value) <= TEXT_MAX else value[:TEXT_MAX - 3] + "..."
    if isinstance(value, list):
        return [cut(element) for element in value]
    if isinstance(value, dict):
        return {key: element if key == "arguments" else cut(element)
                for key, element in value.items()}
    return value


def example(schema):
    """A value of a simple JSON schema."""
    if "$ref" in schema:
        return {}
    kind = schema.get("type", "object")
    if kind == "object":
        return {name: example(part) for name, part in schema.get("properties", {}).items()}
    return {"boolean": True, "string": "sunny", "integer": 1, "number": 1.5, "array": []}[kind]


def calls_tool(body):
    """Whether the answer is a call: it must be one, or the user asks for it."""
    choice, messages = body.get("tool_choice"), body.get("messages", [])
    if not body.get("tools") or choice == "none":
        return False
    asks = messages[-1]["role"] == "user" and USE_TOOL in json.dumps(messages[-1]["content"])
    return asks or choice not in (None, "auto")


def answer_message(body):
    """What a model might have said."""
    if calls_tool(body):
        function = body["tools"][0]["function"]
        arguments = json.dumps(example(function.get("parameters", {})))
        return {"role": "assistant", "content": None, "refusal": None, "annotations": [],
                "tool_calls": [{"id": "call_1", "type": "function", "function": {
                    "name": function["name"], "arguments": arguments}}]}
    text = "Sunny."
    form = body.get("response_format") or {}
    if form.get("type") == "json_schema":
        text = json.dumps(example(form["json_schema"]["schema"]))
    elif form or "JSON" in json.dumps(body.get("messages", [])) or "schema" in json.dumps(body):
        text = "```json\n" + json.dumps({"is_sunny": True, "city": "Rome"}) + "\n```"
        text = text if not form else text[8:-4]
    return {"role": "assistant", "content": text, "refusal": None, "reasoning_content": "I look."}


def answer_of(path, body):
    """An answer, or the events of a stream."""
    if path.endswith("/embeddings"):
        texts = body["input"] if isinstance(body["input"], list) else [body["input"]]
        return "application/json", json.dumps({"object": "list", "model": MODEL, "data": [
            {"object": "embedding", "index": i, "embedding": [0.5, 0.5]}
            for i in range(len(texts))]})
    is_chat = path.endswith("/chat/completions")
    usage = {"prompt_tokens": 3, "completion_tokens": 1, "total_tokens": 4}
    head = {"id": "x", "created": 1, "model": body.get("model", MODEL), "usage": usage,
            "object": "chat.completion" if is_chat else "text_completion"}
    prompts = body.get("prompt", "")
    is_list = isinstance(prompts, list) and prompts and not isinstance(prompts[0], int)
    count = len(prompts) if is_list else 1
    logprobs = {"tokens": ["The", " end", "."], "token_logprobs": [None, -1, -1],
                "top_logprobs": [{}, {" end": -1}, {".": -1}], "text_offset": [0, 3, 7]}
    if is_chat:
        message = answer_message(body)
        reason = "tool_calls" if "tool_calls" in message else "stop"
        choices = [{"index": 0, "message": message, "finish_reason": reason}]
    else:
        choices = [{"index": i, "text": " end", "finish_reason": "length", "logprobs": logprobs}
                   for i in range(count)]
    if not body.get("stream"):
        return "application/json", json.dumps({**head, "choices": choices})
    if is_chat:
        head["object"] = "chat.completion.chunk"
        for call in message.get("tool_calls", []):
            call["index"] = 0
        choices = [{"index": 0, "delta": message, "finish_reason": reason}]
    events = [{**head, "choices": choices, "usage": None}, {**head, "choices": []}]
    text = "".join(f"data: {json.dumps(event)}\n\n" for event in events)
    return "text/event-stream", text + "data: [DONE]\n\n"


class Recorder(http.server.ThreadingHTTPServer):
    """Keeps the bodies of POST /SCENARIO/v1/..."""
    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.records, self.user_agent = [], ""
        threading.Thread(target=self.serve_forever, daemon=True).start()


class Handler(http.server.BaseHTTPRequestHandler):
    """One connection."""
    protocol_version = "HTTP/1.1"

    def log_message(self, *arguments):
        pass

    def send(self, kind, text, status=200):
        data = text.encode()
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def do_GET(self):
        self.send("application/json", json.dumps({"object": "list", "status": "ok", "data": [
            {"id": MODEL, "object": "model", "created": 1, "owned_by": "x"}]}))

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        scenario, path = re.fullmatch(r"/(\w+)(/.*)", self.path).groups()
        if path not in ("/v1/chat/completions", "/v1/completions", "/v1/embeddings"):
            self.send("application/json", "{}", 404)
            return
        if path != "/v1/embeddings":
            self.server.records.append((scenario, path, body))
        self.server.user_agent = self.headers.get("User-Agent", "")
        self.send(*answer_of(path, body))


def write_records(records, client, version, folder):
    """Returns the number of files."""
    scenarios = {scenario for scenario, _, _ in records}
    for name in os.listdir(folder):
        match = re.fullmatch(rf"{client}_(.*)_\d+\.json", name)
        if match and match[1] in scenarios:
            os.remove(os.path.join(folder, name))
    numbers, seen = {}, set()
    for scenario, path, body in records:
        body = cut(body)
        text = json.dumps([path, body], sort_keys=True)
        if text in seen:
            continue
        seen.add(text)
        numbers[scenario] = numbers.get(scenario, 0) + 1
        name = os.path.join(folder, f"{client}_{scenario}_{numbers[scenario]}.json")
        with open(name, "w", encoding="utf-8") as file:
            json.dump({"client": f"{client} {version}", "path": path, "body": body}, file, indent=1,
                      ensure_ascii=True)
            file.write("\n")
    return len(seen)


def version_of(python, client):
    if client == "continue":
        return subprocess.run([os.path.join(os.path.dirname(python), "cn"), "--version"],
                              capture_output=True, text=True, check=True).stdout.strip()
    package = {"langchain": "langchain-openai", "aider": "aider-chat",
               "open_webui": "open-webui"}.get(client, client)
    return subprocess.run(
        [python, "-c", f"import importlib.metadata as m; print(m.version({package!r}))"],
        capture_output=True, text=True, check=True).stdout.strip()


def record(command, client, version_of_client, source):
    """Runs the client's calls; the number that failed. `version_of_client` gets the server."""
    server = Recorder()
    url = f"http://127.0.0.1:{server.server_port}/{{scenario}}/v1"
    tokenizer = os.path.join(source, "models", MODEL)
    failures = subprocess.run(
        [*command, url, MODEL], check=False,
        env={**os.environ, "HALLEY_CLIENT_TOKENIZER": tokenizer, "HF_HUB_OFFLINE": "1",
             "LITELLM_LOCAL_MODEL_COST_MAP": "True"}).returncode
    server.shutdown()
    count = write_records(server.records, client, version_of_client(server),
                          os.path.join(source, "testdata", "client_bodies"))
    print(f"{client}: {count} bodies")
    return failures


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("source")
    parser.add_argument("clients", nargs="*", choices=[*CALLS, []])
    parser.add_argument("--python", action="append", default=[], metavar="CLIENT=PATH")
    parser.add_argument("--version", action="append", default=[], metavar="CLIENT=TEXT",
                        help="of a client in JavaScript, where it is not its User-Agent's")
    for name in JS_CALLS:
        parser.add_argument("--" + name.replace("_", "-"), metavar="MODULE")
    options = parser.parse_args()
    pythons, versions = (dict(pair.split("=", 1) for pair in pairs)
                         for pairs in (options.python, options.version))
    source = os.path.abspath(options.source)
    failures = 0
    for client in options.clients or CALLS:
        python = pythons.get(client) or os.path.join(source, ".venv", "clients", client, "bin",
                                                     "python")
        if not os.path.exists(python):
            print(f"{client}: skipped, no {python}")
            continue
        failures += record([python, "-B", os.path.join(HERE, "client_calls.py"), client], client,
                           lambda _, python=python, client=client: version_of(python, client),
                           source)
    for name, calls in JS_CALLS.items():
        module = getattr(options, name)
        if module:
            failures += record(
                ["node", os.path.join(HERE, calls), os.path.abspath(module)], name,
                lambda server, name=name: versions.get(name, server.user_agent.rsplit(" ", 1)[-1]),
                source)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
