"""Load on a running `halley serve` for minutes: nothing lost, nothing stuck, memory flat, fairness.

    load_check.py HALLEY_BINARY SOURCE_DIR --mode steady --streams 500 --seconds 600
    load_check.py HALLEY_BINARY SOURCE_DIR --mode vanish   a fifth of the clients go at random bytes
    load_check.py HALLEY_BINARY SOURCE_DIR --mode overrun  three times as many as the queue takes

Serves the demo model by itself (or --model; --dummy makes its weights up). Each of the streams is a
client that sends one request after the other; --processes share them. --server-cores and
--client-cores keep both apart. Prints JSON of what was seen, which --out writes to a file as
bench/results has it; exits with 1 where a promise is broken:

- each admitted request ends with "length" and as many tokens as it asked for;
- no stream is silent for longer than --silence seconds;
- the server's memory grows by less than 2 % from the second quarter of the time to the last;
- clients get their turns evenly: Jain's index of their requests is at least 0.95;
- afterwards the server has no request, no page in use, and ends with code 0;
- a rejected request is answered with 503 and Retry-After; --rejection-ms limits the time that it
  takes, from the first byte sent to the last received. Whoever was rejected comes again after
  --retry seconds.

Memory and fairness need minutes on cores that nothing else uses: pages of the KV cache count once
they are used, and clients get few turns before.

An answer's time is the one at which the kernel received it. What the clients themselves take until
they read it is client_lag_ms: where it is large, they are the bottleneck, and need more cores.
"""
import argparse
import asyncio
import json
import multiprocessing
import os
import random
import re
import socket
import statistics
import struct
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import result_file  # noqa: E402
from served import Server  # noqa: E402

RUNNING, QUEUED = 64, 64  # of the server in mode overrun
SO_TIMESTAMPNS = 35  # Linux; Python has no name for it


class Link:
    """A connection whose bytes come with the time at which the kernel received them."""

    def __init__(self):
        self.socket = socket.socket()
        self.socket.setblocking(False)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
        self.loop = asyncio.get_running_loop()
        self.readable = asyncio.Event()
        self.longest_lag = 0.0

    async def connect(self, port):
        await self.loop.sock_connect(self.socket, ("127.0.0.1", port))
        self.loop.add_reader(self.socket.fileno(), self.readable.set)

    async def send(self, data):
        await self.loop.sock_sendall(self.socket, data)

    async def receive(self):
        """(bytes, time of the last of them); no bytes: the end."""
        while True:
            await self.readable.wait()
            self.readable.clear()
            try:
                data, ancillary, _, _ = self.socket.recvmsg(65536, 64)
            except BlockingIOError:
                continue
            now = arrival = time.time()
            for level, kind, value in ancillary:
                if (level, kind) == (socket.SOL_SOCKET, SO_TIMESTAMPNS):
                    seconds, nanoseconds = struct.unpack("qq", value)
                    arrival = seconds + 1e-9 * nanoseconds
            self.longest_lag = max(self.longest_lag, now - arrival)
            return data, arrival

    def close(self, must_reset):
        self.loop.remove_reader(self.socket.fileno())
        if must_reset:  # instead of an orderly end
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.socket.close()


class Client:
    """One stream after the other."""

    def __init__(self, index, server_name, port, options):
        self.random = random.Random(index)
        self.server_name, self.port, self.options = server_name, port, options
        self.num_done = self.num_vanished = self.num_tokens = 0
        self.first_token, self.rejections, self.problems = [], [], []
        self.longest_silence = self.longest_lag = 0.0

    async def run(self, end):
        while time.monotonic() < end and not self.problems:
            try:
                await self.request()
            except OSError as error:
                self.problems.append(f"connection: {error!r}")

    async def request(self):
        num_tokens = self.random.randint(8, 64)
        words = " ".join(self.random.choice(("the", "of", "parser", "tree", "value", "type"))
                         for _ in range(self.random.randint(4, 60)))
        body = json.dumps({"model": self.server_name, "prompt": words, "max_tokens": num_tokens,
                           "ignore_eos": True, "stream": True, "seed": self.random.randint(0, 9999),
                           "stream_options": {"include_usage": True}}).encode()
        message = (b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n"
                   b"Content-Type: application/json\r\nConnection: close\r\n"
                   b"Content-Length: %d\r\n\r\n" % len(body)) + body
        leaves = self.options.mode == "vanish" and self.random.random() < 0.2
        link = Link()
        try:
            await link.connect(self.port)
            if leaves and self.random.random() < 0.3:  # in the middle of the request
                await link.send(message[:self.random.randrange(len(message))])
                self.num_vanished += 1
                return
            sent = time.time()
            await link.send(message)
            num_bytes_max = self.random.randrange(1, 8000) if leaves else None
            is_rejected = await self.read(link, sent, num_tokens, num_bytes_max)
        finally:
            self.longest_lag = max(self.longest_lag, link.longest_lag)
            link.close(must_reset=leaves)
        if is_rejected:
            await asyncio.sleep(self.options.retry)

    async def read(self, link, sent, num_tokens, num_bytes_max):
        """Whether the answer was a rejection."""
        data, last, first = b"", sent, None
        while True:
            try:
                chunk, now = await asyncio.wait_for(link.receive(), self.options.silence)
            except asyncio.TimeoutError:
                self.problems.append(f"silent for {self.options.silence} s after {len(data)} bytes")
                return False
            self.longest_silence = max(self.longest_silence, now - last)
            last = now
            if not chunk:
                break
            if first is None and b"data: " in chunk:
                first = now - sent
            data += chunk
            if num_bytes_max is not None and len(data) >= num_bytes_max:
                self.num_vanished += 1
                return False
            if data.startswith(b"HTTP/1.1 503") and b"\r\n\r\n" in data:
                self.rejections.append(now - sent)
                if b"retry-after:" not in data.lower():
                    self.problems.append("503 without Retry-After")
                return True
        self.check(data, num_tokens)
        self.first_token.append(first)
        return False

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


