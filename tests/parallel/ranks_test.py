"""`halley` whose model several ranks run: they answer as one does, and what one of them finds wrong
is the error of all.

    ranks_test.py HALLEY_BINARY SOURCE_DIR [unittest arguments]
"""
import contextlib
import json
import os
import struct
import subprocess
import sys
import tempfile
import unittest

from mpi_processes import ENVIRONMENT, SECONDS_MAX, has_mpi

HALLEY, SOURCE = sys.argv[1], sys.argv[2]
MODEL = os.path.join(SOURCE, "models", "demo-21m")
# 4 and 8 experts.
MIXTURES = [os.path.join(SOURCE, "testdata", "models", name) for name in ("mixtral", "qwen3_moe")]
EXPERT_PARALLEL = "--enable-expert-parallel"
HAS_MPI = has_mpi(HALLEY)
# Perplexity of sums that ranks add in another order.
RELATIVE_DEVIATION_MAX = 1e-4
# Rounded keys and values may differ by more than the order of sums makes.
CACHES_IN_F32 = ["--kv-dtype", "f32", "--reference-kv-dtype", "f32"]
# Seconds that mpirun waits, twice, before it kills the other ranks of one that has failed.
KILLS_AT_ONCE = {"OMPI_MCA_odls_base_sigkill_timeout": "0"}
# Nothing may wait for it.
LONG_TIMEOUT = ["--rank-timeout", "600"]


def run(ways, *args, stdin="", expected=0):
    """What halley writes; `ways`: its launcher, and options behind its command."""
    launcher, options = ways
    command = [*launcher, HALLEY, *args, *options]
    result = subprocess.run(command, input=stdin, capture_output=True, text=True, check=False,
                            env={**ENVIRONMENT, **KILLS_AT_ONCE}, timeout=4 * SECONDS_MAX)
    if result.returncode != expected:
        raise AssertionError(f"{command}: exit code {result.returncode}, expected {expected}: "
                             f"{result.stderr}")
    return result


def threads(num_ranks):
    return [], ["--tensor-parallel-size", str(num_ranks)]


def processes(num_ranks):
    return ["mpirun", "-n", str(num_ranks)], []


def in_two_stages(way):
    launcher, options = way
    return launcher, [*options, "--pipeline-parallel-size", "2"]


def with_whole_experts(way):
    launcher, options = way
    return launcher, [*options, EXPERT_PARALLEL]


def ways(*num_ranks):
    """Each number of ranks as threads and, where MPI is installed, as processes."""
    return [make(n) for make in ((threads, processes) if HAS_MPI else (threads,))
            for n in num_ranks]


WHOLE = threads(1)


def token_ids(way, model, *options):
    out = run(way, "generate", model, "--json", "--prompt", "The Python programming language",
              "--prompt", "def main(argv):\n", "--max-tokens", "16", *options).stdout
    return [json.loads(line)["token_ids"] for line in out.splitlines()]


