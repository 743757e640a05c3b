"""LoRA adapters on a server under load: eight in one batch, others loaded and unloaded meanwhile.

    serve_adapters_test.py HALLEY_BINARY SOURCE_DIR [unittest arguments]

Adapters are random; that their arithmetic is PEFT's is what adapter_test shows.
"""
import json
import os
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lora"))
from random_adapter import write_adapter  # noqa: E402
from served import Background, Server  # noqa: E402

HALLEY, SOURCE = sys.argv[1], sys.argv[2]
MODEL = os.path.join(SOURCE, "models", "demo-21m")
PROMPTS = ["The Python programming language", "def main():", "In the beginning"]
NAMES = [f"adapter{i}" for i in range(8)]
NUM_RELOADS = 12


def body_of(prompt, model):
    return {"model": model, "prompt": prompt, "max_tokens": 32, "temperature": 0,
            "ignore_eos": True}


class AdaptersUnderLoad(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = folder.name
        cls.adapters = {name: write_adapter(MODEL, os.path.join(cls.folder, name), seed)
                        for seed, name in enumerate([*NAMES, "late0", "late1"])}
        cls.server = Server(HALLEY, MODEL, "--device", "cpu", "--threads", "2", "--lora-folder",
                            cls.folder, "--lora-modules",
                            *(f"{name}={cls.adapters[name]}" for name in NAMES))
        cls.addClassCleanup(cls.server.end)

    def text(self, prompt, model):
        return self.server.post("/v1/completions", body_of(prompt, model))["choices"][0]["text"]

    def models(self):
        return {model["id"] for model in self.server.get("/v1/models")["data"]}

    def load(self, name):
        status, _, text = self.server.ask("POST", "/v1/load_lora_adapter",
                                          {"lora_name": name, "lora_path": name})
        self.assertEqual(status, 200, text)

    def unload(self, name):
        status, _, text = self.server.ask("POST", "/v1/unload_lora_adapter", {"lora_name": name})
        self.assertEqual(status, 200, text)

    def reload(self, name, expected):
        """Loads an adapter, asks it, and unloads it, many times."""
        for i in range(NUM_RELOADS):
            self.load(name)
            prompt = PROMPTS[i % len(PROMPTS)]
            self.assertEqual(self.text(prompt, name), expected[prompt])
            # A request keeps the adapter with which it began.
            asked = Background(lambda p=prompt: self.text(p, name))
            while self.server.get("/load")["server_load"] == 0 and asked.is_alive():
                pass
            self.unload(name)
            try:
                self.assertEqual(asked.result(), expected[prompt])
            except AssertionError as error:  # the adapter was gone before the request came
                self.assertIn(": 404: ", str(error))

    def test_answers_are_those_of_each_adapter_alone(self):
        alone = {(prompt, name): self.text(prompt, name)
                 for prompt in PROMPTS for name in [self.server.name, *NAMES]}
        self.assertEqual(len(set(alone.values())), len(alone))
        line = subprocess.run(
            [HALLEY, "generate", MODEL, "--device", "cpu", "--json", "--temperature", "0",
             "--max-tokens", "32", "--ignore-eos", "--prompt", PROMPTS[0], "--lora",
             self.adapters[NAMES[3]]], capture_output=True, text=True, timeout=120, check=True)
        self.assertEqual(json.loads(line.stdout)["text"], alone[PROMPTS[0], NAMES[3]])
        late = {}
        for name in ("late0", "late1"):
            self.load(name)
            late[name] = {prompt: self.text(prompt, name) for prompt in PROMPTS}
            self.unload(name)
        before = self.models()
        self.assertEqual(before, {self.server.name, *NAMES})

        reloads = [Background(lambda n=name: self.reload(n, late[n])) for name in late]
        for _ in range(3):
            asked = {key: Background(lambda k=key: self.text(*k)) for key in alone}
            self.assertEqual({key: thread.result() for key, thread in asked.items()}, alone)
        for reload in reloads:
            reload.result()
        self.assertEqual(self.models(), before)
        self.assertEqual(self.server.get("/load")["server_load"], 0)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
