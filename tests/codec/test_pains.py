"""Problems that users of other gateways report: one test for each of 54, by its number.

Problems of the running gateway, and not of the protocols, are listed in `GATEWAY` with the reason.
The last test checks that none is missing.
"""

import re
from typing import Any

import orjson
import pytest

import weft
from weft.catalog import Price, cost
from weft.codec import CODECS

M, C, R, G = "anthropic", "openai-chat", "openai-responses", "gemini"
PROTOCOLS = (M, C, R, G)
Body = dict[str, Any]

GATEWAY = {
    28: "the retry without a seal that the upstream refused is the relay's; codecs never strip one",
    36: "which deployment answers a session is a matter of routing",
    44: "silence on the wire has no frame to translate: the relay keeps connections alive",
    53: "counting is `weft.tokens`, served by the gateway's count_tokens route",
    54: "headers are no part of a body: the relay passes Retry-After on",
}

NAMES = {M: "claude-sonnet-4-5", C: "gpt-4o", R: "gpt-5", G: "gemini-2.5-pro"}


def to(body: Body, source: str, target: str, **options: Any) -> Body:
    """The translated body."""
    return sent(body, source, target, **options).body


def sent(body: Body, source: str, target: str, **options: Any) -> weft.Translation:
    """A body translated for a model that speaks the target."""
    return weft.translate(body, source, target, model=NAMES[target], **options)


def there_and_back(body: Body, source: str, target: str) -> Body:
    """A body, translated to another protocol and back with its sidecar."""
    model = body.get("model") or NAMES[source]
    done = weft.translate(body, source, target, model=model)
    wire, sidecar = json_of(done.body), json_of(done.sidecar)
    return weft.translate(wire, target, source, model=model, sidecar=sidecar).body


def json_of(value: Any) -> Any:
    """A value, written as JSON and parsed again."""
    return orjson.loads(orjson.dumps(value))


def losses(body: Body, source: str, target: str, **options: Any) -> list[tuple[str, str]]:
    return [(loss.path, loss.level) for loss in sent(body, source, target, **options).losses]


def messages(*items: Body, **members: Any) -> Body:
    return {"model": "m", "max_tokens": 64, "messages": list(items), **members}


def chat(*items: Body, **members: Any) -> Body:
    return {"model": "m", "messages": list(items), **members}


def responses(*items: Body, **members: Any) -> Body:
    return {"model": "m", "input": list(items), **members}


def user(content: Any) -> Body:
    return {"role": "user", "content": content}


def assistant(content: Any, **members: Any) -> Body:
    return {"role": "assistant", "content": content, **members}


def tool_use(call_id: str, name: str = "f", **arguments: Any) -> Body:
    return {"type": "tool_use", "id": call_id, "name": name, "input": arguments}


def tool_result(call_id: str, content: Any = "ok", **members: Any) -> Body:
    return {"type": "tool_result", "tool_use_id": call_id, "content": content, **members}


def function_call(call_id: str, name: str = "f", arguments: str = "{}") -> Body:
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


def tool(call_id: str, content: str = "ok") -> Body:
    return {"role": "tool", "tool_call_id": call_id, "content": content}


def text(words: str, **members: Any) -> Body:
    return {"type": "text", "text": words, **members}


def sse(*frames: Body, done: bool = False) -> bytes:
    """The bytes of a stream, without event names: clients of Anthropic and Responses use only the
    data."""
    lines = [b"data: " + orjson.dumps(frame) + b"\n\n" for frame in frames]
    return b"".join(lines) + (b"data: [DONE]\n\n" if done else b"")


def stream(data: bytes, source: str, target: str, sidecar: Body | None = None) -> list[Body]:
    """The frames that a client of `target` reads."""
    translator = weft.StreamTranslator(source, target, sidecar)
    return frames_of(translator.feed(data) + translator.close())


def frames_of(data: bytes) -> list[Body]:
    lines = [line[6:] for line in data.split(b"\n") if line.startswith(b"data: ")]
    return [orjson.loads(line) for line in lines if line != b"[DONE]"]


def chunk(delta: Body, finish: str | None = None, **members: Any) -> Body:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return {"id": "c1", "object": "chat.completion.chunk", "model": "m", "choices": [choice]} | (
        members
    )


def call_delta(index: int, **members: Any) -> Body:
    return {"tool_calls": [{"index": index, **members}]}


def answer(*content: Body, stop: str = "end_turn", **usage: int) -> Body:
    return {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "claude-x",
        "content": list(content),
        "stop_reason": stop,
        "stop_sequence": None,
        "usage": {"input_tokens": 10, "output_tokens": 5, **usage},
    }


def completion(message: Body, finish: str = "stop") -> Body:
    choice = {"index": 0, "message": {"role": "assistant", **message}, "finish_reason": finish}
    return {"id": "c1", "object": "chat.completion", "created": 1, "model": "m"} | {
        "choices": [choice]
    }


def response(*output: Body, status: str = "completed", **members: Any) -> Body:
    return {"id": "r1", "object": "response", "created_at": 1, "model": "m", "status": status} | {
        "output": list(output),
        **members,
    }


def gemini_answer(*parts: Body, finish: str = "STOP") -> Body:
    content = {"role": "model", "parts": list(parts)}
    return {"candidates": [{"content": content, "finishReason": finish}], "responseId": "g1"}


# System, roles, empty content


def test_pain_01_leading_system_messages_become_system_blocks() -> None:
    body = chat(
        {"role": "system", "content": "A"},
        {"role": "developer", "content": [text("B1"), text("B2")]},
        user("hi"),
    )
    done = to(body, C, M)
    assert done["system"] == [text("A"), text("B1"), text("B2")]
    assert done["messages"] == [user("hi")]


@pytest.mark.parametrize(
    ("model", "role"),
    [("claude-opus-4-8", "system"), ("claude-opus-4-7", "user"), ("claude-unknown", "system")],
)
def test_pain_02_a_later_system_message_does_not_change_the_prefix(model: str, role: str) -> None:
    head = [{"role": "system", "content": "S"}, user("a"), assistant("b"), user("c")]
    tools = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}]
    short = weft.translate(chat(*head, tools=tools), C, M, model=model).body
    later = {"role": "system", "content": "R"}
    long = weft.translate(chat(*head, later, tools=tools), C, M, model=model).body
    for part in ("tools", "system"):
        assert orjson.dumps(short[part]) == orjson.dumps(long[part])
    whole, longer = orjson.dumps(short["messages"]), orjson.dumps(long["messages"])
    assert longer.startswith(whole[:-1])
    assert long["messages"][-1]["role"] == role


def test_pain_03_nothing_is_between_a_call_and_its_result() -> None:
    calling = assistant(None, tool_calls=[function_call("t1")])
    system = {"role": "system", "content": "R"}
    body = chat(user("a"), calling, system, tool("t1"))
    done = weft.translate(body, C, M, model="claude-opus-5").body
    assert [message["role"] for message in done["messages"]] == [
        "user",
        "assistant",
        "user",
        "system",
    ]
    assert done["messages"][2]["content"][0]["tool_use_id"] == "t1"


def test_pain_03_neighbours_keep_their_order_and_system_messages_are_allowed_there() -> None:
    one, two = {"role": "system", "content": "1"}, {"role": "system", "content": "2"}
    done = weft.translate(chat(user("a"), one, two), C, M, model="claude-opus-5").body
    assert [m["content"][0]["text"] for m in done["messages"][1:]] == ["1", "2"]
    done = to(chat(user("a"), assistant("b"), one, assistant("c"), user("d")), C, M)
    assert [m["role"] for m in done["messages"]] == [
        "user",
        "assistant",
        "user",
        "assistant",
        "user",
    ]


