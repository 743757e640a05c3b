"""Runs the program as a user does and checks output, errors and exit codes.

    cli_test.py HALLEY_BINARY SOURCE_DIR [unittest arguments]

Expected tokens and texts are the golden results that Hugging Face transformers gave for the shipped
model (models/demo-21m/golden.json, tokenizer_golden.json).
"""
import json
import math
import os
import re
import signal
import struct
import subprocess
import sys
import tempfile
import unittest
import xml.etree.ElementTree

HALLEY, SOURCE = sys.argv[1], sys.argv[2]
MODEL = os.path.join(SOURCE, "models", "demo-21m")


# Instrumented kernels are a hundred times slower; what they compute has unit tests of its own.
skip_if_instrumented = unittest.skipIf(os.environ.get("HALLEY_TEST_IS_INSTRUMENTED"),
                                       "takes minutes in an instrumented build")
slow = unittest.skipUnless(os.environ.get("HALLEY_TEST_IS_SLOW"), "runs as cli_slow_test")


def run(*args, stdin="", **options):
    return subprocess.run([HALLEY, *args], input=stdin, capture_output=True, text=True, timeout=600,
                          check=False, **options)


def run_json(*args, stdin=""):
    result = run(*args, stdin=stdin)
    if result.returncode != 0:
        raise AssertionError(f"{args}: exit code {result.returncode}: {result.stderr}")
    return json.loads(result.stdout)


def golden(name):
    with open(os.path.join(MODEL, name), encoding="utf-8") as file:
        return json.load(file)


def write_excerpt(path, num_chars):
    """The beginning of a text."""
    with open(os.path.join(SOURCE, "testdata", "text", "docs_heldout.txt"),
              encoding="utf-8") as file, open(path, "w", encoding="utf-8") as out:
        out.write(file.read()[:num_chars])


def make_model_of_other_tokens(folder):
    """The demo model with a tokenizer that knows half of its merges."""
    os.mkdir(folder)
    for name in "config.json", "model.safetensors":
        os.symlink(os.path.abspath(os.path.join(MODEL, name)), os.path.join(folder, name))
    tokenizer = golden("tokenizer.json")
    tokenizer["model"]["merges"] = tokenizer["model"]["merges"][:1000]
    with open(os.path.join(folder, "tokenizer.json"), "w", encoding="utf-8") as file:
        json.dump(tokenizer, file)


class Usage(unittest.TestCase):
    def assert_fails(self, exit_code, text, *args, stdin=""):
        result = run(*args, stdin=stdin)
        self.assertEqual(result.returncode, exit_code, result.stderr)
        self.assertIn(text, result.stderr)
        lines = [line for line in result.stderr.splitlines() if not line.startswith("loaded ")]
        self.assertEqual(len(lines), 1, "one line: " + result.stderr)
        self.assertEqual(result.stdout, "")

    def test_help_has_examples_for_every_command(self):
        for command in [], ["generate"], ["chat"], ["eval"], ["compare"], ["inspect"], \
                ["quantize"], ["tokenize"], ["template"], ["serve"], ["formats"], ["tune"], \
                ["bench", "latency"], ["bench", "throughput"], ["bench", "serve"]:
            result = run(*command, "--help")
            self.assertEqual(result.returncode, 0)
            self.assertIn("Example", result.stdout, command)

    def test_wrong_usage_is_one_line_and_exit_code_2(self):
        self.assert_fails(2, "--help")
        self.assert_fails(2, "Try 'halley generate --help'", "generate", MODEL, "--wrong")
        self.assert_fails(2, "config.json", "generate", "/nonexistent", "--prompt", "x")
        self.assert_fails(2, "temperature", "generate", MODEL, "--prompt", "x", "--temperature",
                          "3")
        self.assert_fails(2, "--logit-bias", "generate", MODEL, "--prompt", "x", "--logit-bias",
                          "a:b")
        self.assert_fails(2, "expected either --prompt", "generate", MODEL)
        self.assert_fails(2, "--prompt-ids", "generate", MODEL, "--prompt-ids", "1,8192")
        for command in ["generate"], ["eval", "--perplexity", "x"], ["bench", "latency"]:
            self.assert_fails(2, "--kv-dtype: expected auto, f32, f16, bf16, int8, int4 or fp8, "
                              'got "int3"', *command, MODEL, "--kv-dtype", "int3")
        self.assert_fails(2, "line 1", "tokenize", MODEL, stdin='{"text": 1}\n')
        self.assert_fails(2, "llama-1b", "inspect", "--load-format", "dummy", "--config", "x")

    def test_damaged_checkpoint_is_exit_code_3(self):
        with tempfile.TemporaryDirectory() as folder:
            with open(os.path.join(folder, "config.json"), "w", encoding="utf-8") as file:
                json.dump(golden("config.json"), file)
            with open(os.path.join(folder, "model.safetensors"), "wb") as file:
                file.write(struct.pack("<Q", 2) + b"{}")
            self.assert_fails(3, "model.embed_tokens.weight", "inspect", folder)

    def test_unknown_family_is_exit_code_4(self):
        with tempfile.TemporaryDirectory() as folder:
            with open(os.path.join(folder, "config.json"), "w", encoding="utf-8") as file:
                json.dump({"model_type": "rwkv"}, file)
            with open(os.path.join(folder, "model.safetensors"), "wb") as file:
                file.write(struct.pack("<Q", 2) + b"{}")
            self.assert_fails(4, "rwkv", "inspect", folder)


