"""`halley bench serve` against a server of Python's standard library, and `bench serve-overhead`.

    bench_serve_test.py HALLEY_BINARY SOURCE_DIR [unittest arguments]
"""
import datetime
import json
import os
import subprocess
import sys
import tempfile
import time
import unittest
import xml.etree.ElementTree

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from fake_openai import FakeOpenAI  # noqa: E402

HALLEY, SOURCE = sys.argv[1], sys.argv[2]
MODEL = os.path.join(SOURCE, "models", "demo-21m")
CONVERSATION = os.path.join(SOURCE, "testdata", "traces", "azure_llm_2023_conv.csv")
TRACE = """TIMESTAMP,ContextTokens,GeneratedTokens
2023-11-16 18:17:03.9799600,40,3
2023-11-16 18:17:04.0319600,7,2
2023-11-16 18:17:04.0781490,5,9
2023-11-16 18:17:04.1206440,5,9
"""


def bench(server, *args, model="demo", env=None):
    url = server if isinstance(server, str) else server.url
    return subprocess.run([HALLEY, "bench", "serve", "--base-url", url, "--model", model,
                           *args], capture_output=True, text=True, timeout=120, check=False,
                          env={**os.environ, **(env or {})})


def rows(result):
    """What the report says, by its words."""
    pairs = (line.rsplit(":", 1) for line in result.stdout.splitlines() if ": " in line)
    return {name: float(value) for name, value in pairs}