@pytest.mark.parametrize("target", [C, R])
def test_pain_04_a_later_system_message_stays_towards_openai(target: str) -> None:
    body = messages(user("hi"), {"role": "system", "content": "REMINDER"}, system="S")
    done = to(body, M, target)
    listed = done["messages"][1:] if target == C else done["input"]
    assert listed[1]["role"] in ("system", "developer")
    assert listed[1]["content"] == "REMINDER"


def test_pain_05_block_boundaries_survive() -> None:
    body = messages(
        user("hi"),
        system=[text("S1"), text("S2", cache_control={"type": "ephemeral"})],
    )
    done = to(body, M, C)
    assert done["messages"][0] == {"role": "system", "content": [text("S1"), text("S2")]}
    assert there_and_back(body, M, C) == body


@pytest.mark.parametrize(
    ("source", "body", "param", "name"),
    [
        (
            C,
            chat(
                {
                    "role": "system",
                    "content": [{"type": "image_url", "image_url": {"url": "https://x"}}],
                }
            ),
            "messages[0].content[0]",
            "image_url",
        ),
        (
            R,
            responses(
                {
                    "role": "developer",
                    "content": [{"type": "input_image", "image_url": "https://x"}],
                }
            ),
            "input[0].content[0]",
            "input_image",
        ),
    ],
)
def test_pain_06_non_text_system_content_is_refused_by_name(
    source: str, body: Body, param: str, name: str
) -> None:
    with pytest.raises(weft.Refused) as refused:
        to(body, source, M)
    assert (refused.value.status, refused.value.param) == (400, param)
    assert name in refused.value.message


def test_pain_07_developer_and_system_are_restored() -> None:
    body = chat(
        {"role": "developer", "content": "D"}, {"role": "system", "content": "S"}, user("hi")
    )
    assert there_and_back(body, C, M) == body


def test_pain_08_the_billing_line_goes_only_to_its_own_vendor() -> None:
    line = text("x-anthropic-billing-header: cc_version=1; cch=abc")
    body = messages(user("hi"), system=[line, text("S")])
    for target in (C, R, G):
        done = sent(body, M, target)
        assert "billing" not in orjson.dumps(done.body).decode()
        assert ("system[0]", "form") in [(loss.path, loss.level) for loss in done.losses]
        assert there_and_back(body, M, target) == body
    assert weft.translate(orjson.dumps(body), M, M).body == orjson.dumps(
        orjson.loads(weft.translate(orjson.dumps(body), M, M).body)
    )
    assert to(body, M, M)["system"] == [line, text("S")]


def test_pain_08_a_prompt_that_was_joined_to_the_billing_line_stays() -> None:
    joined = "x-anthropic-billing-header: cc_version=1;\n\nYou are S."
    for body, source, targets in (
        (messages(user("hi"), system=[text(joined)]), M, (C, R, G)),
        (messages(user("hi"), system=joined), M, (C, R, G)),
        (chat({"role": "system", "content": joined}, user("hi")), C, (M, R, G)),
    ):
        for target in targets:
            done = sent(body, source, target)
            written = orjson.dumps(done.body).decode()
            assert "You are S." in written
            assert "billing" not in written
            assert "billing_line_dropped" in [loss.code for loss in done.losses]
            assert there_and_back(body, source, target) == body


def test_pain_09_empty_text_is_never_sent_to_anthropic() -> None:
    calling = assistant("", tool_calls=[function_call("t1")])
    done = to(chat(user("a"), calling, tool("t1")), C, M)
    assert [block["type"] for block in done["messages"][1]["content"]] == ["tool_use"]
    empty = chat(user(""))
    assert ("messages[0]", "meaning") in losses(empty, C, M)
    assert to(empty, C, M)["messages"][0]["content"]
    with pytest.raises(weft.Refused, match=re.escape("messages[0]")):
        to(empty, C, M, strict=True)


def test_pain_10_a_model_without_prefill_gets_no_trailing_assistant_message() -> None:
    body = responses(user("a"), {"role": "assistant", "content": "b"})
    newer = weft.translate(body, R, M, model="claude-opus-4-8")
    assert newer.body["messages"][-1]["role"] == "user"
    assert any(loss.level != "form" for loss in newer.losses)
    older = weft.translate(body, R, M, model="claude-sonnet-4-5")
    assert older.body["messages"][-1] == {"role": "assistant", "content": "b"}


# Tools


def test_pain_11_results_come_first_and_the_order_is_restored() -> None:
    body = messages(
        user("a"), assistant([tool_use("t1")]), user([text("T"), tool_result("t1")]), max_tokens=9
    )
    done = to(body, M, C)
    assert done["messages"][2:] == [tool("t1"), user([text("T")])]
    assert there_and_back(body, M, C) == body
    through = weft.translate(done, C, M).body["messages"][2:]
    assert [block["type"] for m in through for block in m["content"]] == ["tool_result", "text"]


def test_pain_12_an_unpaired_id_is_never_emitted() -> None:
    calls = [function_call("t1"), function_call("t2")]
    body = chat(user("a"), assistant(None, tool_calls=calls), tool("t1"), user("go on"))
    done = sent(body, C, M)
    results = done.body["messages"][2]["content"]
    assert [block["tool_use_id"] for block in results] == ["t1", "t2"]
    assert results[1]["is_error"] is True
    assert [loss.path for loss in done.losses if loss.level != "form"] == [
        "messages[1].tool_calls[1]"
    ]
    orphan = to(chat(user("a"), assistant("b"), tool("t9", "late")), C, M)
    assert "tool_result" not in orjson.dumps(orphan).decode()
    assert "late" in orjson.dumps(orphan).decode()


def test_pain_12_the_last_of_two_results_is_used_and_ids_can_be_reused() -> None:
    doubled = [tool_result("t1", "first"), tool_result("t1", "second")]
    body = messages(user("a"), assistant([tool_use("t1")]), user(doubled))
    done = sent(body, M, C)
    assert done.body["messages"][2] == tool("t1", "second")
    assert "first" in done.body["messages"][3]["content"][0]["text"]
    assert any(loss.path == "messages[2].content[0]" for loss in done.losses)
    again = messages(
        user("a"),
        assistant([tool_use("t1")]),
        user([tool_result("t1", "one")]),
        assistant([tool_use("t1")]),
        user([tool_result("t1", "two")]),
    )
    assert [m["content"] for m in to(again, M, C)["messages"] if m["role"] == "tool"] == [
        "one",
        "two",
    ]


IDS = [
    "functions.Bash:0",
    "call:a",
    "call_a",
    "call.a",
    weft.translate(
        chat(user("a"), assistant(None, tool_calls=[function_call("call:a")]), tool("call:a")), C, M
    ).body["messages"][1]["content"][0]["id"],
    "x" * 80,
    "x" * 79 + "y",
]


@pytest.mark.parametrize(
    ("target", "longest", "pattern"),
    [(M, 256, r"[a-zA-Z0-9_-]+"), (R, 64, r".+"), (C, 40, r".+")],
)
def test_pain_13_ids_become_valid_and_stay_distinct(
    target: str, longest: int, pattern: str
) -> None:
    source = R if target == C else C
    if source == C:
        calling = assistant(None, tool_calls=[function_call(i) for i in IDS])
        body = chat(user("a"), calling, *(tool(i) for i in IDS))
    else:
        body = responses(
            user("a"),
            *({"type": "function_call", "call_id": i, "name": "f", "arguments": "{}"} for i in IDS),
            *({"type": "function_call_output", "call_id": i, "output": "ok"} for i in IDS),
        )
    done = to(body, source, target)
    ids = re.findall(rb'"(?:id|call_id|tool_use_id|tool_call_id)":"([^"]+)"', orjson.dumps(done))
    calls, results = ids[: len(IDS)], ids[len(IDS) :]
    assert calls == results
    assert len(set(calls)) == len(IDS)
    for call_id in calls:
        assert len(call_id) <= longest
        assert re.fullmatch(pattern, call_id.decode())
    assert to(body, source, target) == done
    assert there_and_back(body, source, target) == body


