"""Calls of Open WebUI, for the recorder of what it sends: its own server, driven as its page does.

Used by client_calls.py, under the Python that Open WebUI is installed for. The server starts at the
first call, with a database of its own in a temporary folder, and ends with this process.
"""
import atexit
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
import uuid

START_S, ANSWER_S = 900, 60
SESSION = {"session_id": "s", "variables": {}, "features": {
    "image_generation": False, "code_interpreter": False, "web_search": False, "memory": False}}
PARAMS = {
    "temperature": 0.7, "top_p": 0.9, "min_p": 0.05, "max_tokens": 24, "frequency_penalty": 0.1,
    "presence_penalty": 0.1, "reasoning_effort": "low", "seed": 1, "logit_bias": "5:1",
    "stop": ["<|im_end|>", "</s>", "<|eot_id|>", "###", "User:"],
    "custom_params": {"top_k": "20", "repetition_penalty": "1.1",
                      "chat_template_kwargs": '{"enable_thinking": false}'}}
TOOL = '''class Tools:
    def weather(self, city: str) -> str:
        """
        Says the weather.
        :param city: The city.
        """
        return "sunny"
'''
PNG = ("data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwAD"
       "hgGAWjR9awAAAABJRU5ErkJggg==")
EPHEMERAL = {"type": "ephemeral"}


class Page:
    """What the browser says to Open WebUI."""

    def __init__(self, folder, api_url):
        with socket.socket() as listener:
            listener.bind(("127.0.0.1", 0))
            port = listener.getsockname()[1]
        self.url, self.token = f"http://127.0.0.1:{port}", None
        self.log = open(os.path.join(folder, "log"), "w", encoding="utf-8")
        # Without a network: no model of embeddings is fetched, no version is asked for.
        self.process = subprocess.Popen(
            [os.path.join(os.path.dirname(sys.executable), "open-webui"), "serve", "--host",
             "127.0.0.1", "--port", str(port)], stdout=self.log, stderr=subprocess.STDOUT,
            cwd=folder, env={
                **os.environ, "DATA_DIR": folder, "WEBUI_SECRET_KEY": "s", "WEBUI_AUTH": "false",
                "ENABLE_OLLAMA_API": "false", "OFFLINE_MODE": "true", "HF_HUB_OFFLINE": "1",
                "ENABLE_VERSION_UPDATE_CHECK": "false", "OPENAI_API_BASE_URL": api_url,
                "OPENAI_API_KEY": "key", "RAG_EMBEDDING_ENGINE": "openai",
                "RAG_OPENAI_API_BASE_URL": api_url, "RAG_OPENAI_API_KEY": "key"})
        atexit.register(self.end)
        end = time.monotonic() + START_S
        while self.token is None:
            time.sleep(1)
            assert self.process.poll() is None and time.monotonic() < end, "it does not start"
            try:
                user = self.ask("/api/v1/auths/signin", {"email": "", "password": ""})
                self.token = user["token"]
            except urllib.error.URLError:
                pass

    def end(self):
        self.process.terminate()
        self.process.wait(60)
        self.log.close()

    def ask(self, path, body=None, kind="application/json"):
        """The JSON of an answer, or its text."""
        data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        headers = {"Content-Type": kind}
        if self.token:
            headers["Authorization"] = f"Bearer {self.token}"
        request = urllib.request.Request(self.url + path, data, headers)
        with urllib.request.urlopen(request, timeout=ANSWER_S) as answer:
            text = answer.read().decode()
        try:
            return json.loads(text)
        except ValueError:
            return text

    def use(self, api_url):
        self.ask("/openai/config/update", {
            "ENABLE_OPENAI_API": True, "OPENAI_API_BASE_URLS": [api_url],
            "OPENAI_API_KEYS": ["key"], "OPENAI_API_CONFIGS": {"0": {}}})
        self.ask("/api/models?refresh=true")

    def chat(self, model, text, **options):
        """A new chat, whose answer Open WebUI asks for in the background, with tools' results."""
        asked, answered = str(uuid.uuid4()), str(uuid.uuid4())
        question = {"id": asked, "parentId": None, "childrenIds": [answered], "role": "user",
                    "content": text, "timestamp": 1700000000, "models": [model]}
        answer = {"id": answered, "parentId": asked, "childrenIds": [], "role": "assistant",
                  "content": "", "model": model, "timestamp": 1700000000}
        chat_id = self.ask("/api/v1/chats/new", {"chat": {
            "models": [model], "messages": [], "title": "New Chat", "history": {
                "messages": {asked: question, answered: answer}, "currentId": answered}}})["id"]
        self.ask("/api/chat/completions", {
            **SESSION, "stream": True, "model": model, "params": {},
            "messages": [{"role": "user", "content": text}], "chat_id": chat_id, "id": answered,
            "assistant_message_id": answered, "parent_id": asked, "user_message": question,
            **options})
        self.wait(lambda: not self.ask(f"/api/tasks/chat/{chat_id}")["task_ids"])
        history = self.ask(f"/api/v1/chats/{chat_id}")["chat"]["history"]["messages"]
        assert history[answered]["content"], history[answered]

    @staticmethod
    def wait(is_done):
        end = time.monotonic() + ANSWER_S
        while not is_done():
            assert time.monotonic() < end, "no answer"
            time.sleep(0.3)