class Answers(unittest.TestCase):
    def check_as_whole(self, model, ways_of_ranks, *options):
        expected = token_ids(WHOLE, model, *options)
        self.assertEqual([len(ids) for ids in expected], [16, 16])
        for way in ways_of_ranks:
            with self.subTest(way=way):
                self.assertEqual(token_ids(way, model, *options), expected)

    def test_greedy_tokens_are_those_of_one_rank(self):
        self.check_as_whole(MODEL, ways(2, 4), "--temperature", "0")

    def test_greedy_tokens_of_stages_are_those_of_one_rank(self):
        stages = [in_two_stages(way) for way in [threads(1), threads(2), *ways(2, 4)[2:]]]
        self.check_as_whole(MODEL, stages, "--temperature", "0")

    def test_greedy_tokens_of_whole_experts_are_those_of_one_rank(self):
        def token_ids_of(way):
            out = run(way, "generate", model, "--json", "--prompt-ids", "5,77,301,12,9,250",
                      "--max-tokens", "16", "--temperature", "0", "--ignore-eos").stdout
            return json.loads(out)["token_ids"]
        for model in MIXTURES:
            expected = token_ids_of(WHOLE)
            self.assertEqual(len(expected), 16)
            for way in [*ways(2, 4), in_two_stages(threads(2))]:
                with self.subTest(model=model, way=way):
                    self.assertEqual(token_ids_of(with_whole_experts(way)), expected)

    def test_sampled_tokens_are_those_of_one_rank(self):
        self.check_as_whole(MODEL, ways(2), "--temperature", "0.8", "--seed", "7")

    def test_tokens_of_a_quantized_model_are_those_of_one_rank(self):
        with tempfile.TemporaryDirectory() as folder:
            model = quantized_model(folder)
            self.check_as_whole(model, ways(2, 4), "--temperature", "0")

    def test_perplexity_is_that_of_one_rank(self):
        with short_text() as text:
            def perplexity(way):
                out = run(way, "eval", MODEL, "--perplexity", text.name, "--json").stdout
                return json.loads(out)["perplexity"]
            expected = perplexity(WHOLE)
            values = [perplexity(way) for way in ways(2)]
        for value in values:
            self.assertLess(abs(value / expected - 1), RELATIVE_DEVIATION_MAX)
        self.assertEqual(len(set(values)), 1, "processes add in the order of threads")

    def check_comparison(self, got, expected):
        """The same sizes, and the same numbers up to another order of sums."""
        self.assertEqual(list(got), list(expected))
        for name, value in expected.items():
            if name == "speed":
                self.assertGreater(got[name]["decode_tokens_per_s"], 0)
            elif isinstance(value, dict):
                self.check_comparison(got[name], value)
            elif isinstance(value, float):
                self.assertLess(abs(got[name] - value), RELATIVE_DEVIATION_MAX * (1 + abs(value)),
                                name)
            else:
                self.assertEqual(got[name], value, name)

    def test_a_comparison_is_that_of_one_rank(self):
        """Of two models, and a reference that processes have on rank 0 alone."""
        with short_text() as text, tempfile.TemporaryDirectory() as folder:
            models = [quantized_model(folder), MODEL + "@kv=f32"]

            def compare(way):
                return json.loads(run(way, "compare", *models, "--reference", MODEL, "--perplexity",
                                      text.name, "--window", "256", "--threads", "2",
                                      *CACHES_IN_F32, "--json").stdout)
            expected = compare(WHOLE)
            self.assertEqual(expected["threads"], 2)
            for way in [*ways(2), in_two_stages(threads(1))]:
                with self.subTest(way=way):
                    got = compare(way)
                    self.assertEqual(len(got["models"]), 2)
                    for name in "device", "threads", "num_tokens", "num_windows":
                        self.assertEqual(got[name], expected[name])
                    self.check_comparison(got["reference"], expected["reference"])
                    for one, other in zip(got["models"], expected["models"]):
                        self.check_comparison(one, other)

    def test_a_divergence_is_that_of_one_rank(self):
        with short_text() as text, tempfile.TemporaryDirectory() as folder:
            model = quantized_model(folder)

            def divergence(way):
                return json.loads(run(way, "eval", model, "--perplexity", text.name, "--reference",
                                      MODEL, *CACHES_IN_F32, "--json").stdout)
            expected = divergence(WHOLE)
            for way in ways(2):
                with self.subTest(way=way):
                    self.check_comparison(divergence(way), expected)

    def test_a_conversation_is_that_of_one_rank(self):
        def chat(way):
            return run(way, "chat", MODEL, "--temperature", "0", "--max-tokens", "8",
                       stdin="Hello there\nAnd then?\n").stdout
        expected = chat(WHOLE)
        self.assertTrue(expected)
        for way in ways(2):
            with self.subTest(way=way):
                self.assertEqual(chat(way), expected)