NAMESPACE = {
    "type": "namespace",
    "name": "mcp__x",
    "description": "",
    "tools": [
        {"type": "function", "name": "js", "parameters": {"type": "object"}},
        {"type": "function", "name": "n" * 70, "parameters": {"type": "object"}},
    ],
}


def tool_names(body: Body, target: str) -> list[str]:
    match target:
        case "anthropic":
            return [tool["name"] for tool in body["tools"]]
        case "openai-chat":
            return [tool[tool["type"]]["name"] for tool in body["tools"]]
        case _:
            return [tool["name"] for tool in body["tools"][0]["functionDeclarations"]]


@pytest.mark.parametrize("target", [C, M, G])
def test_pain_14_namespaces_are_flattened_and_restored(target: str) -> None:
    plain = {"type": "function", "name": "mcp__x__js", "parameters": {"type": "object"}}
    history = [
        user("a"),
        {"type": "function_call", "call_id": "c1", "name": "js", "namespace": "mcp__x"}
        | {"arguments": "{}"},
        {"type": "function_call_output", "call_id": "c1", "output": "ok"},
    ]
    body = responses(*history, tools=[NAMESPACE])
    done = sent(body, R, target)
    names = tool_names(done.body, target)
    assert names[0] == "mcp__x__js"
    assert all(re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", name) for name in names)
    assert b'"name":"mcp__x__js"' in orjson.dumps(done.body.get("messages", done.body))
    assert there_and_back(body, R, target) == body
    taken = tool_names(to(responses(*history, tools=[plain, NAMESPACE]), R, target), target)
    assert len(set(taken)) == 3
    assert taken[0] == "mcp__x__js"


@pytest.mark.parametrize("upstream", [C, M, G])
def test_pain_14_a_call_is_restored_by_name_and_namespace(upstream: str) -> None:
    request = sent(responses(user("a"), tools=[NAMESPACE]), R, upstream)
    name = tool_names(request.body, upstream)[1]
    answer_body = {
        C: completion({"content": None, "tool_calls": [function_call("c1", name, '{"a":1}')]}),
        M: answer(tool_use("c1", name, a=1), stop="tool_use"),
        G: gemini_answer({"functionCall": {"name": name, "args": {"a": 1}, "id": "c1"}}),
    }[upstream]
    done = weft.translate_response(answer_body, upstream, R, sidecar=json_of(request.sidecar))
    (call,) = done.body["output"]
    assert (call["type"], call["name"], call["namespace"]) == ("function_call", "n" * 70, "mcp__x")
    assert orjson.loads(call["arguments"]) == {"a": 1}


def test_pain_14_a_choice_names_the_flattened_tool() -> None:
    choice = {"type": "function", "name": "js"}
    body = responses(user("a"), tools=[NAMESPACE], tool_choice=choice)
    assert to(body, R, M)["tool_choice"] == {"type": "tool", "name": "mcp__x__js"}


PATCH = {
    "type": "custom",
    "name": "apply_patch",
    "description": "Edits files.",
    "format": {"type": "grammar", "syntax": "lark", "definition": 'start: "x"'},
}
RAW = '*** Begin\n+say("\\u00e9\\n") é 🎉 \\ end'


@pytest.mark.parametrize("target", [C, M, G])
def test_pain_15_a_freeform_tool_becomes_a_function_with_its_grammar_quoted(target: str) -> None:
    body = responses(
        user("a"),
        {"type": "custom_tool_call", "call_id": "c1", "name": "apply_patch", "input": RAW},
        {"type": "custom_tool_call_output", "call_id": "c1", "output": "ok"},
        tools=[PATCH],
        tool_choice={"type": "custom", "name": "apply_patch"},
    )
    done = to(body, R, target)
    definition = done["tools"][0]
    definition = definition.get("function") or definition.get("functionDeclarations") or definition
    definition = definition[0] if isinstance(definition, list) else definition
    assert definition["description"].startswith("Edits files.")
    assert 'start: "x"' in definition["description"]
    schema = next(definition[key] for key in definition if "arameters" in key or "schema" in key)
    assert schema["required"] == ["input"]
    assert there_and_back(body, R, target) == body


def test_pain_15_a_chat_model_with_freeform_tools_keeps_them() -> None:
    body = responses(user("a"), tools=[PATCH])
    (content,) = weft.translate(body, R, C, model="gpt-5").body["tools"]
    assert content["type"] == "custom"
    assert content["custom"]["description"] == "Edits files."
    assert content["custom"]["format"]["grammar"]["definition"] == 'start: "x"'


@pytest.mark.parametrize("upstream", [C, M, G])
def test_pain_15_its_call_is_restored_byte_for_byte(upstream: str) -> None:
    request = sent(responses(user("a"), tools=[PATCH]), R, upstream)
    wrapped = orjson.dumps({"input": RAW}).decode()
    answer_body = {
        C: completion(
            {"content": None, "tool_calls": [function_call("c1", "apply_patch", wrapped)]}
        ),
        M: answer(tool_use("c1", "apply_patch", input=RAW), stop="tool_use"),
        G: gemini_answer({"functionCall": {"name": "apply_patch", "args": {"input": RAW}}}),
    }[upstream]
    done = weft.translate_response(answer_body, upstream, R, sidecar=json_of(request.sidecar))
    (call,) = done.body["output"]
    assert (call["type"], call["name"], call["input"]) == ("custom_tool_call", "apply_patch", RAW)


@pytest.mark.parametrize("size", [1, 3, 7, 1000])
def test_pain_15_its_call_is_restored_in_a_stream(size: int) -> None:
    request = sent(responses(user("a"), tools=[PATCH]), R, C)
    # Some servers escape every character that is not ASCII.
    wrapped = '{"input": "' + RAW.encode("unicode_escape").decode().replace('"', '\\"') + '"}'
    wrapped = wrapped.replace("\\xe9", "\\u00e9").replace("\\U0001f389", "\\ud83c\\udf89")
    assert orjson.loads(wrapped)["input"] == RAW
    pieces = [wrapped[at : at + size] for at in range(0, len(wrapped), size)]
    opening = call_delta(
        0, id="c1", type="function", function={"name": "apply_patch", "arguments": ""}
    )
    data = sse(
        chunk({"role": "assistant"}),
        chunk(opening),
        *(chunk(call_delta(0, function={"arguments": piece})) for piece in pieces),
        chunk({}, "tool_calls"),
        done=True,
    )
    frames = stream(data, C, R, json_of(request.sidecar))
    deltas = [f["delta"] for f in frames if f["type"] == "response.custom_tool_call_input.delta"]
    (done,) = [f["input"] for f in frames if f["type"] == "response.custom_tool_call_input.done"]
    assert "".join(deltas) == done == RAW
    assert size > 900 or len(deltas) > 3
    assert frames[-1]["response"]["output"][0]["input"] == RAW


def test_pain_16_interleaved_parallel_calls_stay_separate() -> None:
    data = sse(
        chunk(call_delta(0, id="a", type="function", function={"name": "f", "arguments": ""})),
        chunk(call_delta(1, id="b", type="function", function={"name": "g", "arguments": ""})),
        chunk(call_delta(0, function={"arguments": '{"x":'})),
        chunk(call_delta(1, function={"arguments": '{"y":'})),
        chunk(call_delta(0, function={"arguments": "1}"})),
        chunk(call_delta(1, function={"arguments": "2}"})),
        chunk({}, "tool_calls"),
        done=True,
    )
    frames = stream(data, C, M)
    order = [(f["type"], f["index"]) for f in frames if "index" in f]
    starts = [entry for entry in order if entry[0] == "content_block_start"]
    assert [number for _, number in starts] == [0, 1]
    for number in (0, 1):
        mine = [kind for kind, at in order if at == number]
        assert mine[0] == "content_block_start"
        assert mine[-1] == "content_block_stop"
        assert mine.count("content_block_start") == mine.count("content_block_stop") == 1
        pieces = [
            f["delta"]["partial_json"]
            for f in frames
            if f["type"] == "content_block_delta" and f["index"] == number
        ]
        assert orjson.loads("".join(pieces)) == ({"x": 1}, {"y": 2})[number]


def test_pain_16_a_server_that_numbers_every_call_zero() -> None:
    data = sse(
        chunk(call_delta(0, id="a", type="function", function={"name": "f", "arguments": "{}"})),
        chunk(call_delta(0, id="b", type="function", function={"name": "g", "arguments": "{}"})),
        chunk({}, "tool_calls"),
        done=True,
    )
    starts = [f for f in stream(data, C, M) if f["type"] == "content_block_start"]
    assert [f["content_block"]["name"] for f in starts] == ["f", "g"]


def test_pain_17_gemini_gets_all_results_in_one_turn_in_call_order() -> None:
    calls = [function_call("a", "f"), function_call("b", "g")]
    body = chat(user("x"), assistant(None, tool_calls=calls), tool("b", "B"), tool("a", "A"))
    (parts,) = [c["parts"] for c in to(body, C, G)["contents"][2:]]
    assert [part["functionResponse"]["name"] for part in parts] == ["f", "g"]


def test_pain_18_empty_arguments_are_an_empty_object() -> None:
    body = chat(user("a"), assistant(None, tool_calls=[function_call("t1", "f", "")]), tool("t1"))
    assert to(body, C, M)["messages"][1]["content"][0]["input"] == {}
    start = {"type": "message_start", "message": answer()}
    block = {"type": "content_block_start", "index": 0, "content_block": tool_use("t1")}
    empty = {"type": "input_json_delta", "partial_json": ""}
    data = sse(
        start,
        block,
        {"type": "content_block_delta", "index": 0, "delta": empty},
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {}},
        {"type": "message_stop"},
    )
    calls = [
        call
        for frame in stream(data, M, C)
        for choice in frame["choices"]
        for call in choice["delta"].get("tool_calls", ())
    ]
    assert "".join(call["function"]["arguments"] for call in calls) == "{}"


