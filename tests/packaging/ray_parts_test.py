"""packaging/ray without a cluster: arguments, routing, the gateway's answers, the policy.

    ray_parts_test.py HALLEY_BINARY SOURCE_DIR [unittest arguments]

Exits with 77 where there is no Ray: tools/setup.sh --deploy-tests installs it.
"""
import asyncio
import json
import os
import sys
import types
import unittest

HALLEY, SOURCE = os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2])
PACKAGE = os.path.join(SOURCE, "packaging", "ray")
sys.path.insert(0, PACKAGE)
try:
    import ray
    from ray import serve
    from ray.serve.schema import ServeDeploySchema
except ImportError:
    print("SKIPPED: no Ray Serve; run tools/setup.sh --deploy-tests")
    sys.exit(77)
import yaml  # noqa: E402
from halley_ray.app import HalleyArgs, halley_options  # noqa: E402
from halley_ray.autoscaling import WaitingRequestsPolicy  # noqa: E402
from halley_ray.gateway import BrokenAnswer, Gateway, pass_events, target_of  # noqa: E402
from halley_ray.halley_process import HalleyProcess  # noqa: E402
from halley_ray.messages import AnswerHead, ForwardedRequest, ReplicaFailure  # noqa: E402
from halley_ray.replica import read_gauges, server_url  # noqa: E402
from halley_ray.routing import (PrefixAffinityRouter, load_limit, prefix_key,  # noqa: E402
                                rendezvous_order)


class Parts(unittest.TestCase):
    """What needs no cluster."""

    def test_the_example_is_a_configuration_of_serve(self):
        with open(os.path.join(PACKAGE, "serve.yaml"), encoding="utf-8") as file:
            schema = ServeDeploySchema.model_validate(yaml.safe_load(file))
        application, = schema.applications
        args = HalleyArgs.model_validate(application.args)
        self.assertEqual(halley_options(args)[1:3], ["--device", "cuda"])
        scaling = application.deployments[1].autoscaling_config["policy"]
        self.assertEqual(scaling["policy_function"],
                         f"{WaitingRequestsPolicy.__module__}:{WaitingRequestsPolicy.__name__}")
        WaitingRequestsPolicy(**scaling["policy_kwargs"])

    def test_options_that_the_application_gives_are_rejected(self):
        with self.assertRaisesRegex(ValueError, "got --port.*loopback"):
            HalleyArgs(model="m", options=["--port", "8000"])
        with self.assertRaisesRegex(ValueError, "argument shutdown_timeout_s"):
            HalleyArgs(model="m", options=["--shutdown-timeout=5"])

    def test_prompts_share_a_key_as_far_as_their_beginnings_are_equal(self):
        def key(text, member="prompt"):
            return prefix_key(json.dumps({"model": "m", member: text}).encode(), 64)
        same = "a" * 64
        self.assertEqual(key(same + "b"), key(same + "c"))
        self.assertNotEqual(key(same), key("b" + same))
        self.assertIsNotNone(key([{"role": "user", "content": same}], "messages"))
        self.assertIsNone(key("short"))
        self.assertIsNone(key(same, "input"))
        # Text that looks like a member is no prompt: its quotes are escaped.
        self.assertIsNone(key('"prompt": ' + same, "input"))

    def test_a_replica_that_goes_moves_its_own_keys_alone(self):
        ids = [f"replica{index}" for index in range(5)]
        before = {key: rendezvous_order(key, ids)[0] for key in range(1000)}
        after = {key: rendezvous_order(key, ids[:-1])[0] for key in range(1000)}
        self.assertTrue(all(after[key] == first for key, first in before.items()
                            if first != ids[-1]))
        shares = [list(before.values()).count(name) for name in ids]
        self.assertGreater(min(shares), 120)

    def test_some_replica_is_below_the_limit_of_loads(self):
        for loads in ([0], [100, 100], [7, 90, 3], [8, 8, 8]):
            self.assertLess(min(loads), load_limit(loads, 1.25, 1))
        self.assertEqual(load_limit([0, 2], 1.25, 8), 8)

    def test_the_policy_is_that_of_two_averages(self):
        def desired(waiting, running):
            metrics = {"num_requests_waiting": waiting, "num_requests_running": running}
            return WaitingRequestsPolicy(target_waiting=4, target_requests=48)(
                types.SimpleNamespace(aggregated_metrics=metrics, target_num_replicas=7))[0]
        self.assertEqual(desired({"a": 0}, {"a": 48}), 1)
        self.assertEqual(desired({"a": 9}, {"a": 64}), 3)
        self.assertEqual(desired({"a": 0, "b": 0}, {"a": 40, "b": 40}), 2)
        self.assertEqual(desired({}, {}), 7)
        with self.assertRaisesRegex(ValueError, "target_waiting: expected more than 0, got 0"):
            WaitingRequestsPolicy(target_waiting=0)

    def test_a_server_that_does_not_start_tells_why(self):
        process = HalleyProcess(HALLEY, ["no-such-folder"], 1)
        with self.assertRaisesRegex(RuntimeError, "(?s)expected the line.*code [1-9].*no-such-fo"):
            asyncio.run(process.wait_until_ready())

    def test_a_path_names_no_other_host(self):
        for path in "//example.org/v1", "/@example.org:1/", "/%2F%2Fexample.org?a=//example.org":
            url = server_url(8000, path)
            self.assertEqual((url.host, url.port, url.raw_path_qs), ("127.0.0.1", 8000, path))
        with self.assertRaisesRegex(ValueError, "path: expected a '/' first, got 'http://e"):
            server_url(8000, "http://example.org/")

    def test_targets_are_passed_on_as_they_came(self):
        def target(**scope):
            return target_of(types.SimpleNamespace(scope=scope))
        self.assertEqual(target(raw_path=b"/v1/models/a%2Fb", query_string=b"x=%20"),
                         "/v1/models/a%2Fb?x=%20")
        self.assertEqual(target(path="/v1/a b"), "/v1/a%20b")
        self.assertIsNone(target(raw_path=b"http://example.org/"))

    def test_metrics_without_a_gauge_are_an_error(self):
        with self.assertRaisesRegex(ValueError, "expected halley:num_requests_waiting, got none"):
            read_gauges("# TYPE halley:num_requests_running gauge\n"
                        'halley:num_requests_running{model_name="m"} 3\n')


