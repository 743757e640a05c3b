"""Calls of other people's clients, for the recorder of their bodies and for a test with a server.

    client_calls.py CLIENT URL MODEL [SCENARIO]...

Runs under the Python of that client's own virtual environment. URL is that of the API
("...:8000/v1"); "{scenario}" in it is replaced by the scenario's name. Prints a line "ok SCENARIO"
or "failed SCENARIO: ..." for each; the exit code is the number of failures.
"""
import contextlib
import copy
import json
import os
import subprocess
import sys
import tempfile
import traceback

from open_webui_calls import OPEN_WEBUI_CALLS

WEATHER = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"],
           "additionalProperties": False}
TOOL = {"type": "function", "function": {"name": "weather", "description": "Says the weather.",
                                         "parameters": WEATHER}}
NAMED = {"type": "function", "function": {"name": "weather"}}
ASKED = [{"role": "system", "content": "Be short."},
         {"role": "user", "content": "Weather in Rome?"}]
EPHEMERAL = {"type": "ephemeral"}
THINKING = {"type": "enabled", "budget_tokens": 1024}
# The name of a model for which clients write Anthropic's members into OpenAI's messages.
CLAUDE = "anthropic/claude-{}"
CACHED = [
    {"role": "system", "content": [{"type": "text", "text": "Be short.",
                                    "cache_control": EPHEMERAL}]},
    {"role": "user", "content": [{"type": "text", "text": "Weather in Rome?"},
                                 {"type": "text", "text": "Today.",
                                  "cache_control": EPHEMERAL}]}]
THOUGHT = {"role": "assistant", "content": "Sunny.", "reasoning_content": "It is summer.",
           "provider_specific_fields": {"reasoning_content": "It is summer."},
           "thinking_blocks": [{"type": "thinking", "thinking": "It is summer.", "signature": "s"}]}
SHORT = {"max_tokens": 24}


@contextlib.contextmanager
def may_be_cut():
    """For answers that a small model may not finish: the client's complaint about max_tokens says
    that the request was taken and the answer was read."""
    try:
        yield
    except Exception as error:  # pylint: disable=broad-except
        if type(error).__name__ not in ("LengthFinishReasonError", "IncompleteOutputException"):
            raise


def drain(stream):
    return sum(1 for _ in stream)


# -- openai ---------------------------------------------------------------------------------------

def openai_client(url):
    import openai
    return openai.OpenAI(base_url=url, api_key="key", max_retries=0, timeout=120)


def openai_chat(url, model):
    answer = openai_client(url).chat.completions.create(
        model=model, messages=ASKED, max_completion_tokens=8, temperature=0.2, top_p=0.9, seed=3,
        n=1, stop=["\n\n"], user="me", store=True, metadata={"task": "test"}, logprobs=True,
        top_logprobs=2, service_tier="flex", safety_identifier="s", prompt_cache_key="k",
        presence_penalty=0.1, frequency_penalty=0.1, logit_bias={"5": 1}, verbosity="low",
        reasoning_effort="low")
    assert answer.choices[0].message.role == "assistant"


def openai_stream(url, model):
    assert drain(openai_client(url).chat.completions.create(
        model=model, messages=ASKED, stream=True, stream_options={"include_usage": True}, **SHORT))


def openai_tools(url, model):
    client = openai_client(url)
    first = client.chat.completions.create(model=model, messages=ASKED, tools=[TOOL],
                                           tool_choice=NAMED, max_tokens=200,
                                           parallel_tool_calls=False)
    message = first.choices[0].message
    client.chat.completions.create(
        model=model, tools=[TOOL], tool_choice="auto", **SHORT,
        messages=[*ASKED, message, {"role": "tool", "tool_call_id": message.tool_calls[0].id,
                                    "content": [{"type": "text", "text": "sunny"}]}])