@pytest.mark.parametrize("target", [C, R])
def test_pain_19_a_failed_tool_is_reported_and_restored(target: str) -> None:
    failed = tool_result("t1", "boom", is_error=True)
    body = messages(user("a"), assistant([tool_use("t1")]), user([failed]))
    assert ("messages[2].content[0]", "meaning") in losses(body, M, target)
    assert there_and_back(body, M, target) == body
    with pytest.raises(weft.Refused, match=re.escape("messages[2].content[0]")):
        to(body, M, target, strict=True)


def test_pain_19_gemini_results_mark_a_failed_tool() -> None:
    failed = tool_result("t1", "boom", is_error=True)
    body = messages(user("a"), assistant([tool_use("t1")]), user([failed]))
    (part,) = to(body, M, G)["contents"][2]["parts"]
    assert part["functionResponse"]["response"] == {"error": "boom"}


@pytest.mark.parametrize("target", [C, R])
def test_pain_20_the_parallel_calls_setting_is_translated(target: str) -> None:
    choice = {"type": "auto", "disable_parallel_tool_use": True}
    tools = [{"name": "f", "input_schema": {"type": "object"}}]
    body = messages(user("a"), tools=tools, tool_choice=choice)
    done = to(body, M, target)
    assert done["parallel_tool_calls"] is False
    assert weft.translate(done, target, M).body["tool_choice"] == choice


def test_pain_21_a_server_tool_is_never_a_function() -> None:
    search = {"type": "web_search_20250305", "name": "web_search", "max_uses": 3}
    choice = {"type": "tool", "name": "web_search"}
    body = messages(user("a"), tools=[search], tool_choice=choice)
    assert to(body, M, R)["tools"] == [{"type": "web_search"}]
    assert ("tools[0].max_uses", "meaning") in losses(body, M, R)
    done = sent(body, M, C)
    assert "tools" not in done.body
    assert "tool_choice" not in done.body
    assert {"tools[0]", "tool_choice"} <= {loss.path for loss in done.losses}
    for target in (C, R, G):
        assert there_and_back(body, M, target) == body


@pytest.mark.parametrize("target", [C, R, G])
def test_pain_22_text_beside_a_result_follows_it(target: str) -> None:
    turn = user([tool_result("t1"), text("now fix it")])
    written = orjson.dumps(to(messages(user("a"), assistant([tool_use("t1")]), turn), M, target))
    assert 0 < written.index(b'"ok"') < written.index(b"now fix it")


# Reasoning state


THOUGHTS = [
    {"type": "thinking", "thinking": "one", "signature": "s1"},
    tool_use("t1"),
    {"type": "thinking", "thinking": "", "signature": "s2"},
    {"type": "redacted_thinking", "data": "sealed"},
    tool_use("t2"),
]


@pytest.mark.parametrize("client", [C, R, G])
@pytest.mark.parametrize("whole", [True, False])
def test_pain_23_24_25_signed_thinking_round_trips(client: str, whole: bool) -> None:
    translated = weft.translate_response(answer(*THOUGHTS, stop="tool_use"), M, client)
    request = echo(translated.body, client, whole=whole)
    done = weft.translate(request, client, M, model="claude-x", sidecar=json_of(translated.sidecar))
    assert done.body["messages"][1]["content"] == THOUGHTS


def echo(body: Body, client: str, *, whole: bool) -> Body:
    """The next request of a client that got this answer and ran its tools."""
    match client:
        case "openai-chat":
            texts = body["choices"][0]["message"]
            echoed = texts if whole else {k: texts[k] for k in ("role", "content", "tool_calls")}
            return chat(user("a"), echoed, *(tool(call["id"]) for call in texts["tool_calls"]))
        case "openai-responses":
            calls = [item for item in body["output"] if item["type"] == "function_call"]
            echoed = calls
            if not whole:
                echoed = [
                    {k: v for k, v in call.items() if k not in ("id", "status")} for call in calls
                ]
            items = body["output"] if whole else echoed
            results = [
                {"type": "function_call_output", "call_id": call["call_id"], "output": "ok"}
                for call in calls
            ]
            return responses(user("a"), *items, *results)
        case _:
            content = body["candidates"][0]["content"]
            calls = [p["functionCall"] for p in content["parts"] if "functionCall" in p]
            results = [
                {
                    "functionResponse": {
                        "name": call["name"],
                        "id": call["id"],
                        "response": {"output": "ok"},
                    }
                }
                for call in calls
            ]
            if not whole:
                content = {"role": "model", "parts": [{"functionCall": call} for call in calls]}
            first = {"role": "user", "parts": [{"text": "a"}]}
            return {"contents": [first, content, {"role": "user", "parts": results}]}


