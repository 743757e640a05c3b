"""`halley eval` and `halley compare` as a user runs them.

    cli_eval_test.py HALLEY_BINARY SOURCE_DIR [unittest arguments]

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
import xml.etree.ElementTree

from program import (SOURCE, MODEL, slow, run, run_json, write_excerpt,
                     make_model_of_other_tokens)


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
        quantized, low = tensor("log_prob_codes", "H"), tensor("log_prob_min", "f")
        step, target = tensor("log_prob_step", "f"), tensor("target_ids", "i")
        nll = 0.0
        for row in range(num_rows):
            values = quantized[row * vocab_size:(row + 1) * vocab_size]
            self.assertAlmostEqual(sum(math.exp(low[row] + value * step[row]) for value in values),
                                   1, delta=2e-3)
            nll -= low[row] + values[target[row]] * step[row]
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


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]], verbosity=1)
