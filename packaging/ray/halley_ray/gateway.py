"""The Serve deployment that takes HTTP requests and answers with what a replica sends."""
import dataclasses
import json
from contextlib import aclosing
from urllib.parse import quote

from ray.exceptions import RayError
from ray.serve.exceptions import BackPressureError, RayServeException
from starlette.responses import Response, StreamingResponse

from halley_ray.messages import AnswerHead, ForwardedRequest, ReplicaFailure
from halley_ray.replica import end_to_end
from halley_ray.routing import prefix_key

RETRY_AFTER_S = 1
# One replica answers: what it says of itself would pass for all.
OF_ONE_REPLICA = ("/metrics", "/precision")
# Serve's HTTP proxy writes these itself, x-request-id with the value that the replica got.
OF_THE_PROXY = ("date", "x-request-id")


def error_body(message, code, kind="server_error"):
    return json.dumps({"error": {"message": message, "type": kind, "param": None, "code": code}})


def error_response(status, message, code, kind="server_error"):
    headers = {"Retry-After": str(RETRY_AFTER_S)} if status == 503 else {}
    return Response(error_body(message, code, kind), status, headers, "application/json")


async def read_body(request, limit):
    """The body, or None where it is longer than the limit."""
    parts, size = [], 0
    async for part in request.stream():
        size += len(part)
        if size > limit:
            return None
        parts.append(part)
    return b"".join(parts)


def target_of(request):
    """Path and query as the client wrote them, or None where they name another server."""
    path = request.scope.get("raw_path") or quote(request.scope["path"]).encode()
    query = request.scope.get("query_string", b"")
    target = (path.split(b"?")[0] + (b"?" + query if query else b"")).decode("latin-1")
    return target if target.startswith("/") else None


class BrokenAnswer(Exception):
    """Ends a connection whose answer cannot be completed: the client sees that it is cut."""


class Gateway:
    def __init__(self, replicas, prefix_bytes, num_attempts, body_bytes_max):
        self.replicas = replicas.options(method_name="forward", stream=True)
        self.prefix_bytes = prefix_bytes
        self.num_attempts = num_attempts
        self.body_bytes_max = body_bytes_max

    async def __call__(self, request):
        if request.url.path in OF_ONE_REPLICA:
            return error_response(404, f"{request.url.path} is of one replica. Ray exports the "
                                       "metrics of all.", None, "invalid_request_error")
        body = await read_body(request, self.body_bytes_max)
        if body is None:
            return error_response(413, "The body has more than the limit of "
                                       f"{self.body_bytes_max} bytes.", None,
                                  "invalid_request_error")
        path = target_of(request)
        if path is None:
            return error_response(400, "The path must begin with '/'.", None,
                                  "invalid_request_error")
        return await self.answer(ForwardedRequest(
            method=request.method, path=path,
            # halley serve checks the name of its own address.
            headers=tuple(pair for pair in end_to_end(request.headers.items())
                          if pair[0] not in ("host", "content-length")),
            body=body, prefix_key=prefix_key(body, self.prefix_bytes)))

    async def answer(self, forwarded):
        """Tries replicas until one begins an answer: nothing was sent to the client before."""
        for attempt in range(self.num_attempts):
            is_last = attempt + 1 == self.num_attempts
            stream = self.replicas.remote(forwarded)
            try:
                first = await anext(stream)
            except BackPressureError:
                return error_response(503, "The queue is full. Try again later.", "overloaded")
            except (RayError, RayServeException) as error:
                first = ReplicaFailure("", str(error))  # its id is of no use: Serve drops it
            if isinstance(first, AnswerHead) and (first.status != 503 or is_last):
                return self.response(first, stream)
            # 503: the replica did nothing of it, as its queue is full or it ends.
            stream.cancel()
            forwarded = dataclasses.replace(
                forwarded, avoided_replicas=(*forwarded.avoided_replicas, first.replica_id))
        return error_response(503, "The replicas that computed this answer failed before it began. "
                                   "Try again later.", "replica_failed")

    @staticmethod
    def response(head, stream):
        # A name may come several times, which a dict of headers cannot hold.
        headers = [(name.lower().encode("latin-1"), value.encode("latin-1"))
                   for name, value in head.headers if name.lower() not in OF_THE_PROXY]
        headers.append((b"x-halley-replica", head.replica_id.encode("latin-1")))
        is_events = any(name == b"content-type" and value.startswith(b"text/event-stream")
                        for name, value in headers)
        response = StreamingResponse(pass_events(stream) if is_events else pass_bytes(stream),
                                     head.status)
        response.raw_headers = headers
        return response


async def messages_of(stream):
    """The bytes of an answer and, at most once and last, a ReplicaFailure."""
    try:
        async for message in stream:
            yield message
    except (RayError, RayServeException) as error:
        yield ReplicaFailure("", str(error))
    finally:
        stream.cancel()  # where the client went: the replica drops the connection to its server


async def pass_bytes(stream):
    async with aclosing(messages_of(stream)) as messages:
        async for message in messages:
            if isinstance(message, ReplicaFailure):
                raise BrokenAnswer(f"replica {message.replica_id}: {message.reason}")
            yield message


async def pass_events(stream):
    """Whole events alone, so that the error is one too where the server broke off inside of one."""
    rest = b""
    async with aclosing(messages_of(stream)) as messages:
        async for message in messages:
            if isinstance(message, ReplicaFailure):
                text = error_body("The replica that computed this answer failed. Send the request "
                                  "again.", "replica_failed")
                yield f"data: {text}\n\ndata: [DONE]\n\n".encode()
                return
            rest += message
            end = rest.rfind(b"\n\n") + 2
            if end >= 2:
                yield rest[:end]
                rest = rest[end:]
