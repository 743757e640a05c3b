"""packaging/ray with Ray Serve on this machine: replicas of the demo model that are killed, scaled
away and added while clients send requests.

    ray_test.py HALLEY_BINARY SOURCE_DIR [unittest arguments]

Runs under the Python of .venv/deploy, which tools/setup.sh --deploy-tests makes; exits with 77
where it has no Ray.
"""
import glob
import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest
from concurrent.futures import ThreadPoolExecutor

HALLEY, SOURCE = os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2])
MODEL = os.path.join(SOURCE, "models", "demo-21m")
PACKAGE = os.path.join(SOURCE, "packaging", "ray")
sys.path.insert(0, PACKAGE)
# Workers find the package by it, as those of a user's cluster do.
os.environ["PYTHONPATH"] = PACKAGE
os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
# Workers are nice by default, and others may load the machine: then it is slow, not broken.
os.environ["RAY_worker_niceness"] = "0"
os.environ["RAY_SERVE_PROXY_READY_CHECK_TIMEOUT_S"] = "60"
os.environ["RAY_SERVE_PROXY_HEALTH_CHECK_TIMEOUT_S"] = "60"
# Ray would end the test's processes where others use the machine's memory.
os.environ["RAY_memory_monitor_refresh_ms"] = "0"
os.environ["RAY_SERVE_REPLICA_AUTOSCALING_METRIC_PUSH_INTERVAL_S"] = "1"
try:
    import ray
    from ray import serve
except ImportError:
    print("SKIPPED: no Ray Serve; run tools/setup.sh --deploy-tests")
    sys.exit(77)
import yaml  # noqa: E402

NAME = f"ray-test-{os.getpid()}"
LIMIT_S = 180
ANSWER_TOKENS = 150


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def wait_until(condition, what):
    deadline = time.monotonic() + LIMIT_S
    while not (value := condition()):
        if time.monotonic() > deadline:
            raise AssertionError(f"after {LIMIT_S} s: {what}")
        time.sleep(0.1)
    return value


def halley_pids():
    """Processes of `halley serve` that this test's application started."""
    pids = set()
    for path in glob.glob("/proc/[0-9]*/cmdline"):
        try:
            with open(path, "rb") as file:
                words = file.read().split(b"\0")
        except OSError:
            continue
        if words[0] == HALLEY.encode() and NAME.encode() in words:
            pids.add(int(path.split("/")[2]))
    return pids


class Answer:
    """A request of /v1/completions and what came of it."""

    def __init__(self, port, index, **fields):
        self.connection = http.client.HTTPConnection("127.0.0.1", port, timeout=LIMIT_S)
        # Prompts that differ from their first byte on: they share no prefix key.
        self.body = {"prompt": f"{index} " + "the Python language " * 40, "ignore_eos": True,
                     "max_tokens": ANSWER_TOKENS, **fields}

    def begin(self):
        self.connection.request("POST", "/v1/completions", json.dumps(self.body))
        self.response = self.connection.getresponse()
        self.replica = self.response.getheader("x-halley-replica")
        return self

    def end(self):
        """"complete", or the code of the error."""
        text = self.response.read().decode()
        self.connection.close()
        if not self.body.get("stream"):
            if self.response.status != 200:
                return json.loads(text)["error"]["code"]
            choices = json.loads(text)["choices"]
            assert len(choices) == self.body.get("n", 1), choices
        else:
            assert self.response.status == 200, text
            events = text.split("\n\n")
            assert events[-2:] == ["data: [DONE]", ""], text[-500:]
            events = [json.loads(event.removeprefix("data: ")) for event in events[:-2]
                      if not event.startswith(":")]
            if "error" in events[-1]:
                return events[-1]["error"]["code"]
            choices = [event["choices"][0] for event in events if event["choices"]]
            choices = [choice for choice in choices if choice["finish_reason"]]
        assert {choice["finish_reason"] for choice in choices} == {"length"}, text[-500:]
        return "complete"


