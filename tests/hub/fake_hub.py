"""A hub of models on this machine: the routes of Hugging Face's that `halley pull` uses, and a
second server that large files are stored at, with faults on demand.
"""
import hashlib
import http.server
import json
import re
import ssl
import threading
import time
import urllib.parse

COMMIT = "0123456789abcdef0123456789abcdef01234567"
TOKEN = "hf_secret_of_a_test"


def git_sha1(data):
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()


class Request:
    def __init__(self, handler):
        self.method, self.path = handler.command, urllib.parse.unquote(handler.path)
        self.token = handler.headers.get("Authorization")
        self.range = handler.headers.get("Range")


class Server:
    """An HTTP server on a thread, which notes the requests that it gets."""

    def __init__(self, answer, certificate=None):
        self.requests = requests = []

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self):
                request = Request(self)
                requests.append(request)
                answer(self, request)

            do_HEAD = do_GET

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        scheme = "http"
        if certificate:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(*certificate)
            self.server.socket = context.wrap_socket(self.server.socket, server_side=True)
            scheme = "https"
        self.url = f"{scheme}://127.0.0.1:{self.server.server_port}"
        self.thread = threading.Thread(target=self.server.serve_forever, daemon=True)
        self.thread.start()

    def close(self):
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()


class Hub:
    """`files` are those of the model org/name; what ends in .safetensors or .gguf is large."""

    def __init__(self, files, certificate=None):
        self.files = files
        self.listed_names = None      # instead of the names of `files`
        self.has_checksums = True     # in the list of files
        self.has_ranges = True
        self.gate = None              # a token that all files need
        self.gate_status = 401
        self.cuts = []                # for each download of a large file: bytes before it is cut
        self.busy = 0                 # so many requests are answered with 503
        self.changed = {}             # large files that are stored wrongly
        self.pause = 0                # seconds before a large file
        self.redirect_to = None       # instead of the store
        self.store = Server(self.answer_store)
        self.server = Server(self.answer, certificate)
        self.url = self.server.url

    def close(self):
        self.server.close()
        self.store.close()

    def requests(self, route):
        return [request for request in self.server.requests if route in request.path]

    @staticmethod
    def send(handler, status, body=b"", headers=None, length=None):
        handler.send_response(status)
        for name, value in (headers or {}).items():
            handler.send_header(name, value)
        handler.send_header("Content-Length", str(len(body) if length is None else length))
        handler.end_headers()
        if handler.command != "HEAD":
            handler.wfile.write(body)

    @staticmethod
    def is_large(name):
        return name.endswith((".safetensors", ".gguf"))

    def listing(self):
        siblings = []
        for name in self.listed_names or self.files:
            data = self.files.get(name, b"")
            entry = {"rfilename": name}
            if self.has_checksums:
                entry.update(size=len(data), blobId=git_sha1(data))
                if self.is_large(name):
                    entry["lfs"] = {"sha256": hashlib.sha256(data).hexdigest(), "size": len(data),
                                    "pointerSize": 130}
            siblings.append(entry)
        return {"id": "org/name", "sha": COMMIT, "siblings": siblings}

    def answer(self, handler, request):
        if self.busy > 0:
            self.busy -= 1
            self.send(handler, 503, headers={"Retry-After": "0"})
            return
        api = re.match(r"/api/models/([^/]+/[^/]+)/revision/([^?]+)", request.path)
        file = re.match(r"/([^/]+/[^/]+)/resolve/([^/]+)/(.*)", request.path)
        name, revision = (api or file).groups()[:2] if api or file else (None, None)
        if name != "org/name":
            self.send(handler, 404, headers={"X-Error-Code": "RepoNotFound"})
        elif revision not in ("main", "refs/pr/1", COMMIT):
            self.send(handler, 404, headers={"X-Error-Code": "RevisionNotFound"})
        elif api:
            self.send(handler, 200, json.dumps(self.listing()).encode())
        elif self.gate and request.token != f"Bearer {self.gate}":
            self.send(handler, self.gate_status, headers={"X-Error-Code": "GatedRepo"})
        elif file.group(3) not in self.files:
            self.send(handler, 404, headers={"X-Error-Code": "EntryNotFound"})
        else:
            self.answer_file(handler, file.group(3))

    def answer_file(self, handler, name):
        data = self.files[name]
        if not self.is_large(name):
            self.send(handler, 200, data, {"ETag": f'"{git_sha1(data)}"'})
            return
        where = self.redirect_to or self.store.url
        self.send(handler, 302, b"Found", {
            "Location": f"{where}/stored/{urllib.parse.quote(name)}",
            "X-Linked-ETag": f'"{hashlib.sha256(data).hexdigest()}"',
            "X-Linked-Size": str(len(data)), "X-Repo-Commit": COMMIT})

    def answer_store(self, handler, request):
        name = request.path.removeprefix("/stored/")
        data = self.changed.get(name, self.files[name])
        time.sleep(self.pause)
        first, status, headers = 0, 200, {"ETag": '"of-the-store"'}
        if request.range and self.has_ranges:
            first = int(re.fullmatch(r"bytes=(\d+)-", request.range).group(1))
            status = 206
            headers["Content-Range"] = f"bytes {first}-{len(data) - 1}/{len(data)}"
        body = data[first:]
        cut = self.cuts.pop(0) if self.cuts else None
        self.send(handler, status, body[:cut], headers, length=len(body))
        if cut is not None:
            handler.close_connection = True