class Generate(unittest.TestCase):
    def test_greedy_continuations_are_those_of_transformers(self):
        for case in golden("golden.json")["greedy"]:
            result = run_json("generate", MODEL, "--prompt", case["prompt"], "--temperature", "0",
                              "--max-tokens", str(len(case["ids"])), "--ignore-eos", "--json")
            self.assertEqual(result["prompt_token_ids"], case["prompt_ids"])
            self.assertEqual(result["token_ids"], case["ids"])
            self.assertEqual(result["finish_reason"], "length")
            for name in "load_s", "time_to_first_token_s", "time_per_output_token_s", "total_s":
                self.assertGreaterEqual(result["timings"][name], 0, name)

    def test_streamed_text_equals_json_text(self):
        args = ["generate", MODEL, "--prompt", "To be, or not to be", "--temperature", "0",
                "--max-tokens", "20"]
        streamed = run(*args)
        self.assertEqual(streamed.returncode, 0, streamed.stderr)
        self.assertIn(run_json(*args, "--json")["text"], streamed.stdout)
        self.assertIn("tokens/s", streamed.stderr)

    def test_same_seed_same_text_in_any_batch(self):
        args = ["--temperature", "1", "--seed", "7", "--max-tokens", "12", "--json"]
        alone = run_json("generate", MODEL, "--prompt", "The Python", *args)
        self.assertEqual(alone["token_ids"],
                         run_json("generate", MODEL, "--prompt", "The Python", *args)["token_ids"])
        both = run("generate", MODEL, "--prompt", "The Python", "--prompt", "A transaction", *args)
        lines = [json.loads(line) for line in both.stdout.splitlines()]
        self.assertEqual([line["prompt"] for line in lines], ["The Python", "A transaction"])
        self.assertEqual(lines[0]["token_ids"], alone["token_ids"])

    @skip_if_instrumented
    def test_same_text_in_any_batch_with_a_quantized_cache(self):
        prompts = ["The Python", "A transaction is", "To be, or not"]
        for kv_dtype in "int8", "int4", "fp8":
            args = ["--temperature", "0", "--max-tokens", "12", "--json", "--kv-dtype", kv_dtype]
            alone = [run_json("generate", MODEL, "--prompt", prompt, "--threads", "1",
                              *args)["token_ids"] for prompt in prompts]
            together = run("generate", MODEL, *[arg for prompt in prompts
                                                for arg in ("--prompt", prompt)], *args)
            self.assertEqual([json.loads(line)["token_ids"]
                              for line in together.stdout.splitlines()], alone, kv_dtype)

    def test_prompt_ids_and_logprobs(self):
        case = golden("golden.json")["greedy"][0]
        result = run_json("generate", MODEL, "--prompt-ids", ",".join(map(str, case["prompt_ids"])),
                          "--temperature", "0", "--max-tokens", "1", "--logprobs", "3", "--json")
        logits = case["last_logits"]
        total = math.log(sum(math.exp(x - max(logits)) for x in logits)) + max(logits)
        best = sorted(range(len(logits)), key=lambda i: -logits[i])[:3]
        (entry,) = result["logprobs"]
        self.assertEqual(entry["token_id"], best[0])
        self.assertEqual([top["token_id"] for top in entry["top"]], best)
        for top in entry["top"]:
            self.assertAlmostEqual(top["logprob"], logits[top["token_id"]] - total, delta=0.02)

    def test_a_model_without_a_tokenizer_takes_and_gives_ids(self):
        case = golden("golden.json")["greedy"][0]
        with tempfile.TemporaryDirectory() as folder:
            for name in "config.json", "generation_config.json", "model.safetensors":
                os.symlink(os.path.join(MODEL, name), os.path.join(folder, name))
            args = ["--prompt-ids", ",".join(map(str, case["prompt_ids"])), "--temperature", "0",
                    "--max-tokens", "5", "--ignore-eos"]
            ids = case["ids"][:5]
            result = run("generate", folder, *args)
            self.assertEqual(result.returncode, 0, result.stderr)
            self.assertEqual(result.stdout, ",".join(map(str, ids)) + "\n")
            result = run_json("generate", folder, *args, "--json")
            self.assertEqual((result["token_ids"], result["text"]), (ids, ""))
            for more, text in [
                    (["--prompt", "x"], "expected a tokenizer.json or a tokenizer.model for a "
                     "prompt that is text, got neither. Copy the tokenizer's files into the "
                     "model's directory, or give the prompt as --prompt-ids."),
                    (["--chat", "--prompt", "x"], "for a prompt that is text, got neither"),
                    ([*args, "--stop", "x"], "stop: expected no stop strings, since the engine has "
                     "no tokenizer. Use stop_token_ids.")]:
                result = run("generate", folder, *more)
                self.assertEqual(result.returncode, 2, result.stderr)
                self.assertIn(text, result.stderr)
            result = run("bench", "latency", folder, "--input-len", "4", "--output-len", "2",
                         "--num-iters", "1")
            self.assertEqual(result.returncode, 0, result.stderr)
            result = run("eval", folder, "--perplexity",
                         os.path.join(SOURCE, "testdata", "text", "docs_heldout.txt"))
            self.assertEqual(result.returncode, 2, result.stderr)
            self.assertIn("expected a tokenizer.json or a tokenizer.model, got neither",
                          result.stderr)

    def test_stop_string_ends_the_text_before_it(self):
        args = ["generate", MODEL, "--prompt", "To be, or not to be", "--temperature", "0",
                "--max-tokens", "20", "--json"]
        text = run_json(*args)["text"]
        stop = text[8:13]
        result = run_json(*args, "--stop", stop)
        self.assertEqual(result["text"], text[:text.index(stop)])
        self.assertEqual(result["finish_reason"], "stop")

    def test_chat_renders_the_template(self):
        result = run_json("generate", MODEL, "--chat", "--prompt", "Hello", "--max-tokens", "2",
                          "--temperature", "0", "--json")
        text = ("<|begin_of_text|><|start_header_id|>user<|end_header_id|>\n\nHello<|eot_id|>"
                "<|start_header_id|>assistant<|end_header_id|>\n\n")
        lines = run("tokenize", MODEL, stdin=json.dumps({"text": text}) + "\n").stdout
        self.assertEqual(result["prompt_token_ids"], json.loads(lines)["ids"])