class BenchServe(unittest.TestCase):
    def measure(self, server, *args, **options):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "r.json")
            result = bench(server, *args, "--json", path, **options)
            self.assertEqual(result.returncode, 0, result.stderr)
            with open(path, encoding="utf-8") as file:
                return result, json.load(file)

    def test_counts_tokens_and_prints_the_report(self):
        with FakeOpenAI() as server:
            result, saved = self.measure(
                server, "--num-prompts", "20", "--random-input-len", "8", "--random-output-len",
                "5", "--metric-percentiles", "50,99", "--percentile-metrics", "ttft,e2el")
        said = rows(result)
        self.assertEqual(said["Successful requests"], 20)
        self.assertEqual(said["Failed requests"], 0)
        self.assertEqual(said["Total input tokens"], 220)  # what the server counts
        self.assertEqual(said["Total generated tokens"], 100)
        self.assertIn("P99 E2EL (ms)", said)
        self.assertNotIn("Mean TPOT (ms)", said)
        self.assertEqual(saved["completed"], 20)
        self.assertEqual(saved["output_lens"], [5] * 20)
        self.assertEqual([len(itls) for itls in saved["itls"]], [4] * 20)
        self.assertEqual(saved["output_tokens_counted_by"], "server")
        for ttft, latency, itls in zip(saved["ttfts"], saved["e2els"], saved["itls"]):
            self.assertGreater(ttft, 0)
            self.assertGreaterEqual(latency + 1e-9, ttft + sum(itls))

    def test_requests_are_what_was_asked_for(self):
        with FakeOpenAI() as server:
            self.measure(server, "--num-prompts", "40", "--random-input-len", "10",
                         "--random-output-len", "6", "--random-range-ratio", "0.5", "--seed", "3",
                         "--ignore-eos", env={"OPENAI_API_KEY": "secret"})
            bodies = [request["body"] for request in server.requests]
            self.assertEqual({request["path"] for request in server.requests}, {"/v1/completions"})
            self.assertEqual({request["headers"]["Authorization"] for request in server.requests},
                             {"Bearer secret"})
        lengths = {len(body["prompt"].split()) for body in bodies}
        self.assertEqual((min(lengths), max(lengths)), (5, 15))
        outputs = {body["max_tokens"] for body in bodies}
        self.assertEqual((min(outputs), max(outputs)), (3, 9))
        for body in bodies:
            self.assertEqual(body["model"], "demo")
            self.assertTrue(body["stream"] and body["ignore_eos"])
            self.assertEqual(body["stream_options"], {"include_usage": True})
        self.assertEqual(len({body["prompt"] for body in bodies}), 40)

    def test_the_same_seed_sends_the_same_prompts(self):
        def prompts(seed):
            with FakeOpenAI() as server:
                self.measure(server, "--num-prompts", "5", "--random-input-len", "9", "--seed",
                             seed)
                return sorted(request["body"]["prompt"] for request in server.requests)
        self.assertEqual(prompts("1"), prompts("1"))
        self.assertNotEqual(prompts("1"), prompts("2"))

    def test_prompts_of_a_tokenizer_are_ids_of_exact_length(self):
        with FakeOpenAI() as server:
            self.measure(server, "--num-prompts", "3", "--random-input-len", "12", "--tokenizer",
                         MODEL)
            for request in server.requests:
                self.assertEqual(len(request["body"]["prompt"]), 12)
                self.assertTrue(all(isinstance(token, int) for token in request["body"]["prompt"]))

    def test_chat(self):
        with FakeOpenAI() as server:
            _, saved = self.measure(server, "--num-prompts", "4", "--endpoint",
                                    "/v1/chat/completions", "--random-input-len", "4",
                                    "--random-output-len", "3")
            message = server.requests[0]["body"]["messages"][0]
        self.assertEqual(message["role"], "user")
        self.assertEqual(len(message["content"].split()), 4)
        self.assertEqual(saved["output_lens"], [3] * 4)
        self.assertEqual([len(itls) for itls in saved["itls"]], [2] * 4)

    def test_events_are_counted_where_the_server_sends_no_usage(self):
        with FakeOpenAI() as server:
            result, saved = self.measure(server, "--num-prompts", "2", "--random-output-len", "7",
                                         "--random-input-len", "9", model="no-usage")
        self.assertEqual(saved["output_tokens_counted_by"], "events")
        self.assertEqual(saved["output_lens"], [7, 7])
        self.assertEqual(saved["input_lens"], [9, 9])
        self.assertIn("the server sends no usage", result.stderr)

    def test_every_kind_of_failure_is_counted(self):
        for model, text in (("drop", "the answer broke off"), ("no-done", "finish_reason"),
                            ("server-error", "out of memory"), ("no-stream", "text/event-stream"),
                            ("reject", "HTTP status 503: \"the queue is full\"")):
            with self.subTest(model), FakeOpenAI() as server:
                result = bench(server, "--num-prompts", "3", "--random-input-len", "3",
                               "--random-output-len", "4", model=model)
                self.assertEqual(result.returncode, 1)
                self.assertEqual(rows(result)["Successful requests"], 0)
                self.assertEqual(rows(result)["Failed requests"], 3)
                self.assertIn("failed requests: 3: ", result.stderr)
                self.assertIn(text, result.stderr)

    def test_failures_do_not_count_among_the_latencies(self):
        with FakeOpenAI() as server:
            result, saved = self.measure(server, "--num-prompts", "10", "--random-output-len", "4",
                                         "--random-input-len", "3", model="odd")
        self.assertEqual((saved["completed"], saved["failed"]), (5, 5))
        self.assertEqual(saved["total_output_tokens"], 20)
        self.assertEqual(rows(result)["Total input tokens"], 55)
        self.assertEqual(sum(error != "" for error in saved["errors"]), 5)

    def test_a_server_that_is_not_there(self):
        with FakeOpenAI() as server:
            pass
        result = bench(server, "--num-prompts", "2", "--random-input-len", "3")
        self.assertEqual(result.returncode, 1)
        self.assertIn("cannot connect: Connection refused", result.stderr)

    def test_max_concurrency_holds(self):
        with FakeOpenAI(token_seconds=0.002) as server:
            result, saved = self.measure(server, "--num-prompts", "12", "--max-concurrency", "3",
                                         "--random-input-len", "3", "--random-output-len", "4")
            self.assertEqual(len(server.requests), 12)
        self.assertEqual(rows(result)["Maximum request concurrency"], 3)
        times = [(start, start + latency)
                 for start, latency in zip(saved["start_times"], saved["e2els"])]
        overlaps = [sum(other[0] <= start < other[1] for other in times) for start, _ in times]
        self.assertEqual(max(overlaps), 3)

    def test_requests_are_spread_over_time(self):
        with FakeOpenAI() as server:
            _, saved = self.measure(server, "--num-prompts", "20", "--request-rate", "100",
                                    "--random-input-len", "3", "--random-output-len", "2")
        self.assertGreaterEqual(saved["start_times"][-1], 0.2)  # the last is due at 20 / 100 s
        self.assertEqual(saved["start_times"], sorted(saved["start_times"]))
        self.assertGreater(len(set(saved["start_times"])), 10)

    def test_a_trace_decides_times_and_lengths(self):
        with tempfile.TemporaryDirectory() as folder, FakeOpenAI() as server:
            path = os.path.join(folder, "trace.csv")
            with open(path, "w", encoding="utf-8") as file:
                file.write(TRACE)
            result, saved = self.measure(server, "--trace", path, "--rate-scale", "0.5",
                                         "--num-prompts", "3", "--trace-max-input-len", "10")
            bodies = [request["body"] for request in server.requests]
        self.assertEqual([len(body["prompt"].split()) for body in bodies], [10, 7, 5])
        self.assertEqual([body["max_tokens"] for body in bodies], [3, 2, 9])
        self.assertGreaterEqual(saved["start_times"][1], 0.104)
        self.assertGreaterEqual(saved["start_times"][2], 0.196)
        self.assertIn("1 of 3 requests of the trace are shortened", result.stderr)

    def test_goodput_and_plot(self):
        with tempfile.TemporaryDirectory() as folder, FakeOpenAI() as server:
            path = os.path.join(folder, "p.svg")
            result, saved = self.measure(server, "--num-prompts", "4", "--random-output-len", "3",
                                         "--random-input-len", "3", "--slo", "ttft=60s,e2el=60s",
                                         "--svg", path)
            root = xml.etree.ElementTree.parse(path).getroot()
        self.assertAlmostEqual(saved["request_goodput"], saved["request_throughput"])
        self.assertIn("Request goodput (req/s)", rows(result))
        lines = [node for node in root.iter() if node.tag.endswith("}polyline")]
        self.assertEqual(len(lines), 4)  # two distributions and their marks in the legend
        self.assertEqual(len(lines[0].get("points").split()), 8)

    def test_a_window_of_a_trace(self):
        with FakeOpenAI() as server:
            _, saved = self.measure(server, "--trace", CONVERSATION, "--trace-start", "501",
                                    "--trace-seconds", "3", "--rate-scale", "10",
                                    "--trace-max-input-len", "5", "--trace-max-output-len", "2",
                                    "--slo", "ttft=60s")
        with open(CONVERSATION, encoding="utf-8") as file:
            times = [datetime.datetime.fromisoformat(line.split(",")[0][:26])
                     for line in file.read().splitlines()[1:]]
        seconds = [(time - times[0]).total_seconds() for time in times]
        expected = [(second - 501) / 10 for second in seconds if 501 <= second < 504]
        self.assertGreater(len(expected), 3)
        self.assertEqual(len(saved["start_times"]), len(expected))
        for start, due in zip(saved["start_times"], expected):
            self.assertGreaterEqual(start, due - 1e-6)
        self.assertEqual(saved["violating_seconds"], {"ttft": 0, "of": 1})
        self.assertEqual((saved["trace_start"], saved["trace_seconds"]), (501, 3))

    def test_every_second_is_written(self):
        with FakeOpenAI(token_seconds=0.02) as server:
            result, saved = self.measure(
                server, "--num-prompts", "8", "--request-rate", "8", "--random-input-len", "3",
                "--random-output-len", "20", "--slo", "ttft=1us,tpot=60s", "--per-second",
                "--metadata", "device=H200", "commit=1a2b3c")
        seconds = saved["seconds"]
        self.assertEqual(sum(second["requests"] for second in seconds), 8)
        self.assertEqual(sum(second["output_tokens"] for second in seconds), 160)
        for start in saved["start_times"]:
            self.assertGreater(seconds[int(start)]["requests"], 0)
        # An interval counts more than once where it covers a whole second.
        self.assertGreaterEqual(sum(second["tpot_ms"]["count"] for second in seconds
                                    if second["tpot_ms"]), 8 * 19)
        for second in seconds:
            self.assertEqual(second["violations"], ["ttft"] if second["ttft_ms"] else [])
            if second["tpot_ms"]:
                percentiles = [second["tpot_ms"][name] for name in ("p50", "p90", "p99")]
                self.assertEqual(percentiles, sorted(percentiles))
        said = rows(result)
        num_load = int(said["Seconds of load"])
        self.assertEqual(said["Seconds with P90 TPOT above its SLO"], 0)
        self.assertEqual(said["Seconds with P90 TTFT above its SLO"],
                         sum(second["violations"] != [] for second in seconds[:num_load]))
        table = result.stdout[result.stdout.index("second  req/s"):].splitlines()
        self.assertEqual(len(table), 1 + len(seconds))
        self.assertEqual(saved["metadata"], {"device": "H200", "commit": "1a2b3c"})
        self.assertRegex(saved["date"], r"^\d{4}-\d\d-\d\dT")

    def test_precision_and_tokens_of_events(self):
        arguments = ("--num-prompts", "3", "--random-input-len", "3", "--random-output-len", "6",
                     "--continuous-usage")
        with tempfile.TemporaryDirectory() as folder, FakeOpenAI() as server:
            path = os.path.join(folder, "t.svg")
            result, saved = self.measure(server, *arguments, "--timeline-svg", path, "--slo",
                                         "tpot=33.3ms", model="precision")
            root = xml.etree.ElementTree.parse(path).getroot()
            self.assertEqual(rows(result)["Generated tokens in low"], 9)
            self.assertEqual(saved["output_tokens_by_precision"], {"full": 9, "low": 9})
            by_second = [second.get("output_tokens_by_precision", {})
                         for second in saved["seconds"]]
            self.assertEqual(sum(tokens.get("full", 0) for tokens in by_second), 9)
            self.assertEqual(sum(tokens.get("low", 0) for tokens in by_second), 9)
            texts = [node.text for node in root.iter() if node.tag.endswith("}text")]
            for text in "requests/s", "P90 TPOT (ms)", "SLO 33.3 ms", "full", "low":
                self.assertIn(text, texts)
            _, saved = self.measure(server, *arguments, model="pairs")
            self.assertEqual(sum(second["output_tokens"] for second in saved["seconds"]), 18)
            result, saved = self.measure(server, *arguments[:-1], model="pairs")
            self.assertEqual(sum(second["output_tokens"] for second in saved["seconds"]), 9)
            self.assertIn("events have 2.00 tokens", result.stderr)
            self.assertNotIn("output_tokens_by_precision", saved)

    def test_warmups_are_not_counted(self):
        with FakeOpenAI() as server:
            _, saved = self.measure(server, "--num-prompts", "3", "--num-warmups", "2",
                                    "--random-input-len", "3", "--random-output-len", "2")
            self.assertEqual(len(server.requests), 5)
        self.assertEqual(saved["completed"], 3)

    def test_wrong_options_are_one_line_and_exit_code_2(self):
        with FakeOpenAI() as server:
            for args, text in ((["--slo", "ttft=1"], "--slo: expected a duration"),
                               (["--trace", "/no/such"], "/no/such"),
                               (["--trace", "x", "--request-rate", "1"], "--request-rate"),
                               (["--rate-scale", "2"], "--trace"),
                               (["--trace-start", "2"], "--trace"),
                               (["--trace", CONVERSATION, "--trace-start", "9999"],
                                "expected requests from second 9999"),
                               (["--peak-request-rate", "2"], "--request-rate"),
                               (["--peak-request-rate", "2", "--request-rate", "3"],
                                "--peak-request-rate: expected at least --request-rate"),
                               (["--peak-period", "2"], "--peak-request-rate"),
                               (["--metadata", "device"], "--metadata: expected NAME=VALUE"),
                               (["--request-rate", "0"], "--request-rate"),
                               (["--endpoint", "/a b"], "--endpoint: expected a path"),
                               (["--random-range-ratio", "1"], "--random-range-ratio"),
                               (["--json", "/no/such/file"], "cannot write")):
                result = bench(server, "--num-prompts", "1", "--random-input-len", "3", *args)
                self.assertEqual(result.returncode, 2, (args, result.stderr))
                self.assertIn(text, result.stderr)
                self.assertEqual(len(result.stderr.splitlines()), 1)
        result = bench("localhost:8000")
        self.assertEqual(result.returncode, 2)
        self.assertIn("expected http://", result.stderr)
        self.assertEqual(bench("https://localhost").returncode, 4)


