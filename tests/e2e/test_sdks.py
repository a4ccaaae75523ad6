"""The official SDKs with `weft serve`; only the base URL is changed."""

import os
import signal

import anthropic
import openai
import orjson
import pytest
from google import genai
from google.genai import errors, types

import weft.thread
from servers import Scripted, post, scripted_upstream, weft_serve

MODEL = "weft-offline"
ASK = "Please use the tool to look up the weather in Paris."
ANSWER = "sunny in Paris"
SCHEMA = {
    "type": "object",
    "properties": {"city": {"type": "string"}},
    "required": ["city"],
    "additionalProperties": False,
}
MODES = pytest.mark.parametrize("streams", [False, True], ids=["whole", "streamed"])


def weather(city):
    return f"sunny in {city}"


@pytest.fixture(scope="module")
def gateway(tmp_path_factory):
    with weft_serve(tmp_path_factory.mktemp("sdks")) as running:
        yield running


@pytest.fixture(scope="module")
def claude(gateway):
    with anthropic.Anthropic(base_url=gateway.url, api_key="none", max_retries=0) as client:
        yield client


@pytest.fixture(scope="module")
def gpt(gateway):
    url = f"{gateway.url}/v1"
    with openai.OpenAI(base_url=url, api_key="none", max_retries=0) as client:
        yield client


def google_client(url):
    return genai.Client(api_key="none", http_options=types.HttpOptions(base_url=url))


@pytest.fixture(scope="module")
def gemini(gateway):
    with google_client(gateway.url) as client:
        yield client


def ask_gemini(client, contents, streams, *, model=MODEL, **more):
    arguments = {"model": model, "contents": contents, "config": more or None}
    if not streams:
        return [client.models.generate_content(**arguments)]
    return list(client.models.generate_content_stream(**arguments))


def ask_messages(client, messages, streams, *, model=MODEL, **more):
    arguments = {"model": model, "max_tokens": 500, "messages": messages, **more}
    if not streams:
        return client.messages.create(**arguments)
    with client.messages.stream(**arguments) as stream:
        return stream.get_final_message()


def ask_chat(client, messages, streams, **more):
    arguments = {"model": MODEL, "messages": messages, **more}
    if not streams:
        return client.chat.completions.create(**arguments).choices[0]
    with client.chat.completions.stream(**arguments) as stream:
        return stream.get_final_completion().choices[0]


def ask_responses(client, items, streams, **more):
    arguments = {"model": MODEL, "input": items, "store": False, **more}
    if not streams:
        return client.responses.create(**arguments)
    with client.responses.stream(**arguments) as stream:
        for _ in stream:
            pass
        return stream.get_final_response()


@MODES
def test_anthropic_answers_and_calls_a_tool(claude, streams):
    tools = [{"name": "weather", "input_schema": SCHEMA}]
    messages = [{"role": "user", "content": ASK}]
    call = ask_messages(claude, messages, streams, tools=tools, system="Be brief.")
    assert call.stop_reason == "tool_use"
    [use] = [block for block in call.content if block.type == "tool_use"]
    result = {"type": "tool_result", "tool_use_id": use.id, "content": weather(**use.input)}
    messages += [
        {"role": "assistant", "content": call.content},
        {"role": "user", "content": [result]},
    ]
    final = ask_messages(claude, messages, streams, tools=tools, system="Be brief.")
    assert ANSWER in final.content[0].text
    assert (final.stop_reason, final.usage.input_tokens > 0) == ("end_turn", True)


@MODES
def test_openai_chat_answers_and_calls_a_tool(gpt, streams):
    tools = [
        {"type": "function", "function": {"name": "weather", "parameters": SCHEMA, "strict": True}}
    ]
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": ASK}]
    choice = ask_chat(gpt, messages, streams, tools=tools)
    assert choice.finish_reason == "tool_calls"
    [call] = choice.message.tool_calls
    arguments = orjson.loads(call.function.arguments)
    answered = choice.message.to_dict()
    answered["tool_calls"] = [
        {
            "id": call.id,
            "type": "function",
            "function": {"name": "weather", "arguments": orjson.dumps(arguments).decode()},
        }
    ]
    result = {"role": "tool", "tool_call_id": call.id, "content": weather(**arguments)}
    final = ask_chat(gpt, [*messages, answered, result], streams, tools=tools)
    assert ANSWER in final.message.content
    assert final.finish_reason == "stop"


