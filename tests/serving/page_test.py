"""The pages at "/" and "/docs" in a headless Chromium, against a server of Python's standard
library.

    page_test.py PAGE_EXAMPLE [--screenshots FOLDER] [unittest arguments]
"""
import json
import os
import subprocess
import sys
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from browser import Browser, find_browser  # noqa: E402
from fake_openai import FakeOpenAI  # noqa: E402

BROWSER = find_browser()
if BROWSER is None:
    print("SKIPPED: no Chromium is there (Debian: chromium-headless-shell)")
    sys.exit(0)

FILES = {path: (file["type"], file["body"], file["headers"]) for path, file in json.loads(
    subprocess.run([sys.argv[1]], capture_output=True, text=True, timeout=60,
                   check=True).stdout).items()}
ARGUMENTS = sys.argv[2:]
SCREENSHOTS = None
if ARGUMENTS[:1] == ["--screenshots"]:
    SCREENSHOTS = ARGUMENTS[1]
    ARGUMENTS = ARGUMENTS[2:]
WORDS = ("Low", "precision", "<b>is</b>", "not", "low", "quality:", "ä", "日本", "&amp;", "done.\n")
LAST = "[...document.querySelectorAll('article.assistant p.text')].at(-1)?.textContent"
IS_IDLE = "document.getElementById('stop').disabled"
IS_END_IN_SIGHT = """(() => {
  const log = document.getElementById('log').getBoundingClientRect();
  const note = [...document.querySelectorAll('article .note')].at(-1).getBoundingClientRect();
  return note.top >= log.top && note.bottom <= log.bottom;
})()"""
# Every text of the page against what is behind it (WCAG 2.1, contrast ratio).
CONTRAST = """(() => {
  const parse = (text) => text.match(/[\\d.]+/g).map(Number);
  const light = ([r, g, b]) => [r, g, b].map((v) => v / 255)
    .map((v) => v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
    .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
  const behind = (node) => {
    for (; node; node = node.parentElement) {
      const color = parse(getComputedStyle(node).backgroundColor);
      if (color.length === 3 || color[3] === 1) return color;
    }
    return [255, 255, 255];
  };
  const low = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const node = walker.currentNode.parentElement;
    if (!walker.currentNode.data.trim() || node.disabled || !node.checkVisibility()) continue;
    const [a, b] = [light(parse(getComputedStyle(node).color)), light(behind(node))];
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (ratio < 4.5) low.push([walker.currentNode.data.trim(), ratio]);
  }
  return low;
})()"""


