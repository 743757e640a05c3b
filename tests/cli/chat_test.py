"""`halley chat` as a user talks with it.

    chat_test.py HALLEY_BINARY SOURCE_DIR [unittest arguments]
"""
import os
import signal
import subprocess
import sys
import tempfile
import unittest

HALLEY, SOURCE = sys.argv[1], sys.argv[2]
MODEL = os.path.join(SOURCE, "models", "demo-21m")
GREEDY = ["--temperature", "0"]


def chat(text, *args, max_tokens=6):
    return subprocess.run([HALLEY, "chat", MODEL, *GREEDY, "--max-tokens", str(max_tokens), *args],
                          input=text, capture_output=True, text=True, timeout=300, check=False)


def generate(*args):
    """The same model's answer without the command under test."""
    result = subprocess.run([HALLEY, "generate", MODEL, "--chat", *GREEDY, "--max-tokens",
                             "6", *args], capture_output=True, text=True, timeout=300, check=True)
    return result.stdout


class Chat(unittest.TestCase):
    def test_answers_alone_stand_on_standard_output(self):
        result = chat("Hello there\n")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual(result.stdout, generate("--prompt", "Hello there"))
        self.assertIn("tokens/s; context ", result.stderr)

    def test_earlier_messages_count_until_they_are_forgotten(self):
        def context(result):
            """Tokens in the context behind each answer."""
            return [int(line.split("context ")[1].split(" ")[0])
                    for line in result.stderr.splitlines() if "; context " in line]
        twice = context(chat("Hello there\nHello there\n", "--ignore-eos"))
        self.assertEqual(len(twice), 2)
        self.assertGreater(twice[1], twice[0] + 6)
        reset = chat("Hello there\n/reset\nHello there\n", "--ignore-eos")
        self.assertEqual(context(reset), [twice[0], twice[0]])
        self.assertIn("The conversation is forgotten.", reset.stderr)
        first, second = reset.stdout[:len(reset.stdout) // 2], reset.stdout[len(reset.stdout) // 2:]
        self.assertEqual(first, second)

    def test_the_system_message_is_that_of_the_option_and_of_the_command(self):
        expected = generate("--system", "Be brief.", "--prompt", "Hello there")
        self.assertEqual(chat("Hello there\n", "--system", "Be brief.").stdout, expected)
        self.assertEqual(chat("/system Be brief.\nHello there\n").stdout, expected)
        removed = chat("/system\nHello there\n", "--system", "Be brief.")
        self.assertEqual(removed.stdout, generate("--prompt", "Hello there"))
        self.assertIn("The system message is removed", removed.stderr)

    def test_commands(self):
        result = chat("/help\n\n   \n/nope\n/exit\nHello\n")
        self.assertEqual((result.returncode, result.stdout), (0, ""))
        self.assertIn("/reset", result.stderr)
        self.assertIn('"/nope": no such command. /help lists them', result.stderr)
        slash = chat("//etc/hosts\n")
        self.assertEqual(slash.stdout, generate("--prompt", "/etc/hosts"))

    def test_a_full_context_is_said_and_the_conversation_goes_on(self):
        long_text = "word " * 200
        result = chat(f"{long_text}\nHello there\n", "--max-model-len", "64")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("The context is full: with this message the conversation has ", result.stderr)
        self.assertIn("expected at most 63. It was not sent. /reset", result.stderr)
        self.assertEqual(result.stdout, generate("--prompt", "Hello there"))
        cut = chat("Hello there\n", "--max-model-len", "24", "--ignore-eos", max_tokens=100)
        self.assertIn("[the context is full; /reset begins a new conversation]", cut.stderr)
        self.assertIn("context 24 of 24", cut.stderr)

    def test_ctrl_c_stops_the_answer_and_not_the_conversation(self):
        with subprocess.Popen([HALLEY, "chat", MODEL, "--ignore-eos", "--max-tokens", "100000"],
                              stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE) as process:
            process.stdin.write(b"Hello there\n")
            process.stdin.flush()
            self.assertTrue(os.read(process.stdout.fileno(), 1))  # it answers
            process.send_signal(signal.SIGINT)
            process.stdin.write(b"/help\n/exit\n")
            process.stdin.close()
            process.stdout.read()
            said = process.stderr.read().decode()
            self.assertEqual(process.wait(300), 0)
        self.assertIn("[stopped; what was written stays in the conversation]", said)
        self.assertIn("/reset", said.split("[stopped")[1])

    def test_ctrl_c_leaves_while_nothing_is_written(self):
        with subprocess.Popen([HALLEY, "chat", MODEL], stdin=subprocess.PIPE,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
            process.stdin.write(b"/help\n")
            process.stdin.flush()
            while b"Ctrl-C" not in process.stderr.readline():
                pass
            process.send_signal(signal.SIGINT)
            self.assertEqual(process.wait(300), -signal.SIGINT)

    def test_what_cannot_be_sent_is_said(self):
        result = subprocess.run([HALLEY, "chat", MODEL, *GREEDY, "--max-tokens", "6"],
                                input=b"\xff\xfe\nHello there\n", capture_output=True, timeout=300,
                                check=False)
        self.assertEqual(result.returncode, 0)
        self.assertIn(b"UTF-8", result.stderr)
        self.assertEqual(result.stdout.decode(), generate("--prompt", "Hello there"))

    def test_a_template_of_the_user_takes_the_place_of_the_model_s(self):
        with tempfile.NamedTemporaryFile("w", suffix=".jinja") as file:
            file.write("{{ bos_token }}{% for m in messages %}{{ m.content }}{% endfor %}")
            file.flush()
            result = chat("Hello there\n", "--chat-template", file.name)
            self.assertEqual(result.returncode, 0, result.stderr)
            expected = generate("--prompt", "Hello there", "--chat-template", file.name)
        self.assertEqual(result.stdout, expected)
        plain = subprocess.run([HALLEY, "generate", MODEL, *GREEDY, "--max-tokens", "6", "--prompt",
                                "Hello there"], capture_output=True, text=True, timeout=300,
                               check=True).stdout
        self.assertEqual(expected, plain)
        wrong = subprocess.run([HALLEY, "generate", MODEL, "--prompt", "a", "--chat-template", "x"],
                               capture_output=True, text=True, timeout=300, check=False)
        self.assertEqual(wrong.returncode, 2)
        self.assertIn("--chat-template: expected --chat", wrong.stderr)

    def test_options_of_the_engine(self):
        answer = generate("--prompt", "Hello there")
        options = ["--block-size", "4", "--max-num-batched-tokens", "3",
                   "--no-enable-prefix-caching", "--kv-cache-memory-bytes", "64MB"]
        self.assertEqual(chat("Hello there\n", *options).stdout, answer)
        self.assertEqual(generate("--prompt", "Hello there", *options, "--max-num-seqs", "1"),
                         answer)
        small = chat("Hello there\n", "--kv-cache-memory-bytes", "1KB")
        self.assertEqual(small.returncode, 2)
        self.assertIn("kv_bytes", small.stderr)

    def test_a_model_without_a_template_is_rejected(self):
        with tempfile.TemporaryDirectory() as folder:
            for name in "config.json", "model.safetensors", "tokenizer.json":
                os.symlink(os.path.abspath(os.path.join(MODEL, name)), os.path.join(folder, name))
            result = subprocess.run([HALLEY, "chat", folder], input="", capture_output=True,
                                    text=True, timeout=300, check=False)
        self.assertEqual(result.returncode, 2)
        self.assertIn("chat: expected a chat template", result.stderr)
        built_in = subprocess.run([HALLEY, "chat", "--load-format", "dummy", "--config",
                                   "llama-1b"], input="", capture_output=True, text=True,
                                  timeout=300, check=False)
        self.assertEqual(built_in.returncode, 2)
        self.assertIn("expected a model's folder", built_in.stderr)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
