"""The Serve deployment that owns one `halley serve` and passes requests on to it."""
import asyncio

import aiohttp
from prometheus_client.parser import text_string_to_metric_families
from ray import serve
from ray.serve import metrics
from yarl import URL

from halley_ray.halley_process import HalleyProcess
from halley_ray.messages import AnswerHead, ReplicaFailure

# They belong to one connection, not to the answer (RFC 9110, section 7.6.1).
HOP_BY_HOP = frozenset(("connection", "keep-alive", "proxy-authenticate", "proxy-authorization",
                        "proxy-connection", "te", "trailer", "transfer-encoding", "upgrade"))
CONNECT_TIMEOUT_S = 5
STATS_TIMEOUT_S = 5
# Gauges of `halley serve` that Serve scales and routes by, and that Ray exports.
EXPORTED_GAUGES = ("num_requests_running", "num_requests_waiting", "kv_cache_usage_perc")


def end_to_end(headers):
    """(name, value) of the headers that a proxy passes on."""
    return tuple((name, value) for name, value in headers if name.lower() not in HOP_BY_HOP)


def server_url(port, path):
    """The URL of a path and query at the server of this replica. A path of a client stays one:
    joined as a reference, `//example.org/` would name another host."""
    if not path.startswith("/"):
        raise ValueError(f"path: expected a '/' first, got {path[:100]!r}")
    return URL(f"http://127.0.0.1:{port}{path}", encoded=True)


def read_gauges(text):
    """{name: value} of EXPORTED_GAUGES in Prometheus' text; ValueError where one is missing."""
    values = {family.name.removeprefix("halley:"): family.samples[0].value
              for family in text_string_to_metric_families(text) if family.samples}
    missing = [name for name in EXPORTED_GAUGES if name not in values]
    if missing:
        raise ValueError(f"/metrics of halley serve: expected halley:{missing[0]}, got none")
    return {name: values[name] for name in EXPORTED_GAUGES}


class HalleyReplica:
    async def __init__(self, binary, options, shutdown_timeout_s, api_key_file,
                       stream_interval_s):
        self.stream_interval_s = stream_interval_s
        self.replica_id = serve.get_replica_context().replica_id.unique_id
        self.process = HalleyProcess(binary, options, shutdown_timeout_s)
        await self.process.wait_until_ready()
        # Without limits: halley serve has those of connections, queue and time.
        self.session = aiohttp.ClientSession(
            auto_decompress=False, connector=aiohttp.TCPConnector(limit=0),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_TIMEOUT_S))
        self.stats_headers = {}
        if api_key_file:
            with open(api_key_file, encoding="utf-8") as file:
                self.stats_headers["Authorization"] = f"Bearer {file.readline().strip()}"
        self.gauges = {name: metrics.Gauge(f"halley_{name}", description=f"halley:{name}")
                       for name in EXPORTED_GAUGES}

    async def forward(self, request):
        """Streams AnswerHead, the answer's bytes, and ReplicaFailure where the server broke off."""
        try:
            async with self.session.request(
                    request.method, server_url(self.process.port, request.path),
                    headers=request.headers, data=request.body, allow_redirects=False) as answer:
                yield AnswerHead(self.replica_id, answer.status, end_to_end(answer.headers.items()))
                is_events = answer.content_type == "text/event-stream"
                async for data in answer.content.iter_any():
                    yield data
                    if is_events:
                        # What comes meanwhile is one message: each is a call of Ray.
                        await asyncio.sleep(self.stream_interval_s)
        except (aiohttp.ClientError, ConnectionError, TimeoutError) as error:
            code = self.process.exit_code
            reason = f"{type(error).__name__}: {error}" if code is None else \
                f"halley serve ended with code {code}"
            yield ReplicaFailure(self.replica_id, reason)

    async def check_health(self):
        """Serve replaces the replica where this raises."""
        code = self.process.exit_code
        if code is not None:
            raise RuntimeError(f"halley serve ended with code {code}")
        async with self.session.get(server_url(self.process.port, "/health")) as answer:
            if answer.status != 200:
                raise RuntimeError(f"/health of halley serve: expected 200, got {answer.status}: "
                                   f"{(await answer.text())[:500]}")

    async def record_routing_stats(self):
        """For routers, and for Ray's own metrics."""
        if self.process.exit_code is not None:
            return {}  # check_health says it
        gauges = await self._read_gauges()
        for name, value in gauges.items():
            self.gauges[name].set(value)
        return gauges

    async def record_autoscaling_stats(self):
        return await self._read_gauges()

    async def _read_gauges(self):
        async with asyncio.timeout(STATS_TIMEOUT_S):
            async with self.session.get(server_url(self.process.port, "/metrics"),
                                        headers=self.stats_headers) as answer:
                answer.raise_for_status()
                return read_gauges(await answer.text())

    async def __del__(self):
        # Serve calls it once, after the requests that it knows of have ended.
        await self.process.stop()
        await self.session.close()
