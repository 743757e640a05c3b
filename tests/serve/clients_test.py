"""Other people's clients against `halley serve`.

    clients_test.py HALLEY_BINARY SOURCE_DIR [unittest arguments]

Runs the calls of client_calls.py under each Python of .venv/clients, which tools/setup.sh
--client-tests makes; exits with 77 where there is none. aider and Open WebUI are left out: their
prompts are longer than the context of the test's model, and what they send is in
testdata/client_bodies.
"""
import os
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from client_calls import CALLS, CLAUDE  # noqa: E402
from served import HERMES_TEMPLATE, Server  # noqa: E402

HALLEY, SOURCE = sys.argv[1], os.path.abspath(sys.argv[2])
MODEL = os.path.join(SOURCE, "models", "demo-21m")
CALLER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "client_calls.py")
LEFT_OUT = ("aider", "open_webui")
CLIENTS = {client: python for client in CALLS if client not in LEFT_OUT and os.path.exists(
    python := os.path.join(SOURCE, ".venv", "clients", client, "bin", "python"))}
TIMEOUT_S = 500


class ClientsTest(unittest.TestCase):
    def test_each_call_of_each_client_succeeds(self):
        with tempfile.NamedTemporaryFile("w", suffix=".jinja") as file:
            file.write(HERMES_TEMPLATE)
            file.flush()
            name = os.path.basename(MODEL)
            server = Server(HALLEY, MODEL, "--threads", "2", "--chat-template", file.name,
                            "--served-model-name", name, CLAUDE.format(name))
        try:
            for client, python in CLIENTS.items():
                with self.subTest(client):
                    result = subprocess.run(
                        [python, "-B", CALLER, client, f"http://127.0.0.1:{server.port}/v1",
                         server.name], capture_output=True, text=True, check=False,
                        timeout=TIMEOUT_S,
                        env={**os.environ, "HALLEY_CLIENT_TOKENIZER": MODEL, "HF_HUB_OFFLINE": "1",
                             "LITELLM_LOCAL_MODEL_COST_MAP": "True"})
                    done = [line for line in result.stdout.splitlines() if line.startswith("ok ")]
                    self.assertEqual(done, [f"ok {name}" for name in CALLS[client]],
                                     result.stdout + result.stderr[-4000:])
        finally:
            self.assertEqual(server.end(), 0, server.log)


if __name__ == "__main__":
    if not CLIENTS:
        print("SKIPPED: no client in .venv/clients; run tools/setup.sh --client-tests")
        sys.exit(77)
    print("clients:", ", ".join(CLIENTS))
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]], verbosity=1)