@MODES
def test_openai_responses_answers_and_calls_a_tool(gpt, streams):
    tools = [{"type": "function", "name": "weather", "parameters": SCHEMA, "strict": True}]
    items = [{"role": "user", "content": ASK}]
    first = ask_responses(gpt, items, streams, tools=tools, instructions="Be brief.")
    [call] = [item for item in first.output if item.type == "function_call"]
    result = orjson.loads(call.arguments)
    items += [item.to_dict() for item in first.output]
    items.append(
        {"type": "function_call_output", "call_id": call.call_id, "output": weather(**result)}
    )
    final = ask_responses(gpt, items, streams, tools=tools, instructions="Be brief.")
    assert ANSWER in final.output_text
    assert (final.status, final.usage.total_tokens > 0) == ("completed", True)


@MODES
def test_gemini_answers_and_calls_a_tool(gemini, streams):
    declared = types.FunctionDeclaration(name="weather", parameters_json_schema=SCHEMA)
    config = {"tools": [types.Tool(function_declarations=[declared])]}
    config |= {"system_instruction": "Be brief.", "automatic_function_calling": {"disable": True}}
    texts = [types.Content(role="user", parts=[types.Part(text=ASK)])]
    chunks = ask_gemini(gemini, texts, streams, **config)
    [call] = [call for chunk in chunks for call in chunk.function_calls or ()]
    result = types.Part.from_function_response(
        name=call.name, response={"it": weather(**call.args)}
    )
    texts += [
        types.Content(role="model", parts=[types.Part(function_call=call)]),
        types.Content(role="user", parts=[result]),
    ]
    final = ask_gemini(gemini, texts, streams, **config)
    assert ANSWER in "".join(chunk.text or "" for chunk in final)
    assert final[-1].candidates[0].finish_reason == "STOP"
    assert final[-1].usage_metadata.total_token_count > 0


def test_geminis_automatic_function_calling_completes(gemini):
    ran = []

    def weather_of(city: str) -> str:
        """Look up the weather."""
        ran.append(city)
        return weather(city)

    [final] = ask_gemini(gemini, ASK, False, tools=[weather_of])
    assert ran == ["Paris"]
    assert ANSWER in final.text


def test_gemini_counts_tokens_lists_models_and_gets_its_own_errors(gemini):
    assert gemini.models.count_tokens(model=MODEL, contents="hello").total_tokens > 0
    assert f"models/{MODEL}" in [model.name for model in gemini.models.list()]
    assert gemini.models.get(model=MODEL).display_name == MODEL
    with pytest.raises(errors.ClientError, match="no model") as raised:
        gemini.models.get(model="mystery")
    assert (raised.value.code, raised.value.status) == (404, "NOT_FOUND")


@pytest.mark.parametrize("version", ["v1", "v1beta"])
def test_a_gemini_stream_is_an_array_without_alt_sse(gateway, version):
    body = {"contents": [{"role": "user", "parts": [{"text": "hello"}]}]}
    url = f"{gateway.url}/{version}/models/{MODEL}:streamGenerateContent"
    status, headers, array = post(url, body)
    _, plain, events = post(f"{url}?alt=sse", body)
    frames = [line[6:] for line in events.decode().splitlines() if line.startswith("data: ")]
    texts = [
        "".join(row["candidates"][0]["content"]["parts"][0]["text"] for row in rows)
        for rows in (orjson.loads(array), [orjson.loads(frame) for frame in frames])
    ]
    assert (status, headers["content-type"]) == (200, "application/json")
    assert plain["content-type"] == "text/event-stream"
    assert texts[0] == texts[1] != ""
    status, _, wrong = post(url, {"contents": 7})
    assert (status, orjson.loads(wrong)[0]["error"]["status"]) == (400, "INVALID_ARGUMENT")


GEMINI_ANSWER = (
    b'data: {"candidates":[{"content":{"role":"model","parts":[{"text":"Hel"}]},"index":0}]}\n\n',
    b'data: {"candidates":[{"content":{"role":"model","parts":[{"text":"lo"}]},"index":0,'
    b'"finishReason":"STOP"}],"usageMetadata":{"promptTokenCount":1,"totalTokenCount":3},'
    b'"modelVersion":"g","responseId":"r1"}\n\n',
)