class ThePage(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.browser = Browser(BROWSER)
        cls.browser.__enter__()
        cls.addClassCleanup(cls.browser.__exit__)

    def open(self, server, **options):
        page = self.browser.open(server.url + "/", **options)
        page.wait_for("document.getElementById('model-name')?.textContent === 'demo'")
        return page

    def shoot(self, page, name):
        if SCREENSHOTS:
            page.screenshot(os.path.join(SCREENSHOTS, name + ".png"))

    def ask(self, page, text):
        page.run("document.getElementById('message').focus()")
        page.type(text)
        page.press("Enter", 13, "\r")

    def test_a_message_is_answered_word_by_word_as_text(self):
        with FakeOpenAI(FILES, token_seconds=0.005, words=WORDS) as server:
            page = self.open(server)
            self.shoot(page, "empty")
            page.run("document.getElementById('max_tokens').value = 10")
            self.ask(page, "What is low precision?")
            page.wait_for(f"({LAST} ?? '') !== '' && {IS_IDLE}")
            self.assertEqual(page.run(LAST), " ".join(WORDS) + " ")
            # One piece an event; that they show before the end is seen where one is stopped.
            self.assertEqual(page.run("document.querySelector('article.assistant p.text')"
                                      ".childNodes.length"), 10)
            self.assertEqual(page.run("document.querySelectorAll('article b').length"), 0)
            self.assertIn("10 tokens", page.run("document.getElementById('speed').textContent"))
            self.assertEqual(page.run("document.activeElement.id"), "message")
            self.shoot(page, "answered")
            self.ask(page, "More.")
            page.wait_for("document.querySelectorAll('article.assistant').length === 2")
            page.wait_for(IS_IDLE)
            roles = [m["role"] for m in server.requests[1]["body"]["messages"]]
            self.assertEqual(roles, ["user", "assistant", "user"])
            self.assertEqual(page.problems(), [])

    def test_controls_reach_the_server(self):
        with FakeOpenAI(FILES) as server:
            page = self.open(server)
            values = {"max_tokens": 3, "temperature": 0.5, "top_p": 0.9, "top_k": 40, "min_p": 0.05,
                      "repetition_penalty": 1.1, "seed": 7}
            for name, value in values.items():
                page.run(f"document.getElementById('{name}').value = {value}")
            page.run("document.getElementById('system').value = 'Be brief.'")
            page.run("document.getElementById('key').value = 'secret'")
            self.ask(page, "Hello")
            page.wait_for(f"({LAST} ?? '') !== '' && {IS_IDLE}")
            request = server.requests[0]
            self.assertEqual(request["path"], "/v1/chat/completions")
            self.assertEqual(request["headers"]["Authorization"], "Bearer secret")
            body = request["body"]
            self.assertEqual({name: body[name] for name in values}, values)
            self.assertEqual(body["messages"], [{"role": "system", "content": "Be brief."},
                                                {"role": "user", "content": "Hello"}])

    def test_a_value_out_of_range_is_not_sent(self):
        with FakeOpenAI(FILES) as server:
            page = self.open(server)
            page.run("document.getElementById('top_p').value = 2")
            self.ask(page, "Hello")
            page.wait_for("document.activeElement.id === 'top_p'")
            self.assertEqual(server.requests, [])
            page.run("document.querySelector('#sampling button').click()")  # defaults
            page.run("document.getElementById('send').click()")
            page.wait_for(f"({LAST} ?? '') !== ''")

    def test_stop_ends_the_request_and_keeps_what_came(self):
        with FakeOpenAI(FILES, token_seconds=0.002) as server:
            page = self.open(server)
            page.run("document.getElementById('max_tokens').value = 100000")
            self.ask(page, "Go on")
            page.wait_for(f"({LAST}).length > 20")
            page.press("Escape", 27)
            page.wait_for(IS_IDLE)
            self.assertIn("Stopped.", page.run("document.getElementById('log').innerText"))
            page.wait_for("new Promise((r) => setTimeout(r, 20)).then(() => true)")
            for _ in range(500):  # the server sees it at one of its next writes
                if server.http.num_gone == 1:
                    break
                page.run("new Promise((resolve) => setTimeout(resolve, 10))")
            self.assertEqual(server.http.num_gone, 1)
            page.run("document.getElementById('new').click()")
            self.assertEqual(page.run("document.querySelectorAll('article').length"), 0)

    def test_a_new_conversation_forgets_the_old_one(self):
        with FakeOpenAI(FILES, token_seconds=0.002) as server:
            page = self.open(server)
            page.run("document.getElementById('max_tokens').value = 100000")
            self.ask(page, "Old")
            page.wait_for(f"({LAST}).length > 20")
            page.run("document.getElementById('new').click()")
            page.wait_for(IS_IDLE)
            page.run("document.getElementById('max_tokens').value = 2")
            self.ask(page, "New")
            page.wait_for(f"({LAST} ?? '') !== '' && {IS_IDLE}")
            self.assertEqual(server.requests[1]["body"]["messages"],
                             [{"role": "user", "content": "New"}])

    def test_failures_are_said(self):
        for model, text in (("reject", "503: the queue is full"), ("server-error", "out of memory"),
                            ("no-done", "the answer broke off"), ("drop", "No complete answer")):
            with self.subTest(model), FakeOpenAI(FILES) as server:
                server.http.model_override = model
                page = self.open(server)
                self.ask(page, "Hello")
                page.wait_for("document.getElementById('notice').textContent !== ''")
                self.assertIn(text, page.run("document.getElementById('notice').textContent"))
                page.wait_for(IS_IDLE)
                if model == "reject":  # no answer: the question is there to be sent again
                    self.assertEqual(page.run("document.getElementById('message').value"), "Hello")

    def test_the_state_of_the_server_is_shown(self):
        with FakeOpenAI(FILES) as server:
            page = self.open(server)
            page.wait_for("document.getElementById('kv').textContent === '25 %'")
            self.assertEqual(page.run("document.getElementById('running').textContent"), "3")
            self.assertEqual(page.run("document.getElementById('waiting').textContent"), "2")
            self.assertEqual(page.run("document.getElementById('kv-meter').value"), 0.25)
            page.run("document.getElementById('plan-details').open = true")
            plan = page.run("document.getElementById('plan').innerText")
            for text in "gemm_w4a21_avx512 88", "gptq", "kv dtype", "max model len", "512":
                self.assertIn(text, plan)
            page.wait_for("document.getElementById('server-rate').textContent === '0.0 tokens/s'")
            self.shoot(page, "plan")

    def test_the_precision_and_its_last_switches_are_shown(self):
        with FakeOpenAI(FILES) as server:
            server.http.precision = {
                "mode": "auto", "slo": {"ttft_ms": 200.0, "tpot_ms": 33.300000000000004},
                "precisions": ["f16", "e4m3"], "precision": "e4m3", "reason": "dwell",
                "num_switches": 41,
                "last_switches": [
                    {"precision": "f16", "reason": "holds", "seconds_ago": 3700.5},
                    {"precision": "e4m3", "reason": "first_token", "seconds_ago": 2.25}]}
            page = self.open(server)
            page.wait_for("document.getElementById('precision').textContent === 'e4m3'")
            self.assertTrue(page.run("document.getElementById('precision').checkVisibility()"))
            page.run("document.getElementById('precision-details').open = true")
            plan = page.run("document.getElementById('precision-plan').innerText")
            for text in ("auto", "TTFT 200 ms, TPOT 33.3 ms", "would hold too briefly", "41"):
                self.assertIn(text, plan)
            switches = page.run("[...document.querySelectorAll('#switches li')]"
                                ".map((item) => item.textContent)")
            self.assertEqual(switches, [
                "2.3 s ago: e4m3, a better one would be late for a first token",
                "1 h ago: f16, holds all SLOs"])
            self.assertEqual(page.run(CONTRAST), [])
            self.assertEqual(page.problems(), [])
            self.shoot(page, "precision")

    def test_one_precision_is_not_spoken_of(self):
        with FakeOpenAI(FILES) as server:
            page = self.open(server)
            page.wait_for("document.getElementById('kv').textContent === '25 %'")
            self.assertFalse(page.run("document.getElementById('precision').checkVisibility()"))
            self.assertFalse(
                page.run("document.getElementById('precision-details').checkVisibility()"))

    def test_everything_is_reached_by_keyboard_and_has_a_name(self):
        with FakeOpenAI(FILES) as server:
            page = self.open(server)
            page.run("document.querySelectorAll('details').forEach((d) => { d.open = true; })")
            page.run("document.activeElement.blur()")
            reached = []
            for _ in range(40):
                page.press("Tab", 9)
                name = page.run("document.activeElement.id || document.activeElement.tagName")
                if name == "BODY":  # around once
                    break
                reached.append(name)
                self.assertNotEqual(page.run(
                    "getComputedStyle(document.activeElement).outlineStyle"), "none", name)
            for name in ("log", "message", "send", "new", "system", "max_tokens", "temperature",
                         "top_p", "top_k", "min_p", "repetition_penalty", "seed", "key", "SUMMARY"):
                self.assertIn(name, reached)
            page.send("Accessibility.enable")
            nodes = page.send("Accessibility.getFullAXTree")["nodes"]
            named = {"button", "textbox", "spinbutton", "log", "meter", "link", "complementary"}
            for node in nodes:
                if not node.get("ignored") and node["role"]["value"] in named:
                    self.assertTrue(node.get("name", {}).get("value"), node["role"])
            roles = {node["role"]["value"] for node in nodes if not node.get("ignored")}
            self.assertLessEqual({"log", "main", "banner", "complementary", "status", "alert",
                                  "meter"}, roles)

    def test_contrast_and_width_in_light_and_dark_on_phone_and_desk(self):
        with FakeOpenAI(FILES, words=WORDS) as server:
            for scheme in "light", "dark":
                for name, width, height in (("phone", 360, 700), ("desk", 1100, 750)):
                    with self.subTest(f"{scheme} {name}"):
                        page = self.open(server, width=width, height=height, scheme=scheme)
                        page.run("document.getElementById('max_tokens').value = 10")
                        self.ask(page, "Hello " + "long" * 100)
                        page.wait_for(f"({LAST} ?? '').includes('done') && {IS_IDLE}")
                        self.assertEqual(page.run(CONTRAST), [])
                        self.assertLessEqual(page.run("document.documentElement.scrollWidth"),
                                             width)
                        self.assertTrue(page.run(IS_END_IN_SIGHT))
                        self.shoot(page, f"{scheme}_{name}")


DESCRIPTION = {
    "info": {"version": "1.2.3"},
    "paths": {
        "/v1/embeddings": {"post": {
            "summary": "<b>Texts</b> to vectors",
            "requestBody": {"content": {"application/json": {"schema": {
                "$ref": "#/components/schemas/EmbeddingRequest"}}}},
            "responses": {
                "200": {"content": {"application/json": {"schema": {
                    "$ref": "#/components/schemas/EmbeddingList"}}}},
                "400": {"description": "The request is wrong"}}}},
        "/health": {"get": {"summary": "Works or not", "security": [], "responses": {
            "200": {"content": {"application/json": {"schema": {"type": "object"}}}}}}}},
    "components": {"schemas": {
        "EmbeddingRequest": {"type": "object", "required": ["input"], "properties": {
            "input": {"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}},
                                {"type": "null"}], "description": "What to embed."},
            "dimensions": {"type": ["integer", "null"], "minimum": 1, "maximum": 9},
            "encoding_format": {"anyOf": [{"enum": ["float", "base64"]}, {"type": "null"}],
                                "default": "float"}}},
        "EmbeddingList": {"type": "object", "properties": {
            "data": {"type": "array", "items": {"type": "object", "properties": {
                "index": {"type": "integer"}}}}}}}},
}
ROWS = """[...document.querySelectorAll('details[open] tbody tr')].map(
  (row) => [...row.children].map((cell) => cell.textContent))"""