class Eval(unittest.TestCase):
    def test_perplexity_of_a_text_and_its_logits_file(self):
        with tempfile.TemporaryDirectory() as folder:
            text, logits = os.path.join(folder, "t.txt"), os.path.join(folder, "l.safetensors")
            with open(os.path.join(SOURCE, "testdata", "text", "docs_heldout.txt"),
                      encoding="utf-8") as file, open(text, "w", encoding="utf-8") as out:
                out.write(file.read()[:700])
            result = run_json("eval", MODEL, "--perplexity", text, "--window", "128", "--logits",
                              logits, "--json")
            self.assertEqual(result["window"], 128)
            nll, num_rows = self.nll_of(logits)
            self.assertEqual(result["num_tokens"], num_rows)
            self.assertAlmostEqual(math.log(result["perplexity"]), nll / num_rows, delta=2e-3)

    @slow
    def test_perplexity_with_every_type_of_the_cache(self):
        """The first windows of a text; src/halley/kernels/kv/README.md has those of whole ones."""
        with tempfile.TemporaryDirectory() as folder:
            text = os.path.join(folder, "t.txt")
            with open(os.path.join(SOURCE, "testdata", "text", "docs_heldout.txt"),
                      encoding="utf-8") as file, open(text, "w", encoding="utf-8") as out:
                out.write(file.read()[:6000])
            exact = self.nll_with(text, "f32")
            for kv_dtype, bound in ("f16", 5e-4), ("bf16", 2e-3), ("int8", 4e-3), \
                    ("fp8_e4m3", 6e-3), ("int4", 0.05):
                self.assertAlmostEqual(self.nll_with(text, kv_dtype), exact, delta=bound,
                                       msg=kv_dtype)
            self.assertNotEqual(self.nll_with(text, "int8"), exact)

    def nll_with(self, text, kv_dtype):
        result = run_json("eval", MODEL, "--perplexity", text, "--kv-dtype", kv_dtype, "--json")
        self.assertEqual(result["kv_dtype"], kv_dtype.removesuffix("_e4m3"))
        return result["nll"] / result["num_tokens"]

    def nll_of(self, path):
        """Sum of negative log likelihoods and number of rows, from the logits file alone."""
        with open(path, "rb") as file:
            data = file.read()
        (length,) = struct.unpack("<Q", data[:8])
        header, base = json.loads(data[8:8 + length]), 8 + length
        self.assertEqual(header["__metadata__"]["format"], "halley-logits-1")

        def tensor(name, code):
            begin, end = header[name]["data_offsets"]
            return struct.unpack(f"<{(end - begin) // struct.calcsize(code)}{code}",
                                 data[base + begin:base + end])

        num_rows, vocab_size = header["log_prob_codes"]["shape"]
        codes, low = tensor("log_prob_codes", "H"), tensor("log_prob_min", "f")
        step, target = tensor("log_prob_step", "f"), tensor("target_ids", "i")
        nll = 0.0
        for row in range(num_rows):
            row_codes = codes[row * vocab_size:(row + 1) * vocab_size]
            self.assertAlmostEqual(sum(math.exp(low[row] + code * step[row]) for code in row_codes),
                                   1, delta=2e-3)
            nll -= low[row] + row_codes[target[row]] * step[row]
        return nll, num_rows


    def test_divergence_from_a_model_and_from_its_logits_file(self):
        with tempfile.TemporaryDirectory() as folder:
            text, logits = os.path.join(folder, "t.txt"), os.path.join(folder, "l.safetensors")
            write_excerpt(text, 3000)
            args = ["eval", MODEL, "--perplexity", text, "--window", "128", "--json"]
            exact = run_json(*args, "--logits", logits)
            same = run_json(*args, "--reference", MODEL)
            self.assertAlmostEqual(same["perplexity"], exact["perplexity"], delta=1e-9)
            self.assertEqual(same["kl_divergence"], {"value": 0, "low": 0, "high": 0})
            self.assertEqual(same["top1_agreement"]["value"], 1)
            args += ["--kv-dtype", "int4"]
            model = run_json(*args, "--reference", MODEL)
            self.assertGreater(model["kl_divergence"]["value"], 1e-3)
            self.assertAlmostEqual(model["log_perplexity_increase"]["value"],
                                   math.log(model["perplexity"] / exact["perplexity"]), delta=1e-9)
            stored = run_json(*args, "--reference", logits)
            self.assertAlmostEqual(stored["kl_divergence"]["value"],
                                   model["kl_divergence"]["value"], delta=1e-4)
            self.assertEqual(stored["num_tokens"], model["num_tokens"])
            part = run_json(*args, "--reference", logits, "--windows", "2")
            self.assertEqual((part["num_windows"], part["num_tokens"]), (2, 2 * 127))
            self.assertAlmostEqual(part["reference_perplexity"],
                                   math.exp(sum(exact["window_nll"][:2]) / 254), delta=0.05)
            self.assertIn("nats a token; 99th percentile",
                          run(*args[:-3], "--reference", MODEL, "--windows", "2").stdout)

    def test_a_reference_that_does_not_fit_is_rejected(self):
        with tempfile.TemporaryDirectory() as folder:
            text, logits = os.path.join(folder, "t.txt"), os.path.join(folder, "l.safetensors")
            write_excerpt(text, 900)
            args = ["eval", MODEL, "--perplexity", text, "--window", "64"]
            self.assertEqual(run(*args, "--logits", logits).returncode, 0)
            other = os.path.join(folder, "o.txt")
            with open(other, "w", encoding="utf-8") as file:
                file.write("Another text with some words.")
            with open(logits, "rb") as file:
                data = file.read()
            cases = [(["--window", "32"], "expected windows of 32 tokens, got 64. Pass --window 64",
                      data, 2),
                     (["--perplexity", other], "got those of another text", data, 2),
                     (["--reference-kv-dtype", "int8"], "expected --reference to be a model", data,
                      2),
                     ([], "expected a file that `halley eval --logits` wrote",
                      data.replace(b"halley-logits-1", b"halley-logits-2"), 2),
                     ([], 'expected a tensor "log_prob_min", got none',
                      data.replace(b"log_prob_min", b"log_prob_mix"), 3),
                     ([], 'tensor "log_prob_step": expected f32',
                      data.replace(b'"log_prob_step":{"dtype":"F32"',
                                   b'"log_prob_step":{"dtype":"U32"'), 3)]
            for extra, message, content, exit_code in cases:
                with open(logits, "wb") as file:
                    file.write(content)
                base = args[:2] + args[4:] if "--perplexity" in extra else args
                if "--window" in extra:
                    base = args[:4]
                result = run(*base, *extra, "--reference", logits)
                self.assertEqual(result.returncode, exit_code, result.stderr)
                self.assertIn(message, result.stderr)
            for extra, message in [(["--perplexity", text, "--perplexity", other, "--logits",
                                     logits], "--logits: expected one text to write, got 2"),
                                   ([], "expected either --perplexity or --tasks"),
                                   (["--tasks", text, "--reference", MODEL],
                                    "expected --perplexity with them")]:
                result = run("eval", MODEL, *extra)
                self.assertEqual(result.returncode, 2)
                self.assertIn(message, result.stderr)

    def test_multiple_choice_is_that_of_transformers(self):
        folder = os.path.join(SOURCE, "testdata", "multiple_choice")
        with open(os.path.join(folder, "golden.json"), encoding="utf-8") as file:
            expected = json.load(file)
        for name, case in expected.items():
            result = run_json("eval", MODEL, "--tasks", os.path.join(folder, f"{name}.jsonl"),
                              "--kv-dtype", "f32", "--json")
            self.assertEqual(len(result["log_likelihoods"]), len(case["log_likelihoods"]))
            for score, wanted in zip(result["log_likelihoods"], case["log_likelihoods"]):
                self.assertAlmostEqual(score, wanted, delta=1e-3, msg=name)
            for field in "accuracy", "accuracy_norm":
                self.assertAlmostEqual(result[field], case[field][0], delta=1e-9, msg=name)
                self.assertAlmostEqual(result[f"{field}_stderr"], case[field][1], delta=1e-9)
        with tempfile.TemporaryDirectory() as temporary:
            path = os.path.join(temporary, "t.jsonl")
            good = '{"goal": "g", "sol1": "a", "sol2": "b", "label": 0}\n'
            for content, message in [(good + "\n{", "line 3: not valid JSON"), (" \n", "got none"),
                                     (good + '{"goal": "g"}', "line 2: field 'sol1'"),
                                     (good + '{"sentence": "a _ b", "option1": "x", "option2": '
                                      '"y", "answer": "1"}', "line 2: expected an item of PIQA")]:
                with open(path, "w", encoding="utf-8") as file:
                    file.write(content)
                result = run("eval", MODEL, "--tasks", path)
                self.assertEqual(result.returncode, 2)
                self.assertIn(message, result.stderr)


