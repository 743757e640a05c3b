"""Serves the shipped model in two precisions, of which `halley serve` chooses one for each step.

    serve_precision_test.py HALLEY_BINARY SOURCE_DIR [unittest arguments]

Which precision is faster depends on the machine, so that nothing here depends on what auto chooses.
"""
import json
import os
import re
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from served import Background, Server  # noqa: E402

HALLEY, SOURCE = sys.argv[1], sys.argv[2]
MODEL = os.path.join(SOURCE, "models", "demo-21m")
BODY = {"prompt": "The Python programming language", "max_tokens": 48, "temperature": 0,
        "ignore_eos": True}
PATH = "/v1/completions"


def precision_of(usage):
    counts = usage["completion_tokens_details"]["precision"]
    assert counts["full"] + counts["low"] == usage["completion_tokens"], usage
    return counts["full"], counts["low"]


def events_of(server, name):
    lines = [json.loads(line) for line in server.log.splitlines() if line.startswith("{")]
    return [line for line in lines if line["event"] == name]


class PrecisionTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.folder.cleanup)
        cls.nested = os.path.join(cls.folder.name, "nested")
        subprocess.run([HALLEY, "quantize", MODEL, "--method", "nestedfp", "--out", cls.nested],
                       capture_output=True, timeout=600, check=True)

    def serve(self, *options, model=None):
        server = Server(HALLEY, model or self.nested, "--threads", "2", *options)
        self.addCleanup(server.end)
        return server

    def metric(self, server, name, **labels):
        _, _, text = server.ask("GET", "/metrics")
        inside = "".join(f'.*{key}="{value}"' for key, value in labels.items())
        found = re.findall(rf"^halley:{name}{{{inside}.*}} (\S+)$", text, re.MULTILINE)
        self.assertEqual(len(found), 1, (name, labels))
        return float(found[0])

    def test_a_request_for_full_has_the_bits_of_a_server_that_only_knows_full(self):
        body = {**BODY, "logprobs": 5}
        full = self.serve().post(PATH, body)
        self.assertEqual(precision_of(full["usage"]), (48, 0))
        server = self.serve("--precision", "low", "--slo", "ttft=1us,tpot=1us")
        low = server.post(PATH, body)  # the pages of the prompt are cached in low precision
        self.assertNotEqual(low["choices"], full["choices"])
        others = [Background(lambda i=i: server.post(
            PATH, {**BODY, "prompt": BODY["prompt"][:10 + i], "max_tokens": 300}))
            for i in range(3)]
        for _ in range(3):  # the second time, pages of the prompt may be cached in full precision
            pinned = server.post(PATH, {**body, "precision": "full"})
            self.assertEqual(pinned["choices"], full["choices"])
            self.assertEqual(precision_of(pinned["usage"]), (48, 0))
        for other in others:
            precision_of(other.result()["usage"])

    def test_the_usage_of_streams_tells_the_precision(self):
        server = self.serve("--precision", "low")
        events = server.stream(PATH, {**BODY, "n": 2, "stream_options": {
            "include_usage": True, "continuous_usage_stats": True}})
        counts = [precision_of(event["usage"]) for event in events]
        self.assertEqual(counts[-1], (0, 96))
        self.assertEqual(counts, sorted(counts))
        answer = server.post(PATH, {**BODY, "prompt": ["a", "b"], "precision": "full"})
        self.assertEqual(precision_of(answer["usage"]), (96, 0))

    def test_the_server_tells_what_it_chose(self):
        server = self.serve("--precision", "auto", "--slo", "ttft=1us,tpot=10s")
        server.post(PATH, {**BODY, "precision": "low"})  # a switch for certain
        server.post(PATH, {**BODY, "precision": "full"})
        for metric, total in (("precision_steps_total", "engine_steps_total"),
                              ("precision_tokens_total", "generation_tokens_total")):
            counts = [self.metric(server, metric, precision=name) for name in ("f16", "e4m3")]
            self.assertEqual(sum(counts), self.metric(server, total))
            self.assertGreaterEqual(min(counts), 48)
        for name in "predicted", "measured":
            self.assertGreater(self.metric(server, f"precision_{name}_step_seconds_total",
                                           precision="e4m3"), 0)
        self.assertEqual(self.metric(server, "slo_violations_total", kind="ttft"), 2)
        self.assertEqual(self.metric(server, "slo_violations_total", kind="tpot"), 0)
        self.assertEqual(self.metric(server, "model_info", precision="auto"), 1)
        state = server.get("/precision")
        self.assertEqual((state["mode"], state["precisions"], state["precision"], state["slo"]),
                         ("auto", ["f16", "e4m3"], "f16", {"ttft_ms": 0.001, "tpot_ms": 10000}))
        self.assertEqual([event["precision"] for event in state["last_switches"]],
                         ["e4m3", "f16"])
        ages = [event["seconds_ago"] for event in state["last_switches"]]
        self.assertTrue(120 > ages[0] > ages[1] > 0, ages)
        self.assertEqual(self.metric(server, "precision_active", precision="f16"), 1)
        self.assertEqual(server.end(), 0)
        switches = events_of(server, "precision_switch")
        self.assertEqual([(event["precision"], event["reason"]) for event in switches],
                         [(event["precision"], event["reason"])
                          for event in state["last_switches"]])
        self.assertEqual(events_of(server, "no_slo"), [])

    def test_auto_without_an_slo_is_full_and_says_so(self):
        server = self.serve("--precision", "auto")
        self.assertEqual(precision_of(server.post(PATH, BODY)["usage"]), (48, 0))
        self.assertEqual(server.end(), 0)
        self.assertEqual(len(events_of(server, "no_slo")), 1)

    def test_a_model_with_one_precision_does_not_pretend_to_have_two(self):
        server = self.serve("--slo", "ttft=1us", model=MODEL)
        for mode in "full", "auto":
            usage = server.post(PATH, {**BODY, "precision": mode})["usage"]
            self.assertNotIn("completion_tokens_details", usage)
        status, _, text = server.ask("POST", PATH, {**BODY, "precision": "low"})
        self.assertEqual(status, 400)
        self.assertIn("precision: expected full or auto", text)
        self.assertEqual(server.get("/precision")["precisions"], [])
        self.assertEqual(self.metric(server, "slo_violations_total", kind="ttft"), 2)
        for mode in "low", "auto":
            result = subprocess.run([HALLEY, "serve", MODEL, "--port", "0", "--precision", mode],
                                    capture_output=True, text=True, timeout=120, check=False)
            self.assertEqual(result.returncode, 2, result.stderr)
            self.assertIn("precision: expected a model with weights in two", result.stderr)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]], verbosity=1)
