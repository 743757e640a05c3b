"""`halley pull` and models by name, against a hub on this machine.

    pull_test.py HALLEY_BINARY SOURCE_DIR [unittest arguments]
"""
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import unittest
import urllib.request

from fake_hub import COMMIT, TOKEN, Hub, git_sha1

HALLEY, SOURCE = os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2])
MODEL = os.path.join(SOURCE, "testdata", "models", "llama")
GGUF = os.path.join(SOURCE, "testdata", "gguf", "llama.gguf")
SHARD = "model.safetensors"
NEEDED = {"config.json", "generation_config.json", SHARD}


def read(path):
    with open(path, "rb") as file:
        return file.read()


def changed(data):
    """The same but for a bit."""
    return bytes([data[0] ^ 1]) + data[1:]


def model_files():
    files = {name: read(os.path.join(MODEL, name)) for name in NEEDED}
    files.update({"README.md": b"text", "pytorch_model.bin": b"pickle", "modeling.py": b"code",
                  "onnx/config.json": b"{}"})
    return files


class PullTest(unittest.TestCase):
    """A hub, an empty cache, and the program with both in its environment."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.cache = os.path.join(folder.name, "hub")
        self.repo = os.path.join(self.cache, "models--org--name")
        self.hub = self.start_hub(model_files())

    def start_hub(self, files, **options):
        hub = Hub(files, **options)
        self.addCleanup(hub.close)
        return hub

    def environment(self, **variables):
        kept = {name: value for name, value in os.environ.items()
                if not name.startswith(("HF_", "HUGGING", "SSL_")) and
                not name.lower().endswith("_proxy")}
        return {**kept, "HF_HOME": self.folder, "HF_ENDPOINT": self.hub.url, **variables}

    def run_halley(self, *args, **variables):
        return subprocess.run([HALLEY, *args], capture_output=True, text=True, timeout=120,
                              check=False, cwd=self.folder, env=self.environment(**variables))

    def pull(self, *args, code=0, **variables):
        result = self.run_halley("pull", "org/name", *args, **variables)
        self.assertEqual(result.returncode, code, result.stderr)
        return result

    def generate(self, model, *args, **variables):
        result = self.run_halley("generate", model, "--prompt-ids", "1,2,3", "--max-tokens", "5",
                                 "--temperature", "0", "--device", "cpu", *args, **variables)
        return result

    def snapshot(self, *path):
        return os.path.join(self.repo, "snapshots", COMMIT, *path)

    def blob(self, data):
        return os.path.join(self.repo, "blobs", hashlib.sha256(data).hexdigest())

    def files_in(self, folder):
        return {os.path.relpath(os.path.join(path, name), folder)
                for path, _, names in os.walk(folder) for name in names}

    def assert_nothing_placed(self):
        """No snapshot, no revision, and no file that is not whole."""
        self.assertEqual(self.files_in(self.snapshot()), set())
        self.assertEqual(self.files_in(os.path.join(self.repo, "refs")), set())
        for name in self.files_in(os.path.join(self.repo, "blobs")):
            data = read(os.path.join(self.repo, "blobs", name))
            self.assertIn(name, (git_sha1(data), hashlib.sha256(data).hexdigest()))


class Layout(PullTest):
    def test_what_a_model_needs_is_placed_as_huggingface_hub_does(self):
        result = self.pull()
        self.assertEqual(result.stdout, self.snapshot() + "\n")
        self.assertEqual(self.files_in(self.snapshot()), NEEDED)
        self.assertEqual(read(os.path.join(self.repo, "refs", "main")).decode(), COMMIT)
        for name in NEEDED:
            data = self.hub.files[name]
            checksum = (hashlib.sha256(data).hexdigest() if name == SHARD else git_sha1(data))
            self.assertEqual(os.readlink(self.snapshot(name)), f"../../blobs/{checksum}")
            self.assertEqual(read(self.snapshot(name)), data)
        self.assertFalse([name for name in self.files_in(self.cache)
                          if name.endswith((".incomplete", ".tmp"))])

    def test_what_is_there_is_not_downloaded_again(self):
        self.pull()
        num_files = len(self.hub.requests("/resolve/"))
        self.assertEqual(num_files, len(NEEDED))
        self.pull()
        self.assertEqual(len(self.hub.requests("/resolve/")), num_files)

    def test_huggingface_hub_finds_it(self):
        self.pull()
        code = ("import huggingface_hub as hub; "
                "print(hub.snapshot_download('org/name', local_files_only=True)); "
                "print(hub.hf_hub_download('org/name', 'config.json', local_files_only=True))")
        for venv in "torch", "serve", "loaders":
            python = os.path.join(SOURCE, ".venv", venv, "bin", "python")
            if not os.path.exists(python) or subprocess.run(
                    [python, "-c", "import huggingface_hub"], capture_output=True,
                    check=False).returncode != 0:
                continue
            result = subprocess.run([python, "-c", code], capture_output=True, text=True,
                                    timeout=120, check=False, env=self.environment())
            self.assertEqual(result.returncode, 0, result.stderr)
            self.assertEqual(result.stdout.split(),
                             [self.snapshot(), self.snapshot("config.json")])
            return
        self.skipTest("no huggingface_hub: tools/setup.sh --torch and --serve-tests install it")

    def test_files_can_be_chosen_but_no_pickles_and_no_code(self):
        self.pull("--include", "*config.json")
        self.assertEqual(self.files_in(self.snapshot()),
                         {"config.json", "generation_config.json", "onnx/config.json"})
        self.assertEqual(os.readlink(self.snapshot("onnx", "config.json")),
                         f"../../../blobs/{git_sha1(b'{}')}")
        result = self.pull("--include", "*.bin", "--include", "*.py", code=2)
        self.assertIn("never pickles or code", result.stderr)

    def test_revisions(self):
        self.pull("--revision", "refs/pr/1")
        self.assertEqual(read(os.path.join(self.repo, "refs", "refs", "pr", "1")).decode(), COMMIT)
        self.pull("--revision", COMMIT)
        self.assertIn("--revision", self.pull("--revision", "v9", code=2).stderr)
        num_requests = len(self.hub.server.requests)
        self.pull("--revision", "../../other/name", code=2)
        self.assertEqual(len(self.hub.server.requests), num_requests)

    def test_a_mirror_is_named_by_an_option(self):
        self.pull("--endpoint", self.hub.url + "/", HF_ENDPOINT="http://127.0.0.1:9")
        self.assertEqual(self.files_in(self.snapshot()), NEEDED)

    def test_checksums_and_sizes_that_the_list_lacks_are_those_of_headers(self):
        self.hub.has_checksums = False
        self.pull()
        self.assertEqual(os.path.realpath(self.snapshot(SHARD)),
                         os.path.realpath(self.blob(self.hub.files[SHARD])))

    def test_limits(self):
        for has_checksums in True, False:  # sizes of the list, and of headers
            self.hub.has_checksums = has_checksums
            self.assertIn("--max-bytes", self.pull("--max-bytes", "100KB", code=2).stderr)
        self.assertEqual(self.hub.store.requests, [])
        self.assert_nothing_placed()


class Interruptions(PullTest):
    def ranges(self):
        return [request.range for request in self.hub.store.requests]

    def test_a_cut_connection_goes_on_where_it_was(self):
        self.hub.cuts = [100_000, 200_000]
        self.pull()
        self.assertEqual(self.ranges(), [None, "bytes=100000-", "bytes=300000-"])
        self.assertEqual(read(self.snapshot(SHARD)), self.hub.files[SHARD])

    def test_connections_that_are_cut_again_and_again_end_it_and_the_next_pull_goes_on(self):
        self.hub.cuts = [50_000] + [0] * 6
        result = self.pull(code=1)
        self.assertIn("Pull again", result.stderr)
        self.assert_nothing_placed_but_partial(50_000)
        self.hub.cuts = []
        self.pull()
        self.assertEqual(self.ranges()[-1], "bytes=50000-")
        self.assertEqual(read(self.snapshot(SHARD)), self.hub.files[SHARD])

    def assert_nothing_placed_but_partial(self, num_bytes):
        partial = self.blob(self.hub.files[SHARD]) + ".incomplete"
        self.assertEqual(read(partial), self.hub.files[SHARD][:num_bytes])
        self.assertEqual(self.files_in(self.snapshot()), set())

    def test_a_hub_that_cannot_begin_in_the_middle_begins_again(self):
        self.hub.has_ranges = False
        self.hub.cuts = [100_000]
        self.pull()
        self.assertEqual(read(self.snapshot(SHARD)), self.hub.files[SHARD])

    def test_a_partial_file_of_other_bytes_is_rejected_and_removed(self):
        partial = self.blob(self.hub.files[SHARD]) + ".incomplete"
        os.makedirs(os.path.dirname(partial))
        with open(partial, "wb") as file:
            file.write(b"x" * 1000)
        self.pull(code=3)
        self.assert_nothing_placed()
        self.pull()
        self.assertEqual(read(self.snapshot(SHARD)), self.hub.files[SHARD])

    def test_a_busy_hub_is_asked_again(self):
        self.hub.busy = 2
        self.pull()
        self.assertEqual(self.files_in(self.snapshot()), NEEDED)

    def test_a_hub_that_stays_busy_and_one_that_is_not_there(self):
        self.hub.busy = 100
        self.assertIn("503", self.pull(code=1).stderr)
        self.assertIn("Check the network",
                      self.pull("--endpoint", "http://127.0.0.1:9", code=1).stderr)
        self.assert_nothing_placed()

    def test_two_pulls_at_once_download_once(self):
        self.hub.pause = 1
        pulls = [subprocess.Popen([HALLEY, "pull", "org/name"], env=self.environment(),
                                  stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
                 for _ in range(2)]
        for process in pulls:
            stdout, stderr = process.communicate(timeout=120)
            self.assertEqual(process.returncode, 0, stderr)
            self.assertEqual(stdout, self.snapshot() + "\n")
        self.assertEqual(len(self.hub.store.requests), 1)
        self.assertEqual(read(self.snapshot(SHARD)), self.hub.files[SHARD])


class Untrusted(PullTest):
    def test_wrong_bytes_are_rejected_and_nothing_of_them_stays(self):
        data = self.hub.files[SHARD]
        for wrong in (changed(data), data + b"x"):
            self.hub.changed = {SHARD: wrong}
            result = self.pull(code=3)
            self.assertIn("checksum", result.stderr)
            self.assertFalse(os.path.exists(self.blob(data)))
            self.assert_nothing_placed()

    def test_names_of_files_outside_of_the_model_are_rejected(self):
        for name in ("../../../outside.json", "/outside.json", "a/../../outside.json",
                     "a\\..\\outside.json", "..", "a//b.json", "new\nline.json"):
            self.hub.listed_names = ["config.json", name]
            result = self.pull(code=3)
            self.assertIn("expected the path of a file in the model's folder", result.stderr)
        self.assertEqual(self.files_in(self.folder), set())
        self.assertEqual(self.hub.requests("/resolve/"), [])

    def test_a_model_that_is_not_there(self):
        result = self.run_halley("pull", "org/other")
        self.assertEqual(result.returncode, 2)
        self.assertIn("404", result.stderr)
        self.assertIn("Check the name", result.stderr)
        for name in "org", "../org/name", "org/name/config.json", "/tmp/x":
            self.assertEqual(self.run_halley("pull", name).returncode, 2)
        self.assertEqual(len(self.hub.server.requests), 1)

    def test_a_gated_model_needs_a_token(self):
        self.hub.gate = TOKEN
        self.assertIn("in HF_TOKEN", self.pull(code=2).stderr)
        self.hub.gate_status = 403
        self.assertIn("has no access", self.pull(code=2, HF_TOKEN="hf_another").stderr)
        self.assert_nothing_placed()
        self.pull(HF_TOKEN=TOKEN)
        self.assertEqual(self.files_in(self.snapshot()), NEEDED)

    def test_the_token_goes_to_the_endpoint_alone_and_is_never_shown(self):
        result = self.pull(HF_TOKEN=TOKEN)
        self.assertEqual({request.token for request in self.hub.server.requests},
                         {f"Bearer {TOKEN}"})
        self.assertEqual([request.token for request in self.hub.store.requests], [None])
        self.hub.changed = {SHARD: changed(self.hub.files[SHARD])}
        shutil.rmtree(self.cache)
        failed = self.pull(code=3, HF_TOKEN=TOKEN)
        self.assertNotIn(TOKEN, result.stdout + result.stderr + failed.stderr)

    def test_no_token_goes_over_plain_http_to_another_machine(self):
        result = self.pull("--endpoint", "http://hub.invalid", code=2, HF_TOKEN=TOKEN)
        self.assertIn("expected https", result.stderr)
        self.assertNotIn(TOKEN, result.stderr)
        for token in "a b", "a\r\nX-Other: b":
            result = self.pull(code=2, HF_TOKEN=token)
            self.assertIn("HF_TOKEN: expected visible ASCII", result.stderr)
            self.assertNotIn(token, result.stderr)

    def test_endpoints_that_are_no_urls(self):
        for endpoint in "ftp://127.0.0.1", "127.0.0.1", "https://user:word@127.0.0.1", "file:///":
            self.assertIn("expected a URL", self.pull("--endpoint", endpoint, code=2).stderr)


@unittest.skipUnless(shutil.which("openssl"), "no openssl is there to make a certificate")
class Tls(PullTest):
    def setUp(self):
        super().setUp()
        self.certificate = [os.path.join(self.folder, name) for name in ("cert.pem", "key.pem")]
        subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2",
                        "-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1",
                        "-out", self.certificate[0], "-keyout", self.certificate[1]],
                       check=True, capture_output=True, timeout=60)
        self.hub = self.start_hub(model_files(), certificate=self.certificate)

    def test_a_certificate_that_the_machine_does_not_know_is_rejected(self):
        result = self.pull(code=1)
        self.assertIn("certificate", result.stderr)
        self.assertEqual(self.hub.server.requests, [])

    def test_a_known_certificate_is_taken_and_a_redirect_to_plain_http_rejected(self):
        result = self.pull("--include", "*.json", SSL_CERT_FILE=self.certificate[0])
        self.assertEqual(result.stdout, self.snapshot() + "\n")
        result = self.pull(code=3, SSL_CERT_FILE=self.certificate[0])
        self.assertIn("expected a redirect to an https URL", result.stderr)
        self.assertEqual(self.hub.store.requests, [])


class ByName(PullTest):
    def test_a_model_runs_by_its_name_without_a_network(self):
        expected = self.generate(MODEL)
        self.assertEqual(expected.returncode, 0, expected.stderr)
        self.pull()
        num_requests = len(self.hub.server.requests)
        for variables in {}, {"HF_HUB_OFFLINE": "1"}:
            result = self.generate("org/name", **variables)
            self.assertEqual(result.returncode, 0, result.stderr)
            self.assertEqual(result.stdout, expected.stdout)
        plan = self.run_halley("inspect", "org/name", "--json")
        self.assertEqual(json.loads(plan.stdout)["format"], "none", plan.stderr)
        self.assertEqual(len(self.hub.server.requests), num_requests)

    def test_commands_download_what_is_missing_but_serve_only_if_it_is_asked_to(self):
        result = self.run_halley("serve", "org/name", "--port", "0")
        self.assertEqual(result.returncode, 2)
        self.assertIn("halley pull org/name", result.stderr)
        result = self.generate("org/name", "--no-download")
        self.assertEqual(result.returncode, 2)
        self.assertEqual(self.hub.server.requests, [])
        result = self.generate("org/name")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual(self.files_in(self.snapshot()), NEEDED)
        shutil.rmtree(self.cache)
        # It has no tokenizer: the server ends behind the download.
        result = self.run_halley("serve", "org/name", "--port", "0", "--download")
        self.assertNotEqual(result.returncode, 0)
        self.assertEqual(self.files_in(self.snapshot()), NEEDED)

    def test_a_server_has_the_name_that_it_was_given(self):
        os.makedirs(os.path.join(self.repo, "refs"))
        with open(os.path.join(self.repo, "refs", "main"), "w", encoding="utf-8") as file:
            file.write(COMMIT)
        os.makedirs(os.path.dirname(self.snapshot()))
        os.symlink(os.path.join(SOURCE, "models", "demo-21m"), self.snapshot())
        with subprocess.Popen([HALLEY, "serve", "org/name", "--port", "0", "--device", "cpu"],
                              env=self.environment(), cwd=self.folder, stdout=subprocess.PIPE,
                              stderr=subprocess.DEVNULL, text=True) as server:
            try:
                url = server.stdout.readline().split()[-1]
                with urllib.request.urlopen(url + "/v1/models", timeout=60) as answer:
                    models = json.load(answer)["data"]
            finally:
                server.terminate()
        self.assertEqual([model["id"] for model in models], ["org/name"])
        self.assertEqual(self.hub.server.requests, [])

    def test_a_snapshot_with_a_shard_missing_is_completed(self):
        index = json.dumps({"weight_map": {"a": "model-00001-of-00002.safetensors",
                                           "b": "model-00002-of-00002.safetensors"}}).encode()
        self.hub.files = {"config.json": b"{}", "model.safetensors.index.json": index,
                          "model-00001-of-00002.safetensors": b"1",
                          "model-00002-of-00002.safetensors": b"2"}
        self.pull()
        os.remove(self.snapshot("model-00002-of-00002.safetensors"))
        result = self.generate("org/name", "--no-download")
        self.assertIn("got no model-00002-of-00002.safetensors", result.stderr)
        self.generate("org/name")  # fails: its files are no weights
        self.assertEqual(read(self.snapshot("model-00002-of-00002.safetensors")), b"2")

    def test_one_gguf_file_of_several(self):
        self.hub.files = {"a/llama.gguf": read(GGUF), "b.gguf": read(GGUF)[:1000]}
        result = self.pull(code=2)
        self.assertIn("Name one: org/name/a/llama.gguf", result.stderr)
        result = self.generate("org/name/a/llama.gguf")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual(result.stdout, self.generate(GGUF).stdout)
        self.assertEqual(self.files_in(self.snapshot()), {"a/llama.gguf"})
        self.assertEqual(self.generate("org/name", "--no-download").stdout, result.stdout)

    def test_a_split_gguf_file_comes_with_all_of_its_parts(self):
        names = [f"split-0000{number}-of-00003.gguf" for number in (1, 2, 3)]
        self.hub.files = {f"q/{name}": read(os.path.join(os.path.dirname(GGUF), name))
                          for name in names}
        result = self.generate("org/name")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual(self.files_in(self.snapshot()), set(self.hub.files))
        self.assertEqual(self.generate("org/name/q/" + names[1]).stdout, result.stdout)
        os.remove(self.snapshot("q", names[1]))
        result = self.generate("org/name", "--no-download")
        self.assertEqual(result.returncode, 2)
        self.assertIn("no q/" + names[1], result.stderr)

    def test_a_path_with_a_slip_asks_no_hub(self):
        os.mkdir(os.path.join(self.folder, "models"))
        result = self.generate("models/demo")
        self.assertEqual(result.returncode, 2)
        self.assertIn("nothing of that name", result.stderr)
        self.assertEqual(self.hub.server.requests, [])

    def test_offline_nothing_is_asked(self):
        for command in (["pull", "org/name"], ["inspect", "org/name"]):
            result = self.run_halley(*command, HF_HUB_OFFLINE="1")
            self.assertEqual(result.returncode, 2)
            self.assertIn("HF_HUB_OFFLINE", result.stderr)
        self.assertEqual(self.hub.server.requests, [])


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