class Router(unittest.IsolatedAsyncioTestCase):
    async def ranks(self, loads, key, avoided=()):
        """The order in which replicas with these loads are asked for a request."""
        router = PrefixAffinityRouter.__new__(PrefixAffinityRouter)
        router.initialize_state()
        router.load_of = lambda replica: loads[replica.replica_id.unique_id]
        replicas = [types.SimpleNamespace(replica_id=types.SimpleNamespace(unique_id=name))
                    for name in loads]
        pending = types.SimpleNamespace(
            args=[ForwardedRequest("POST", "/", (), b"", key, avoided)],
            routing_context=types.SimpleNamespace(should_backoff=False))
        ranks = await router.choose_replicas(replicas, pending)
        self.assertTrue(pending.routing_context.should_backoff)
        return [{replica.replica_id.unique_id for replica in rank} for rank in ranks]

    async def test_the_key_decides_up_to_the_limit(self):
        first, second = rendezvous_order("key", ["a", "b"])
        self.assertEqual((await self.ranks({"a": 0, "b": 0}, "key"))[:2], [{first}, {second}])
        self.assertEqual((await self.ranks({first: 60, second: 20}, "key"))[0], {second})

    async def test_without_a_key_serve_chooses_among_two(self):
        self.assertEqual(await self.ranks({"a": 9, "b": 0}, None), [{"a", "b"}])
        ranks = await self.ranks({name: 0 for name in "abcdef"}, None)
        self.assertEqual([len(rank) for rank in ranks], [2])

    async def test_replicas_that_failed_the_request_come_last(self):
        for key in "key", None:
            ranks = await self.ranks({"a": 0, "b": 0, "c": 0}, key, avoided=("b",))
            self.assertEqual(ranks[-1], {"b"})
            self.assertFalse(any("b" in rank for rank in ranks[:-1]))
        self.assertEqual(await self.ranks({"a": 0}, "key", avoided=("a",)), [{"a"}])


