"""LLM of the installed package: outputs, threads, errors."""
import json
import os
import re
import subprocess
import sys
import threading
import urllib.request

import halley
import numpy
import pytest
from halley import LLM, SamplingParams, StructuredOutputsParams

SOURCE = os.environ["HALLEY_TEST_SOURCE"]
MODEL = os.path.join(SOURCE, "models", "demo-21m")
PROMPTS = ["The Python programming language", "def main():", "In the beginning"]
SCHEMA = {"type": "object", "properties": {"ok": {"type": "boolean"}}, "required": ["ok"],
          "additionalProperties": False}
GREEDY = SamplingParams(temperature=0, max_tokens=24)


@pytest.fixture(scope="module", name="llm")
def fixture_llm():
    return LLM(MODEL, device="cpu", max_model_len=512)


def program(*arguments, **options):
    return subprocess.run([sys.executable, "-m", "halley", *arguments], capture_output=True,
                          text=True, timeout=120, check=True, **options)


def test_the_package_is_the_installed_one():
    assert not halley.__file__.startswith(SOURCE)
    with open(os.path.join(SOURCE, "CMakeLists.txt"), encoding="utf-8") as file:
        version, = re.findall(r"project\(halley VERSION ([\d.]+)", file.read())
    assert halley.__version__ == version
    assert program("--version").stdout.strip().endswith(version)