@pytest.mark.parametrize("target", [C, R, G])
def test_pain_24_requests_keep_several_thinking_blocks_in_order(target: str) -> None:
    results = user([tool_result("t1"), tool_result("t2")])
    body = messages(user("a"), assistant(THOUGHTS), results)
    assert there_and_back(body, M, target) == body


@pytest.mark.parametrize("target", [M, R, G])
def test_pain_25_a_signature_without_text_is_kept_for_its_vendor(target: str) -> None:
    body = messages(user("a"), assistant([THOUGHTS[2], text("b")]), user("c"))
    assert to(body, M, M)["messages"][1]["content"][0] == THOUGHTS[2]
    assert there_and_back(body, M, target) == body


@pytest.mark.parametrize("target", [C, R, G])
def test_pain_26_another_vendors_signature_is_not_sent(target: str) -> None:
    body = messages(user("a"), assistant([THOUGHTS[0], text("b")]), user("c"))
    done = sent(body, M, target)
    assert b"s1" not in orjson.dumps(done.body)
    assert "messages[1].content[0]" in {loss.path for loss in done.losses}


@pytest.mark.parametrize("client", [M, C, R])
def test_pain_27_gemini_signatures_are_kept_for_clients_that_cannot_store_them(
    client: str,
) -> None:
    call = {"functionCall": {"name": "f", "args": {"a": 1}}, "thoughtSignature": "SIG"}
    translated = weft.translate_response(gemini_answer(call), G, client)
    if client == M:
        (use,) = translated.body["content"]
        plain = {key: use[key] for key in ("type", "id", "name", "input")}
        request = messages(user("a"), assistant([plain]), user([tool_result(use["id"])]))
    else:
        request = echo(translated.body, client, whole=False)
    done = weft.translate(
        request, client, G, model="gemini-3-pro", sidecar=json_of(translated.sidecar)
    )
    assert done.body["contents"][1] == {"role": "model", "parts": [call]}
    assert "id" not in done.body["contents"][2]["parts"][0]["functionResponse"]
    cold = weft.translate(request, client, G, model="gemini-3-pro").body
    assert cold["contents"][1]["parts"][0]["thoughtSignature"] == "skip_thought_signature_validator"


def test_pain_28_encrypted_reasoning_goes_only_to_its_vendor() -> None:
    sealed = {"type": "reasoning", "id": "rs1", "summary": [], "encrypted_content": "ENC"}
    body = responses(user("a"), sealed, {"role": "assistant", "content": "b"}, user("c"))
    assert to(body, R, R)["input"][1] == sealed
    for target in (M, C, G):
        done = sent(body, R, target)
        assert b"ENC" not in orjson.dumps(done.body)
        assert "input[1]" in {loss.path for loss in done.losses}


