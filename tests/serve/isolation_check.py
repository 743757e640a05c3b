"""What other clients feel while somebody sends large or untrusted requests to `halley serve`.

    isolation_check.py HALLEY_BINARY SOURCE_DIR [--before BINARY] [--scenario NAME ...] [--limit S]
                       [--out FILE]

One process asks for one token again and again; the longest time that it waits is the measure. It
runs against a server that is otherwise idle, and then while the scenario runs. Who sends large or
untrusted bodies has an address of its own (127.0.0.2, ...), as the server tells clients apart by
that:

- large_prompts: 16 clients with a text of 6,000,000 letters each, who go at once
- id_lists: 16 clients with a list of 11.7 MB of token ids each, who go at once
- one_client: one client with 100 such texts at a time, who waits for the answers
- whole_answer: one chat with 128 answers of 1000 tokens, each with 20 log probabilities
- long_prefills: 4 streams, one client with prompts of 8,000 tokens, one with short prompts. Fails
  where the streams' ITL p99 is above 3 times that of the streams alone, or the TTFT p50 of short
  prompts above 0.5 s
- schemas: 256 clients, each with a JSON schema of its own
- patterns: 64 clients, each with a pattern of its own that is expensive to match

Prints JSON, and writes it to --out as bench/results has it. With --before it runs every scenario on
that binary too, in turns. Exits with 1 where the longest wait with HALLEY_BINARY is above --limit
seconds, its memory grows by more than --growth MB in whole_answer, or a request of the scenario is
answered with something that it must not be.
"""
import argparse
import contextlib
import http.client
import json
import multiprocessing
import os
import shutil
import socket
import statistics
import sys
import tempfile
import threading
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import result_file  # noqa: E402
from served import Server  # noqa: E402

LARGE_PROMPT = {"prompt": "a" * 6_000_000, "max_tokens": 1}
CHAT_TEMPLATE = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"


# ---- the models

def demo_model(source, folder):
    del folder
    return [os.path.join(source, "models", "demo-21m")]


def synthetic_model(folder, tokenizer, config):
    with open(os.path.join(folder, "config.json"), "w", encoding="utf-8") as file:
        json.dump(config, file)
    shutil.copy(tokenizer, os.path.join(folder, "tokenizer.json"))
    return [folder, "--load-format", "dummy"]


def demo_config(source, **sizes):
    with open(os.path.join(source, "models", "demo-21m", "config.json"), encoding="utf-8") as file:
        return {**json.load(file), **sizes}


SMALL = {"hidden_size": 128, "head_dim": 32, "num_attention_heads": 4, "num_key_value_heads": 2,
         "intermediate_size": 256, "num_hidden_layers": 2}
GPT2_IDS = {"vocab_size": 50257, "bos_token_id": 50256, "eos_token_id": 50256}


def long_context_model(source, folder):
    return synthetic_model(
        folder, os.path.join(source, "testdata", "tokenizers", "gpt2", "tokenizer.json"),
        demo_config(source, max_position_embeddings=131072, **GPT2_IDS, **SMALL))


def demo_sized_model(source, folder):
    return synthetic_model(
        folder, os.path.join(source, "models", "demo-21m", "tokenizer.json"),
        demo_config(source, max_position_embeddings=16384))


def many_answers_model(source, folder):
    arguments = synthetic_model(
        folder, os.path.join(source, "models", "demo-21m", "tokenizer.json"),
        demo_config(source, max_position_embeddings=2048, **SMALL))
    return [*arguments, "--max-num-seqs", "160"]


# ---- the process that measures

def address_of(index):
    """Of the scenario's client with this number; the one that measures is 127.0.0.1."""
    return f"127.0.{index // 250}.{2 + index % 250}"


def connect(port, address):
    return http.client.HTTPConnection("127.0.0.1", port, timeout=300, source_address=(address, 0))


def ask(port, path, body, address="127.0.0.1"):
    """(status, seconds) of one request on a connection of its own."""
    start = time.monotonic()
    connection = connect(port, address)
    try:
        connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
        answer = connection.getresponse()
        answer.read()
        return answer.status, time.monotonic() - start
    finally:
        connection.close()