def test_a_gemini_upstream_answers_every_protocol(tmp_path):
    with scripted_upstream() as upstream:
        upstream.then(Scripted(*GEMINI_ANSWER))
        flags = ("--upstream", f"g=gemini:{upstream.url}")
        with weft_serve(tmp_path, *flags, G_API_KEY="secret") as gateway:
            messages = [{"role": "user", "content": "hi"}]
            with anthropic.Anthropic(base_url=gateway.url, api_key="k", max_retries=0) as client:
                message = ask_messages(client, messages, True, model="g/gemini-3-pro")
            with google_client(gateway.url) as client:
                chunks = ask_gemini(client, "hi", True, model="gemini-3-pro")
    assert message.content[0].text == "".join(chunk.text for chunk in chunks) == "Hello"
    assert message.id.startswith("msg_")
    path = "/v1beta/models/gemini-3-pro:streamGenerateContent?alt=sse"
    assert {request["path"] for request in upstream.requests} <= {
        path,
        path.replace("v1beta", "v1"),
    }
    assert {request["headers"]["x-goog-api-key"] for request in upstream.requests} == {"secret"}


def test_ids_have_the_format_of_their_protocol_and_are_unique(claude, gpt):
    messages = [{"role": "user", "content": "hello"}]
    asks = {
        "msg_": lambda: claude.messages.create(model=MODEL, max_tokens=99, messages=messages),
        "chatcmpl-": lambda: gpt.chat.completions.create(model=MODEL, messages=messages),
        "resp_": lambda: gpt.responses.create(model=MODEL, input="hello"),
    }
    for prefix, ask in asks.items():
        ids = {ask().id for _ in range(2)}
        assert len(ids) == 2
        assert all(id.startswith(prefix) for id in ids)


def test_anthropics_tool_runner_completes(claude):
    ran = []

    @anthropic.beta_tool
    def weather_of(city: str) -> str:
        """Look up the weather."""
        ran.append(city)
        return weather(city)

    messages = [{"role": "user", "content": ASK}]
    arguments = {"model": MODEL, "max_tokens": 500, "tools": [weather_of], "messages": messages}
    final = claude.beta.messages.tool_runner(**arguments).until_done()
    assert ran == ["Paris"]
    assert ANSWER in final.content[0].text


def test_a_conversation_stored_by_the_server_is_continued_by_id(gateway, gpt):
    first = gpt.responses.create(model=MODEL, instructions="Be brief.", input="I keep two cats.")
    arguments = {"model": MODEL, "input": "How many cats?", "previous_response_id": first.id}
    second = gpt.responses.with_raw_response.create(**arguments)
    assert "two cats" in second.parse().output_text
    with weft.thread.open(gateway.store, second.headers["x-weft-thread"]) as thread:
        roles = [message.role for message in thread.compile().messages]
    assert roles[-4:] == ["user", "assistant", "user", "assistant"]
    with pytest.raises(openai.BadRequestError, match="resp_unknown"):
        gpt.responses.create(model=MODEL, input="x", previous_response_id="resp_unknown")


def test_text_arrives_in_deltas(claude, gpt):
    message = [{"role": "user", "content": "hello"}]
    with claude.messages.stream(model=MODEL, max_tokens=500, messages=message) as stream:
        words = list(stream.text_stream)
    chunks = gpt.chat.completions.create(model=MODEL, messages=message, stream=True)
    deltas = [chunk.choices[0].delta.content for chunk in chunks]  # every chunk has a choice
    events = gpt.responses.create(model=MODEL, input="hello", stream=True)
    texts = [event.delta for event in events if event.type == "response.output_text.delta"]
    assert len(words) > 10
    assert "".join(words) == "".join(filter(None, deltas)) == "".join(texts)


def test_tokens_are_counted_and_models_are_listed(claude, gpt):
    message = [{"role": "user", "content": "hello"}]
    assert claude.messages.count_tokens(model=MODEL, messages=message).input_tokens > 0
    assert MODEL in [model.id for model in claude.models.list()]
    assert MODEL in [model.id for model in gpt.models.list()]


def test_a_conversation_can_change_its_protocol_and_stays_one_thread(gateway, claude, gpt):
    messages = [{"role": "user", "content": "I keep two cats, and it is Sunday."}]
    first = claude.messages.with_raw_response.create(model=MODEL, max_tokens=500, messages=messages)
    text = first.parse().content[0].text
    messages += [
        {"role": "assistant", "content": text},
        {"role": "user", "content": "How many cats?"},
    ]
    second = gpt.chat.completions.with_raw_response.create(model=MODEL, messages=messages)
    name = first.headers["x-weft-thread"]
    assert second.headers["x-weft-thread"] == name
    with weft.thread.open(gateway.store, name) as thread:
        assert len(thread.compile().messages) == 4


