"""Quantized checkpoints, and `halley quantize`, as a user meets them.

    cli_quantize_test.py HALLEY_BINARY SOURCE_DIR [unittest arguments]

Expected tokens and texts are the golden results that Hugging Face transformers gave for the shipped
model (models/demo-21m/golden.json, tokenizer_golden.json).
"""
import array
import json
import os
import re
import signal
import struct
import subprocess
import sys
import tempfile
import unittest

from program import (HALLEY, SOURCE, MODEL, QUANTIZED, skip_if_instrumented, slow, run, run_json,
                     golden, write_excerpt)


def bf16_of_f16(bits):
    """Cuts an f16 value off to bf16."""
    single = struct.pack("<f", struct.unpack("<e", struct.pack("<H", bits))[0])
    return struct.unpack("<I", single)[0] >> 16


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
        for weight in weights.values():
            self.assertEqual(weight["rejected"], weight["refused"])  # an alias
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
        self.assertIn("u4_quad, kept in 4 bits (u4_f16): per-channel scales",
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

    def test_the_table_of_formats_in_the_docs_is_current(self):
        with open(os.path.join(SOURCE, "docs", "formats.md"), encoding="utf-8") as file:
            page = file.read()
        table = run("formats").stdout
        self.assertGreater(table.count("\n"), 20)
        rows = run_json("formats", "--json")
        if not any(row["cuda"] for row in rows):  # a build without CUDA: its column is empty
            page = re.sub(r"^(\|.*\| )[^|]+ \|$", r"\1- |", page, flags=re.M)
            table = re.sub(r"^(\|.*\| )[^|]+ \|$", r"\1- |", table, flags=re.M)
        self.assertIn(f"<!-- formats:begin (halley formats) -->\n\n{table}\n"
                      "<!-- formats:end -->", page,
                      "Put the output of `halley formats` between the marks in docs/formats.md.")
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
        self.assert_rejects("--calibrate: expected a text, from which method gptq computes [clip, "
                            "compensation], got none", "quantize", MODEL, "--method", "gptq",
                            "--out", self.path("out"))
        result = run("quantize", MODEL, "--method", "rtn", "--out", self.path("out"),
                     "--num-samples", "2")
        self.assertEqual(result.returncode, 2, result.stderr)
        self.assertIn("--num-samples requires --calibrate", result.stderr)
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

    @skip_if_instrumented
    def test_needs_no_text_where_nothing_is_calibrated(self):
        def args(method, out, *others):
            return ["quantize", MODEL, "--method", method, "--out", self.path(out), *others]

        result = run_json(*args("nestedfp", "out", "--json"))
        self.assertEqual(result["error_inputs"], "random")
        self.assertIsNone(result["rounded_to_f16"])  # the model is f16
        self.assertEqual(result["notes"], [])
        self.assertLess(max(layer["relative_error"] for layer in result["layers"]), 1e-3)
        text = os.path.join(SOURCE, "testdata", "text", "docs_heldout.txt")
        perplexity = ["--perplexity", text, "--windows", "1", "--json"]
        self.assertEqual(run_json("eval", self.path("out"), *perplexity)["perplexity"],
                         run_json("eval", MODEL, *perplexity)["perplexity"])
        result = run(*args("none", "copy"))
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("note: without smooth-attention: it needs a text, --calibrate", result.stdout)
        self.assertIn("on random inputs", result.stdout)

    def write_bf16_model(self, folder):
        """The demo model cut off to bf16, some values small: f16 does not hold them."""
        os.mkdir(folder)
        for name in os.listdir(MODEL):
            if name.startswith("tokenizer") or name == "config.json":
                os.symlink(os.path.abspath(os.path.join(MODEL, name)), os.path.join(folder, name))
        os.remove(os.path.join(folder, "config.json"))
        config = golden("config.json")
        config["torch_dtype"] = "bfloat16"
        config.pop("dtype", None)
        with open(os.path.join(folder, "config.json"), "w", encoding="utf-8") as file:
            json.dump(config, file)
        with open(os.path.join(MODEL, "model.safetensors"), "rb") as file:
            size = struct.unpack("<Q", file.read(8))[0]
            header = json.loads(file.read(size))
            halves = array.array("H", file.read())
        bits = [bf16_of_f16(half) for half in range(1 << 16)]
        data = array.array("H", map(bits.__getitem__, halves))
        tensors = {name: info for name, info in header.items() if name != "__metadata__"}
        self.assertEqual({info["dtype"] for info in tensors.values()}, {"F16"})
        for info in tensors.values():
            info["dtype"] = "BF16"
            if len(info["shape"]) > 1:
                data[info["data_offsets"][0] // 2] = 0x3080  # 2^-30
        with open(os.path.join(folder, "model.safetensors"), "wb") as file:
            text = json.dumps(tensors).encode()
            file.write(struct.pack("<Q", len(text)) + text + data.tobytes())
        return tensors

    @skip_if_instrumented
    def test_a_bf16_model_becomes_f16_with_a_report(self):
        tensors = self.write_bf16_model(self.path("bf16"))
        args = ["quantize", self.path("bf16"), "--method", "nestedfp", "--out"]
        report = run_json(*args, self.path("out"), "--json")["rounded_to_f16"]
        matrices = {name for name, info in tensors.items() if len(info["shape"]) > 1}
        self.assertEqual({tensor["name"] for tensor in report["tensors"]}, matrices)
        for tensor in report["tensors"]:
            self.assertEqual((tensor["from"], tensor["kept_because"]), ("bf16", ""))
            self.assertGreaterEqual(tensor["num_zeroed"], 1, tensor)
        for count in "num_values", "num_changed", "num_zeroed":
            self.assertEqual(report[count], sum(tensor[count] for tensor in report["tensors"]))
        self.assertEqual((report["worst_relative_error"], report["num_overflows"]), (1, 0))
        self.assertLessEqual(report["worst_absolute_error"], 2.0 ** -25)
        with open(os.path.join(self.path("out"), "config.json"), encoding="utf-8") as file:
            config = json.load(file)
        self.assertEqual(config["torch_dtype"], "float16")
        self.assertEqual(config["quantization_config"]["rounded_to_f16"],
                         {key: report[key] for key in report if key != "tensors"})
        for precision in "full", "low":
            text = run_json("generate", self.path("out"), "--prompt", "The Python", "--max-tokens",
                            "4", "--precision", precision, "--ignore-eos", "--json")
            self.assertEqual(len(text["token_ids"]), 4)
        result = run(*args, self.path("again"))
        self.assertIn("rounded to f16", result.stdout)
        self.assertRegex(result.stdout, r"in all +values: \d+ of \d+ values changed, \d+ to zero; "
                         "worst error 1 relative")

    @skip_if_instrumented
    def test_shows_the_layers_to_which_nestedfp_applies(self):
        table = run_json("inspect", MODEL, "--nestedfp", "--json")["nestedfp"]
        self.assertEqual([(kind["kind"], kind["num_layers"], kind["num_applicable"])
                          for kind in table["kinds"]],
                         [("qkv", 18, 18), ("o", 6, 6), ("gate_up", 12, 12), ("down", 6, 6)])
        self.assertEqual((table["total"]["num_layers"], table["total"]["share_within"]), (42, 1))
        self.assertEqual(table["total"]["min"], min(kind["min"] for kind in table["kinds"]))
        self.assertEqual(table["exceptions"], [])
        text = run("inspect", MODEL, "--nestedfp").stdout
        self.assertRegex(text, r"total +42 of 42 +100\.00 % +-\d")
        self.assertNotIn("nestedfp", run_json("inspect", MODEL, "--json"))
        self.assert_rejects("--nestedfp: expected a checkpoint in full precision, got format gptq",
                            "inspect", os.path.join(QUANTIZED, "gptq_dynamic"), "--nestedfp")

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


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]], verbosity=1)