@pytest.mark.parametrize("target", [M, C, G])
def test_pain_29_reasoning_stays_next_to_its_call(target: str) -> None:
    body = responses(
        user("a"),
        {"type": "reasoning", "id": "rs1", "summary": [], "encrypted_content": "E"},
        {"type": "function_call", "id": "fc1", "call_id": "c1", "name": "f", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c1", "output": "ok"},
    )
    assert there_and_back(body, R, target) == body


@pytest.mark.parametrize("target", [M, R, G])
def test_pain_30_reasoning_content_is_echoed_on_the_tool_turn(target: str) -> None:
    calling = assistant(
        "", reasoning_content="because", tool_calls=[function_call("t1", "f", '{"a":1}')]
    )
    body = chat(user("a"), calling, tool("t1"))
    assert there_and_back(body, C, target) == body
    translated = weft.translate_response(
        completion({k: calling[k] for k in calling if k != "role"}, "tool_calls"), C, M
    )
    request = messages(user("a"), assistant([tool_use("t1", a=1)]), user([tool_result("t1")]))
    done = weft.translate(request, M, C, sidecar=json_of(translated.sidecar))
    assert done.body["messages"][1]["reasoning_content"] == "because"


@pytest.mark.parametrize("target", [C, R, G])
def test_pain_31_thinking_is_never_visible_output(target: str) -> None:
    thought = {"type": "thinking", "thinking": "secret plan", "signature": "S"}
    body = messages(user("a"), assistant([thought, text("b")]), user("c"))
    assert b"secret plan" not in orjson.dumps(to(body, M, target))
    translated = weft.translate_response(answer(thought, text("b")), M, target).body
    shown = {
        C: lambda: translated["choices"][0]["message"]["content"],
        R: lambda: [i["content"] for i in translated["output"] if i["type"] == "message"],
        G: lambda: [
            p for p in translated["candidates"][0]["content"]["parts"] if not p.get("thought")
        ],
    }[target]()
    assert "secret plan" not in str(shown)


# The prompt cache


HOUR = {"type": "ephemeral", "ttl": "1h"}
PIXEL = {"type": "base64", "media_type": "image/png", "data": "AAAA"}
PDF = {"type": "base64", "media_type": "application/pdf", "data": "BBBB"}


@pytest.mark.parametrize(
    "turn",
    [
        user([text("x", cache_control=HOUR)]),
        user([{"type": "image", "source": PIXEL, "cache_control": HOUR}]),
        user([{"type": "document", "source": PDF, "cache_control": HOUR}]),
        user([tool_result("t1", cache_control=HOUR)]),
        user([tool_result("t1", [text("x", cache_control=HOUR)])]),
        assistant([{**tool_use("t2"), "cache_control": HOUR}]),
    ],
)
def test_pain_32_34_a_cache_mark_survives_in_any_position(turn: Body) -> None:
    head = [user("a"), assistant([tool_use("t1")])]
    tail = [] if turn["role"] == "user" else [user([tool_result("t2")])]
    closing = [user([tool_result("t1")])] if turn["role"] != "user" else []
    body = messages(*head, *closing, turn, *tail)
    assert to(body, M, M)["messages"] == body["messages"]
    for target in (C, R, G):
        assert there_and_back(body, M, target) == body
        assert any(level == "form" for _, level in losses(body, M, target))


def test_pain_32_marks_on_tools_system_and_the_request() -> None:
    body = messages(
        user("a"),
        system=[text("s", cache_control=HOUR)],
        tools=[{"name": "f", "input_schema": {"type": "object"}, "cache_control": HOUR}],
        cache_control=HOUR,
    )
    assert to(body, M, M) == {**body, "model": NAMES[M]}
    for target in (C, R, G):
        assert there_and_back(body, M, target) == body


def test_pain_33_the_last_four_of_six_marks_stay() -> None:
    mark = {"type": "ephemeral"}
    parts = [text(str(at), cache_control=mark) for at in range(4)]
    tools = [{"name": "f", "input_schema": {"type": "object"}, "cache_control": mark}]
    body = messages(user(parts), tools=tools, system=[text("s", cache_control=mark)])
    done = sent(body, M, M)
    assert "cache_control" not in done.body["tools"][0]
    assert "cache_control" not in done.body["system"][0]
    assert all("cache_control" in part for part in done.body["messages"][0]["content"])
    assert [loss.path for loss in done.losses] == [
        "tools[0].cache_control",
        "system[0].cache_control",
    ]


def test_pain_35_the_same_input_gives_the_same_bytes() -> None:
    body = orjson.dumps(
        chat(
            user("é 🎉"),
            assistant(None, tool_calls=[function_call("t1", "f", '{"b":1.0,"a":[1e3]}')]),
            tool("t1"),
        )
    )
    first = weft.translate(body, C, M, model="claude-x").body
    assert first == weft.translate(body, C, M, model="claude-x").body
    assert b'{"b":1.0,"a":[1e3]}' in first
    assert "é 🎉".encode() in first
    assert weft.translate(body, C, C).body.count(b'{\\"b\\":1.0,\\"a\\":[1e3]}') == 1


# Media


def test_pain_37_an_image_in_a_result_stays_an_image() -> None:
    result = tool_result("t1", [text("look"), {"type": "image", "source": PIXEL}])
    body = messages(user("a"), assistant([tool_use("t1")]), user([result]))
    output = to(body, M, R)["input"][-1]["output"]
    assert output == [
        {"type": "input_text", "text": "look"},
        {"type": "input_image", "image_url": "data:image/png;base64,AAAA"},
    ]
    texts, shown = to(body, M, C)["messages"][2:]
    assert texts["role"] == "tool"
    assert "t1" in shown["content"][0]["text"]
    assert shown["content"][1]["image_url"]["url"] == "data:image/png;base64,AAAA"
    for target in (C, R, G):
        assert there_and_back(body, M, target) == body
    round_trip = weft.translate(to(body, M, R), R, M).body
    assert round_trip["messages"][-1]["content"][0]["content"][1] == {
        "type": "image",
        "source": PIXEL,
    }


def test_pain_38_a_document_is_a_document_everywhere() -> None:
    document = {
        "type": "document",
        "source": PDF,
        "title": "a.pdf",
        "context": "from the archive",
        "citations": {"enabled": True},
    }
    body = messages(user([text("read"), document]))
    data = "data:application/pdf;base64,BBBB"
    assert to(body, M, R)["input"][0]["content"][1] == {
        "type": "input_file",
        "file_data": data,
        "filename": "a.pdf",
    }
    assert to(body, M, C)["messages"][0]["content"][1] == {
        "type": "file",
        "file": {"file_data": data, "filename": "a.pdf"},
    }
    part = to(body, M, G)["contents"][0]["parts"][1]["inlineData"]
    assert (part["mimeType"], part["data"]) == ("application/pdf", "BBBB")
    for target in (C, R, G):
        assert there_and_back(body, M, target) == body
        paths = {path for path, _ in losses(body, M, target)}
        assert {"messages[0].content[1].context", "messages[0].content[1].citations"} <= paths
        plain = weft.translate(to(body, M, target), target, M, model="m").body
        matches = plain["messages"][0]["content"][1]
        assert (matches["type"], matches["source"]) == ("document", PDF)


def test_pain_39_a_tools_json_is_text_to_gemini() -> None:
    texts = '{"$defs":{"x":1},"$ref":"#/$defs/x"}'
    body = messages(user("a"), assistant([tool_use("t1")]), user([tool_result("t1", texts)]))
    (part,) = to(body, M, G)["contents"][2]["parts"]
    assert part["functionResponse"]["response"] == {"output": texts}


# Streams


def test_pain_40_usage_is_complete_at_the_right_event() -> None:
    usage = {
        "input_tokens": 30,
        "input_tokens_details": {"cached_tokens": 20},
        "output_tokens": 7,
        "output_tokens_details": {"reasoning_tokens": 2},
        "total_tokens": 37,
    }
    item = {"type": "message", "id": "m1", "role": "assistant", "status": "completed"}
    part = {"type": "output_text", "text": "hi", "annotations": []}
    data = sse(
        {"type": "response.created", "response": response(status="in_progress")},
        {"type": "response.output_item.added", "output_index": 0, "item": item | {"content": []}},
        {
            "type": "response.output_item.done",
            "output_index": 0,
            "item": item | {"content": [part]},
        },
        {
            "type": "response.completed",
            "response": response(item | {"content": [part]}, usage=usage),
        },
    )
    translator = weft.StreamTranslator(R, M)
    frames = frames_of(translator.feed(data) + translator.close())
    (final,) = [f["usage"] for f in frames if f["type"] == "message_delta"]
    assert final["input_tokens"] == 10
    assert final["cache_read_input_tokens"] == 20
    assert final["output_tokens"] == 7
    reported_usage = translator.response.usage
    assert reported_usage is not None
    assert (
        reported_usage.input,
        reported_usage.cached,
        reported_usage.output,
        reported_usage.reasoning,
    ) == (30, 20, 7, 2)


def test_pain_41_each_kind_of_content_is_a_separate_block() -> None:
    opening = call_delta(0, id="t1", type="function", function={"name": "f", "arguments": "{}"})
    data = sse(
        chunk({"reasoning_content": "r1"}),
        chunk({"content": "c1"}),
        chunk({"reasoning_content": "r2"}),
        chunk(opening),
        chunk({"content": "c2"}),
        chunk({}, "stop"),
        done=True,
    )
    frames = stream(data, C, M)
    starts = [f["content_block"]["type"] for f in frames if f["type"] == "content_block_start"]
    assert starts == ["thinking", "text", "thinking", "tool_use", "text"]
    open_now: set[int] = set()
    for frame in frames:
        match frame["type"]:
            case "content_block_start":
                assert not open_now
                open_now.add(frame["index"])
            case "content_block_delta":
                assert frame["index"] in open_now
            case "content_block_stop":
                open_now.remove(frame["index"])
            case _:
                pass
    texts = [f["delta"] for f in frames if f["type"] == "content_block_delta"]
    assert "".join(d.get("thinking", d.get("text", "")) for d in texts) == "r1c1r2c2"


CUT = {
    M: sse(
        {"type": "message_start", "message": answer()},
        {"type": "content_block_start", "index": 0, "content_block": text("")},
        {
            "type": "content_block_delta",
            "index": 0,
            "delta": {"type": "text_delta", "text": "half"},
        },
    ),
    C: sse(chunk({"content": "half"})),
    R: sse(
        {"type": "response.created", "response": response(status="in_progress")},
        {
            "type": "response.output_text.delta",
            "output_index": 0,
            "content_index": 0,
            "delta": "half",
        },
    ),
    G: sse({"candidates": [{"content": {"role": "model", "parts": [{"text": "half"}]}}]}),
}


@pytest.mark.parametrize("source", PROTOCOLS)
@pytest.mark.parametrize("target", PROTOCOLS)
def test_pain_42_a_truncated_stream_is_never_a_success(source: str, target: str) -> None:
    translator = weft.StreamTranslator(source, target)
    data = translator.feed(CUT[source]) + translator.close()
    last = frames_of(data)[-1]
    assert b"half" in data
    assert b"[DONE]" not in data
    assert translator.failed
    assert {
        M: last.get("type") == "error",
        C: "error" in last,
        R: last.get("type") in ("response.failed", "error"),
        G: "error" in last,
    }[target]


@pytest.mark.parametrize("target", [M, C, G])
def test_pain_43_a_failure_inside_the_stream_is_reported(target: str) -> None:
    error = {"code": "insufficient_quota", "message": "no money left"}
    data = sse(
        {"type": "response.created", "response": response(status="in_progress")},
        {"type": "response.failed", "response": response(status="failed", error=error)},
    )
    translator = weft.StreamTranslator(R, target)
    out = translator.feed(data) + translator.close()
    last = frames_of(out)[-1]
    assert last["error"]["message"] == "no money left"
    assert b"end_turn" not in out
    kind = {
        M: ("type", "billing_error"),
        C: ("code", "insufficient_quota"),
        G: ("status", "FAILED_PRECONDITION"),
    }[target]
    assert last["error"][kind[0]] == kind[1]


@pytest.mark.parametrize("target", PROTOCOLS)
def test_pain_43_a_failed_response_is_not_an_answer(target: str) -> None:
    error = {"code": "server_error", "message": "it broke"}
    with pytest.raises(weft.UpstreamFailed, match="it broke"):
        weft.translate_response(response(status="failed", error=error), R, target)


@pytest.mark.parametrize("source", PROTOCOLS)
def test_pain_45_bytes_can_be_split_anywhere(source: str) -> None:
    data = CUT[source].replace(b"half", "hä🎉f".encode())
    whole = weft.StreamTranslator(source, M)
    expected = whole.feed(data) + whole.close()
    for cut in range(len(data)):
        cutting = weft.StreamTranslator(source, M)
        assert cutting.feed(data[:cut]) + cutting.feed(data[cut:]) + cutting.close() == expected


STOPS = [
    # What the upstream said, and the words for it at Messages, Chat, Responses and Gemini.
    (M, answer(stop="refusal"), "refusal", "content_filter", "incomplete", "SAFETY"),
    (M, answer(stop="pause_turn"), "pause_turn", "stop", "completed", "OTHER"),
    (
        M,
        answer(stop="model_context_window_exceeded"),
        "model_context_window_exceeded",
        "length",
        "incomplete",
        "MAX_TOKENS",
    ),
    (M, answer(stop="stop_sequence"), "stop_sequence", "stop", "completed", "STOP"),
    (M, answer(stop="new_reason"), "new_reason", "stop", "completed", "OTHER"),
    (
        C,
        completion({"content": "x"}, "content_filter"),
        "refusal",
        "content_filter",
        "incomplete",
        "SAFETY",
    ),
    (
        C,
        completion(
            {"content": None, "function_call": {"name": "f", "arguments": "{}"}}, "function_call"
        ),
        "tool_use",
        "function_call",
        "completed",
        "STOP",
    ),
    (C, completion({"content": "x"}, "length"), "max_tokens", "length", "incomplete", "MAX_TOKENS"),
    (
        R,
        response(status="incomplete", incomplete_details={"reason": "max_output_tokens"}),
        "max_tokens",
        "length",
        "incomplete",
        "MAX_TOKENS",
    ),
    (
        R,
        response(status="incomplete", incomplete_details={"reason": "content_filter"}),
        "refusal",
        "content_filter",
        "incomplete",
        "SAFETY",
    ),
    (
        G,
        gemini_answer({"text": "x"}, finish="MAX_TOKENS"),
        "max_tokens",
        "length",
        "incomplete",
        "MAX_TOKENS",
    ),
    (
        G,
        gemini_answer({"text": "x"}, finish="SAFETY"),
        "refusal",
        "content_filter",
        "incomplete",
        "SAFETY",
    ),
    (
        G,
        gemini_answer({"text": "x"}, finish="NEW_REASON"),
        "end_turn",
        "stop",
        "completed",
        "NEW_REASON",
    ),
]


def stop_of(body: Body, target: str) -> Any:
    match target:
        case "anthropic":
            return body["stop_reason"]
        case "openai-chat":
            return body["choices"][0]["finish_reason"]
        case "openai-responses":
            return body["status"]
        case _:
            return body["candidates"][0]["finishReason"]


SAID_ALIKE = {"max_tokens", "tool_use", "end_turn", "content_filter"}


@pytest.mark.parametrize(("source", "body", "m", "c", "r", "g"), STOPS)
def test_pain_46_stop_reasons_are_translated(
    source: str, body: Body, m: str, c: str, r: str, g: str
) -> None:
    for target, word in ((M, m), (C, c), (R, r), (G, g)):
        done = weft.translate_response(body, source, target)
        assert stop_of(done.body, target) == word, target
        translated = weft.translate_response(body, source, source)
        assert translated.body == body
        assert translated.losses == []


@pytest.mark.parametrize("target", [C, R, G])
def test_pain_46_an_unknown_stop_reason_is_reported(target: str) -> None:
    done = weft.translate_response(answer(text("x"), stop="new_reason"), M, target)
    assert ("stop_reason_changed", "new_reason", "meaning") in [
        (loss.code, loss.detail, loss.level) for loss in done.losses
    ]
    sidecar = weft.translate_response(answer(stop="new_reason"), M, M)
    assert sidecar.body["stop_reason"] == "new_reason"


# State that is not in the body


@pytest.mark.parametrize(
    ("source", "body", "param"),
    [
        (R, responses(user("a"), previous_response_id="resp_1"), "previous_response_id"),
        (R, responses(user("a"), conversation={"id": "conv_1"}), "conversation"),
        (R, responses({"type": "item_reference", "id": "msg_1"}), "input[0]"),
        (
            G,
            {"contents": [{"role": "user", "parts": [{"text": "a"}]}], "cachedContent": "c/1"},
            "cachedContent",
        ),
    ],
)
def test_pain_47_context_that_is_not_in_the_body_is_refused_by_name(
    source: str, body: Body, param: str
) -> None:
    for target in PROTOCOLS:
        if target == source:
            assert weft.translate(body, source, source, model="m").body
            continue
        with pytest.raises(weft.Refused) as refused:
            to(body, source, target)
        assert (refused.value.status, refused.value.param) == (400, param)


# Errors, parameters, accounting


OVERFLOWS = [
    (M, 400, "prompt is too long: 205371 tokens > 200000 maximum"),
    (M, 400, "input length and `max_tokens` exceed context limit: 190000 + 64000 > 200000"),
    (M, 413, "Prompt is too long"),
    (C, 400, "This model's maximum context length is 128000 tokens. However, you requested 1."),
    (C, 400, "Input tokens exceed the configured limit of 272000 tokens."),
    (C, 400, "Your input exceeds the context window of this model."),
    (C, 400, "Request too large for model `x`"),
    (C, 400, "prompt token count of 130000 exceeds the limit: model_max_prompt_tokens_exceeded"),
    (C, 400, "Please reduce the length of the messages or completion."),
    (C, 500, "the request exceeds the available context size. try increasing the context size"),
    (C, 400, "Input is too long for requested model."),
    (C, 400, "This model's maximum prompt length is 131072 but the request contains 153000"),
    (C, 400, "too many input tokens: 40000"),
    (G, 400, "The input token count (1200000) exceeds the maximum number of tokens allowed."),
]

FILTERED = [  # words that look alike and are something else
    (C, 400, "max_tokens is too large: 100000"),
    (M, 429, "This request would exceed the rate limit of 40000 input tokens per minute"),
]


def error_of(protocol: str, message: str) -> Body:
    return {
        M: {"type": "error", "error": {"type": "invalid_request_error", "message": message}},
        C: {"error": {"message": message, "type": "invalid_request_error", "code": None}},
        G: {"error": {"code": 400, "message": message, "status": "INVALID_ARGUMENT"}},
    }[protocol]


@pytest.mark.parametrize(("source", "status", "message"), OVERFLOWS)
def test_pain_48_a_full_context_window_is_one_error_in_each_protocol(
    source: str, status: int, message: str
) -> None:
    body = error_of(source, message)
    claude = weft.translate_error(body, status, source, M).body["error"]
    assert "prompt is too long" in claude["message"].lower()
    for target in (C, R):
        done = weft.translate_error(body, status, source, target)
        if target != source:
            assert source == C or done.body["error"]["code"] == "context_length_exceeded"
    assert CODECS[source].decode_error(body, status).kind == "context_length"
    gemini = weft.translate_error(body, status, source, G).body["error"]
    assert "token count" in gemini["message"]


@pytest.mark.parametrize(("source", "status", "message"), FILTERED)
def test_pain_48_other_limits_are_not_context_window_errors(
    source: str, status: int, message: str
) -> None:
    assert CODECS[source].decode_error(error_of(source, message), status).kind != "context_length"


def test_pain_48_a_full_context_window_inside_a_stream() -> None:
    error = {
        "type": "error",
        "error": {"type": "invalid_request_error"} | {"message": OVERFLOWS[0][2]},
    }
    data = sse({"type": "message_start", "message": answer()}, error)
    last = stream(data, M, R)[-1]
    assert last["type"] == "response.failed"
    assert last["response"]["error"]["code"] == "context_length_exceeded"


SCHEMA = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "$defs": {"n": {"type": "integer", "exclusiveMinimum": 0}},
    "type": "object",
    "properties": {
        "a": {"$ref": "#/$defs/n"},
        "b": {"anyOf": [{"type": "string", "minLength": 2}, {"type": "null"}]},
        "c": {"const": "x"},
    },
    "required": ["a"],
    "additionalProperties": False,
}