class Inspect(unittest.TestCase):
    def check_partition(self, model, ranks, name, size):
        """The ranks' ranges follow each other from 0 to the size."""
        ranges = [rank[name] for rank in ranks]
        begins, ends = zip(*ranges)
        self.assertEqual((begins[0], ends[-1]), (0, size), (model, name))
        self.assertEqual(begins[1:], ends[:-1], (model, name))

    def inspect(self, num_ranks, *model):
        return json.loads(run(threads(num_ranks), "inspect", *model, "--json").stdout)

    def test_ranks_hold_the_model_together(self):
        for model in ([MODEL], ["--load-format", "dummy", "--config", "llama-3-8b",
                                "--quant-config", "w4a8"]):
            whole = self.inspect(1, *model)
            self.assertNotIn("ranks", whole)
            for num_ranks in 2, 4, 8:
                divided = self.inspect(num_ranks, *model)
                ranks = divided["ranks"]
                self.assertEqual([rank["rank"] for rank in ranks], list(range(num_ranks)))
                for name, size in (("heads", "num_heads"), ("mlp_inputs", "intermediate_size"),
                                   ("vocabulary", "vocab_size")):
                    self.assertEqual(divided[size], whole[size])
                    self.check_partition(model, ranks, name, whole[size])
                self.assertEqual(divided["packed_bytes"], ranks[0]["packed_bytes"])
                self.assertEqual(divided["stored_bytes"], ranks[0]["stored_bytes"])
                self.check_kv(ranks, whole)
                stored = sum(rank["stored_bytes"] for rank in ranks) / whole["stored_bytes"]
                self.assertTrue(1 <= stored < 1.2, stored)  # norms, and shared kv heads

    def check_kv(self, ranks, whole):
        """A rank has the kv heads of its heads, and their cache alone."""
        num_shared = max(1, len(ranks) // whole["num_kv_heads"])
        for i, rank in enumerate(ranks):
            size = max(1, whole["num_kv_heads"] // len(ranks))
            begin = i // num_shared * size
            self.assertEqual(rank["kv_heads"], [begin, begin + size])
            self.assertEqual(rank["kv_bytes_per_token"] * whole["num_kv_heads"],
                             whole["kv_bytes_per_token"] * size)

    def test_the_text_has_a_line_for_each_rank(self):
        lines = run(threads(2), "inspect", MODEL).stdout.splitlines()
        self.assertEqual(lines[-3].split()[:3], ["rank", "layers", "heads"])
        self.assertEqual(lines[-2].split()[:7], ["0", "0:6", "0:4", "0:1", "0:704", "-",
                                                 "0:4096"])
        self.assertEqual(lines[-1].split()[:7], ["1", "0:6", "4:8", "1:2", "704:1408", "-",
                                                 "4096:8192"])
        self.assertIn("heads 8 query / 2 kv", lines[1])

    def test_stages_hold_the_layers_together(self):
        model = ["--load-format", "dummy", "--config", "llama-3-8b"]
        whole = self.inspect(1, *model)
        ranks = self.inspect(2, *model, "--pipeline-parallel-size", "3")["ranks"]
        self.assertEqual([rank["stage"] for rank in ranks], [0, 0, 1, 1, 2, 2])
        for half in ranks[::2], ranks[1::2]:
            self.check_partition(model, half, "layers", whole["num_layers"])
            self.assertEqual(half[1]["vocabulary"], [0, 0])
            self.assertEqual(sum(rank["kv_bytes_per_token"] for rank in half),
                             whole["kv_bytes_per_token"] // 2)
        self.assertEqual([rank["layers"] for rank in ranks[::2]], [[0, 11], [11, 22], [22, 32]])
        stored = sum(rank["stored_bytes"] for rank in ranks) / whole["stored_bytes"]
        self.assertTrue(1 <= stored < 1.01, stored)

    def test_ranks_hold_whole_experts_together(self):
        for model in [MIXTURES[1]], ["--load-format", "dummy", "--config", "qwen3-30b-a3b"]:
            whole = self.inspect(1, *model)
            for num_ranks in 2, 4:
                ranks = self.inspect(num_ranks, *model, EXPERT_PARALLEL)["ranks"]
                by_rows = self.inspect(num_ranks, *model)["ranks"]
                num_experts = by_rows[0]["experts"][1]
                self.check_partition(model, ranks, "experts", num_experts)
                for name, size in ("heads", "num_heads"), ("vocabulary", "vocab_size"):
                    self.check_partition(model, ranks, name, whole[size])
                for rank, other in zip(ranks, by_rows):
                    self.assertEqual(other["experts"], [0, num_experts])
                    self.assertEqual(rank["mlp_inputs"], [0, by_rows[-1]["mlp_inputs"][1]])
                    self.assertEqual(rank["stored_bytes"], other["stored_bytes"])
                self.check_kv(ranks, whole)

    def test_a_number_of_ranks_that_does_not_fit(self):
        result = run(threads(3), "inspect", MODEL, expected=4)
        self.assertIn("which are [1, 2, 4, 8], got 3", result.stderr)


@contextlib.contextmanager
def short_text():
    with tempfile.NamedTemporaryFile("w", suffix=".txt", encoding="utf-8") as text:
        with open(os.path.join(SOURCE, "testdata", "text", "docs_heldout.txt"),
                  encoding="utf-8") as file:
            text.write(file.read(2000))
        text.flush()
        yield text


def quantized_model(folder):
    model = os.path.join(folder, "w4")
    run(([], []), "quantize", MODEL, "--method", "rtn", "--out", model)
    return model


def put_nan_into_last_row(model, tensor):
    """Damages a tensor of two dimensions of 16-bit floating-point values in its file."""
    for name in sorted(os.listdir(model)):
        if not name.endswith(".safetensors"):
            continue
        with open(os.path.join(model, name), "r+b") as file:
            (header_bytes,) = struct.unpack("<Q", file.read(8))
            header = json.loads(file.read(header_bytes))
            if tensor in header:
                assert header[tensor]["dtype"] in ("F16", "BF16"), header[tensor]
                file.seek(8 + header_bytes + header[tensor]["data_offsets"][1] - 2)
                file.write(b"\xff\x7f")
                return
    raise AssertionError(f"there is no {tensor}")


class Errors(unittest.TestCase):
    """The job ends at once with the error's own exit code, whichever rank has it."""

    def check(self, way, expected, *texts, command=("generate", MODEL, "--prompt", "a")):
        with self.subTest(way=way):
            result = run(way, *command, *LONG_TIMEOUT, expected=expected)
            self.assertEqual(result.stdout, "")
            for text in texts:
                self.assertIn(text, result.stderr)
            return result.stderr

    def test_a_number_of_ranks_that_does_not_divide_the_heads(self):
        for way in ways(3):
            self.check(way, 4, "expected a number of ranks that divides 8 heads with 2 heads of "
                               "keys and values, which are [1, 2, 4, 8], got 3")

    def test_whole_experts_of_a_model_without_experts(self):
        for way in ways(2):
            self.check(with_whole_experts(way), 4, "expected layers with experts, got none in the "
                       'family "llama". Leave --enable-expert-parallel out.')

    def test_weights_that_only_the_last_rank_reads_are_damaged(self):
        with tempfile.TemporaryDirectory() as folder:
            model = quantized_model(folder)
            tensor = "model.layers.3.self_attn.q_proj.weight_scale"
            put_nan_into_last_row(model, tensor)
            for way in ways(2):
                errors = self.check(way, 3, tensor, "expected finite", "got nan at [511, ",
                                    command=("generate", model, "--prompt", "a"))
                if way[0]:
                    self.assertIn("halley: rank 1 of 2 ends the job: exit status 3", errors)

    def test_a_model_that_does_not_exist(self):
        for way in ways(2):
            self.check(way, 2, "no-such-model", command=("generate", "no-such-model", "--prompt",
                                                         "a"))

    def test_what_rank_0_alone_reads_is_wrong(self):
        for way in ways(2):
            self.check(way, 2, "no-such-keys", command=("serve", MODEL, "--port", "0",
                                                        "--api-key-file", "no-such-keys"))
            self.check(way, 2, "kv_bytes", command=("generate", MODEL, "--prompt", "a",
                                                    "--kv-cache-memory-bytes", "1KB"))

    @unittest.skipUnless(HAS_MPI, "needs MPI")
    def test_a_size_that_is_not_the_launcher_s(self):
        self.check((processes(2)[0], threads(4)[1]), 2,
                   "--tensor-parallel-size, --pipeline-parallel-size: expected sizes for 2 ranks, "
                   "the processes that the launcher has started, got 4 and 1")


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