PAGES = []


def page_for(url):
    """The one page of this process; its embeddings come from the first `url`."""
    if not PAGES:
        folder = tempfile.TemporaryDirectory()
        atexit.register(folder.cleanup)
        PAGES.append(Page(folder.name, url))
    PAGES[0].use(url)
    return PAGES[0]


def chat(url, model):
    """As the page sends a later turn: messages have members of the page's history."""
    page_for(url).ask("/api/chat/completions", {
        **SESSION, "stream": True, "model": model, "params": PARAMS, "messages": [
            {"role": "user", "content": "Hi", "timestamp": 1700000000, "models": [model]},
            {"role": "assistant", "content": "Hello", "done": True, "model": model, "sources": []},
            {"role": "user", "content": "Weather in Rome?"}],
        "stream_options": {"include_usage": True}, "session_id": None})


def tasks(url, model):
    page_for(url).chat(model, "Weather in Rome?", background_tasks={
        "title_generation": True, "tags_generation": True, "follow_up_generation": True})


def tools(url, model):
    page = page_for(url)
    page.ask("/api/v1/tools/create", {"id": "weather", "name": "weather", "content": TOOL,
                                      "meta": {"description": "Says the weather."}})
    page.chat(model, "Weather in Rome? Use a tool.", tool_ids=["weather"])


def file(url, model):
    page = page_for(url)
    part = ("--edge\r\nContent-Disposition: form-data; name=\"file\"; filename=\"a.txt\"\r\n"
            "Content-Type: text/plain\r\n\r\nIt is sunny in Rome.\r\n--edge--\r\n")
    added = page.ask("/api/v1/files/", part.encode(), "multipart/form-data; boundary=edge")
    page.wait(lambda: page.ask(f"/api/v1/files/{added['id']}")["data"]["status"] == "completed")
    page.chat(model, "Weather in Rome?", files=[{"type": "file", "id": added["id"],
                                                 "name": "a.txt", "file": added}])


def image(url, model):
    page_for(url).ask("/api/chat/completions", {"stream": True, "model": model, "messages": [
        {"role": "user", "content": [{"type": "text", "text": "What is it?"},
                                     {"type": "image_url", "image_url": {"url": PNG}}]}]})


def anthropic(url, model):
    """The Messages API of Anthropic, which Open WebUI offers and translates."""
    page_for(url).ask("/api/v1/messages", {
        "model": model, "max_tokens": 24, "stop_sequences": ["\n\n"],
        "system": [{"type": "text", "text": "Be short.", "cache_control": EPHEMERAL}],
        "tools": [{"name": "weather", "description": "Says the weather.", "input_schema": {
            "type": "object", "properties": {"city": {"type": "string"}}},
            "cache_control": EPHEMERAL}],
        "thinking": {"type": "enabled", "budget_tokens": 1024}, "messages": [
            {"role": "user", "content": [{"type": "text", "text": "Weather in Rome?",
                                          "cache_control": EPHEMERAL}]},
            {"role": "assistant", "content": [
                {"type": "thinking", "thinking": "I ask.", "signature": "s"},
                {"type": "tool_use", "id": "call_1", "name": "weather",
                 "input": {"city": "Rome"}}]},
            {"role": "user", "content": [
                {"type": "tool_result", "tool_use_id": "call_1", "content": "sunny"},
                {"type": "text", "text": "Sure?"}]}]})


OPEN_WEBUI_CALLS = {"chat": chat, "tasks": tasks, "tools": tools, "file": file, "image": image,
                    "anthropic": anthropic}
