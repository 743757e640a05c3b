"""Quantization and evaluation of the installed package, versus the program of the package."""
import dataclasses
import json
import math
import os
import subprocess
import sys

import halley
import numpy
import pytest

SOURCE = os.environ["HALLEY_TEST_SOURCE"]
MODEL = os.path.join(SOURCE, "models", "demo-21m")
TEXT = os.path.join(SOURCE, "testdata", "text", "docs_heldout.txt")
TASKS = [os.path.join(SOURCE, "testdata", "multiple_choice", name)
         for name in ("piqa.jsonl", "arc.jsonl")]
WINDOWS = {"window": 64, "num_windows": 3}
PROGRAM_WINDOWS = ("--window", "64", "--windows", "3")


def program(*arguments):
    result = subprocess.run([sys.executable, "-m", "halley", *arguments, "--json"],
                            capture_output=True, text=True, timeout=120, check=True)
    return [json.loads(line) for line in result.stdout.splitlines()]


@pytest.fixture(scope="module", name="model")
def fixture_model():
    return halley.eval.Model(MODEL, device="cpu")


@pytest.fixture(scope="module", name="w4")
def fixture_w4(tmp_path_factory):
    return halley.quantize(MODEL, method="rtn", group_size=32, use_tqdm=False,
                           out=tmp_path_factory.mktemp("models") / "w4")


def test_quantize_is_that_of_the_program(w4, tmp_path):
    expected, = program("quantize", MODEL, "--method", "rtn", "--group-size", "32",
                        "--out", str(tmp_path / "w4"))
    assert [dataclasses.asdict(layer) for layer in w4.layers] == expected["layers"]
    assert (w4.method, w4.recipe) == (expected["method"], expected["recipe"])
    for name in os.listdir(w4.out):
        with open(os.path.join(w4.out, name), "rb") as ours, \
                open(tmp_path / "w4" / name, "rb") as theirs:
            assert ours.read() == theirs.read(), name
    output, = halley.LLM(w4.out, device="cpu", max_model_len=64).generate("a", use_tqdm=False)
    assert output.finished


def test_quantize_takes_the_changes_of_a_recipe(tmp_path):
    result = halley.quantize(MODEL, method="gptq", out=tmp_path / "out", calibrate=TEXT, bits=8,
                             desc_act=False, num_samples=2, sample_length=64, use_tqdm=False,
                             overrides=["*.down_proj=none"])
    assert result.error_inputs == "calibration"
    assert all(layer.is_quantized != layer.name.endswith("down_proj") for layer in result.layers)
    assert {layer.bits for layer in result.layers if layer.is_quantized} == {8}


def test_quantize_tells_its_progress_and_goes_on_after_an_interrupt(tmp_path):
    def interrupt(share, doing):
        if share > 0.5:
            raise KeyboardInterrupt
    arguments = {"method": "rtn", "out": tmp_path / "out", "use_tqdm": False}
    with pytest.raises(KeyboardInterrupt):
        halley.quantize(MODEL, on_progress=interrupt, **arguments)
    assert not (tmp_path / "out").exists()
    shares = []
    result = halley.quantize(MODEL, on_progress=lambda share, doing: shares.append(share),
                             **arguments)
    assert result.layers_resumed > 0
    assert shares == sorted(shares) and shares[-1] == 1


def test_quantize_rejects_by_the_texts_of_the_program(tmp_path):
    with pytest.raises(halley.InputError, match="method"):
        halley.quantize(MODEL, method="nothing", out=tmp_path / "out")
    with pytest.raises(halley.InputError, match="num_samples: expected 1 to"):
        halley.quantize(MODEL, method="rtn", out=tmp_path / "out", calibrate=TEXT, num_samples=0)
    with pytest.raises(halley.InputError, match="bits: expected another type, got 'few'"):
        halley.quantize(MODEL, method="rtn", out=tmp_path / "out", bits="few")
    with pytest.raises(halley.InputError, match="out"):
        halley.quantize(MODEL, method="rtn", out=tmp_path, use_tqdm=False)