def probe(port, stop, results):
    waits, statuses = [], {}
    while not stop.is_set():
        status, seconds = ask(port, "/v1/completions",
                              {"prompt": "Hello", "max_tokens": 1, "temperature": 0})
        waits.append(seconds)
        statuses[status] = statuses.get(status, 0) + 1
        stop.wait(0.01)
    results.put((waits, statuses))


class Probe:
    """Asks for one token again and again, in a process of its own, until it is read."""

    def __init__(self, port):
        self.stop, self.results = multiprocessing.Event(), multiprocessing.Queue()
        self.process = multiprocessing.Process(target=probe, args=(port, self.stop, self.results))
        self.process.start()

    def read(self):
        self.stop.set()
        waits, statuses = self.results.get(timeout=600)
        self.process.join()
        return {"requests": len(waits), "statuses": statuses, "median_s": statistics.median(waits),
                "p99_s": percentile(waits, 0.99), "longest_s": max(waits)}


class Memory(threading.Thread):
    """The largest resident set of a process, in MB, and that at the start."""

    def __init__(self, pid):
        super().__init__(daemon=True)
        self.pid, self.is_over = pid, threading.Event()
        self.first = self.largest = self.now()
        self.start()

    def now(self):
        with open(f"/proc/{self.pid}/statm", encoding="ascii") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6

    def run(self):
        while not self.is_over.wait(0.02):
            self.largest = max(self.largest, self.now())

    def read(self):
        self.is_over.set()
        self.join()
        return {"before": round(self.first), "largest": round(self.largest)}


# ---- the scenarios: each runs to its end and returns what it saw

def send_and_go(port, body, address):
    head = (f"POST /v1/completions HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n").encode()
    with socket.create_connection(("127.0.0.1", port), source_address=(address, 0)) as client:
        client.sendall(head + body)


