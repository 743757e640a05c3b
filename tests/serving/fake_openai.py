"""A server that speaks enough of the OpenAI API to test its clients: streams words, and breaks off
where it is asked to.

The model's name in a request chooses what happens:
    demo          a complete stream with usage
    no-usage      the same without usage
    drop          closes in the middle of the stream
    no-done       ends the stream properly, without finish_reason and [DONE]
    server-error  an error object in the middle of the stream
    reject        503 with an error body
    no-stream     200 with JSON that is no stream
    pairs         two tokens in each event
    precision     usage that tells the precision of tokens
    odd           drop for every second request, demo for the others
    endless       words until the client goes
"""
import http.server
import json
import threading
import time

METRICS = """# TYPE halley:num_requests_running gauge
halley:num_requests_running{model_name="demo"} 3.0
# TYPE halley:num_requests_waiting gauge
halley:num_requests_waiting{model_name="demo"} 2.0
# TYPE halley:kv_cache_usage_perc gauge
halley:kv_cache_usage_perc{model_name="demo"} 0.25
# TYPE halley:generation_tokens counter
halley:generation_tokens_total{model_name="demo"} 1234.0
# TYPE halley:model_info gauge
halley:model_info{model_name="demo",format="gptq",kernels="gemm_w4a21_avx512 88",precision="full",\
kv_dtype="f16",dtype="bf16"} 1.0
"""


# Of a model in several precisions.
PRECISION_METRICS = """# TYPE halley:precision_active gauge
halley:precision_active{model_name="demo",precision="f16"} 0.0
halley:precision_active{model_name="demo",precision="e4m3"} 1.0
"""


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def answer(self, status, content, kind="application/json", headers=()):
        data = content if isinstance(content, bytes) else content.encode()
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        for name, value in headers:
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)

    def do_GET(self):
        server = self.server
        if self.path in server.files:
            kind, data, headers = server.files[self.path]
            self.answer(200, data, kind, headers)
        elif self.path == "/metrics":
            text = METRICS + (PRECISION_METRICS if server.precision else "")
            self.answer(200, text, "text/plain; version=0.0.4")
        elif self.path == "/precision" and server.precision:
            self.answer(200, json.dumps(server.precision))
        elif self.path == "/v1/models":
            self.answer(200, json.dumps({"object": "list", "data": [
                {"id": "demo", "object": "model", "max_model_len": 512}]}))
        else:
            self.answer(404, json.dumps({"error": {"message": "not found"}}))

    def chunk(self, data):
        text = f"data: {data if isinstance(data, str) else json.dumps(data)}\n\n".encode()
        self.wfile.write(b"%x\r\n%s\r\n" % (len(text), text))
        self.wfile.flush()

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        server = self.server
        with server.lock:
            index = len(server.requests)
            server.requests.append({"path": self.path, "body": body, "time": time.monotonic(),
                                    "headers": dict(self.headers)})
            server.num_running += 1
            server.most_running = max(server.most_running, server.num_running)
        try:
            self.stream(body, server.model_override or body["model"], index)
        except (BrokenPipeError, ConnectionResetError):
            with server.lock:
                server.num_gone += 1
        finally:
            with server.lock:
                server.num_running -= 1

    def stream(self, body, kind, index):
        if kind == "odd":
            kind = "drop" if index % 2 else "demo"
        if kind == "reject":
            self.answer(503, json.dumps({"error": {"message": "the queue is full"}}))
            return
        if kind == "no-stream":
            self.answer(200, json.dumps({"choices": [{"text": "all at once"}]}))
            return
        is_chat = "chat" in self.path
        num_tokens = body.get("max_tokens") or body.get("max_completion_tokens") or 8
        if kind == "endless":
            num_tokens = 1_000_000
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream; charset=utf-8")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()

        options = body.get("stream_options", {})

        def usage(num_done):
            count = {"prompt_tokens": 11, "completion_tokens": num_done}
            if kind == "precision":  # the second half of an answer is made in low precision
                num_full = min(num_done, num_tokens // 2)
                count["completion_tokens_details"] = {
                    "precision": {"full": num_full, "low": num_done - num_full}}
            return count

        def choice(text, num_done, reason=None):
            inner = {"delta": {"content": text}} if is_chat else {"text": text}
            chunk = {"choices": [{"index": 0, **inner, "finish_reason": reason}]}
            if options.get("continuous_usage_stats"):
                chunk["usage"] = usage(num_done)
            return chunk

        if is_chat:
            self.chunk({"choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}}]})
        for i in range(num_tokens):
            if i == num_tokens // 2 and kind in ("drop", "server-error", "no-done"):
                if kind == "server-error":
                    self.chunk({"error": {"message": "out of memory", "code": 500}})
                if kind == "no-done":
                    self.wfile.write(b"0\r\n\r\n")
                self.close_connection = True
                return
            words = self.server.words
            if kind != "pairs" or i % 2 == 1:
                self.chunk(choice(words[i % len(words)] + " ", i + 1))
            time.sleep(self.server.token_seconds)
        self.chunk(choice("", num_tokens, "length"))
        if kind != "no-usage" and options.get("include_usage"):
            self.chunk({"choices": [], "usage": usage(num_tokens)})
        self.chunk("[DONE]")
        self.wfile.write(b"0\r\n\r\n")


class FakeOpenAI:
    """with FakeOpenAI() as server: server.url, server.requests"""

    def __init__(self, files=None, token_seconds=0.0, words=("word",)):
        http.server.ThreadingHTTPServer.request_queue_size = 256
        self.http = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.http.daemon_threads = True
        self.http.files = files or {}
        self.http.token_seconds = token_seconds
        self.http.words = words
        self.http.requests = []
        self.http.model_override = None  # another model than the request names
        self.http.precision = None  # what /precision answers
        self.http.lock = threading.Lock()
        self.http.num_running = self.http.most_running = self.http.num_gone = 0
        self.url = f"http://127.0.0.1:{self.http.server_address[1]}"

    @property
    def requests(self):
        return self.http.requests

    def __enter__(self):
        threading.Thread(target=self.http.serve_forever, args=(0.01,), daemon=True).start()
        return self

    def __exit__(self, *_):
        self.http.shutdown()
        self.http.server_close()
