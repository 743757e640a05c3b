"""A model of transformers, quantized by halley.torch and by the program: the same perplexity.
Skipped where PyTorch or transformers is not installed."""
import doctest
import json
import os
import re
import subprocess
import sys

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

import halley.torch as ht  # noqa: E402  (behind importorskip)

SOURCE = os.environ["HALLEY_TEST_SOURCE"]
MODEL = os.path.join(SOURCE, "models", "demo-21m")
TEXT = os.path.join(SOURCE, "testdata", "text", "docs_heldout.txt")
WINDOW = 1024
# Perplexity of the program and of transformers, relative.
DIFFERENCE_MAX = 0.005

NO_QOQ = ("--kv-bits", "16", "--without", "rotation", "smooth-attention", "output-smoothing",
          "reorder", "clip", "block-clip", "compensation")
CALIBRATE = ("--calibrate", TEXT, "--num-samples", "1")
NO_FMPQ = ("--kv-bits", "16", *CALIBRATE, "--without", "smooth-attention", "input-smoothing",
           "output-smoothing", "clip", "compensation", "activation-clip")
# The configuration, and how the program makes the same weights.
CASES = {
    "int4": (ht.Int4WeightOnlyConfig(), ("rtn",)),
    "int4_64_symmetric": (ht.Int4WeightOnlyConfig(64, True),
                          ("rtn", "--group-size", "64", "--symmetric")),
    "int8": (ht.Int8WeightOnlyConfig(),
             ("rtn", "--bits", "8", "--group-size", "-1", "--symmetric")),
    "w4a8": (ht.Int8DynamicActivationInt4WeightConfig(), ("qoq", *NO_QOQ)),
    "w4a8_channel": (ht.Int8DynamicActivationInt4WeightConfig(None),
                     ("qoq", *NO_QOQ, "progressive")),
    "w8a8": (ht.Int8DynamicActivationInt8WeightConfig(),
             ("smoothquant", "--without", "input-smoothing", "output-smoothing")),
    "w4ax_8": (ht.W4AxConfig(s8_share=1), ("fmpq", "--s8-share", "1", *NO_FMPQ, "reorder")),
    "float8": (ht.Float8DynamicActivationFloat8WeightConfig(), ("fp8",)),
    "float8_tensor": (ht.Float8DynamicActivationFloat8WeightConfig("tensor"),
                      ("fp8", "--per-tensor")),
    "nestedfp": (ht.NestedFpConfig(), ("nestedfp",)),
}


def program(*arguments):
    result = subprocess.run([sys.executable, "-m", "halley", *arguments], capture_output=True,
                            text=True, timeout=300, check=False)
    assert result.returncode == 0, result.stderr
    return result.stdout


def program_perplexity(folder, *options, num_windows=1):
    return json.loads(program("eval", folder, "--device", "cpu", "--perplexity", TEXT, "--window",
                              str(WINDOW), "--windows", str(num_windows), "--kv-dtype", "f32",
                              "--json", *options))["perplexity"]