class Cluster(unittest.TestCase):
    """One Ray cluster for all tests; each says first how many replicas it wants."""

    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.folder.cleanup)
        cls.port = free_port()
        cls.context = ray.init(num_cpus=2, object_store_memory=80 << 20, include_dashboard=False,
                               log_to_driver=False, configure_logging=False)
        cls.addClassCleanup(ray.shutdown)
        cls.addClassCleanup(serve.shutdown)

    def deploy(self, **deployment):
        """Deploys as a user does, by a configuration of Serve, and waits until it is so."""
        config = {
            "proxy_location": "HeadOnly",
            "http_options": {"host": "127.0.0.1", "port": self.port},
            "applications": [{
                "name": "halley", "route_prefix": "/", "import_path": "halley_ray.app:build",
                "args": {"model": MODEL, "binary": HALLEY, "num_cpus": 0.5,
                         "stream_interval_ms": 100,
                         "options": ["--served-model-name", NAME, "--max-num-seqs", "64",
                                     "--kv-cache-memory-bytes", "256MB", "--no-self-check"]},
                "deployments": [{"name": "HalleyReplica", **deployment}]}]}
        path = os.path.join(self.folder.name, "serve.yaml")
        with open(path, "w", encoding="utf-8") as file:
            yaml.safe_dump(config, file)
        result = subprocess.run(
            [os.path.join(os.path.dirname(sys.executable), "serve"), "run", "--address",
             self.context.address_info["gcs_address"], "--non-blocking", path],
            capture_output=True, text=True, timeout=LIMIT_S, check=False)
        self.assertEqual(result.returncode, 0, result.stderr)
        num_replicas = deployment.get("num_replicas") or 1
        wait_until(lambda: self.status() == ("RUNNING", num_replicas)
                   and len(halley_pids()) == num_replicas, "the application does not run")

    @staticmethod
    def status():
        application = serve.status().applications.get("halley")
        if application is None or "HalleyReplica" not in application.deployments:
            return None
        states = application.deployments["HalleyReplica"].replica_states
        return application.status.value, states.get("RUNNING", 0) if len(states) <= 1 else None

    def begin(self, count, **fields):
        """Requests in flight: streams have begun, of others nothing has come."""
        answers = [Answer(self.port, index, **fields) for index in range(count)]
        with ThreadPoolExecutor(count) as pool:
            return list(pool.map(Answer.begin, answers))

    def test_a_killed_replica_loses_what_it_had_begun_and_no_more(self):
        self.deploy(num_replicas=2)
        pids = halley_pids()
        pool = ThreadPoolExecutor(64)
        self.addCleanup(pool.shutdown)
        # All sequences of a replica run together, so that each stream lasts until the kill.
        streams = self.begin(6, stream=True, n=8, max_tokens=700)
        replicas = {stream.replica for stream in streams}
        self.assertEqual(len(replicas), 2, "the router left a replica out")
        # Behind the streams in the queues, so that nothing of them has been sent.
        wholes = [pool.submit(lambda index=index: Answer(self.port, index, n=2).begin().end())
                  for index in range(100, 108)]
        victim = min(pids)
        os.kill(victim, signal.SIGKILL)
        ends = list(pool.map(Answer.end, streams))
        failed = {stream.replica for stream, end in zip(streams, ends) if end != "complete"}
        self.assertEqual(set(ends), {"complete", "replica_failed"})
        self.assertEqual(len(failed), 1, "streams of the other replica failed too")
        self.assertEqual([whole.result() for whole in wholes], ["complete"] * len(wholes))
        # New requests go to the rest until Serve has replaced the replica.
        while len(halley_pids() - {victim}) < 2:
            answer = Answer(self.port, 200, max_tokens=4).begin()
            self.assertNotIn(answer.replica, failed)
            self.assertEqual(answer.end(), "complete")
        wait_until(lambda: self.status() == ("RUNNING", 2), "the replica is not replaced")

    def test_a_replica_that_is_killed_takes_its_server_with_it(self):
        self.deploy(num_replicas=1)
        pid, = halley_pids()
        stream = self.begin(1, stream=True, n=16)[0]
        with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
            parent = int(file.read().rsplit(")", 1)[1].split()[1])
        os.kill(parent, signal.SIGKILL)
        self.assertEqual(stream.end(), "replica_failed")
        wait_until(lambda: pid not in halley_pids(), "the server outlives its replica")
        # There is no other replica: this one waits until Serve has replaced it.
        self.assertEqual(Answer(self.port, 1, max_tokens=4).begin().end(), "complete")

    def test_a_replica_that_is_scaled_away_loses_nothing(self):
        self.deploy(num_replicas=2)
        pids = halley_pids()
        pool = ThreadPoolExecutor(64)
        self.addCleanup(pool.shutdown)
        is_done = []

        def load(index):
            answers = []
            while not is_done:
                answer = Answer(self.port, index, n=4, stream=index % 2 == 0).begin()
                answers.append((answer.replica, answer.end()))
            return answers

        clients = [pool.submit(load, index) for index in range(6)]
        self.deploy(num_replicas=1)
        is_done.append(True)
        answers = [answer for client in clients for answer in client.result()]
        self.assertEqual(len({replica for replica, _ in answers}), 2)
        self.assertEqual({end for _, end in answers}, {"complete"})
        self.assertLess(halley_pids(), pids)
        logs = glob.glob(os.path.join(self.context.address_info["session_dir"], "logs",
                                      "worker-*.err"))
        texts = []
        for path in logs:
            with open(path, encoding="utf-8", errors="replace") as file:
                texts.append(file.read())
        self.assertIn('"event":"draining"', "".join(texts).replace(": ", ":"))

    def test_prompts_with_the_same_beginning_go_to_the_replica_that_has_it(self):
        self.deploy(num_replicas=2)
        replicas = set()
        for index in range(8):
            answer = Answer(self.port, 0, max_tokens=1, prompt="one beginning " * 60 + str(index))
            replicas.add(answer.begin().replica)
            usage = json.loads(answer.response.read())["usage"]
            answer.connection.close()
        self.assertEqual(len(replicas), 1)
        self.assertGreater(usage["prompt_tokens_details"]["cached_tokens"], 100)

    def test_a_client_that_goes_ends_its_request_on_the_replica(self):
        self.deploy(num_replicas=1)
        handle = serve.get_deployment_handle("HalleyReplica", "halley")

        def running():
            return handle.record_autoscaling_stats.remote().result()["num_requests_running"]

        stream = self.begin(1, stream=True, n=32)[0]
        self.assertGreater(running(), 0)
        began = time.monotonic()
        stream.response.close()
        stream.connection.close()
        wait_until(lambda: running() == 0, "the request goes on without its client")
        gone_s = time.monotonic() - began
        began = time.monotonic()
        self.assertEqual(Answer(self.port, 0, n=32).begin().end(), "complete")
        self.assertLess(gone_s, (time.monotonic() - began) / 2)

    def test_waiting_requests_add_a_replica(self):
        self.deploy(autoscaling_config={
            "min_replicas": 1, "max_replicas": 2, "upscale_delay_s": 0, "downscale_delay_s": 1,
            "look_back_period_s": 11, "policy": {
                "policy_function": "halley_ray.autoscaling:WaitingRequestsPolicy",
                "policy_kwargs": {"target_waiting": 4}}})
        answers = [Answer(self.port, index, n=48) for index in range(6)]
        with ThreadPoolExecutor(len(answers)) as pool:
            ends = pool.map(lambda answer: answer.begin().end(), answers)
            wait_until(lambda: len(halley_pids()) == 2, "no replica was added")
            self.assertEqual(list(ends), ["complete"] * len(answers))
        wait_until(lambda: len(halley_pids()) == 1, "the idle replica stays")

    def test_errors_of_the_server_and_of_the_gateway_are_passed_on(self):
        self.deploy(num_replicas=1)
        answer = Answer(self.port, 0, max_tokens=-1).begin()
        self.assertEqual(answer.response.status, 400)
        self.assertEqual(json.loads(answer.response.read())["error"]["param"], "max_tokens")
        answer.connection.request("GET", "/v1/models")
        self.assertEqual(json.loads(answer.connection.getresponse().read())["data"][0]["id"], NAME)
        # Clients write the path, but never the host that it is asked of.
        for path in f"/v1/models/{NAME[:3]}%2F", f"//localhost:{self.port}/v1/models":
            answer.connection.request("GET", path)
            response = answer.connection.getresponse()
            self.assertEqual((response.status, "error" in json.loads(response.read())),
                             (404, True), path)
        answer.connection.request("GET", "/metrics")
        self.assertEqual(answer.connection.getresponse().status, 404)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]], verbosity=1)