class BenchServeOverhead(unittest.TestCase):
    def test_streams_through_the_whole_server(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "r.json")
            result = subprocess.run(
                [HALLEY, "bench", "serve-overhead", "--clients", "5", "--rate", "200",
                 "--seconds", "0.5", "--output-len", "20", "--json", path],
                capture_output=True, text=True, timeout=120, check=False)
            self.assertEqual(result.returncode, 0, result.stderr)
            with open(path, encoding="utf-8") as file:
                saved = json.load(file)
        self.assertEqual(saved["clients"], 5)
        for phase in saved["paced"], saved["flat_out"]:
            self.assertGreater(phase["tokens_per_second"], 0)
            self.assertGreater(phase["server_cpu_us_per_token"], 0)
            self.assertGreater(phase["added_latency_ms_p99"], 0)
        # The model's pace is what bounds the paced phase.
        self.assertLess(saved["paced"]["tokens_per_second"], 400)
        self.assertIn("added latency", result.stdout)

    def test_its_server_ends_with_it(self):
        process = subprocess.Popen([HALLEY, "bench", "serve-overhead", "--clients", "2",
                                    "--seconds", "600"], stdout=subprocess.DEVNULL,
                                   stderr=subprocess.DEVNULL)
        try:
            children = ""
            while not children:
                with open(f"/proc/{process.pid}/task/{process.pid}/children",
                          encoding="ascii") as file:
                    children = file.read()
                self.assertIsNone(process.poll())
        finally:
            process.kill()
            process.wait(60)
        deadline = time.monotonic() + 60
        while self.is_running(int(children)):
            self.assertLess(time.monotonic(), deadline, "the server goes on")
            time.sleep(0.01)

    @staticmethod
    def is_running(pid):
        try:
            with open(f"/proc/{pid}/stat", encoding="ascii") as file:
                return file.read().rsplit(")", 1)[1].split()[0] != "Z"
        except OSError:
            return False


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