class Compare(unittest.TestCase):
    @slow
    def test_models_beside_a_reference_in_any_groups(self):
        with tempfile.TemporaryDirectory() as folder:
            text, svg = os.path.join(folder, "t.txt"), os.path.join(folder, "p.svg")
            saved = os.path.join(folder, "r.json")
            write_excerpt(text, 3000)
            models = [MODEL, f"{MODEL}@kv=int8", f"{MODEL}@kv=int4,precision=full"]
            args = ["compare", *models, "--reference", MODEL, "--perplexity", text, "--window",
                    "128", "--json"]
            together = run_json(*args, "--svg", svg)
            rows = together["models"]
            self.assertEqual([row["name"] for row in rows], models)
            self.assertEqual([row["kv_dtype"] for row in rows], ["f16", "int8", "int4"])
            self.assertEqual(rows[0]["kl_divergence"]["value"], 0)
            self.assertLess(rows[1]["kl_divergence"]["value"], rows[2]["kl_divergence"]["value"])
            alone = run_json("eval", MODEL, "--perplexity", text, "--window", "128", "--kv-dtype",
                             "int4", "--reference", MODEL, "--json")
            self.assertEqual(rows[2]["kl_divergence"], alone["kl_divergence"])
            self.assertEqual((rows[0]["bits_per_weight"], rows[0]["bits_per_weight_all"]), (16, 16))
            for row in [together["reference"], *rows]:
                self.assertGreater(row["speed"]["decode_tokens_per_s"], 0)
            split = run_json(*args, "--memory", "1", "--no-speed")
            for row, other in zip(rows, split["models"]):
                self.assertNotIn("speed", other)
                self.assertEqual({**other, "speed": row["speed"]}, row)
            root = xml.etree.ElementTree.parse(svg).getroot()
            self.assertEqual(root.tag, "{http://www.w3.org/2000/svg}svg")
            self.assertEqual(len(root.findall(".//{*}circle")), 3)
            texts = ["".join(element.itertext()) for element in root.findall(".//{*}text")]
            self.assertTrue(set(models) <= set(texts), texts)
            self.check_saved(together, saved, svg)

    def check_saved(self, result, saved, svg):
        """A saved result is shown again; names in it are untrusted."""
        result["models"][0]["name"] = '<a> & "b"'
        with open(saved, "w", encoding="utf-8") as file:
            json.dump(result, file)
        shown = run("compare", "--from", saved, "--svg", svg)
        self.assertIn("log-perplexity increase", shown.stdout)
        root = xml.etree.ElementTree.parse(svg).getroot()
        self.assertIn('<a> & "b"', ["".join(element.itertext())
                                    for element in root.findall(".//{*}text")])
        del result["models"][0]["perplexity"]
        with open(saved, "w", encoding="utf-8") as file:
            json.dump(result, file)
        self.assertIn("expected what `halley compare --json` printed",
                      run("compare", "--from", saved).stderr)

    def test_wrong_usage(self):
        with tempfile.TemporaryDirectory() as folder:
            text = os.path.join(folder, "t.txt")
            write_excerpt(text, 300)
            good = ["--reference", MODEL, "--perplexity", text, "--window", "32"]
            other = os.path.join(folder, "other")
            make_model_of_other_tokens(other)
            for args, message in [
                    ([MODEL], "expected either MODEL..., --reference and --perplexity"),
                    ([f"{MODEL}@kv=int3", *good], 'got "kv=int3"'),
                    ([f"{MODEL}@x=1", *good], "MODEL@SETTINGS: expected kv="),
                    ([MODEL, *good, "--svg", os.path.join(folder, "no", "p.svg")],
                     "cannot write"),
                    ([MODEL, "--reference", other, *good[2:]], "expected the same tokens of"),
                    ([MODEL, other, *good], "expected the same tokens of")]:
                result = run("compare", *args)
                self.assertEqual(result.returncode, 2, result.stderr)
                self.assertIn(message, result.stderr)


QUANTIZED = os.path.join(SOURCE, "testdata", "quantized")