def openai_parse(url, model):
    import openai
    import pydantic

    class Weather(pydantic.BaseModel):
        is_sunny: bool
    client = openai_client(url)
    answer = client.chat.completions.parse(model=model, messages=ASKED, response_format=Weather,
                                           max_tokens=200)
    message = answer.choices[0].message
    assert isinstance(message.parsed, Weather)
    with may_be_cut():
        client.chat.completions.parse(
            model=model, tools=[openai.pydantic_function_tool(Weather)], tool_choice="none",
            **SHORT, messages=[*ASKED, message.model_dump(), {"role": "user", "content": "Sure?"}])


def openai_completions(url, model):
    client = openai_client(url)
    client.completions.create(model=model, prompt=["The"], max_tokens=4, echo=True, logprobs=1,
                              best_of=1, suffix=None, extra_body={"top_k": 5, "min_p": 0.1})
    assert drain(client.completions.create(model=model, prompt="The", max_tokens=4, stream=True))


# -- LangChain ------------------------------------------------------------------------------------

def langchain_chat_model(url, model, **options):
    import langchain_openai
    return langchain_openai.ChatOpenAI(base_url=url, api_key="key", model=model, max_retries=0,
                                       timeout=120, **{**SHORT, **options})


def langchain_chat(url, model):
    from langchain_core import messages
    chat = langchain_chat_model(url, model, stop=["\n\n"], reasoning_effort="low", store=True,
                                metadata={"a": "b"}, temperature=0.5, logprobs=True,
                                verbosity="low", model_kwargs={"user": "me"})
    chat.invoke([messages.SystemMessage("Be short.", name="system_1"),
                 messages.HumanMessage("Hi", id="1"),
                 messages.AIMessage([{"type": "thinking", "thinking": "t", "signature": "s"},
                                     {"type": "text", "text": "Hello", "index": 0}],
                                    additional_kwargs={"reasoning_content": "t"},
                                    response_metadata={"model_name": "m"}),
                 messages.HumanMessage([{"type": "text", "text": "Go on",
                                         "cache_control": EPHEMERAL}])])


def langchain_stream(url, model):
    assert drain(langchain_chat_model(url, model, stream_usage=True).stream("Hi"))


def langchain_tools(url, model):
    from langchain_core import messages, tools

    @tools.tool
    def weather(city: str) -> str:
        """Says the weather."""
        return f"sunny in {city}"
    bound = langchain_chat_model(url, model, max_tokens=200).bind_tools(
        [weather], tool_choice="weather", strict=True, parallel_tool_calls=False)
    history = [messages.HumanMessage("Weather in Rome?")]
    history.append(bound.invoke(history))
    call = history[-1].tool_calls[0]
    history.append(messages.ToolMessage("sunny", tool_call_id=call["id"], name="weather",
                                        artifact={"a": 1}, status="success"))
    langchain_chat_model(url, model).bind_tools([weather]).invoke(history)


def langchain_structured(url, model):
    for method in "json_schema", "function_calling", "json_mode":
        schema = {"title": "weather", "description": "The weather.", **WEATHER}
        with may_be_cut():
            langchain_chat_model(url, model, max_tokens=300).with_structured_output(
                schema, method=method, include_raw=True).invoke("Weather in Rome as JSON?")


def langchain_completions(url, model):
    import langchain_openai
    llm = langchain_openai.OpenAI(base_url=url, api_key="key", model=model, max_tokens=4,
                                  max_retries=0, best_of=1, batch_size=2)
    llm.generate(["The", "A"], stop=["\n"])


# -- LiteLLM --------------------------------------------------------------------------------------

def litellm_completion(url, model, messages, provider="hosted_vllm", **options):
    import litellm
    litellm.telemetry = False
    # It takes members out of the very objects that it is given.
    return litellm.completion(model=f"{provider}/{model}", api_base=url, api_key="key",
                              num_retries=0, timeout=120,
                              **copy.deepcopy({"messages": messages, **SHORT, **options}))


def litellm_cached(url, model):
    tools = [{**TOOL, "cache_control": EPHEMERAL},
             {"type": "function", "function": {"name": "other", "cache_control": EPHEMERAL}}]
    litellm_completion(url, model, CACHED, tools=tools, tool_choice="none", user="me")
    litellm_completion(url, model, CACHED, provider="openai")
    for provider in "litellm_proxy", "openrouter":
        litellm_completion(url, CLAUDE.format(model), CACHED, provider=provider, tools=tools,
                           tool_choice="none", cache_control=EPHEMERAL)


