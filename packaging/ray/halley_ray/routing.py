"""Which replica gets a request: the one that has its prompt's beginning in the KV cache, unless
that one has more than its share of the load."""
import hashlib
import math
import random
import re

from ray.serve.request_router import RequestRouter

PROMPT = re.compile(rb'"(?:prompt|messages)"\s*:\s*')
# Members before the prompt are short; a prompt that comes later has no key.
SEARCHED_BYTES = 65536


def prefix_key(body, num_bytes):
    """A key that requests share whose prompts begin with the same `num_bytes` bytes of JSON, or
    None: for other bodies, and for prompts that are too short to be worth a cached prefix.

    The body is not parsed: a quote inside of a JSON string is escaped, so that the pattern finds
    members alone, and two clients that write the same prompt differently only lose cache hits.
    """
    match = PROMPT.search(body, 0, SEARCHED_BYTES)
    block = body[match.end():match.end() + num_bytes] if match else b""
    if len(block) < num_bytes:
        return None
    return hashlib.blake2b(block, digest_size=16).hexdigest()


def rendezvous_order(key, replica_ids):
    """The ids in the key's order of preference. Where one comes or goes, only the keys change
    their first replica that had it or get it (rendezvous hashing)."""
    return sorted(replica_ids, key=lambda replica_id: hashlib.blake2b(
        f"{key} {replica_id}".encode(), digest_size=8).digest())


def load_limit(loads, load_factor, min_limit):
    """Requests that a replica may have and still get those of its prefixes: `load_factor` times
    the mean with the new request (consistent hashing with bounded loads), at least `min_limit`."""
    return max(min_limit, math.ceil(load_factor * (sum(loads) + 1) / len(loads)))


class PrefixAffinityRouter(RequestRouter):
    """Rendezvous hashing with bounded loads by the request's prefix_key; without a key the better
    one of two random replicas. Replicas that failed the request come last."""

    def initialize_state(self, load_factor=1.25, min_limit=8):
        self.load_factor, self.min_limit = load_factor, min_limit

    def load_of(self, replica):
        """Requests of the replica: what this router knows, else what the server last said."""
        known = self.replica_queue_len_cache.get(replica.replica_id)
        if known is not None:
            return known
        stats = replica.routing_stats
        return stats.get("num_requests_running", 0) + stats.get("num_requests_waiting", 0)

    async def choose_replicas(self, candidate_replicas, pending_request=None):
        request = pending_request.args[0] if pending_request and pending_request.args else None
        if pending_request:
            # Where all are full, Serve waits before it asks again.
            pending_request.routing_context.should_backoff = True
        avoided = set(request.avoided_replicas) if request else set()
        by_id = {replica.replica_id.unique_id: replica for replica in candidate_replicas}
        usable = [replica_id for replica_id in by_id if replica_id not in avoided]
        ranks = []
        if request and request.prefix_key and usable:
            loads = {replica_id: self.load_of(by_id[replica_id]) for replica_id in usable}
            limit = load_limit(loads.values(), self.load_factor, self.min_limit)
            order = rendezvous_order(request.prefix_key, usable)
            ranks = [[replica_id] for replica_id in order if loads[replica_id] < limit]
        ranks.append(random.sample(usable, min(2, len(usable))))
        ranks.append([replica_id for replica_id in by_id if replica_id in avoided])
        return [[by_id[replica_id] for replica_id in rank] for rank in ranks if rank]