@pytest.mark.parametrize(
    ("ask", "error"),
    [
        (
            lambda claude, _: ask_messages(claude, [{"role": "user", "content": 7}], False),
            anthropic.BadRequestError,
        ),
        (
            lambda _, gpt: ask_chat(gpt, [{"role": "user", "content": 7}], False),
            openai.BadRequestError,
        ),
        (
            lambda _, gpt: ask_responses(gpt, [{"role": "user", "content": 7}], False),
            openai.BadRequestError,
        ),
    ],
    ids=["messages", "chat", "responses"],
)
def test_a_wrong_body_raises_the_sdks_own_error(claude, gpt, ask, error):
    with pytest.raises(error) as raised:
        ask(claude, gpt)
    assert "content" in str(raised.value)


CUTS = {
    "anthropic": b'event: message_start\ndata: {"type":"message_start","message":{"id":"m","type":'
    b'"message","role":"assistant","model":"x","content":[],"stop_reason":null,"stop_sequence":null,'
    b'"usage":{"input_tokens":1,"output_tokens":1}}}\n\nevent: content_block_start\ndata: {"type":'
    b'"content_block_start","index":0,"content_block":{"type":"text","text":""}}\n\nevent: '
    b'content_block_delta\ndata: {"type":"content_block_delta","index":0,"delta":{"type":'
    b'"text_delta","text":"half"}}\n\n',
    "openai-chat": b'data: {"id":"c","object":"chat.completion.chunk","created":1,"model":"x",'
    b'"choices":[{"index":0,"delta":{"role":"assistant","content":"half"},'
    b'"finish_reason":null}]}\n\n',
    "openai-responses": b'event: response.created\ndata: {"type":'
    b'"response.created","sequence_number":0,'
    b'"response":{"id":"r","object":"response","created_at":1,"status":"in_progress","model":"x",'
    b'"output":[],"parallel_tool_calls":true,"tool_choice":"auto","tools":[]}}\n\n',
}


def stream_messages(url):
    with anthropic.Anthropic(base_url=url, api_key="k", max_retries=0) as client:
        ask_messages(client, [{"role": "user", "content": "hi"}], True, model="x")


def stream_chat(url):
    with openai.OpenAI(base_url=f"{url}/v1", api_key="k", max_retries=0) as client:
        messages = [{"role": "user", "content": "hi"}]
        for _ in client.chat.completions.create(model="x", messages=messages, stream=True):
            pass


def stream_responses(url):
    with openai.OpenAI(base_url=f"{url}/v1", api_key="k", max_retries=0) as client:
        kinds = [
            event.type for event in client.responses.create(model="x", input="hi", stream=True)
        ]
    if kinds[-1] in ("error", "response.failed"):
        raise openai.APIError("failed", request=None, body=None)  # the SDK hands it out as an event


@pytest.mark.parametrize("protocol", CUTS)
@pytest.mark.parametrize(
    ("ask", "error"),
    [
        (stream_messages, anthropic.APIError),
        (stream_chat, openai.APIError),
        (stream_responses, openai.APIError),
    ],
    ids=["messages", "chat", "responses"],
)
def test_a_truncated_upstream_answer_raises_the_sdks_own_error(tmp_path, protocol, ask, error):
    with scripted_upstream() as upstream:
        upstream.then(Scripted(CUTS[protocol], cut=True))
        flags = ("--upstream", f"up={protocol}:{upstream.url}")
        with weft_serve(tmp_path, *flags) as gateway, pytest.raises(error):
            ask(gateway.url)


def test_kill_9_after_an_answer_loses_nothing(tmp_path):
    with weft_serve(tmp_path) as gateway:
        with anthropic.Anthropic(base_url=gateway.url, api_key="k", max_retries=0) as client:
            messages = [{"role": "user", "content": "Remember the number 1234."}]
            with client.messages.stream(model=MODEL, max_tokens=500, messages=messages) as stream:
                text = "".join(stream.text_stream)
                name = stream.response.headers["x-weft-thread"]
        os.kill(gateway.process.pid, signal.SIGKILL)
        gateway.process.wait()
    with weft.thread.open(gateway.store, name) as thread:
        rows = thread.compile().to_dicts()
    assert [row["content"] for row in rows] == ["Remember the number 1234.", text]