def litellm_tools(url, model):
    first = litellm_completion(url, model, ASKED, tools=[TOOL], tool_choice=NAMED, max_tokens=200)
    message = first.choices[0].message
    for provider in "hosted_vllm", "openai":
        litellm_completion(url, model, [
            *ASKED, message.model_dump(), {"role": "tool", "name": "weather", "content": "sunny",
                                           "tool_call_id": message.tool_calls[0].id}],
            provider=provider, tools=[TOOL])


def litellm_thoughts(url, model):
    history = [*ASKED, THOUGHT, {"role": "user", "content": "Sure?"}]
    for provider in "hosted_vllm", "openai", "litellm_proxy":
        litellm_completion(url, model, history, provider=provider, reasoning_effort="low",
                           allowed_openai_params=["reasoning_effort"])
    litellm_completion(url, model, history, thinking=THINKING, allowed_openai_params=["thinking"])
    litellm_completion(url, CLAUDE.format(model), history, provider="litellm_proxy",
                       thinking=THINKING)


def litellm_openrouter(url, model):
    """The members of OpenRouter's API."""
    answer = {**THOUGHT, "reasoning": "It is warm.", "native_finish_reason": "stop",
              "reasoning_details": [{"type": "reasoning.text", "text": "It is warm.", "index": 0}]}
    litellm_completion(url, CLAUDE.format(model),
                       [*ASKED, answer, {"role": "user", "content": "Sure?"}],
                       provider="openrouter", include_reasoning=False,
                       reasoning={"effort": "low", "exclude": True})


def litellm_stream(url, model):
    assert drain(litellm_completion(url, model, ASKED, stream=True,
                                    stream_options={"include_usage": True}, stop=list("abcdef")))


def litellm_structured(url, model):
    import pydantic

    class Weather(pydantic.BaseModel):
        is_sunny: bool
    litellm_completion(url, model, ASKED, response_format=Weather, max_tokens=200)


def litellm_text(url, model):
    import litellm
    litellm.text_completion(model=f"text-completion-openai/{model}", prompt="The", api_base=url,
                            api_key="key", max_tokens=4, num_retries=0)


def litellm_anthropic(url, model):
    """The Messages API of Anthropic, which LiteLLM translates: what Claude's tools send."""
    import asyncio

    import litellm
    tool = {"name": "weather", "description": "Says the weather.", "input_schema": WEATHER,
            "cache_control": EPHEMERAL}
    messages = [
        {"role": "user", "content": "Weather in Rome?"},
        {"role": "assistant", "content": [
            {"type": "thinking", "thinking": "I ask.", "signature": "s"},
            {"type": "redacted_thinking", "data": "x"},
            {"type": "tool_use", "id": "call_1", "name": "weather", "input": {"city": "Rome"}}]},
        {"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": "call_1", "content": "sunny",
             "cache_control": EPHEMERAL},
            {"type": "text", "text": "Sure?", "cache_control": EPHEMERAL}]}]
    vllm, claude = f"hosted_vllm/{model}", f"litellm_proxy/{CLAUDE.format(model)}"
    for name, options in ((vllm, {}), (vllm, {"thinking": THINKING}),
                          (claude, {"thinking": THINKING})):
        asyncio.run(litellm.anthropic.messages.acreate(
            model=name, max_tokens=24, api_base=url, api_key="key", stop_sequences=["\n\n"],
            metadata={"user_id": "me"}, **copy.deepcopy(
                {"messages": messages, "tools": [tool], "system": CACHED[0]["content"],
                 **options})))


# -- instructor -----------------------------------------------------------------------------------

def gave_up(error):
    """Whether instructor had answers and liked none; the class has moved between its versions."""
    return type(error).__name__ == "InstructorRetryException" and "<completion>" in str(error)