def watch_memory(pid, seconds):
    """Samples through all the time, and a line on stderr now and then, for whoever waits."""
    samples = []
    begin = time.monotonic()
    while time.monotonic() < begin + seconds:
        with open(f"/proc/{pid}/status", encoding="ascii") as file:
            samples.append(int(re.search(r"VmRSS:\s+(\d+)", file.read())[1]))
        if len(samples) % 6 == 1:
            print(f"{time.monotonic() - begin:.0f} s: {samples[-1] / 1024:.1f} MiB",
                  file=sys.stderr, flush=True)
        time.sleep(min(5.0, seconds / 60))
    return samples


def load(server, options):
    clients = [Client(index, server.name, server.port, options)
               for index in range(options.streams)]
    with multiprocessing.get_context("spawn").Pool(options.processes) as pool:
        end = time.monotonic() + options.seconds
        parts = [pool.apply_async(run_clients, (clients[i::options.processes], end))
                 for i in range(options.processes)]
        samples = watch_memory(server.process.pid, options.seconds)
        clients = [client for part in parts for client in part.get()]
    return clients, samples


def percentile(values, share):
    return sorted(values)[min(len(values) - 1, int(share * len(values)))] if values else 0.0


def report_of(clients, samples, options):
    done = [client.num_done for client in clients]
    first = [time for client in clients for time in client.first_token]
    rejected = [time for client in clients for time in client.rejections]
    quarter = len(samples) // 4
    early = statistics.median(samples[quarter:2 * quarter])
    late = statistics.median(samples[3 * quarter:])
    return {
        "mode": options.mode, "streams": options.streams, "seconds": options.seconds,
        "requests": sum(done), "output_tokens": sum(client.num_tokens for client in clients),
        "vanished": sum(client.num_vanished for client in clients),
        "rejected": len(rejected),
        "rejection_ms_median": 1000 * percentile(rejected, 0.5),
        "rejection_ms_p99": 1000 * percentile(rejected, 0.99),
        "rejection_ms_max": 1000 * max(rejected, default=0),
        "ttft_s_median": percentile(first, 0.5), "ttft_s_p99": percentile(first, 0.99),
        "longest_silence_s": max(client.longest_silence for client in clients),
        "client_lag_ms_max": 1000 * max(client.longest_lag for client in clients),
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
        if not report["rejected"]:
            broken.append("nothing was rejected")
        if report["rejection_ms_max"] > options.rejection_ms:
            broken.append(f"a rejection took {report['rejection_ms_max']:.0f} ms")
    elif report["rejected"]:
        broken.append(f"{report['rejected']} requests were rejected")
    return broken


def cores(text):
    return [int(core) for core in text.split(",")]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("halley")
    parser.add_argument("source")
    parser.add_argument("--mode", choices=("steady", "vanish", "overrun"), default="steady")
    parser.add_argument("--streams", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--processes", type=int, default=1, help="that share the clients")
    parser.add_argument("--model", help="default: the demo model")
    parser.add_argument("--dummy", action="store_true", help="synthetic weights")
    parser.add_argument("--threads", default="1", help="of the model")
    parser.add_argument("--silence", type=float, default=120)
    parser.add_argument("--rejection-ms", type=float, default=50)
    parser.add_argument("--retry", type=float, default=0.25, help="seconds behind a rejection")
    parser.add_argument("--server-cores", type=cores, help="as 0,1; default: all")
    parser.add_argument("--client-cores", type=cores, help="as 2,3; default: all")
    result_file.add_options(parser)
    options = parser.parse_args()
    overrun = options.mode == "overrun"
    options.streams = options.streams or (3 * (RUNNING + QUEUED) if overrun else 500)
    model = options.model or os.path.join(options.source, "models", "demo-21m")
    weights = ("--load-format", "dummy") if options.dummy else ()
    all_cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, options.server_cores or all_cores)  # a process inherits them
    server = Server(options.halley, model, *weights, "--device", "cpu",
                    "--log-level", "warning", "--max-model-len", "512",
                    "--threads", options.threads,
                    "--max-num-seqs", str(RUNNING),
                    "--sse-keep-alive", "0",  # its comments would hide silence
                    "--max-num-queued-reqs", str(QUEUED if overrun else 1024))
    os.sched_setaffinity(0, options.client_cores or all_cores)
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
    result_file.print_result(report, options)
    sys.exit(1 if report["broken"] else 0)


if __name__ == "__main__":
    main()
