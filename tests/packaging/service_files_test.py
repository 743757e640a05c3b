"""The unit of systemd and the configuration of nginx, with the programs that read them.

    service_files_test.py SOURCE_DIR [unittest arguments]
"""
import http.client
import os
import re
import shutil
import socket
import ssl
import subprocess
import sys
import tempfile
import time
import unittest

SOURCE = sys.argv[1]
PACKAGING = os.path.join(SOURCE, "packaging")
sys.path.insert(0, os.path.join(SOURCE, "tests", "serving"))
from fake_openai import FakeOpenAI  # noqa: E402


def read(*path):
    with open(os.path.join(PACKAGING, *path), encoding="utf-8") as file:
        return file.read()


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


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
        paths = "".join(f"{name}_temp_path {cls.folder}/{name};\n" for name in (
            "client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
        user = "user root;\n" if os.getuid() == 0 else ""  # the folder is this user's
        with open(cls.folder + "/nginx.conf", "w", encoding="utf-8") as file:
            file.write(f"{user}daemon off;\nmaster_process off;\npid {cls.folder}/pid;\n"
                       f"error_log {cls.folder}/error.log;\nevents {{}}\nhttp {{\naccess_log off;\n"
                       f"{paths}include {cls.folder}/halley.conf;\n}}\n")
        cls.command = ["nginx", "-p", cls.folder, "-c", cls.folder + "/nginx.conf", "-e",
                       cls.folder + "/error.log"]
        cls.process = subprocess.Popen(cls.command, stderr=subprocess.DEVNULL)
        cls.addClassCleanup(cls.process.wait, 30)
        cls.addClassCleanup(cls.process.terminate)
        deadline = time.time() + 30
        while True:
            try:
                socket.create_connection(("127.0.0.1", cls.https), 1).close()
                break
            except ConnectionRefusedError:
                assert time.time() < deadline and cls.process.poll() is None

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
    unittest.main(argv=[sys.argv[0], *sys.argv[2:]])
