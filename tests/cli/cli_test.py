"""Runs the program as a user does and checks output, errors and exit codes.

    cli_test.py HALLEY_BINARY SOURCE_DIR [unittest arguments]

Expected tokens and texts are the golden results that Hugging Face transformers gave for the shipped
model (models/demo-21m/golden.json, tokenizer_golden.json).
"""
import json
import math
import os
import struct
import sys
import tempfile
import unittest

from program import SOURCE, MODEL, skip_if_instrumented, run, run_json, golden


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


class Adapters(unittest.TestCase):
    def test_generates_what_pefts_model_does(self):
        for name in "llama", "quantized_base":
            adapter = os.path.join(SOURCE, "testdata", "lora", name)
            with open(os.path.join(adapter, "golden.json"), encoding="utf-8") as file:
                reference = json.load(file)
            base = os.path.join(SOURCE, "testdata", reference["base"])
            ids = ",".join(map(str, reference["input_ids"]))
            args = ["generate", base, "--device", "cpu", "--prompt-ids", ids, "--temperature", "0",
                    "--max-tokens", "24", "--ignore-eos", "--kv-dtype", "f32", "--json"]
            self.assertEqual(run_json(*args, "--lora", adapter)["token_ids"],
                             reference["greedy_ids"])
            self.assertNotEqual(run_json(*args)["token_ids"], reference["greedy_ids"])

    def test_options_that_cannot_be(self):
        for code, text, *args in [
                (2, "--lora-modules: expected NAME=FOLDER", "--lora-modules", "sql"),
                (2, "--lora-folder: expected a folder", "--lora-folder", "/nonexistent"),
                (2, "adapter_config.json", "--lora-modules", "sql=/nonexistent")]:
            result = run("serve", MODEL, "--device", "cpu", "--port", "0", *args)
            self.assertEqual(result.returncode, code, result.stderr)
            self.assertIn(text, result.stderr)


class Gguf(unittest.TestCase):
    FOLDER = os.path.join(SOURCE, "testdata", "gguf")

    def test_a_file_stands_for_a_folder(self):
        path = os.path.join(self.FOLDER, "quantized.gguf")
        with open(os.path.join(self.FOLDER, "quantized.json"), encoding="utf-8") as file:
            reference = json.load(file)
        ids = ",".join(map(str, reference["input_ids"]))
        result = run_json("generate", path, "--prompt-ids", ids, "--temperature", "0",
                          "--max-tokens", "24", "--ignore-eos", "--kv-dtype", "f32", "--json")
        self.assertEqual(result["token_ids"], reference["greedy_ids"])
        result = run("inspect", path)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("format gguf", result.stdout)
        # Any part of a split file stands for all.
        for part in "split-00001-of-00003.gguf", "split-00003-of-00003.gguf":
            split = run_json("generate", os.path.join(self.FOLDER, part), "--prompt-ids", ids,
                             "--temperature", "0", "--max-tokens", "24", "--ignore-eos",
                             "--kv-dtype", "f32", "--json")
            self.assertEqual(split["token_ids"], reference["greedy_ids"])
        result = run_json("tokenize", os.path.join(self.FOLDER, "tokenizer_qwen2.gguf"),
                          stdin='{"text": "Hello there"}')
        self.assertGreater(len(result["ids"]), 1)

    def test_what_cannot_be_done_has_an_exit_code_and_advice(self):
        with tempfile.TemporaryDirectory() as folder:
            for code, text, *args in [
                    (4, "got a GGUF file", "quantize", os.path.join(self.FOLDER, "llama.gguf"),
                     "--method", "rtn", "--out", os.path.join(folder, "out")),
                    (3, "the file's first bytes", "inspect", os.path.join(folder, "empty.gguf"))]:
                open(os.path.join(folder, "empty.gguf"), "w", encoding="utf-8").close()
                result = run(*args)
                self.assertEqual(result.returncode, code, result.stderr)
                self.assertIn(text, result.stderr)


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
        self.assertTrue(result["median_is_of_whole_batch"])

    def test_says_where_the_first_requests_end_before_the_last_decodes(self):
        arguments = ["bench", "latency", MODEL, "--input-len", "16", "--output-len", "4",
                     "--num-iters", "1", "--batch-size", "12", "--max-num-batched-tokens", "32"]
        self.assertFalse(run_json(*arguments, "--json")["median_is_of_whole_batch"])
        self.assertIn("A longer --output-len", run(*arguments).stdout)

    def test_requests_may_have_adapters(self):
        result = run_json("bench", "latency", MODEL, "--device", "cpu", "--input-len", "4",
                          "--output-len", "2", "--batch-size", "3", "--num-iters", "1",
                          "--lora-adapters", "2", "--lora-rank", "4", "--json")
        self.assertEqual((result["adapters"]["number"], result["adapters"]["rank"]), (2, 4))
        # The inputs and outputs of the four kinds of layers; q, k and v have pairs of their own.
        numbers = 6 * 4 * (3 * 512 + 768 + 2 * 512 + 2 * 512 + 2 * 1408 + 1408 + 512)
        self.assertGreaterEqual(result["adapters"]["bytes_each"], 4 * numbers)

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
