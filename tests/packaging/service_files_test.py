"""The unit of systemd and the configuration of nginx, with the programs that read them.

    service_files_test.py HALLEY_BINARY SOURCE_DIR [unittest arguments]
"""
import http.client
import json
import os
import re
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import time
import unittest

HALLEY, SOURCE = sys.argv[1], sys.argv[2]
PACKAGING = os.path.join(SOURCE, "packaging")
sys.path.insert(0, os.path.join(SOURCE, "tests", "serving"))
sys.path.insert(0, os.path.join(SOURCE, "tests", "serve"))
from fake_openai import FakeOpenAI  # noqa: E402
from served import Background, Server  # noqa: E402

LIMIT_S = 60


def read(*path):
    with open(os.path.join(PACKAGING, *path), encoding="utf-8") as file:
        return file.read()


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def start_nginx(add_cleanup, folder, name, port):
    """Runs nginx with the file `name` of `folder` until the cleanup; its command."""
    paths = "".join(f"{kind}_temp_path {folder}/{kind};\n" for kind in (
        "client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
    user = "user root;\n" if os.getuid() == 0 else ""  # the folder is this user's
    with open(folder + "/nginx.conf", "w", encoding="utf-8") as file:
        file.write(f"{user}daemon off;\npid {folder}/pid;\nerror_log {folder}/error.log;\n"
                   f"events {{}}\nhttp {{\naccess_log off;\n{paths}"
                   f"include {folder}/{name};\n}}\n")
    command = ["nginx", "-p", folder, "-c", folder + "/nginx.conf", "-e", folder + "/error.log"]
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    add_cleanup(process.wait, 30)
    add_cleanup(process.terminate)
    deadline = time.time() + LIMIT_S
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return command
        except ConnectionRefusedError:
            assert time.time() < deadline and process.poll() is None


@unittest.skipUnless(shutil.which("systemd-analyze"), "no systemd-analyze is there")
class Systemd(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.unit = os.path.join(folder.name, "halley.service")
        with open(cls.unit, "w", encoding="utf-8") as file:  # the program need not be installed
            file.write(read("systemd", "halley.service").replace("/usr/bin/halley", "/bin/true"))

    def analyze(self, *args):
        return subprocess.run(["systemd-analyze", *args, self.unit], capture_output=True, text=True,
                              timeout=60, check=False, env={**os.environ, "SYSTEMD_COLORS": "0",
                                                            "SYSTEMD_LOG_LEVEL": "warning"})

    def test_the_unit_has_no_mistake(self):
        result = self.analyze("verify", "--man=no")
        self.assertEqual((result.returncode, result.stderr), (0, ""))

    def test_little_is_exposed(self):
        result = self.analyze("security", "--offline=yes", "--threshold=15")
        self.assertEqual(result.returncode, 0, result.stdout[-2000:])

    def test_draining_ends_before_systemd_kills(self):
        unit = read("systemd", "halley.service")
        drain = int(re.search(r"--shutdown-timeout (\d+)", unit).group(1))
        stop = int(re.search(r"TimeoutStopSec=(\d+)", unit).group(1))
        self.assertGreater(stop, drain + 5)


@unittest.skipUnless(shutil.which("nginx") and shutil.which("openssl"), "no nginx is there")
class Nginx(unittest.TestCase):
    """The configuration as it is, but for ports, certificate and folders."""

    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = folder.name
        subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt",
                        "ec_paramgen_curve:prime256v1", "-nodes", "-days", "1", "-subj",
                        "/CN=llm.example.org", "-keyout", cls.folder + "/privkey.pem", "-out",
                        cls.folder + "/fullchain.pem"], check=True, capture_output=True, timeout=60)
        cls.server = FakeOpenAI(token_seconds=0.005)
        cls.server.__enter__()
        cls.addClassCleanup(cls.server.__exit__)
        cls.http, cls.https = free_port(), free_port()
        text = read("nginx", "halley.conf")
        for old, new in (("listen [::]:80;", ""), ("listen [::]:443 ssl http2;", ""),
                         ("listen 80;", f"listen 127.0.0.1:{cls.http};"),
                         ("listen 443 ", f"listen 127.0.0.1:{cls.https} "),
                         ("/etc/ssl/halley", cls.folder),
                         ("server 127.0.0.1:8000;",
                          f"server {cls.server.url.removeprefix('http://')};")):
            assert old in text, old
            text = text.replace(old, new)
        with open(cls.folder + "/halley.conf", "w", encoding="utf-8") as file:
            file.write(text)
        cls.command = start_nginx(cls.addClassCleanup, cls.folder, "halley.conf", cls.https)

    def connect(self):
        context = ssl.create_default_context(cafile=self.folder + "/fullchain.pem")
        context.check_hostname = False
        connection = http.client.HTTPSConnection("127.0.0.1", self.https, context=context,
                                                 timeout=60)
        self.addCleanup(connection.close)
        return connection

    def test_nginx_takes_the_configuration(self):
        result = subprocess.run([*self.command, "-t"], capture_output=True, text=True, timeout=60,
                                check=False)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertNotIn("[warn]", result.stderr)

    def test_tokens_are_passed_on_as_they_come_and_the_end_of_a_client_too(self):
        connection = self.connect()
        connection.request("POST", "/v1/completions", '{"model": "endless", "stream": true}')
        answer = connection.getresponse()
        self.assertEqual(answer.status, 200)
        self.assertIn("max-age", answer.getheader("Strict-Transport-Security"))
        self.assertIn(b"word", answer.read1(10_000))  # the stream has no end
        answer.close()
        connection.close()
        deadline = time.time() + 30
        while self.server.http.num_gone == 0:
            self.assertLess(time.time(), deadline, "the server was not told that the client went")
            os.sched_yield()
        headers = self.server.requests[0]["headers"]
        self.assertRegex(headers["X-Request-Id"], "^[0-9a-f]{32}$")

    def test_large_bodies_are_rejected(self):
        connection = self.connect()
        connection.putrequest("POST", "/v1/completions")
        connection.putheader("Content-Length", str(17 << 20))
        connection.endheaders()
        self.assertEqual(connection.getresponse().status, 413)

    def test_plain_http_is_sent_to_tls(self):
        connection = http.client.HTTPConnection("127.0.0.1", self.http, timeout=60)
        self.addCleanup(connection.close)
        connection.request("GET", "/v1/models", headers={"Host": "llm.example.org"})
        answer = connection.getresponse()
        self.assertEqual((answer.status, answer.getheader("Location")),
                         (301, "https://llm.example.org/v1/models"))

    def test_metrics_are_for_this_machine(self):
        connection = self.connect()
        connection.request("GET", "/metrics")
        self.assertEqual(connection.getresponse().status, 200)  # the test is on this machine
        self.assertIn("deny all;", read("nginx", "halley.conf"))


@unittest.skipUnless(shutil.which("nginx"), "no nginx is there")
class NginxReplicas(unittest.TestCase):
    """halley-replicas.conf in front of two servers of the demo model."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder, self.port = folder.name, free_port()
        model = os.path.join(SOURCE, "models", "demo-21m")
        self.replicas = [Server(HALLEY, model, "--threads", "1", "--no-self-check")
                         for _ in range(2)]
        for replica in self.replicas:
            self.addCleanup(replica.end)
        self.write_configuration()
        self.command = start_nginx(self.addCleanup, self.folder, "halley.conf", self.port)

    def write_configuration(self, down=None):
        text = read("nginx", "halley-replicas.conf")
        for old, new in (("listen 127.0.0.1:8000;", f"listen 127.0.0.1:{self.port};"),
                         ("server 127.0.0.1:8001 ", f"server 127.0.0.1:{self.replicas[0].port} "),
                         ("server 127.0.0.1:8002 ", f"server 127.0.0.1:{self.replicas[1].port} ")):
            assert old in text, old
            text = text.replace(old, new)
        if down is not None:
            text = text.replace(f"server 127.0.0.1:{down} ", f"server 127.0.0.1:{down} down ")
        with open(self.folder + "/halley.conf", "w", encoding="utf-8") as file:
            file.write(text)

    def begin(self, index, num_answers, stream=True):
        """The response to a request whose answer has begun, and its connection."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=LIMIT_S)
        self.addCleanup(connection.close)
        connection.request("POST", "/v1/completions", json.dumps(
            {"prompt": f"{index} bottles", "ignore_eos": True, "max_tokens": 150, "stream": stream,
             "n": num_answers}))
        return connection.getresponse(), connection

    def finish(self, response):
        """Whether the whole answer came."""
        try:
            text = response.read()
        except (http.client.IncompleteRead, ConnectionError):
            return False
        if response.getheader("Content-Type", "").startswith("text/event-stream"):
            return text.endswith(b"data: [DONE]\n\n") and b'data: {"error"' not in text
        return response.status == 200

    def finish_all(self, responses):
        """The same for each. All are read at once: who does not read is cut off by the server."""
        readers = [Background(lambda response=response: self.finish(response))
                   for response in responses]
        return [reader.result() for reader in readers]

    def ask(self, index, num_answers=1, stream=False):
        return self.finish(self.begin(index, num_answers, stream)[0])

    def load_until(self, is_done):
        """Clients that send one request after the other; (answers, those that did not come)."""
        def client(index):
            num_asked = num_lost = 0
            while not is_done():
                num_asked += 1
                num_lost += not self.ask(index, 4, stream=index % 2 == 0)
            return num_asked, num_lost
        clients = [Background(lambda index=index: client(index)) for index in range(4)]
        return [sum(counts) for counts in zip(*(client.result() for client in clients))]

    def num_answered(self, replica):
        text = replica.ask("GET", "/metrics")[2]
        return sum(float(value) for value in re.findall(
            r"^halley:request_success_total\{.*length.*\} (\S+)$", text, re.M))

    def test_nginx_takes_the_configuration(self):
        result = subprocess.run([*self.command, "-t"], capture_output=True, text=True, timeout=60,
                                check=False)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertNotIn("[warn]", result.stderr)

    def test_both_replicas_work(self):
        streams = [self.begin(index, 4)[0] for index in range(4)]
        self.assertEqual(self.finish_all(streams), [True] * 4)
        self.assertEqual([self.num_answered(replica) for replica in self.replicas], [8, 8])

    def test_a_replica_that_is_taken_out_and_stopped_loses_nothing(self):
        # As Kubernetes does: out of the list of endpoints, preStop, SIGTERM.
        steps = []
        load = Background(lambda: self.load_until(lambda: "stopped" in steps))
        first, other = self.replicas
        self.wait_for(lambda: self.num_answered(first) and self.num_answered(other))
        self.write_configuration(down=first.port)
        self.reload()
        before = self.num_answered(other)
        self.assertEqual(first.end(), 0, first.log)
        self.wait_for(lambda: self.num_answered(other) > before)
        steps.append("stopped")
        num_asked, num_lost = load.result()
        self.assertGreater(num_asked, 4)
        self.assertEqual(num_lost, 0)

    def test_requests_that_a_draining_replica_rejects_go_to_the_other(self):
        streams = Background(lambda responses=[self.begin(index, 24)[0] for index in range(2)]:
                             self.finish_all(responses))
        first, other = self.replicas
        first.signal()
        self.wait_for(lambda: first.ask("GET", "/ready")[0] == 503)
        # least_conn prefers the one that rejects at once.
        self.assertTrue(all(self.ask(index) for index in range(10)))
        self.assertGreaterEqual(self.num_answered(other), 10)
        self.assertEqual(streams.result(), [True, True])
        self.assertEqual(first.end(), 0, first.log)

    def test_a_killed_replica_loses_what_it_had_and_no_more(self):
        streams = [self.begin(index, 24)[0] for index in range(4)]
        first = self.replicas[0]
        first.signal(signal.SIGKILL)
        first.process.wait(LIMIT_S)
        self.assertEqual(sorted(self.finish_all(streams)), [False, False, True, True])
        self.assertTrue(all(self.ask(index) for index in range(10)))

    def test_without_a_replica_the_error_is_that_of_the_api(self):
        for replica in self.replicas:
            replica.end()
        response, _ = self.begin(0, 1, stream=False)
        self.assertEqual((response.status, response.getheader("Retry-After")), (502, "1"))
        self.assertEqual(json.loads(response.read())["error"]["code"], "replica_failed")

    def reload(self):
        with open(self.folder + "/pid", encoding="utf-8") as file:
            master = int(file.read())
        def workers():
            with open(f"/proc/{master}/task/{master}/children", encoding="utf-8") as file:
                return set(file.read().split())
        before = workers()
        subprocess.run([*self.command, "-s", "reload"], check=True, timeout=60)
        # The old worker takes no new connections once the new one is there.
        self.wait_for(lambda: workers() - before)

    def wait_for(self, condition):
        deadline = time.monotonic() + LIMIT_S
        while not condition():
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.02)


class Docker(unittest.TestCase):
    """There is no daemon here that would build it: what it names must at least be there."""

    def test_what_is_copied_exists_and_is_not_ignored(self):
        ignored = read("docker", "Dockerfile.dockerignore").split("\n")
        for source in re.findall(r"^COPY (?!--from)(\S+) ", read("docker", "Dockerfile"), re.M):
            self.assertTrue(os.path.exists(os.path.join(SOURCE, source)), source)
            self.assertNotIn(source.rstrip("/"), ignored)
        for needed in "cmake", "src", "tools", "CMakeLists.txt", "CMakePresets.json", "LICENSE", \
                "README.md", "CHANGELOG.md":
            self.assertNotIn(needed, ignored)
            self.assertTrue(os.path.exists(os.path.join(SOURCE, needed)))


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
