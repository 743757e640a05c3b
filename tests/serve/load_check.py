"""Load on a running `halley serve` for minutes: nothing lost, nothing stuck, memory flat, fairness.

    load_check.py HALLEY_BINARY SOURCE_DIR --mode steady --streams 500 --seconds 600
    load_check.py HALLEY_BINARY SOURCE_DIR --mode vanish   a fifth of the clients go at random bytes
    load_check.py HALLEY_BINARY SOURCE_DIR --mode overrun  three times as many as the queue takes

Serves the demo model by itself (or --model; --dummy makes its weights up). Each of the streams is a
client that sends one request after the other; --processes share them. Prints JSON of what
was seen; exits with 1 where a promise is broken:

- each admitted request ends with "length" and as many tokens as it asked for;
- no stream is silent for longer than --silence seconds;
- the server's memory grows by less than 2 % from the second quarter of the time to the last;
- clients get their turns evenly: Jain's index of their requests is at least 0.95;
- afterwards the server has no request, no page in use, and ends with code 0;
- a refused request is answered with 503 and Retry-After; --refusal-ms is the limit of the time that
  takes, from the first byte sent to the last received.
"""
import argparse
import asyncio
import json
import multiprocessing
import os
import random
import re
import statistics
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from served import Server  # noqa: E402

RUNNING, QUEUED = 64, 64  # of the server in mode overrun


class Client:
    """One stream after the other."""

    def __init__(self, index, server_name, port, options):
        self.random = random.Random(index)
        self.server_name, self.port, self.options = server_name, port, options
        self.num_done = self.num_vanished = self.num_tokens = 0
        self.first_token, self.refusals, self.problems = [], [], []
        self.longest_silence = 0.0

    async def run(self, end):
        while time.monotonic() < end and not self.problems:
            try:
                await self.request()
            except (OSError, asyncio.IncompleteReadError) as error:
                self.problems.append(f"connection: {error!r}")

    async def request(self):
        num_tokens = self.random.randint(8, 64)
        words = " ".join(self.random.choice(("the", "of", "parser", "tree", "value", "type"))
                         for _ in range(self.random.randint(4, 60)))
        body = json.dumps({"model": self.server_name, "prompt": words, "max_tokens": num_tokens,
                           "ignore_eos": True, "stream": True, "seed": self.random.randint(0, 9999),
                           "stream_options": {"include_usage": True}}).encode()
        message = (b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
                   b"Connection: close\r\nContent-Length: %d\r\n\r\n" % len(body)) + body
        leaves = self.options.mode == "vanish" and self.random.random() < 0.2
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        try:
            if leaves and self.random.random() < 0.3:  # in the middle of the request
                writer.write(message[:self.random.randrange(len(message))])
                await writer.drain()
                self.num_vanished += 1
                return
            sent = time.monotonic()
            writer.write(message)
            await writer.drain()
            num_bytes_max = self.random.randrange(1, 8000) if leaves else None
            await self.read(reader, sent, num_tokens, num_bytes_max)
        finally:
            if leaves:
                writer.transport.abort()  # a reset instead of an orderly end
            writer.close()

    async def read(self, reader, sent, num_tokens, num_bytes_max):
        data, last, first = b"", sent, None
        while True:
            try:
                chunk = await asyncio.wait_for(reader.read(65536), self.options.silence)
            except asyncio.TimeoutError:
                self.problems.append(f"silent for {self.options.silence} s after {len(data)} bytes")
                return
            now = time.monotonic()
            self.longest_silence = max(self.longest_silence, now - last)
            last = now
            if not chunk:
                break
            if first is None and b"data: " in chunk:
                first = now - sent
            data += chunk
            if num_bytes_max is not None and len(data) >= num_bytes_max:
                self.num_vanished += 1
                return
            if data.startswith(b"HTTP/1.1 503") and b"\r\n\r\n" in data:
                self.refusals.append(now - sent)
                if b"retry-after:" not in data.lower():
                    self.problems.append("503 without Retry-After")
                await asyncio.sleep(0.05)  # a client that is impatient
                return
        self.check(data, num_tokens)
        self.first_token.append(first)

    def check(self, data, num_tokens):
        if not data.startswith(b"HTTP/1.1 200") or b"data: [DONE]" not in data:
            self.problems.append(f"not whole: {data[:200]!r} ... {data[-200:]!r}")
            return
        got = re.search(rb'"completion_tokens":\s*(\d+)', data)
        if not got or int(got[1]) != num_tokens or b'"finish_reason":"length"' not in data.replace(
                b'": "', b'":"'):
            self.problems.append(f"expected {num_tokens} tokens and length: {data[-300:]!r}")
            return
        self.num_done += 1
        self.num_tokens += num_tokens


async def run_together(clients, end):
    await asyncio.gather(*(client.run(end) for client in clients))


def run_clients(clients, end):
    """In a process of its own; time.monotonic() is the same in all."""
    asyncio.run(run_together(clients, end))
    return clients