def test_the_package_serves():
    command = [sys.executable, "-m", "halley", "serve", MODEL, "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                          text=True) as server:
        url = re.search(r"http://[\w.:\[\]]+", server.stdout.readline())[0]
        body = json.dumps({"prompt": PROMPTS[0], "max_tokens": 4}).encode()
        request = urllib.request.Request(f"{url}/v1/completions", body,
                                         {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=60) as answer:
            assert json.load(answer)["usage"]["completion_tokens"] == 4
        server.terminate()
        assert server.wait(60) == 0


def test_greedy_tokens_are_those_of_the_program(llm):
    arguments = [word for prompt in PROMPTS for word in ("--prompt", prompt)]
    lines = program("generate", MODEL, "--json", "--temperature", "0", "--max-tokens", "24",
                    *arguments).stdout.splitlines()
    outputs = llm.generate(PROMPTS, GREEDY, use_tqdm=False)
    for line, prompt, output in zip(lines, PROMPTS, outputs, strict=True):
        expected = json.loads(line)
        assert output.prompt == prompt
        assert output.prompt_token_ids == expected["prompt_token_ids"]
        assert output.finished
        completion, = output.outputs
        assert completion.token_ids == expected["token_ids"]
        assert completion.text == expected["text"]
        assert completion.finish_reason == expected["finish_reason"]


def test_token_ids_give_what_their_text_gives(llm):
    ids = llm.encode(PROMPTS[0])
    by_ids, by_text, by_member = llm.generate(
        [{"prompt_token_ids": ids}, PROMPTS[0], {"prompt": PROMPTS[0]}], GREEDY, use_tqdm=False)
    assert by_ids.prompt is None and by_ids.prompt_token_ids == ids
    assert by_ids.outputs == by_text.outputs == by_member.outputs
    assert llm.decode(ids) == PROMPTS[0]


@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_arrays_are_prompts(llm, dtype):
    ids = numpy.array(llm.encode(PROMPTS[0]), dtype)
    spread = numpy.repeat(ids, 2)[::2]
    outputs = llm.generate([ids, {"prompt_token_ids": spread}, ids.tolist()], GREEDY,
                           use_tqdm=False)
    assert llm.generate(ids, GREEDY, use_tqdm=False)[0].outputs == outputs[0].outputs
    assert all(output.prompt_token_ids == ids.tolist() for output in outputs)
    assert all(output.outputs == outputs[0].outputs for output in outputs)
    assert llm.decode(ids) == PROMPTS[0]


def test_token_ids_become_arrays(llm):
    ids = llm.encode(PROMPTS[0])
    array = halley.token_array(ids)
    assert llm.generate(array, GREEDY, use_tqdm=False)[0].prompt_token_ids == ids
    numbers = numpy.from_dlpack(array)
    assert numbers.dtype == numpy.int32 and numbers.tolist() == ids
    assert numpy.from_dlpack(halley.token_array([])).shape == (0,)


def test_progress_bars_need_tqdm(llm, capfd, monkeypatch):
    llm.generate(PROMPTS, GREEDY)
    assert "Processed prompts" in capfd.readouterr().err
    monkeypatch.setitem(sys.modules, "tqdm.auto", None)
    assert len(llm.generate(PROMPTS, GREEDY)) == len(PROMPTS)
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("array", [
    numpy.zeros((2, 2), "int32"), numpy.zeros(2, "float32"), numpy.array([2 ** 40])])
def test_other_arrays_are_rejected(llm, array):
    with pytest.raises(halley.InputError, match="token ids: expected"):
        llm.generate(array)


def test_n_outputs_and_seeds(llm):
    params = SamplingParams(n=3, temperature=1.5, seed=7, max_tokens=16)
    first, = llm.generate("Once", params, use_tqdm=False)
    second, = llm.generate("Once", params, use_tqdm=False)
    assert [each.index for each in first.outputs] == [0, 1, 2]
    assert len({tuple(each.token_ids) for each in first.outputs}) == 3
    assert first.outputs == second.outputs


def test_a_seed_of_the_model_is_one_of_each_request():
    texts = []
    for _ in range(2):
        model = LLM(MODEL, device="cpu", max_model_len=64, seed=5)
        outputs = model.generate(["Once", "Once"], SamplingParams(temperature=1.5), use_tqdm=False)
        texts.append([each.outputs[0].text for each in outputs])
    assert texts[0] == texts[1]
    assert texts[0][0] != texts[0][1]


def test_logprobs(llm):
    params = SamplingParams(temperature=0, max_tokens=4, logprobs=2, prompt_logprobs=1)
    output, = llm.generate(PROMPTS[0], params, use_tqdm=False)
    completion = output.outputs[0]
    assert len(completion.logprobs) == 4
    for token, entries in zip(completion.token_ids, completion.logprobs):
        assert entries[token].rank == 1 and len(entries) == 2
        assert entries[token].logprob == max(each.logprob for each in entries.values())
    chosen = [e[t].logprob for t, e in zip(completion.token_ids, completion.logprobs)]
    assert completion.cumulative_logprob == pytest.approx(sum(chosen))
    assert "".join(e[t].decoded_token for t, e in zip(completion.token_ids, completion.logprobs)
                   ) == completion.text
    assert output.prompt_logprobs[0] is None
    assert all(id in entries for id, entries in
               zip(output.prompt_token_ids[1:], output.prompt_logprobs[1:]))


@pytest.mark.parametrize("params", [
    SamplingParams(max_tokens=64, guided_json=SCHEMA),
    SamplingParams(max_tokens=64, structured_outputs=StructuredOutputsParams(json=SCHEMA))])
def test_structured_outputs(llm, params):
    outputs = llm.generate(PROMPTS, params, use_tqdm=False)
    for output in outputs:
        if output.outputs[0].finish_reason == "stop":
            assert set(json.loads(output.outputs[0].text)) == {"ok"}
    assert any(output.outputs[0].finish_reason == "stop" for output in outputs)


def test_stop_strings(llm):
    text = llm.generate(PROMPTS[0], GREEDY, use_tqdm=False)[0].outputs[0].text
    word = text.split()[3]
    output = llm.generate(PROMPTS[0], SamplingParams(temperature=0, max_tokens=24, stop=[word]),
                          use_tqdm=False)[0].outputs[0]
    assert (output.finish_reason, output.stop_reason) == ("stop", word)
    assert word not in output.text


def test_chats_are_what_the_template_renders(tmp_path):
    template = tmp_path / "chat.jinja"
    template.write_text("{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}"
                        "{% if add_generation_prompt %}<assistant>{% endif %}")
    model = LLM(MODEL, device="cpu", max_model_len=128, chat_template=template)
    talk = [{"role": "user", "content": "Hello"}]
    one, = model.chat(talk, GREEDY, use_tqdm=False)
    assert one.prompt == "<user>Hello<assistant>"
    two = model.chat([talk, talk], [GREEDY, SamplingParams(temperature=0, max_tokens=2)],
                     use_tqdm=False, add_generation_prompt=False)
    assert [each.prompt for each in two] == ["<user>Hello"] * 2
    assert len(two[1].outputs[0].token_ids) == 2


def test_chats_have_tools(tmp_path):
    template = tmp_path / "chat.jinja"
    template.write_text("{% for t in tools %}{{ t.function.name }};{% endfor %}"
                        "{{ messages[0].content }}{{ language }}")
    model = LLM(MODEL, device="cpu", max_model_len=128, chat_template=template,
                tool_call_parser="hermes")
    tool = {"type": "function", "function": {"name": "add", "parameters": {"type": "object"}}}
    output, = model.chat([{"role": "user", "content": "Hi"}], GREEDY, use_tqdm=False, tools=[tool],
                         chat_template_kwargs={"language": "!"})
    assert output.prompt == "add;Hi!"
    with pytest.raises(halley.InputError, match="tools: expected a model whose chat template"):
        LLM(MODEL, device="cpu", max_model_len=64).chat([{"role": "user", "content": "Hi"}],
                                                        tools=[tool])


def test_chats_need_a_template(tmp_path):
    for name in ("config.json", "tokenizer.json", "model.safetensors"):
        os.symlink(os.path.join(MODEL, name), tmp_path / name)
    model = LLM(tmp_path, device="cpu", max_model_len=64)
    with pytest.raises(halley.InputError, match="chat: expected a model with a chat template"):
        model.chat([{"role": "user", "content": "Hi"}])


def test_metrics_and_plan(llm):
    before = llm.metrics()
    output, = llm.generate(PROMPTS[0], GREEDY, use_tqdm=False)
    after = llm.metrics()
    assert after["num_output_tokens"] - before["num_output_tokens"] == 24
    assert 0 <= output.num_cached_tokens < len(output.prompt_token_ids)
    times = output.metrics
    assert times.request_queue_time + times.request_prefill_time == pytest.approx(
        times.time_to_first_token)
    parts = times.time_to_first_token + times.request_decode_time
    assert parts <= times.e2e_request_latency + 1e-9  # sums of floats
    plan = json.loads(program("inspect", MODEL, "--json").stdout)
    assert llm.inspect()["parts"] == plan["parts"]


def test_other_threads_run_while_the_engine_does(llm):
    ended, count = threading.Event(), 0

    def generate():
        llm.generate(PROMPTS, SamplingParams(max_tokens=200, ignore_eos=True), use_tqdm=False)
        ended.set()
    thread = threading.Thread(target=generate)
    thread.start()
    while not ended.is_set():
        count += 1
    thread.join()
    assert count > 1000


def test_errors_are_those_of_the_program(llm, tmp_path):
    with pytest.raises(halley.InputError, match="temperature: expected 0 to 2, got 3"):
        llm.generate("a", SamplingParams(temperature=3))
    with pytest.raises(halley.InputError, match="prompt: expected a text"):
        llm.generate(7)
    with pytest.raises(halley.InputError, match="sampling_params: expected one, or one for each"):
        llm.generate(["a", "b"], [SamplingParams()])
    with pytest.raises(halley.InputError, match="guided_json"):
        llm.generate("a", SamplingParams(guided_json={"type": "nothing"}))
    with pytest.raises(halley.InputError, match="512"):
        llm.generate({"prompt_token_ids": [1] * 600})
    with pytest.raises(halley.InputError, match="device: expected auto, cpu, cuda or cuda:N"):
        LLM(MODEL, device="gpu")
    with pytest.raises(halley.InputError, match="max_num_seqs: expected int, got 'many'"):
        LLM(MODEL, max_num_seqs="many")
    with pytest.raises(ValueError, match="expected a GGUF file or a Hugging Face model"):
        LLM(tmp_path / "none")
    with pytest.raises(halley.UnsupportedError):
        (tmp_path / "config.json").write_text('{"model_type": "strange"}')
        for name in ("tokenizer.json", "model.safetensors"):
            os.symlink(os.path.join(MODEL, name), tmp_path / name)
        LLM(tmp_path)
    for error in (halley.InputError, halley.CheckpointError, halley.UnsupportedError,
                  halley.DeviceError):
        assert issubclass(error, halley.Error) and error.__module__ == "halley"
    assert llm.generate("a", GREEDY, use_tqdm=False)[0].finished


def test_a_failed_prompt_leaves_none_of_its_call_behind(llm):
    with pytest.raises(halley.InputError):
        llm.generate(["a", {"prompt_token_ids": [1] * 600}], SamplingParams(max_tokens=500))
    llm.generate("a", GREEDY, use_tqdm=False)
    assert llm.metrics()["num_running"] == 0


INTERRUPTED = """
import os, signal, sys, threading, halley
llm = halley.LLM(sys.argv[1], device="cpu", max_model_len=8192)
threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT)).start()
try:
    llm.generate(["a"] * 8, halley.SamplingParams(max_tokens=8000, ignore_eos=True))
except KeyboardInterrupt:
    print("interrupted")
llm.generate("a", halley.SamplingParams(max_tokens=2), use_tqdm=False)
print(llm.metrics()["num_running"])
"""


def test_an_interrupt_cancels_the_requests():
    with open(os.path.join(MODEL, "config.json"), encoding="utf-8") as file:
        length = json.load(file)["max_position_embeddings"]
    script = INTERRUPTED.replace("8192", str(length)).replace("8000", str(length - 8))
    result = subprocess.run([sys.executable, "-c", script, MODEL], capture_output=True, text=True,
                            timeout=120, check=False)
    assert result.stdout.split() == ["interrupted", "0"], result.stderr
    assert result.returncode == 0