def test_pain_49_a_tools_schema_is_translated_unchanged() -> None:
    body = messages(user("a"), tools=[{"name": "f", "input_schema": SCHEMA}])
    assert to(body, M, C)["tools"][0]["function"]["parameters"] == SCHEMA
    assert to(body, M, R)["tools"][0]["parameters"] == SCHEMA
    declared = to(body, M, G)["tools"][0]["functionDeclarations"][0]
    assert declared["parametersJsonSchema"] == SCHEMA
    for target in (C, R, G):
        assert there_and_back(body, M, target) == body


def test_pain_49_keywords_that_strict_schemas_lack_are_omitted_and_named() -> None:
    shape = {"type": "json_schema", "json_schema": {"name": "n", "schema": SCHEMA, "strict": True}}
    body = chat(user("a"), response_format=shape)
    done = sent(body, C, M)
    schema = done.body["output_config"]["format"]["schema"]
    assert schema["$defs"] == {"n": {"type": "integer"}}
    assert schema["properties"]["b"]["anyOf"][0] == {"type": "string"}
    assert schema["properties"]["c"] == {"const": "x"}
    assert schema["additionalProperties"] is False
    named = {loss.detail for loss in done.losses if loss.code == "schema_keyword_dropped"}
    assert {"exclusiveMinimum", "minLength"} <= named
    assert there_and_back(body, C, M) == body