def instructor_modes(*names):
    def call(url, model):
        import instructor
        import pydantic

        class Weather(pydantic.BaseModel):
            """The weather."""
            is_sunny: bool
        for name in names:
            client = instructor.from_openai(openai_client(url), mode=getattr(instructor.Mode, name))
            try:
                with may_be_cut():
                    client.chat.completions.create(model=model, messages=ASKED, max_tokens=200,
                                                   response_model=Weather, max_retries=1)
            except Exception as error:  # pylint: disable=broad-except
                # These say the schema to the model alone, which need not follow it.
                if name not in ("JSON", "MD_JSON") or not gave_up(error):
                    raise
    return call


def instructor_asks_again(url, model):
    import instructor
    import pydantic

    class Weather(pydantic.BaseModel):
        is_sunny: bool

        @pydantic.field_validator("is_sunny")
        @classmethod
        def fails(cls, value):
            raise ValueError("say it again")
    client = instructor.from_openai(openai_client(url), mode=instructor.Mode.TOOLS)
    try:
        client.chat.completions.create(model=model, messages=ASKED, response_model=Weather,
                                       max_retries=2, max_tokens=200)
    except Exception as error:  # pylint: disable=broad-except
        assert gave_up(error) and "say it again" in str(error), error


# -- programs -------------------------------------------------------------------------------------

def lm_eval_requests(kind, arguments, **options):
    import lm_eval.api.instance
    return [lm_eval.api.instance.Instance(kind, {}, argument, index, **options)
            for index, argument in enumerate(arguments)]


def lm_eval_completions(url, model):
    from lm_eval.models.openai_completions import LocalCompletionsAPI
    tokenizer = os.environ["HALLEY_CLIENT_TOKENIZER"]
    lm = LocalCompletionsAPI(model=model, base_url=url + "/completions", tokenizer=tokenizer,
                             max_length=512, max_gen_toks=8)
    stops = ["\n\n", "Question:", "Q:", "</s>", "\nUser:", "###"]
    texts = lm.generate_until(lm_eval_requests(
        "generate_until", [("The", {"until": stops, "do_sample": False, "max_gen_toks": 8})]),
        disable_tqdm=True)
    assert len(texts) == 1
    assert lm.loglikelihood(lm_eval_requests("loglikelihood", [("The", " end")]), disable_tqdm=True)


def lm_eval_chat(url, model):
    from lm_eval.models.openai_completions import LocalChatCompletion
    lm = LocalChatCompletion(model=model, base_url=url + "/chat/completions", max_gen_toks=8)
    prompt = lm.apply_chat_template([{"role": "user", "content": "Question: 1 + 1?\nAnswer:"}])
    stops = ["Question:", "</s>", "<|im_end|>", "\n\n", "###"]
    assert lm.generate_until(lm_eval_requests(
        "generate_until", [(prompt, {"until": stops, "do_sample": False})]), disable_tqdm=True)


def run_program(name, *arguments, **options):
    program = os.path.join(os.path.dirname(sys.executable), name)
    result = subprocess.run([program, *arguments], capture_output=True, text=True, timeout=240,
                            check=False, **options)
    assert result.returncode == 0, result.stdout[-2000:] + result.stderr[-2000:]
    return result.stdout


def guidellm_run(path):
    def call(url, model):
        tokenizer = os.environ["HALLEY_CLIENT_TOKENIZER"]
        with tempfile.TemporaryDirectory() as folder:
            run_program(
                "guidellm", "run", "--disable-console", "--profile", "kind=synchronous",
                "--backend", f"kind=openai_http,target={url.removesuffix('/v1')},model={model},"
                             f"request_format={path}",
                "--tokenizer", f"kind=huggingface_auto,model={tokenizer}",
                "--data", "kind=synthetic_text,prompt_tokens=16,output_tokens=4",
                "--constraint", "kind=max_requests,count=1",
                "--output", f"kind=json,path={folder}/out.json", cwd=folder)
    return call


def aider_run(*options):
    def call(url, model):
        edit_with_aider(url, f"openai/{model}", *options)
    return call