class TheDocs(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.browser = Browser(BROWSER)
        cls.browser.__enter__()
        cls.addClassCleanup(cls.browser.__exit__)

    def open(self, server, **options):
        page = self.browser.open(server.url + "/docs", **options)
        page.wait_for("document.getElementById('version')?.textContent === '1.2.3'")
        return page

    def server(self):
        return FakeOpenAI({**FILES, "/openapi.json": ("application/json", json.dumps(DESCRIPTION),
                                                      ())})

    def test_every_route_has_its_fields_and_answers_as_text(self):
        with self.server() as server:
            page = self.open(server)
            self.assertEqual(
                page.run("[...document.querySelectorAll('h2')].map((h) => h.textContent)"),
                ["POST /v1/embeddings", "GET /health"])
            self.assertEqual(page.run("document.querySelectorAll('b').length"), 0)
            page.run("document.querySelector('details').open = true")
            page.wait_for("document.querySelectorAll('table').length === 2")
            self.assertEqual(page.run(ROWS), [
                ["input", "string or list of string", "required", "What to embed."],
                ["dimensions", "integer", "", "At least 1, at most 9."],
                ["encoding_format", '"float", "base64"', '"float"', ""],
                ["data", "list of object", "", ""],
                ["data[].index", "integer", "", ""]])
            self.assertEqual(page.problems(), [])

    def test_the_filter_leaves_what_has_the_word(self):
        with self.server() as server:
            page = self.open(server)
            page.run("document.getElementById('filter').focus()")
            page.type("dimensions")
            page.wait_for("document.querySelectorAll('details:not([hidden])').length === 1")

    def test_contrast_and_width_in_light_and_dark_on_phone_and_desk(self):
        with self.server() as server:
            for scheme in "light", "dark":
                for name, width, height in (("phone", 360, 700), ("desk", 1100, 750)):
                    with self.subTest(f"{scheme} {name}"):
                        page = self.open(server, width=width, height=height, scheme=scheme)
                        page.run("document.querySelector('details').open = true")
                        page.wait_for("document.querySelectorAll('table').length === 2")
                        self.assertEqual(page.run(CONTRAST), [])
                        self.assertLessEqual(page.run("document.documentElement.scrollWidth"),
                                             width)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *ARGUMENTS])