def at_once(count, action):
    """The results of `action(0)` to `action(count - 1)`, each in a thread."""
    results = [None] * count

    def run(index):
        results[index] = action(index)
    threads = [threading.Thread(target=run, args=(i,)) for i in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


def metric(port, name):
    """A sample of /metrics that has no labels but the model's name."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    connection.request("GET", "/metrics")
    text = connection.getresponse().read().decode()
    connection.close()
    line, = [line for line in text.splitlines() if line.startswith(f"halley:{name}{{")]
    return float(line.split()[-1])


def counts_of(statuses):
    return {str(status): statuses.count(status) for status in set(statuses)}


def flood(port, body):
    """16 of `body`, whose senders go at once; then, for a while, what the server makes of them."""
    at_once(16, lambda index: send_and_go(port, body, address_of(index)))
    time.sleep(5)
    # Whoever waits now behind the flood sees its end.
    _, seconds = ask(port, "/v1/completions", {"prompt": "Hello", "max_tokens": 1})
    return {"wait_after_s": seconds}


def large_prompts(port):
    return flood(port, json.dumps(LARGE_PROMPT).encode())


def id_lists(port):
    ids = [i % 50000 for i in range(2_000_000)]
    return flood(port, json.dumps({"prompt": ids, "max_tokens": 1}).encode()[:11_699_990] + b"1]}")


def one_client(port):
    body = json.dumps(LARGE_PROMPT).encode()
    begin = time.monotonic()
    connections, statuses = [], []
    for _ in range(100):  # one after the other, as if by one line; all of them wait then
        connections.append(connect(port, address_of(0)))
        with contextlib.suppress(ConnectionError):  # a rejection closes it
            connections[-1].request("POST", "/v1/completions", body)
    for connection in connections:
        try:
            statuses.append(connection.getresponse().status)
        except (OSError, http.client.HTTPException):  # the rejection was lost, or comes too late
            statuses.append("cut")
        connection.close()
    return {"statuses": counts_of(statuses), "seconds": time.monotonic() - begin,
            "failed": not set(statuses) <= {400, 503, "cut"}}


def whole_answer(port):
    status, seconds = ask(port, "/v1/chat/completions", {
        "messages": [{"role": "user", "content": "Hello"}], "n": 128, "max_tokens": 1000,
        "ignore_eos": True, "logprobs": True, "top_logprobs": 20})
    return {"status": status, "seconds": seconds, "failed": status not in (200, 400, 503)}


class Stream(threading.Thread):
    """One stream after the other until `stop`: times to the first token and between tokens."""

    def __init__(self, port, stop, prompt, max_tokens, pause=0.0):
        super().__init__()
        self.port, self.stop, self.prompt, self.pause = port, stop, prompt, pause
        self.max_tokens = max_tokens
        self.first, self.between = [], []
        self.start()

    def run(self):
        while not self.stop.is_set():
            self.request()
            self.stop.wait(self.pause)

    def request(self):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=300)
        body = {"prompt": self.prompt, "max_tokens": self.max_tokens, "ignore_eos": True,
                "stream": True, "cache_salt": str(time.monotonic_ns())}
        last = sent = time.monotonic()
        connection.request("POST", "/v1/completions", json.dumps(body))
        answer = connection.getresponse()
        assert answer.status == 200, answer.read()
        has_first = False
        for line in iter(answer.readline, b""):
            now = time.monotonic()
            if not line.startswith(b"data: {"):
                continue
            if has_first:
                self.between.append(now - last)
            else:
                self.first.append(now - sent)
            has_first, last = True, now
        connection.close()


def percentile(values, share):
    return sorted(values)[int(share * len(values))] if values else None


def num_prefill_rows(port):
    """Rows of prompts that the server has computed, but for one of each request."""
    return metric(port, "iteration_tokens_total_sum") - metric(port, "generation_tokens_total")


def long_prefills(port, seconds=60):
    """Streams alone for a third of the time, then with everybody else. The tokens of long prompts
    are counted while all of them run; the short ones have hardly any."""
    stop = threading.Event()
    streams = [Stream(port, stop, [7 + i], 400) for i in range(4)]
    time.sleep(seconds / 3)
    num_alone = [len(stream.between) for stream in streams]
    short = Stream(port, stop, [11, 12, 13], 2, pause=0.1)
    long = Stream(port, stop, [i % 8000 for i in range(8000)], 1)
    begin, rows_before = time.monotonic(), num_prefill_rows(port)
    time.sleep(seconds * 2 / 3)
    num_rows, span = num_prefill_rows(port) - rows_before, time.monotonic() - begin
    num_together = [len(stream.between) for stream in streams]
    stop.set()
    for thread in (*streams, short, long):
        thread.join()
    alone = [wait for stream, n in zip(streams, num_alone) for wait in stream.between[:n]]
    together = [wait for stream, n, m in zip(streams, num_alone, num_together)
                for wait in stream.between[n:m]]
    ratio = percentile(together, 0.99) / percentile(alone, 0.99)
    ttft_p50 = percentile(short.first, 0.5)
    return {"itl_p50_alone_s": percentile(alone, 0.5), "itl_p99_alone_s": percentile(alone, 0.99),
            "itl_p50_s": percentile(together, 0.5), "itl_p99_s": percentile(together, 0.99),
            "itl_p99_ratio": ratio, "ttft_p50_short_s": ttft_p50,
            "ttft_p99_short_s": percentile(short.first, 0.99),
            "long_prompt_tokens_per_s": num_rows / span,
            "stream_tokens_per_s": len(together) / span, "failed": ratio > 3 or ttft_p50 > 0.5}


def constrained(port, count, schema_of):
    def request(index):
        return ask(port, "/v1/completions", {
            "prompt": "x", "max_tokens": 24, "response_format": {
                "type": "json_schema", "json_schema": {"name": "s", "schema": schema_of(index)}}},
                   address_of(index))
    answers = at_once(count, request)
    statuses = [status for status, _ in answers]
    # A pattern beyond the limits is the client's error.
    return {"statuses": counts_of(statuses), "longest_s": max(seconds for _, seconds in answers),
            "failed": not set(statuses) <= {200, 400, 503}}


def ordinary_schema(index):
    return {"type": "object", "required": [f"name{index}", "age", "tags", "address"],
            "additionalProperties": False, "properties": {
                f"name{index}": {"type": "string", "maxLength": 40},
                "age": {"type": "integer", "minimum": 0, "maximum": 100 + index},
                "mail": {"type": "string", "format": "email"},
                "tags": {"type": "array", "items": {"enum": ["a", "b", f"c{index}"]},
                         "minItems": 1, "maxItems": 5},
                "address": {"type": "object", "required": ["street"], "properties": {
                    "street": {"type": "string"}, "zip": {"type": "string",
                                                          "pattern": "^[0-9]{5}$"}}}}}


def expensive_schema(index):
    patterns = (f"^(a|b|ab|ba|aab){{1,{200 + index}}}c$", f"^([a-z]+[0-9]*){{1,{60 + index}}}$",
                f"^(.{{0,{300 + index}}}x.{{0,{300 + index}}}){{1,8}}$",
                f"^((a?){{{100 + index}}}a{{{100 + index}}})+$")
    return {"type": "object", "required": ["p"],
            "properties": {"p": {"type": "string", "pattern": patterns[index % len(patterns)]}}}


def schemas(port):
    return constrained(port, 256, ordinary_schema)


def patterns(port):
    return constrained(port, 64, expensive_schema)


SCENARIOS = {
    "large_prompts": (long_context_model, large_prompts),
    "id_lists": (long_context_model, id_lists),
    "one_client": (long_context_model, one_client),
    "whole_answer": (many_answers_model, whole_answer),
    "long_prefills": (demo_sized_model, long_prefills),
    "schemas": (demo_model, schemas),
    "patterns": (demo_model, patterns),
}


def run(binary, source, name, options):
    make_model, scenario = SCENARIOS[name]
    with tempfile.TemporaryDirectory() as folder:
        template = os.path.join(folder, "template.jinja")
        with open(template, "w", encoding="utf-8") as file:
            file.write(CHAT_TEMPLATE)
        server = Server(binary, *make_model(source, folder), "--device", "cpu", "--log-level",
                        "warning", "--chat-template", template, "--threads", options.threads)
        try:
            alone = Probe(server.port)
            time.sleep(options.seconds)
            alone = alone.read()
            memory, others = Memory(server.process.pid), Probe(server.port)
            seen = scenario(server.port)
            report = {"alone": alone, "others": others.read(), "scenario": seen,
                      "rss_mb": memory.read()}
        finally:
            code = server.end()
        if code != 0:
            raise AssertionError(f"{name}: the server ended with {code}: {server.log[-500:]}")
        return report


def broken_promises(reports, limit, growth):
    for name, report in reports.items():
        seconds = max(report["others"]["longest_s"], report["scenario"].get("wait_after_s", 0))
        if seconds > limit:
            yield f"{name}: others waited {seconds:.2f} s, expected at most {limit} s"
        if set(report["others"]["statuses"]) != {200}:
            yield f"{name}: others were answered with {report['others']['statuses']}"
        if report["scenario"].get("failed"):
            yield f"{name}: {report['scenario']}"
        grown = report["rss_mb"]["largest"] - report["rss_mb"]["before"]
        if name == "whole_answer" and grown > growth:
            yield f"{name}: memory grew by {grown} MB, expected at most {growth} MB"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("halley")
    parser.add_argument("source")
    parser.add_argument("--before", help="a program to compare with")
    parser.add_argument("--scenario", action="append", choices=SCENARIOS)
    parser.add_argument("--limit", type=float, default=0.3, help="longest wait of others, seconds")
    parser.add_argument("--growth", type=float, default=150,
                        help="of memory in whole_answer, MB; 65 of them are its KV cache")
    parser.add_argument("--seconds", type=float, default=3, help="of the server alone")
    parser.add_argument("--threads", default="1", help="of the model")
    result_file.add_options(parser)
    options = parser.parse_args()
    result = {}
    for name in options.scenario or SCENARIOS:
        if options.before:
            result.setdefault("before", {})[name] = run(options.before, options.source, name,
                                                        options)
        result.setdefault("now", {})[name] = run(options.halley, options.source, name, options)
    result["broken"] = list(broken_promises(result["now"], options.limit, options.growth))
    result_file.print_result(result, options)
    sys.exit(1 if result["broken"] else 0)


if __name__ == "__main__":
    main()