def test_pain_49_geminis_schema_format_is_read_as_json_schema() -> None:
    own = {
        "type": "OBJECT",
        "properties": {"b": {"type": "STRING", "nullable": True, "minLength": "2"}},
    }
    declaration = {"name": "f", "parameters": own}
    body = {
        "contents": [{"role": "user", "parts": [{"text": "a"}]}],
        "tools": [{"functionDeclarations": [declaration]}],
    }
    schema = to(body, G, M)["tools"][0]["input_schema"]
    assert schema["properties"]["b"] == {"type": ["string", "null"], "minLength": 2}
    assert there_and_back(body, G, M) == body


def test_pain_50_the_default_limit_is_the_models_own() -> None:
    done = weft.translate(chat(user("a")), C, M, model="claude-sonnet-4-5")
    assert done.body["max_tokens"] == 64_000
    assert [(loss.path, loss.level) for loss in done.losses] == [("max_completion_tokens", "form")]
    assert weft.translate(chat(user("a")), C, M, model="nobody-knows").body["max_tokens"] == 8192
    assert there_and_back(chat(user("a")), C, M) == chat(user("a"))


def test_pain_50_a_truncated_call_is_reported_as_truncated() -> None:
    data = sse(
        {"type": "message_start", "message": answer()},
        {"type": "content_block_start", "index": 0, "content_block": tool_use("t1")},
        {
            "type": "content_block_delta",
            "index": 0,
            "delta": {"type": "input_json_delta", "partial_json": '{"a": "b'},
        },
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": "max_tokens"}, "usage": {}},
        {"type": "message_stop"},
    )
    frames = stream(data, M, C)
    assert [f["choices"][0]["finish_reason"] for f in frames if f["choices"]][-1] == "length"
    assert stream(data, M, R)[-1]["type"] == "response.incomplete"


UNSAID = [
    (C, M, {"seed": 1}, "seed"),
    (C, M, {"logit_bias": {"1": -100}}, "logit_bias"),
    (C, M, {"presence_penalty": 0.5}, "presence_penalty"),
    (C, R, {"stop": ["x"]}, "stop"),
    (C, R, {"n": 2}, "n"),
    (C, G, {"logprobs": True}, "logprobs"),
    (M, C, {"top_k": 5}, "top_k"),
    (M, R, {"thinking": {"type": "enabled", "budget_tokens": 2048}}, "thinking.budget_tokens"),
    (M, C, {"thinking": {"type": "enabled", "budget_tokens": 2048}}, "thinking"),
    (M, C, {"context_management": {"edits": [{"type": "x"}]}}, "context_management"),
    (M, G, {"container": "c1"}, "container"),
    (R, M, {"truncation": "auto"}, "truncation"),
    (R, C, {"max_tool_calls": 3}, "max_tool_calls"),
]


@pytest.mark.parametrize(("source", "target", "member", "path"), UNSAID)
def test_pain_51_no_parameter_is_dropped_silently(
    source: str, target: str, member: Body, path: str
) -> None:
    make = {C: chat, M: messages, R: responses}[source]
    body = make(user("a"), **member)
    if path == "context_management":  # it changes what the vendor forgets, and nothing is forgotten
        assert (path, "form") in losses(body, source, target)
    else:
        assert (path, "meaning") in losses(body, source, target)
        with pytest.raises(weft.Refused) as refused:
            to(body, source, target, strict=True)
        assert (refused.value.status, refused.value.param) == (400, path)
    assert there_and_back(body, source, target) == body


def test_pain_52_cached_tokens_are_counted_once() -> None:
    price = Price(input=5.0, output=25.0, cached=0.5, written=6.25)
    usage = {
        "prompt_tokens": 172_000,
        "completion_tokens": 0,
        "total_tokens": 172_000,
        "prompt_tokens_details": {"cached_tokens": 155_000, "cache_write_tokens": 3_000},
    }
    body = completion({"content": "x"}) | {"usage": usage}
    reported_usage = CODECS[C].decode_response(body).usage
    assert reported_usage is not None
    paid = cost(
        price,
        input=reported_usage.input or 0,
        output=reported_usage.output or 0,
        cached=reported_usage.cached or 0,
        written=reported_usage.written or 0,
    )
    assert paid == pytest.approx(0.166250)


def test_pain_52_every_protocol_counts_the_same_tokens() -> None:
    answer_body = answer(text("x"), cache_read_input_tokens=155, cache_creation_input_tokens=3)
    for target in (C, R, G):
        done = weft.translate_response(answer_body, M, target).body
        read = CODECS[target].decode_response(done).usage
        assert read is not None
        assert (read.input, read.output, read.cached) == (168, 5, 155)
        round_trip = weft.translate_response(done, target, M).body["usage"]
        assert round_trip["cache_read_input_tokens"] == 155
        assert round_trip["input_tokens"] + round_trip.get("cache_creation_input_tokens", 0) == 13


def test_every_pain_is_tested_or_belongs_to_the_gateway() -> None:
    tested = {
        int(number)
        for name in globals()
        if name.startswith("test_pain_")
        for number in re.findall(r"_(\d\d)(?=_)", name)
    }
    assert tested | set(GATEWAY) == set(range(1, 55))
    assert all(reason for reason in GATEWAY.values())