class Stream:
    """What a replica sends, as Serve's generator of a response."""

    def __init__(self, messages):
        self.messages = list(messages)

    def __aiter__(self):
        return self

    async def __anext__(self):
        if not self.messages:
            raise StopAsyncIteration
        message = self.messages.pop(0)
        if isinstance(message, Exception):
            raise message
        return message

    def cancel(self):
        self.messages = None


class Replicas:
    """A handle whose calls give these streams one after the other."""

    def __init__(self, *streams):
        self.streams, self.requests = [Stream(messages) for messages in streams], []

    def options(self, **_):
        return self

    def remote(self, request):
        self.requests.append(request)
        return self.streams[len(self.requests) - 1]


class GatewayTest(unittest.IsolatedAsyncioTestCase):
    REQUEST = ForwardedRequest("POST", "/v1/completions", (), b"{}", None)
    FULL = AnswerHead("a", 503, (("Retry-After", "5"),))
    OK = AnswerHead("b", 200, (("Content-Type", "application/json"), ("Date", "today")))

    async def answer(self, *streams):
        """(the response, its body, the requests that replicas got)"""
        replicas = Replicas(*streams)
        response = await Gateway(replicas, 64, 2, 1000).answer(self.REQUEST)
        if not hasattr(response, "body_iterator"):
            return response, response.body, replicas.requests
        return response, b"".join([part async for part in response.body_iterator]), \
            replicas.requests

    async def test_what_a_replica_rejects_or_fails_another_one_answers(self):
        for first in (self.FULL, ReplicaFailure("a", "gone")):
            response, body, requests = await self.answer([first], [self.OK, b"{", b"}"])
            self.assertEqual((response.status_code, body), (200, b"{}"))
            self.assertEqual([request.avoided_replicas for request in requests], [(), ("a",)])
            self.assertEqual(response.raw_headers, [(b"content-type", b"application/json"),
                                                    (b"x-halley-replica", b"b")])

    async def test_the_last_rejection_is_passed_on(self):
        response, body, _ = await self.answer([self.FULL], [self.FULL, b"full"])
        self.assertEqual((response.status_code, body), (503, b"full"))
        self.assertIn((b"retry-after", b"5"), response.raw_headers)

    async def test_where_all_fail_the_error_says_so(self):
        for failure in (ReplicaFailure("a", "gone"), ray.exceptions.RayActorError(),
                        serve.exceptions.RayServeException("it is being deleted")):
            response, body, requests = await self.answer([failure], [failure])
            self.assertEqual((response.status_code, response.headers["Retry-After"]), (503, "1"))
            self.assertEqual(json.loads(body)["error"]["code"], "replica_failed")
            self.assertEqual(len(requests), 2)

    async def test_a_full_queue_of_serve_is_an_error_of_the_api(self):
        response, body, requests = await self.answer([serve.exceptions.BackPressureError(
            num_queued_requests=1, max_queued_requests=1)])
        self.assertEqual((response.status_code, len(requests)), (503, 1))
        self.assertEqual(json.loads(body)["error"]["code"], "overloaded")

    async def test_a_whole_answer_that_breaks_off_ends_its_connection(self):
        with self.assertRaisesRegex(BrokenAnswer, "replica b: gone"):
            await self.answer([self.OK, b"{", ReplicaFailure("b", "gone")])

    async def test_an_event_that_was_cut_gives_way_to_the_error(self):
        stream = Stream([b"data: 1\n", b"\ndata: 2\n\ndata: {\"cu", ReplicaFailure("a", "gone")])
        text = b"".join([part async for part in pass_events(stream)]).decode()
        events = text.split("\n\n")
        self.assertEqual((events[:2], events[3:]), (["data: 1", "data: 2"], ["data: [DONE]", ""]))
        self.assertEqual(json.loads(events[2].removeprefix("data: "))["error"]["code"],
                         "replica_failed")
        self.assertIsNone(stream.messages)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
