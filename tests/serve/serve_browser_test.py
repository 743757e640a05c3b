"""Starts `halley serve` and lets pages of other sites in a headless Chromium try to use it.

    serve_browser_test.py HALLEY_BINARY SOURCE_DIR [unittest arguments]
"""
import http.server
import json
import os
import sys
import threading
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path += [HERE, os.path.join(os.path.dirname(HERE), "serving")]
from browser import Browser, find_browser  # noqa: E402
from served import Server  # noqa: E402

HALLEY, SOURCE = sys.argv[1], sys.argv[2]
MODEL = os.path.join(SOURCE, "models", "demo-21m")
BROWSER = find_browser()
if BROWSER is None:
    print("SKIPPED: no Chromium is there (Debian: chromium-headless-shell)")
    sys.exit(0)
# The name server of another site may give any address: this machine's here.
REBOUND = "--host-resolver-rules=MAP *.example 127.0.0.1"
BODY = json.dumps({"prompt": "a", "max_tokens": 3})


class OtherSite(http.server.BaseHTTPRequestHandler):
    def do_GET(self):  # pylint: disable=invalid-name
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.end_headers()
        self.wfile.write(b"<title>another site</title>")

    def log_message(self, *_):
        pass


class Pages(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.browser = Browser(BROWSER, REBOUND)
        cls.browser.__enter__()
        cls.addClassCleanup(cls.browser.__exit__)
        site = http.server.ThreadingHTTPServer(("127.0.0.1", 0), OtherSite)
        threading.Thread(target=site.serve_forever, daemon=True).start()
        cls.addClassCleanup(site.server_close)
        cls.addClassCleanup(site.shutdown)
        cls.site = f"http://app.example:{site.server_port}"

    def serve(self, *options):
        server = Server(HALLEY, MODEL, "--threads", "1", *options)
        self.addCleanup(server.end)
        return server

    def open(self, url, title):
        page = self.browser.open(url)
        page.wait_for(f"document.title.includes({json.dumps(title)})")
        return page

    def fetch(self, page, url, **options):
        """[status, text], or the browser's error."""
        return page.run(f"fetch({json.dumps(url)}, {json.dumps(options)}).then(async (answer) => "
                        "[answer.status, await answer.text()], (error) => String(error))")

    @staticmethod
    def num_tokens(server):
        return [line for line in server.ask("GET", "/metrics")[2].splitlines()
                if line.startswith("halley:generation_tokens_total{")]

    def test_a_rebound_name_reads_nothing(self):
        server = self.serve()
        # The page's files are for everybody; here they stand for the attacker's.
        page = self.open(f"http://evil.example:{server.port}/", "Halley")
        for path in "/v1/models", "/metrics":
            self.assertEqual(self.fetch(page, path)[0], 403)
        status, text = self.fetch(page, "/v1/completions", method="POST", body=BODY,
                                  headers={"content-type": "application/json"})
        self.assertEqual((status, json.loads(text)["error"]["code"]), (403, "host_not_allowed"))

    def test_a_page_of_another_site_generates_nothing(self):
        server = self.serve()
        page = self.open(self.site, "another site")
        before = self.num_tokens(server)
        self.assertEqual(len(before), 1)
        url = f"http://127.0.0.1:{server.port}/v1/completions"
        for mode in "no-cors", "cors":
            self.fetch(page, url, method="POST", mode=mode, body=BODY)
        # A form, which needs no script: its text can be JSON.
        page.run(f"""(() => {{
          const form = document.createElement("form");
          Object.assign(form, {{method: "post", enctype: "text/plain", target: "answer",
                                action: {json.dumps(url)}}});
          const field = document.createElement("input");
          Object.assign(field, {{name: '{{"prompt": "a", "user": "', value: '"}}'}});
          const frame = document.createElement("iframe");
          frame.name = "answer";
          frame.onload = () => {{ document.title = "sent"; }};
          form.append(field);
          document.body.append(frame, form);
          document.title = "";
          form.submit();
        }})()""")
        page.wait_for("document.title === 'sent'")
        self.assertEqual(self.num_tokens(server), before)
        self.assertIn("Failed to fetch", self.fetch(page, url.replace("completions", "models")))

    def test_its_own_page_is_served(self):
        server = self.serve()
        for host in "127.0.0.1", "localhost":
            page = self.open(f"http://{host}:{server.port}/", "demo-21m")
            status, _ = self.fetch(page, "/v1/completions", method="POST", body=BODY,
                                   headers={"content-type": "application/json"})
            self.assertEqual(status, 200)

    def test_an_allowed_page_sends_the_headers_of_its_client(self):
        server = self.serve("--allowed-origins", self.site)
        page = self.open(self.site, "another site")
        headers = {"content-type": "application/json", "authorization": "Bearer -",
                   "x-stainless-lang": "js", "x-stainless-retry-count": "0", "openai-beta": "x"}
        status, _ = self.fetch(page, f"http://127.0.0.1:{server.port}/v1/completions",
                               method="POST", body=BODY, headers=headers)
        self.assertEqual(status, 200)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]], verbosity=1)