def test_perplexity_is_that_of_the_program(model):
    expected, = program("eval", MODEL, "--perplexity", TEXT, *PROGRAM_WINDOWS)
    result = model.perplexity(TEXT, use_tqdm=False, **WINDOWS)
    assert dataclasses.asdict(result) == expected
    assert halley.eval.perplexity(MODEL, TEXT, use_tqdm=False, device="cpu", **WINDOWS) == result


def test_kl_divergence_is_that_of_the_program(w4, tmp_path):
    expected, = program("eval", w4.out, "--perplexity", TEXT, "--reference", MODEL,
                        *PROGRAM_WINDOWS)
    result = halley.eval.kl_divergence(w4.out, MODEL, TEXT, use_tqdm=False, device="cpu", **WINDOWS)
    assert dataclasses.asdict(result) == expected
    assert result.kl_divergence.low < result.kl_divergence.value < result.kl_divergence.high
    file = tmp_path / "reference.safetensors"
    halley.eval.perplexity(MODEL, TEXT, logits=file, use_tqdm=False, device="cpu", **WINDOWS)
    from_file = halley.eval.kl_divergence(w4.out, file, TEXT, use_tqdm=False, device="cpu",
                                          **WINDOWS)
    assert from_file.reference_kv_dtype is None
    assert from_file.kl_divergence.value == pytest.approx(result.kl_divergence.value, abs=1e-3)


def test_tasks_are_those_of_the_program(model):
    expected = program("eval", MODEL, *(word for path in TASKS for word in ("--tasks", path)))
    results = model.tasks(TASKS, use_tqdm=False)
    assert [dataclasses.asdict(result) for result in results] == expected
    assert model.tasks(TASKS[0], use_tqdm=False) == results[:1]
    assert halley.eval.tasks(MODEL, TASKS[1], use_tqdm=False, device="cpu") == results[1:]


def test_logits_give_the_perplexity(model):
    llm = halley.LLM(MODEL, device="cpu", max_model_len=64)
    with open(TEXT, encoding="utf-8") as file:
        ids = llm.encode(file.read(2000), add_special_tokens=False)[:64]
    logits = numpy.from_dlpack(model.logits(numpy.array(ids, "int32")))
    assert logits.shape[0] == 64 and logits.dtype == numpy.float32
    logits = logits.astype(numpy.float64)
    log_probs = logits - numpy.log(numpy.exp(logits).sum(axis=1, keepdims=True))
    nll = -log_probs[numpy.arange(63), ids[1:]].sum()
    expected = model.perplexity(TEXT, window=64, num_windows=1, use_tqdm=False)
    assert expected.num_tokens == 63
    assert math.exp(nll / 63) == pytest.approx(expected.perplexity, rel=1e-4)
    greedy, = llm.generate({"prompt_token_ids": ids[:-1]},
                           halley.SamplingParams(temperature=0, max_tokens=1), use_tqdm=False)
    assert greedy.outputs[0].token_ids == [logits[-2].argmax()]


def test_logits_outlive_their_model():
    logits = numpy.from_dlpack(halley.eval.Model(MODEL, device="cpu").logits([1, 2, 3]))
    assert numpy.isfinite(logits).all()


def test_evaluation_rejects_by_the_texts_of_the_program(model, tmp_path):
    with pytest.raises(halley.InputError, match="window: expected 2 to"):
        model.perplexity(TEXT, window=1, use_tqdm=False)
    with pytest.raises(halley.InputError, match="logits: expected 1 to"):
        model.logits([])
    with pytest.raises(halley.InputError, match="precision: expected full or low"):
        halley.eval.Model(MODEL, device="cpu", precision="auto")
    (tmp_path / "empty.jsonl").write_text("")
    with pytest.raises(halley.InputError, match="expected at least one item"):
        model.tasks(tmp_path / "empty.jsonl", use_tqdm=False)


def test_tables_need_pandas(w4, monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ImportError, match="pandas"):
        halley.to_pandas(w4.layers)


def test_results_are_tables(w4, model):
    layers = halley.to_pandas(w4.layers)
    assert list(layers["bits"]) == [layer.bits for layer in w4.layers]
    result = model.kl_divergence(MODEL, TEXT, use_tqdm=False, **WINDOWS)
    table = halley.to_pandas(result)
    assert len(table) == 1
    assert table["kl_divergence.value"][0] == result.kl_divergence.value