class Quantized(unittest.TestCase):
    def plan(self, name, *args, **options):
        result = run("inspect", os.path.join(QUANTIZED, name), "--json", *args, **options)
        self.assertEqual(result.returncode, 0, result.stderr)
        return json.loads(result.stdout)

    def weights(self, plan):
        return {weight["name"]: weight for part in plan["parts"] if part["kind"] == "linear"
                for weight in part["weights"]}

    def test_inspect_says_what_each_layer_is_and_runs_on(self):
        plan = self.plan("gptq_dynamic")
        weights = self.weights(plan)
        down = weights["model.layers.0.mlp.down_proj"]
        self.assertEqual((down["format"], down["bits"], down["group_size"]), ("gptq", 8, 64))
        self.assertEqual(down["symmetric"], True)
        self.assertIn("a32_hwy", down["kernel"])
        self.assertGreater(down["compression"], 1.5)
        self.assertEqual(weights["model.layers.0.self_attn.k_proj"]["format"], "none")
        order = self.weights(self.plan("gptq_3bit_g64_desc_act"))
        self.assertTrue(order["model.layers.0.self_attn.q_proj"]["input_order"])
        text = run("inspect", os.path.join(QUANTIZED, "gptq_dynamic")).stdout
        self.assertIn("8 bits g64 sym", text)

    def test_loading_says_what_was_loaded(self):
        model = os.path.join(QUANTIZED, "gptq_4bit_g128_mislabelled_v2")
        result = run("bench", "latency", model, "--input-len", "4", "--output-len", "2",
                     "--num-iters", "1")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("warning: ", result.stderr)
        self.assertRegex(result.stderr,
                         r"loaded gptq \(4 bits, .*\): .* in memory, .* % of 16 bits; kernels .*; "
                         r"\S+ s \(read \S+, repack \S+, self-check \S+\)")

    def test_kernels_on_demand(self):
        env = dict(os.environ, HALLEY_KERNEL="gemm_w4a32_hwy")
        forced = self.weights(self.plan("gptq_4bit_g128_sym", env=env))
        self.assertEqual({weight["kernel"] for weight in forced.values()}, {"gemm_w4a32_hwy"})
        model = os.path.join(QUANTIZED, "gptq_4bit_g128_sym")
        for args, extra, text in [
                (["--require-kernel", "gemm_w8a8_hwy"], {}, "expected one of [gemm_w8a8_hwy]"),
                (["--require-kernel", "x"], {}, 'got "x"'),
                ([], {"HALLEY_KERNEL": "gemm_w8a8_hwy"}, "expected a layer that it can run"),
                ([], {"HALLEY_KERNEL": "gemm_w4a8_hwy"}, "got a rejection: ")]:
            result = run("inspect", model, *args, env=dict(os.environ, **extra))
            self.assertEqual(result.returncode, 2, result.stderr)
            self.assertIn(text, result.stderr)

    def test_devices(self):
        model = os.path.join(QUANTIZED, "gptq_dynamic")
        for args, exit_code, text in [
                (["--device", "tpu"], 2, 'expected auto, cpu, cuda or cuda:N, got "tpu"'),
                (["--device", "cuda:"], 2, 'got "cuda:"'),
                (["--dtype", "float16", "--device", "cpu"], 2, "on the CPU activations are")]:
            result = run("inspect", model, *args)
            self.assertEqual(result.returncode, exit_code, result.stderr)
            self.assertIn(text, result.stderr)
        result = run("inspect", model, "--device", "cuda", "--json")
        if result.returncode == 4:
            self.assertIn("expected a program that was built with CUDA", result.stderr)
            return
        plan = json.loads(result.stdout)
        self.assertEqual((plan["device"], plan["activation_dtype"]), ("cuda", "f16"))
        weights = [weight for part in plan["parts"] for weight in part.get("gpu_weights", [])]
        self.assertEqual({weight["kernel"].split("_")[1] for weight in weights},
                         {"f16", "w4a16", "w8a16"})
        self.assertIn("u4_quad, kept in 4 bits (u4_f16): a scale for each output",
                      {weight["form"] for weight in weights})
        self.assertEqual({(weight["kernel"], weight.get("mma_kernel")) for weight in weights
                          if weight["kernel"].startswith("gemm_w4")},
                         {("gemm_w4a16_mixed", "gemm_w4a16_mma")})
        self.assertFalse([weight for weight in weights if weight["form"].endswith("kept in f16") and
                          "mma_kernel" in weight])
        self.assertRegex(run("inspect", model, "--device", "cuda").stdout,
                         "gemm_w4a16_mma +[0-9]+ weights on compute capability 8.0 to 8.9")
        self.assertIn("not gemm_fp8_streamed: needs rows of a multiple of 128 bytes",
                      run("inspect", os.path.join(QUANTIZED, "fp8_tensor_static"),
                          "--device", "cuda").stdout)
        env = dict(os.environ, HALLEY_KERNEL="gemm_w4a32_hwy")
        for args, extra, text in [
                (["--require-kernel", "gemm_s8_sums_cublaslt"], None, "got gemm_"),
                (["--dtype", "float32"], None, "expected float16 or bfloat16 on a GPU"),
                ([], env, "HALLEY_KERNEL: expected none with --device cuda")]:
            result = run("inspect", model, "--device", "cuda", *args, env=extra)
            self.assertEqual(result.returncode, 2, result.stderr)
            self.assertIn(text, result.stderr)

    def test_overrides_of_formats(self):
        override = '*.q_proj={"quant_method": "gptq", "bits": 4, "group_size": 128, "sym": true}'
        plan = self.plan("gptq_4bit_g128_sym", "--quant-override", override)
        self.assertEqual(plan["format"], "mixed")
        result = run("inspect", os.path.join(QUANTIZED, "gptq_4bit_g128_sym"), "--quant-override",
                     "*.o_proj=none")
        self.assertEqual(result.returncode, 3, result.stderr)
        self.assertIn("model.layers.0.self_attn.o_proj.weight", result.stderr)

    def test_dummy_weights_in_any_format(self):
        config = '{"quant_method": "gptq", "bits": 4, "group_size": 128, "sym": false, ' \
                 '"desc_act": false}'
        plan = run_json("inspect", "--load-format", "dummy", "--config", "demo-21m",
                        "--quant-config", config, "--json")
        self.assertLess(plan["packed_bytes"], 0.5 * plan["f16_bytes"])

    def test_two_precisions_of_one_weight(self):
        dummy = ["--load-format", "dummy", "--config", "demo-21m", "--quant-config",
                 '{"quant_method": "nestedfp", "version": 1}']
        plan = run_json("inspect", *dummy, "--json")
        self.assertEqual(plan["packed_bytes"],
                         run_json("inspect", *dummy[:4], "--dtype", "float16",
                                  "--json")["packed_bytes"])
        down = self.weights(plan)["model.layers.0.mlp.down_proj"]
        self.assertEqual((down["kernel"], down["low_kernel"]),
                         ("gemm_nestedf16_hwy", "gemm_nestedf8_hwy"))
        self.assertIn("gemm_nestedf16_hwy, low gemm_nestedf8_hwy", run("inspect", *dummy).stdout)
        ids = ["generate", "--prompt-ids", "1,2,3", "--max-tokens", "2", "--ignore-eos"]
        for precision in ["full", "low"]:
            result = run(*ids, *dummy, "--precision", precision)
            self.assertEqual(result.returncode, 0, result.stderr)
        result = run(*ids, *dummy[:4], "--precision", "low")
        self.assertEqual(result.returncode, 2, result.stderr)
        self.assertIn("--precision low: expected a model with weights in two precisions, got none",
                      result.stderr)

    def test_the_table_of_formats_in_the_readme_is_current(self):
        with open(os.path.join(SOURCE, "README.md"), encoding="utf-8") as file:
            readme = file.read()
        table = run("formats").stdout
        self.assertGreater(table.count("\n"), 20)
        rows = run_json("formats", "--json")
        if not any(row["cuda"] for row in rows):  # a build without CUDA: its column is empty
            readme = re.sub(r"^(\|.*\| )[^|]+ \|$", r"\1- |", readme, flags=re.M)
            table = re.sub(r"^(\|.*\| )[^|]+ \|$", r"\1- |", table, flags=re.M)
        self.assertIn(f"<!-- formats:begin (halley formats) -->\n\n{table}\n"
                      "<!-- formats:end -->", readme,
                      "Put the output of `halley formats` between the marks in README.md.")
        self.assertTrue(all(row["cpu"] for row in rows), rows)
        low = [row["cuda"] for row in rows if row["stored"] == "the same, low precision"]
        if any(row["cuda"] for row in rows):
            self.assertEqual([text.startswith("`gemm_fp8_") for text in low], [True])
            self.assertTrue(all("C library only" in row["cuda"] for row in rows
                                if "_mma`" in row["cuda"]), rows)