@pytest.fixture(scope="module", name="windows")
def fixture_windows():
    with open(TEXT, encoding="utf-8") as file:
        text = file.read()
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_file=os.path.join(MODEL, "tokenizer.json"))
    ids = torch.tensor(tokenizer.encode(text, add_special_tokens=False))
    return ids[:len(ids) // WINDOW * WINDOW].view(-1, 1, WINDOW)


@pytest.fixture(scope="module", name="ids")
def fixture_ids(windows):
    return windows[0]


def load_model():
    return transformers.LlamaForCausalLM.from_pretrained(MODEL, dtype=torch.float32).eval()


def is_decoder_layer(_, name):
    """As the program: the output layer stays in full precision."""
    return name != "lm_head"


def perplexity(model, *windows):
    with torch.no_grad():
        losses = [torch.nn.functional.cross_entropy(model(ids).logits[0, :-1].double(), ids[0, 1:])
                  for ids in windows]
        return torch.stack(losses).mean().exp().item()


def test_full_precision_agrees(ids):
    assert perplexity(load_model(), ids) == pytest.approx(program_perplexity(MODEL), rel=1e-4)


@pytest.mark.parametrize("case", list(CASES))
def test_perplexity_is_that_of_the_program(case, ids, tmp_path):
    config, options = CASES[case]
    folder = os.path.join(tmp_path, case)
    program("quantize", MODEL, "--out", folder, "--method", *options)
    model = load_model()
    ht.quantize_(model, config, is_decoder_layer)
    expected = program_perplexity(folder)
    assert perplexity(model, ids) == pytest.approx(expected, rel=DIFFERENCE_MAX)
    if case == "nestedfp":
        ht.set_precision(model, "low")
        expected = program_perplexity(folder, "--precision", "low")
        assert perplexity(model, ids) == pytest.approx(expected, rel=DIFFERENCE_MAX)


def packed_rtn(state, name):
    """qweight, scales and zeros of compressed-tensors (pack-quantized), unpacked."""
    shape = state[name + ".weight_shape"].tolist()
    shifts = torch.arange(8, dtype=torch.int64) * 4
    words = state[name + ".weight_packed"].long() & 0xFFFFFFFF
    qweight = (words[:, :, None] >> shifts & 15).reshape(words.shape[0], -1)[:, :shape[1]]
    zero_words = state[name + ".weight_zero_point"].long() & 0xFFFFFFFF
    zeros = (zero_words[:, None, :] >> shifts[:, None] & 15).reshape(-1, zero_words.shape[1])
    return qweight.to(torch.uint8), state[name + ".weight_scale"].float(), zeros[:shape[0]].float()


def test_weights_are_those_that_the_program_stores(tmp_path):
    from safetensors.torch import load_file
    folder = os.path.join(tmp_path, "rtn")
    program("quantize", MODEL, "--out", folder, "--method", "rtn")
    state = load_file(os.path.join(folder, "model.safetensors"))
    model = load_model()
    ht.quantize_(model, ht.Int4WeightOnlyConfig(), is_decoder_layer)
    num_layers = 0
    for name, module in model.named_modules():
        if not isinstance(module, ht.QuantizedLinear):
            continue
        num_layers += 1
        for got, expected in zip(module.to_quantized(), packed_rtn(state, name)):
            assert torch.equal(got, expected), name
    assert num_layers == 6 * 7


def from_fmpq(state, name):
    """A module of the tensors that docs/formats/fmpq.md describes."""
    pairs = state[name + ".qweight"]
    qweight = torch.stack((pairs & 15, pairs >> 4), -1).reshape(pairs.shape[0], -1)
    scales = state[name + ".scales"].float()
    return ht.QuantizedLinear.from_quantized(
        qweight, scales, torch.full_like(scales, 8), "int4_ax", group_size=128,
        input_perm=state.get(name + ".input_order"), dtype=torch.float32,
        num_s8_inputs=int((state[name + ".block_bits"] == 8).sum()) * 128,
        s4_clip=float(state[name + ".activation_clip"]))


def test_a_checkpoint_with_blocks_of_4_and_8_bits(windows, tmp_path):
    from safetensors.torch import load_file
    folder = os.path.join(tmp_path, "fmpq")
    program("quantize", MODEL, "--out", folder, "--method", "fmpq", *NO_FMPQ)
    state = load_file(os.path.join(folder, "model.safetensors"))
    model = load_model()
    model.load_state_dict({key: value.float() for key, value in state.items()
                           if key.endswith("weight")}, strict=False)
    for name, module in list(model.named_modules()):
        if name + ".qweight" in state:
            parent, _, child = name.rpartition(".")
            setattr(model.get_submodule(parent), child, from_fmpq(state, name))
            assert isinstance(module, torch.nn.Linear)
    # A change of 1e-6 in the embeddings moves the perplexity of one window by up to 1.4 %, since
    # inputs of 4 bits round otherwise; over many windows such changes cancel.
    num_windows = 32
    expected = program_perplexity(folder, num_windows=num_windows)
    got = perplexity(model, *windows[:num_windows])
    assert got == pytest.approx(expected, rel=DIFFERENCE_MAX)


def test_calibrated_blocks_are_as_good_as_the_programs(ids, tmp_path):
    folder = os.path.join(tmp_path, "fmpq")
    program("quantize", MODEL, "--out", folder, "--method", "fmpq", *NO_FMPQ)
    model = load_model()
    ht.quantize_(model, ht.W4AxConfig(calibration=[{"input_ids": ids}]), is_decoder_layer)
    # Other plans: the program's are shared by the layers of an input.
    assert perplexity(model, ids) <= 1.02 * program_perplexity(folder)


def test_a_quantized_model_generates_and_compiles(ids):
    model = load_model()
    ht.quantize_(model, ht.Int4WeightOnlyConfig(), is_decoder_layer)
    prompt = ids[:, :16]
    tokens = model.generate(prompt, max_new_tokens=8, do_sample=False)
    assert tokens.shape == (1, 24)
    torch._dynamo.reset()
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    with torch.no_grad():
        assert torch.allclose(compiled(prompt, use_cache=False).logits,
                              model(prompt, use_cache=False).logits, atol=1e-4)


def test_save_pretrained_keeps_packed_weights(ids, tmp_path):
    model = load_model()
    ht.quantize_(model, ht.Int4WeightOnlyConfig(), is_decoder_layer)
    model.save_pretrained(tmp_path)
    from safetensors.torch import load_file
    state = load_file(os.path.join(tmp_path, "model.safetensors"))
    with torch.device("meta"):
        other = transformers.LlamaForCausalLM(model.config)
    ht.quantize_(other, ht.Int4WeightOnlyConfig(), is_decoder_layer)
    other.to_empty(device="cpu")
    other.load_state_dict(state, strict=False)
    other.tie_weights()  # the output layer is the embedding
    other.model.rotary_emb = model.model.rotary_emb  # no part of a state
    assert perplexity(other.eval(), ids) == pytest.approx(perplexity(model, ids), rel=1e-6)


def test_the_snippets_of_the_page(monkeypatch):
    page = os.path.join(SOURCE, "docs", "torch.md")
    with open(page, encoding="utf-8") as file:
        snippets = re.findall(r"(?s)```python\n(.*?)```", file.read())
    assert len(snippets) == 2
    monkeypatch.chdir(SOURCE)
    test = doctest.DocTestParser().get_doctest("".join(snippets), {}, "torch.md", page, 0)
    runner = doctest.DocTestRunner()
    runner.run(test)
    assert runner.summarize().failed == 0 and runner.tries > 5


@pytest.mark.parametrize("config", ["int4", "nestedfp"])
def test_the_example(config, tmp_path):
    example = os.path.join(SOURCE, "examples", "torch_quantize.py")
    result = subprocess.run([sys.executable, example, MODEL, "The Python language", config],
                            capture_output=True, text=True, timeout=120, check=False, cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    assert re.match(r"(?s)<\|begin_of_text\|>The Python language\s.{20}", result.stdout)