def aider_cached(url, model):
    """For a model that caches, by aider's settings; the provider "openai" drops these members."""
    model = f"litellm_proxy/{model}"
    with tempfile.NamedTemporaryFile("w", suffix=".yml") as settings:
        json.dump([{"name": model, "edit_format": "whole", "cache_control": True}], settings)
        settings.flush()
        edit_with_aider(url, model, "--cache-prompts", "--model-settings-file", settings.name)


def edit_with_aider(url, model, *options):
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "a.py")
        with open(path, "w", encoding="utf-8") as file:
            file.write("print(1)\n")
        run_program("aider", "--model", model, "--openai-api-base", url, "--openai-api-key", "key",
                    "--message", "Print 2.", "--no-git", "--yes-always",
                    "--no-show-model-warnings", "--no-check-update", "--analytics-disable",
                    "--no-auto-lint", "--map-tokens", "0", *options, "a.py", cwd=folder,
                    env={**os.environ, "HOME": folder, "LITELLM_PROXY_API_BASE": url,
                         "LITELLM_PROXY_API_KEY": "key"})


def continue_run(text, provider="openai", name="{}", **options):
    """Continue's command line, in a folder with the file that the recorder's calls name."""
    def call(url, model):
        with tempfile.TemporaryDirectory() as folder:
            config = {"name": "test", "version": "1.0.0", "schema": "v1", "models": [
                {"name": "test", "provider": provider, "model": name.format(model), "apiBase": url,
                 "apiKey": "key", "roles": ["chat"], **options}]}
            for path, content in ("config.yaml", json.dumps(config)), ("sunny", "It is sunny."):
                with open(os.path.join(folder, path), "w", encoding="utf-8") as file:
                    file.write(content)
            assert run_program("cn", "-p", text, "--config", "config.yaml", cwd=folder, env={
                **os.environ, "HOME": folder, "CONTINUE_TELEMETRY_ENABLED": "0"}).strip()
    return call


CALLS = {
    "openai": {"chat": openai_chat, "stream": openai_stream, "tools": openai_tools,
               "parse": openai_parse, "completions": openai_completions},
    "langchain": {"chat": langchain_chat, "stream": langchain_stream, "tools": langchain_tools,
                  "structured": langchain_structured, "completions": langchain_completions},
    "litellm": {"cached": litellm_cached, "tools": litellm_tools, "thoughts": litellm_thoughts,
                "openrouter": litellm_openrouter, "stream": litellm_stream,
                "structured": litellm_structured, "text": litellm_text,
                "anthropic": litellm_anthropic},
    "instructor": {"json": instructor_modes("JSON", "JSON_SCHEMA", "MD_JSON"),
                   "tools": instructor_modes("TOOLS", "TOOLS_STRICT"),
                   "again": instructor_asks_again},
    "lm_eval": {"completions": lm_eval_completions, "chat": lm_eval_chat},
    "guidellm": {"completions": guidellm_run("/v1/completions"),
                 "chat": guidellm_run("/v1/chat/completions")},
    "aider": {"edit": aider_run(), "no_stream": aider_run("--no-stream"), "cached": aider_cached,
              "diff": aider_run("--edit-format", "diff", "--reasoning-effort", "low")},
    "continue": {
        "agent": continue_run("Read a file. Use a tool.", defaultCompletionOptions={
            "maxTokens": 24, "temperature": 0.5, "topP": 0.9, "topK": 20, "minP": 0.1,
            "presencePenalty": 0.1, "frequencyPenalty": 0.1, "stop": ["\n\n"]}),
        "cached": continue_run("Weather in Rome?", "openrouter", CLAUDE)},
    "open_webui": OPEN_WEBUI_CALLS,
}


def main(client, url, model, *names):
    failures = 0
    for name, call in CALLS[client].items():
        if names and name not in names:
            continue
        try:
            call(url.replace("{scenario}", name), model)
            print("ok", name, flush=True)
        except Exception as error:  # pylint: disable=broad-except
            failures += 1
            traceback.print_exc()
            print(f"failed {name}:", json.dumps(str(error)[:2000]), flush=True)
    return failures


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