class Quantize(unittest.TestCase):
    """The demo model by few calibration tokens: what comes out is asked for, not how good it is."""

    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.text = self.path("text.txt")
        write_excerpt(self.text, 4000)

    def path(self, name):
        return os.path.join(self.folder.name, name)

    def args(self, method, out, *others, model=MODEL):
        return ["quantize", model, "--method", method, "--out", self.path(out), "--calibrate",
                self.text, "--num-samples", "1", "--sample-length", "64", *others]

    def files(self, out):
        contents = {}
        for name in os.listdir(self.path(out)):
            with open(os.path.join(self.path(out), name), "rb") as file:
                contents[name] = file.read()
        return contents

    def assert_rejects(self, text, *args):
        result = run(*args)
        self.assertEqual(result.returncode, 2, result.stderr)
        self.assertIn(text, result.stderr)
        self.assertEqual(len(result.stderr.splitlines()), 1, "one line: " + result.stderr)
        self.assertEqual(result.stdout, "")

    def test_rejects_wrong_options(self):
        self.assert_rejects("--method: expected one of [rtn, gptq, ", *self.args("gguf", "out"))
        self.assert_rejects("--without clip: expected a technique that method rtn has",
                            *self.args("rtn", "out", "--without", "clip"))
        self.assert_rejects("--without: expected one of [clip, compensation], got \"x\"",
                            *self.args("gptq", "out", "--without", "x"))
        self.assert_rejects("--bits: expected one of [4] for method awq, got 3",
                            *self.args("awq", "out", "--bits", "3"))
        self.assert_rejects("--override: expected none, bits=N, group=N, sym or asym",
                            *self.args("rtn", "out", "--override", "*.q_proj=f16"))
        write_excerpt(self.text, 50)
        self.assert_rejects("expected at least one sequence of 64 tokens",
                            *self.args("rtn", "out"))
        self.assertEqual(os.listdir(self.folder.name), ["text.txt"])

    @skip_if_instrumented
    def test_a_folder_that_loads_and_generates(self):
        result = run_json(*self.args("rtn", "out", "--override", "*.0.mlp.down_proj=none",
                                     "--override", "*.v_proj=bits=8", "--json"))
        self.assertEqual((result["method"], result["out"]), ("rtn", self.path("out")))
        self.assertEqual(result["recipe"], "4 bits, group 128, asymmetric")
        self.assertEqual((result["layers_resumed"], result["s4_share"], result["notes"]),
                         (0, 0, []))
        self.assertGreater(result["seconds"], 0)
        self.assertLess(result["written_bytes"], 0.5 * result["source_bytes"])
        file_bytes = os.path.getsize(os.path.join(self.path("out"), "model.safetensors"))
        self.assertEqual(result["written_bytes"] // 10000, file_bytes // 10000)
        parts = ["self_attn." + name for name in ("q_proj", "k_proj", "v_proj", "o_proj")]
        parts += ["mlp." + name for name in ("gate_proj", "up_proj", "down_proj")]
        self.assertEqual([layer["name"] for layer in result["layers"]],
                         [f"model.layers.{i}.{part}" for i in range(6) for part in parts])
        for layer in result["layers"]:
            is_dense = layer["name"] == "model.layers.0.mlp.down_proj"
            bits = 16 if is_dense else 8 if layer["name"].endswith("v_proj") else 4
            self.assertEqual((layer["is_quantized"], layer["bits"]), (not is_dense, bits), layer)
            limit = {16: 1e-3, 8: 0.02, 4: 0.2}[bits]
            self.assertLess(layer["relative_error"], limit, layer)
        plan = run_json("inspect", self.path("out"), "--json")
        self.assertEqual(plan["format"], "compressed-tensors")
        text = run_json("generate", self.path("out"), "--prompt", "The Python", "--max-tokens", "8",
                        "--temperature", "0", "--ignore-eos", "--json")
        self.assertEqual(len(text["token_ids"]), 8)
        before = self.files("out")
        self.assert_rejects("expected a folder that does not exist", *self.args("rtn", "out"))
        self.assert_rejects("expected a model in full precision, got one that states a "
                            "quantization", *self.args("rtn", "again", model=self.path("out")))
        self.assertEqual(self.files("out"), before)

    @skip_if_instrumented
    def test_two_precisions_of_one_weight_write_what_the_model_says(self):
        run_json(*self.args("nestedfp", "out", "--json"))
        for case in golden("golden.json")["greedy"]:
            text = run_json("generate", self.path("out"), "--prompt", case["prompt"],
                            "--temperature", "0", "--max-tokens", str(len(case["ids"])),
                            "--ignore-eos", "--json")
            self.assertEqual(text["token_ids"], case["ids"])

    @slow
    def test_goes_on_where_it_was_interrupted(self):
        def args(out, *others):
            return self.args("gptq", out, "--threads", "1", "--json", *others)

        whole = run_json(*args("whole"))
        with subprocess.Popen([HALLEY, *args("out")], stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE) as process:
            done = os.path.join(self.path("out.partial"), "layer-00000", "note.json")
            while not os.path.exists(done) and process.poll() is None:
                pass
            process.send_signal(signal.SIGINT)
            process.communicate()
        self.assertNotEqual(process.returncode, 0)
        self.assertFalse(os.path.exists(self.path("out")))
        self.assert_rejects("expected the unfinished work of the same command",
                            *args("out", "--damp", "0.02"))
        result = run_json(*args("out"))
        self.assertGreaterEqual(result["layers_resumed"], 1)
        self.assertLess(result["layers_resumed"], 6)
        self.assertEqual(result["layers"], whole["layers"])
        self.assertEqual(self.files("out"), self.files("whole"))
        self.assertFalse(os.path.exists(self.path("out.partial")))


class Inspect(unittest.TestCase):
    def test_reports_shapes_and_kernels(self):
        plan = run_json("inspect", MODEL, "--json")
        self.assertEqual(plan["family"], "llama")
        self.assertEqual(plan["format"], "none")
        self.assertEqual((plan["num_layers"], plan["hidden_size"], plan["vocab_size"]),
                         (6, 512, 8192))
        self.assertEqual(plan["kv_bytes_per_token"], 6 * 2 * 2 * 64 * 2)
        linear = [part for part in plan["parts"] if part["kind"] == "linear"]
        self.assertEqual(len(linear), 6 * 4)
        self.assertTrue(all("f16" in weight["kernel"] for part in linear
                            for weight in part["weights"]))
        self.assertIn("gate_up", run("inspect", MODEL).stdout.replace("{gate,up}", "gate_up"))

    def test_built_in_shape_needs_no_files(self):
        plan = run_json("inspect", "--load-format", "dummy", "--config", "llama-1b", "--dtype",
                        "bfloat16", "--json")
        self.assertEqual(plan["dtype"], "bf16")
        self.assertAlmostEqual(plan["packed_bytes"] / 2 / 0.986e9, 1, delta=0.002)


class JsonLines(unittest.TestCase):
    def test_tokenize_both_ways(self):
        cases = golden("tokenizer_golden.json")[:20]
        stdin = "".join(json.dumps({"text": case["text"]}) + "\n" for case in cases)
        lines = run("tokenize", MODEL, stdin=stdin).stdout.splitlines()
        self.assertEqual(len(lines), len(cases))
        for line, case in zip(lines, cases):
            self.assertEqual(json.loads(line), {"ids": case["ids"],
                                                "ids_with_special": case["ids_with_special"]})
        stdin = "".join(json.dumps({"ids": case["ids"]}) + "\n" for case in cases)
        for args, field in ([], "decoded"), (["--skip-special"], "decoded_skip_special"):
            lines = run("tokenize", MODEL, *args, stdin=stdin).stdout.splitlines()
            self.assertEqual([json.loads(line)["text"] for line in lines],
                             [case[field] for case in cases])

    def test_template_renders_or_reports_an_error(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "t.jinja")
            with open(path, "w", encoding="utf-8") as file:
                file.write("{{ bos_token }}{% if x %}{{ raise_exception('no x') }}{% endif %}!")
            stdin = '{"bos_token": "<s>"}\n\n{"x": 1}\n'
            lines = run("template", "--template", path, stdin=stdin).stdout.splitlines()
            self.assertEqual(json.loads(lines[0]), {"text": "<s>!"})
            self.assertIn("no x", json.loads(lines[1])["error"])


class BenchLatency(unittest.TestCase):
    def test_reports_times_and_bandwidth_as_json(self):
        result = run_json("bench", "latency", MODEL, "--input-len", "16", "--output-len", "4",
                          "--num-iters", "2", "--num-iters-warmup", "1", "--json")
        for name in "avg_latency", "time_to_first_token_s", "time_per_output_token_s", \
                "prompt_tokens_per_s", "output_tokens_per_s", "decode_bytes_per_s", \
                "read_bytes_per_s":
            self.assertGreater(result[name], 0, name)
        self.assertEqual(result["kv_dtype"], "f16")

    def test_floors_and_profile(self):
        with tempfile.TemporaryDirectory() as folder:
            trace = os.path.join(folder, "trace.json")
            result = run_json("bench", "latency", MODEL, "--input-len", "8", "--output-len", "3",
                              "--batch-size", "2", "--num-iters", "1", "--num-iters-warmup", "0",
                              "--bandwidth", "1e9", "--peak-f16", "1e30", "--json",
                              "--profile-trace", trace)
            with open(trace, encoding="utf-8") as file:
                events = json.load(file)["traceEvents"]
        self.assertAlmostEqual(result["decode_step_floor_s"], result["decode_step_bytes"] / 1e9)
        # 2 sequences, 6 layers of 512 with an MLP of 1408, 8 + 2 * 2 heads of 64; 9 positions.
        layer = 512 * (8 + 2 * 2) * 64 + 512 * 512 + 3 * 512 * 1408
        attention = 6 * 9 * 2 * 8 * 64
        self.assertEqual(result["decode_step_operations"],
                         2 * 2 * (6 * layer + 8192 * 512 + attention))
        prefill, decode = result["profile"]
        self.assertEqual((prefill["step"], prefill["num_sequences"], prefill["num_rows"]),
                         ("prefill", 2, 16))
        self.assertEqual((decode["step"], decode["num_rows"], decode["num_past"]),
                         ("decode", 2, 8))
        for step in prefill, decode:
            counts = {op["name"]: op["count"] for op in step["operations"]}
            self.assertEqual((counts["qkv"], counts["attention"], counts["output"]), (6, 6, 1))
            self.assertAlmostEqual(sum(op["share"] for op in step["operations"]), 1)
        names = [event["name"] for event in events if event["ph"] == "X"]
        self.assertEqual(names.count("layers.5.down"), 2)

    def test_counts_the_bytes_of_the_cache(self):
        def step_bytes(kv_dtype):
            return run_json("bench", "latency", MODEL, "--input-len", "16", "--output-len", "4",
                            "--num-iters", "1", "--num-iters-warmup", "0", "--json", "--kv-dtype",
                            kv_dtype)["decode_step_bytes"]

        rows = 6 * 2 * 2 * (16 + 4 // 2)  # layers, keys and values, heads, positions
        weights = step_bytes("f16") - rows * 64 * 2
        for kv_dtype, row_bytes in ("f32", 256), ("int8", 64 + 4), ("int4", 32 + 4), ("fp8", 68):
            self.assertEqual(step_bytes(kv_dtype), weights + rows * row_bytes, kv_dtype)



class DummyWeights(unittest.TestCase):
    def test_fp8_configuration_of_the_benchmarks(self):
        plan = run_json("inspect", "--load-format", "dummy", "--config", "demo-21m",
                        "--quant-config", os.path.join(SOURCE, "bench", "configs",
                                                       "fp8_dynamic.json"), "--json")
        down = {part["name"]: part for part in plan["parts"]}["layers.0.down"]["weights"][0]
        self.assertEqual((down["format"], down["bits"], down["activation"]),
                         ("compressed-tensors", 8, "e4m3_token"))


class BenchThroughput(unittest.TestCase):
    def test_reports_rates_steps_and_the_roofline(self):
        args = ["bench", "throughput", MODEL, "--num-prompts", "5", "--input-len", "7",
                "--output-len", "3", "--max-num-seqs", "2", "--bandwidth", "1e10"]
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "result.json")
            result = run(*args, "--output-json", path)
            self.assertEqual(result.returncode, 0, result.stderr)
            with open(path, encoding="utf-8") as file:
                numbers = json.load(file)
        self.assertRegex(result.stdout,
                         r"(?m)^Throughput: \S+ requests/s, \S+ total tokens/s, "
                         r"\S+ output tokens/s$")
        self.assertEqual((numbers["num_prompt_tokens"], numbers["num_output_tokens"]), (35, 15))
        self.assertLessEqual(numbers["largest_batch"], 2)
        self.assertAlmostEqual(numbers["output_tokens_per_s"] * numbers["elapsed_s"], 15)
        # Every step reads 42 MB of weights at least.
        num_steps = numbers["num_prefill_steps"] + numbers["num_decode_steps"]
        self.assertGreater(numbers["roofline_s"], num_steps * 42e6 / 1e10)
        self.assertAlmostEqual(numbers["roofline_share"],
                               numbers["roofline_s"] / numbers["elapsed_s"])

    def test_prompts_of_a_file(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "prompts.jsonl")
            with open(path, "w", encoding="utf-8") as file:
                file.write('{"prompt": "The Python"}\n\n{"prompt": "x", "output_len": 4}\n')
            result = run_json("bench", "throughput", MODEL, "--dataset", path, "--output-len", "2",
                              "--json")
            self.assertEqual((result["num_prompts"], result["num_output_tokens"]), (2, 6))
            for line, text in [
                    ('{"prompt": 1}', "line 1: 'prompt': expected a text"),
                    ('{"prompt": "x", "output_len": 0}', "line 1: 'output_len': expected a whole"),
                    ("", "expected lines with a prompt, got none")]:
                with open(path, "w", encoding="utf-8") as file:
                    file.write(line + "\n")
                rejected = run("bench", "throughput", MODEL, "--dataset", path)
                self.assertEqual(rejected.returncode, 2)
                self.assertIn(text, rejected.stderr)
            rejected = run("bench", "throughput", "--load-format", "dummy", "--config", "demo-21m",
                          "--dataset", path)
            self.assertIn("whose tokenizer reads the prompts", rejected.stderr)
            rejected = run("bench", "throughput", MODEL, "--dataset", path + ".no")
            self.assertIn("cannot read", rejected.stderr)


class BenchGpu(unittest.TestCase):
    def test_kernels_alone_need_a_gpu(self):
        if "gemm" not in run("bench", "--help").stdout:
            self.skipTest("built without CUDA")
        for args, text in [(["gemm", "--shape", "12"], "--shape: expected two sizes"),
                           (["ablation", "--shape", "0x5"], "--shape: expected two sizes"),
                           (["attention", "--decode", "0x5"], "--decode: expected two sizes"),
                           (["attention", "--kv-dtype", "f3"], "--kv-dtype: expected a type")]:
            rejected = run("bench", *args)
            self.assertEqual(rejected.returncode, 2, rejected.stderr)
            self.assertIn(text, rejected.stderr)
        env = dict(os.environ, CUDA_VISIBLE_DEVICES="")
        for name in "ablation", "attention", "gemm":
            rejected = run("bench", name, env=env)
            self.assertEqual(rejected.returncode, 1, rejected.stderr)
            self.assertIn("CUDA: expected", rejected.stderr)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]], verbosity=1)
