"""Requests made by Schemathesis from the server's own openapi.json, valid and not: no answer is a
server error, and each has a status, a type and a body that the description allows.

    schemathesis_test.py HALLEY_BINARY SOURCE_DIR [unittest arguments]

Needs the package schemathesis (tools/setup.sh --serve-tests); exits with 77 where it is not there.
Not checked: that whatever fits the schema is accepted. A prompt can be too long, or name a role
that the template does not know, which a schema cannot say.
"""
import os
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from served import Server  # noqa: E402

HALLEY, SOURCE = sys.argv[1], sys.argv[2]
MODEL = os.path.join(SOURCE, "models", "demo-21m")
SCHEMATHESIS = os.path.join(os.path.dirname(sys.executable), "st")
CHECKS = ("not_a_server_error,status_code_conformance,content_type_conformance,"
          "response_schema_conformance,negative_data_rejection,unsupported_method")
# A timeout may be as short as the client wants: then it passes.
CONFIG = """[checks]
not_a_server_error.expected-statuses = ["2xx", "3xx", "4xx", 504]
"""


class SchemathesisTest(unittest.TestCase):
    def test_answers_are_as_described(self):
        server = Server(HALLEY, MODEL, "--threads", "1", "--log-level", "off")
        try:
            with tempfile.TemporaryDirectory() as folder:  # it keeps notes where it runs
                config = os.path.join(folder, "schemathesis.toml")
                with open(config, "w", encoding="utf-8") as file:
                    file.write(CONFIG)
                result = subprocess.run(
                    [os.path.abspath(SCHEMATHESIS), "--config-file", config, "run",
                     f"http://127.0.0.1:{server.port}/openapi.json",
                     "--checks", CHECKS, "--max-time", "30", "--request-timeout", "60",
                     "--continue-on-failure", "--generation-database", "none"],
                    check=False, capture_output=True, text=True, timeout=600, cwd=folder)
        finally:
            self.assertEqual(server.end(), 0, server.log)
        self.assertEqual(result.returncode, 0, result.stdout[-5000:] + result.stderr[-2000:])
        self.assertRegex(result.stdout, r"Tested: [1-9]")


if __name__ == "__main__":
    if not os.path.exists(SCHEMATHESIS):
        print("SKIPPED: no package schemathesis; run tools/setup.sh --serve-tests")
        sys.exit(77)
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]], verbosity=1)
