"""Runs the program as a user does and checks output, errors and exit codes.

    cli_test.py HALLEY_BINARY SOURCE_DIR [unittest arguments]

Expected tokens and texts are the golden results that Hugging Face transformers gave for the shipped
model (models/demo-21m/golden.json, tokenizer_golden.json).
"""
import json
import math
import os
import struct
import subprocess
import sys
import tempfile
import unittest

HALLEY, SOURCE = sys.argv[1], sys.argv[2]
MODEL = os.path.join(SOURCE, "models", "demo-21m")


# Instrumented kernels are a hundred times slower; what they compute has unit tests of its own.
skip_if_instrumented = unittest.skipIf(os.environ.get("HALLEY_TEST_IS_INSTRUMENTED"),
                                       "takes minutes in an instrumented build")


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


class Usage(unittest.TestCase):
    def assert_fails(self, exit_code, text, *args, stdin=""):
        result = run(*args, stdin=stdin)
        self.assertEqual(result.returncode, exit_code, result.stderr)
        self.assertIn(text, result.stderr)
        lines = [line for line in result.stderr.splitlines() if not line.startswith("loaded ")]
        self.assertEqual(len(lines), 1, "one line: " + result.stderr)
        self.assertEqual(result.stdout, "")

    def test_help_has_examples_for_every_command(self):
        for command in [], ["generate"], ["eval"], ["inspect"], ["tokenize"], ["template"], \
                ["bench", "latency"]:
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

    @skip_if_instrumented
    def test_perplexity_with_every_type_of_the_cache(self):
        """The first windows of a text; docs/ARCHITECTURE.md has the numbers of whole texts."""
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
                ([], {"HALLEY_KERNEL": "gemm_w4a8_hwy"}, "got a refusal: ")]:
            result = run("inspect", model, *args, env=dict(os.environ, **extra))
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

    def test_the_table_of_formats_in_the_readme_is_current(self):
        with open(os.path.join(SOURCE, "README.md"), encoding="utf-8") as file:
            readme = file.read()
        table = run("formats").stdout
        self.assertGreater(table.count("\n"), 20)
        self.assertIn(f"<!-- formats:begin (halley formats) -->\n\n{table}\n"
                      "<!-- formats:end -->", readme,
                      "Put the output of `halley formats` between the marks in README.md.")
        rows = run_json("formats", "--json")
        self.assertTrue(all(row["cpu"] for row in rows), rows)


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

    def test_counts_the_bytes_of_the_cache(self):
        def step_bytes(kv_dtype):
            return run_json("bench", "latency", MODEL, "--input-len", "16", "--output-len", "4",
                            "--num-iters", "1", "--num-iters-warmup", "0", "--json", "--kv-dtype",
                            kv_dtype)["decode_step_bytes"]

        rows = 6 * 2 * 2 * (16 + 4 // 2)  # layers, keys and values, heads, positions
        weights = step_bytes("f16") - rows * 64 * 2
        for kv_dtype, row_bytes in ("f32", 256), ("int8", 64 + 4), ("int4", 32 + 4), ("fp8", 68):
            self.assertEqual(step_bytes(kv_dtype), weights + rows * row_bytes, kv_dtype)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]], verbosity=1)