def watch_memory(pid, end, period):
    samples = []
    while time.monotonic() < end:
        with open(f"/proc/{pid}/status", encoding="ascii") as file:
            samples.append(int(re.search(r"VmRSS:\s+(\d+)", file.read())[1]))
        time.sleep(period)
    return samples


def load(server, options):
    clients = [Client(index, server.name, server.port, options)
               for index in range(options.streams)]
    with multiprocessing.get_context("spawn").Pool(options.processes) as pool:
        end = time.monotonic() + options.seconds
        parts = [pool.apply_async(run_clients, (clients[i::options.processes], end))
                 for i in range(options.processes)]
        samples = watch_memory(server.process.pid, end, min(1.0, options.seconds / 60))
        clients = [client for part in parts for client in part.get()]
    return clients, samples


def percentile(values, share):
    return sorted(values)[min(len(values) - 1, int(share * len(values)))] if values else 0.0


def report_of(clients, samples, options):
    done = [client.num_done for client in clients]
    first = [time for client in clients for time in client.first_token]
    refused = [time for client in clients for time in client.refusals]
    quarter = len(samples) // 4
    early = statistics.median(samples[quarter:2 * quarter])
    late = statistics.median(samples[3 * quarter:])
    return {
        "mode": options.mode, "streams": options.streams, "seconds": options.seconds,
        "requests": sum(done), "output_tokens": sum(client.num_tokens for client in clients),
        "vanished": sum(client.num_vanished for client in clients),
        "refused": len(refused), "refusal_ms_median": 1000 * percentile(refused, 0.5),
        "refusal_ms_p99": 1000 * percentile(refused, 0.99),
        "refusal_ms_max": 1000 * max(refused, default=0),
        "ttft_s_median": percentile(first, 0.5), "ttft_s_p99": percentile(first, 0.99),
        "longest_silence_s": max(client.longest_silence for client in clients),
        "requests_of_a_client": [min(done), statistics.median(done), max(done)],
        "jain_index": sum(done) ** 2 / max(1, len(done) * sum(n * n for n in done)),
        "rss_mib_second_quarter": early / 1024, "rss_mib_last_quarter": late / 1024,
        "rss_growth": late / early - 1,
        "problems": [problem for client in clients for problem in client.problems][:10]}


def broken_promises(report, metrics, options):
    broken = list(report["problems"])
    for name in "num_requests_running", "num_requests_waiting":
        value = float(re.search(rf"^halley:{name}{{[^}}]*}} (\S+)$", metrics, re.M)[1])
        if value != 0:
            broken.append(f"{name} is {value} afterwards")
    if report["rss_growth"] >= 0.02:
        broken.append(f"memory grew by {100 * report['rss_growth']:.1f} %")
    if options.mode != "overrun" and report["jain_index"] < 0.95:
        broken.append(f"Jain's index is {report['jain_index']:.3f}")
    if options.mode == "overrun":
        if not report["refused"]:
            broken.append("nothing was refused")
        if report["refusal_ms_max"] > options.refusal_ms:
            broken.append(f"a refusal took {report['refusal_ms_max']:.0f} ms")
    elif report["refused"]:
        broken.append(f"{report['refused']} requests were refused")
    return broken


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("halley")
    parser.add_argument("source")
    parser.add_argument("--mode", choices=("steady", "vanish", "overrun"), default="steady")
    parser.add_argument("--streams", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--processes", type=int, default=1, help="that share the clients")
    parser.add_argument("--model", help="default: the demo model")
    parser.add_argument("--dummy", action="store_true", help="made-up weights")
    parser.add_argument("--threads", default="1", help="of the model")
    parser.add_argument("--silence", type=float, default=120)
    parser.add_argument("--refusal-ms", type=float, default=50)
    options = parser.parse_args()
    overrun = options.mode == "overrun"
    options.streams = options.streams or (3 * (RUNNING + QUEUED) if overrun else 500)
    model = options.model or os.path.join(options.source, "models", "demo-21m")
    weights = ("--load-format", "dummy") if options.dummy else ()
    server = Server(options.halley, model, *weights, "--device", "cpu",
                    "--log-level", "warning", "--max-model-len", "512",
                    "--threads", options.threads,
                    "--max-num-seqs", str(RUNNING),
                    "--max-num-queued-reqs", str(QUEUED if overrun else 1024))
    clients, samples = load(server, options)
    deadline = time.monotonic() + 30  # clients that went away, and their requests
    while time.monotonic() < deadline:
        metrics = server.ask("GET", "/metrics")[2]
        if re.search(r"^halley:num_requests_running{[^}]*} 0(\.0)?$", metrics, re.M):
            break
        time.sleep(0.2)
    code = server.end()
    report = report_of(clients, samples, options)
    report["broken"] = broken_promises(report, metrics, options)
    if code != 0:
        report["broken"].append(f"the server ended with {code}: {server.log[-500:]}")
    print(json.dumps(report, indent=1))
    sys.exit(1 if report["broken"] else 0)


if __name__ == "__main__":
    main()
