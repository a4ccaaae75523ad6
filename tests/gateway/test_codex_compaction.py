"""A client that lets the server compact, with an upstream that does not support it."""

from contextlib import closing

import orjson
import pytest

import weft
import weft.thread
from servers import Scripted, post, weft_serve
from weft.gateway import ask_for_summary, open_summaries
from weft.store import open_store

QUESTION_END = "Write only this summary. Call no tools."
SEAL = "weft.1."
OPENING = "The conversation up to here was compacted. This summary stands in its place:\n\n"
CLOSING = (
    "This summary stands for all that was said before it. What is unfinished goes on from there."
)
SUMMARY = "The user wants quinces; two are peeled."
TOOLS = [{"type": "function", "name": "peel", "parameters": {"type": "object"}}]


def message_of(role, text):
    kind = "output_text" if role == "assistant" else "input_text"
    return {"type": "message", "role": role, "content": [{"type": kind, "text": text}]}


BEGUN = [message_of("developer", "Be brief."), message_of("user", "Peel quinces.")]
TRIGGER = {"type": "compaction_trigger"}
CALL = {"type": "function_call", "call_id": "c1", "name": "peel", "arguments": "{}"}
RESULT = {"type": "function_call_output", "call_id": "c1", "output": "peeled"}


def body(*items, **more):
    return {"model": "claude-x", "input": [*BEGUN, *items], "tools": TOOLS, **more}


def message(*content):
    return {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "claude-up",
        "content": list(content),
        "stop_reason": "end_turn",
        "stop_sequence": None,
        "usage": {"input_tokens": 90, "output_tokens": 9},
    }


def text(words):
    return {"type": "text", "text": words}


def streamed(words):
    frames = [
        {"type": "message_start", "message": message() | {"stop_reason": None}},
        {"type": "content_block_start", "index": 0, "content_block": text("")},
        *(
            {
                "type": "content_block_delta",
                "index": 0,
                "delta": {"type": "text_delta", "text": word},
            }
            for word in words
        ),
        {"type": "content_block_stop", "index": 0},
        {
            "type": "message_delta",
            "delta": {"stop_reason": "end_turn", "stop_sequence": None},
            "usage": {"output_tokens": 9},
        },
        {"type": "message_stop"},
    ]
    return Scripted(
        *(f"event: {f['type']}\ndata: {orjson.dumps(f).decode()}\n\n".encode() for f in frames)
    )


def whole(*content):
    return Scripted(orjson.dumps(message(*content)), kind="application/json")


def events(data):
    return [orjson.loads(line[6:]) for line in data.splitlines() if line.startswith(b"data: {")]


@pytest.fixture(scope="module")
def gateway(tmp_path_factory, upstream):
    folder = tmp_path_factory.mktemp("remote")
    with weft_serve(folder, "--upstream", f"up=anthropic:{upstream.url}") as running:
        yield running


def test_the_trigger_becomes_a_text_request_and_the_answer_one_item(gateway, upstream):
    upstream.then(streamed(["The user wants quinces; ", "two are peeled."]))
    status, _, data = post(
        f"{gateway.url}/v1/responses", body(CALL, RESULT, TRIGGER, stream=True, text={})
    )
    asked = orjson.loads(upstream.requests[0]["body"])
    assert status == 200
    assert asked["messages"][-1]["content"][-1]["text"].endswith(QUESTION_END)
    assert asked["tool_choice"] == {"type": "none"}
    frames = events(data)
    done = [event["item"] for event in frames if event["type"] == "response.output_item.done"]
    assert [item["type"] for item in done] == ["compaction"]
    assert done[0]["encrypted_content"].startswith(SEAL)
    assert frames[0]["type"] == "response.created"
    assert frames[-1]["type"] == "response.completed"
    assert frames[-1]["response"]["output"] == done
    assert frames[-1]["response"]["usage"]["input_tokens"] == 90


def test_the_returned_item_becomes_a_message_for_the_upstream_and_the_record(gateway, upstream):
    session = {"session-id": "quince"}
    upstream.then(whole(text("Shall I?")))
    post(f"{gateway.url}/v1/responses", body(), session)
    upstream.then(whole(text(SUMMARY)))
    answered = message_of("assistant", "Shall I?")
    _, _, data = post(f"{gateway.url}/v1/responses", body(answered, TRIGGER), session)
    (item,) = orjson.loads(data)["output"]
    upstream.then(whole(text("Three are peeled.")))
    status, headers, _ = post(
        f"{gateway.url}/v1/responses", body(item, message_of("user", "Go on.")), session
    )
    asked = orjson.loads(upstream.requests[0]["body"])
    words = [part["text"] for turn in asked["messages"] for part in turn["content"]]
    assert status == 200
    assert words == ["Peel quinces.", OPENING + SUMMARY, CLOSING, "Go on."]
    assert headers["x-weft-thread"] == "codex-quince"
    with closing(open_store(gateway.store)) as store:
        thread = weft.thread.open(store, "codex-quince")
        texts = [one.text for one in thread.compile().messages]
        assert texts == [
            "Be brief.", "Peel quinces.", OPENING + SUMMARY, CLOSING, "Go on.", "Three are peeled.",
        ]  # fmt: skip
        assert [info.kind for info in thread.log()].count("compact") == 1
        assert [record.name for record in store.threads()].count("codex-quince") == 1


def test_the_offline_model_compacts_too(gateway):
    asked = body(message_of("assistant", "Shall I?"), TRIGGER) | {"model": "weft-offline"}
    status, _, data = post(f"{gateway.url}/v1/responses", asked)
    assert status == 200
    assert [item["type"] for item in orjson.loads(data)["output"]] == ["compaction"]


@pytest.mark.parametrize("asked", [body(CALL, RESULT), body() | {"input": "Peel quinces."}])
def test_the_endpoint_returns_the_list_to_continue_with(gateway, upstream, asked):
    upstream.then(whole(text(SUMMARY)))
    status, _, data = post(f"{gateway.url}/v1/responses/compact", asked)
    answer = orjson.loads(data)
    assert status == 200
    assert upstream.requests[0]["path"] == "/v1/messages"
    assert answer["object"] == "response.compaction"
    assert answer["output"][0] == message_of("user", "Peel quinces.")
    assert [item["type"] for item in answer["output"]] == ["message", "compaction"]
    assert answer["usage"]["input_tokens"] == 90


@pytest.mark.parametrize("stream", [False, True])
def test_an_empty_answer_is_not_a_summary(gateway, upstream, stream):
    upstream.then(streamed([]) if stream else whole())
    status, _, data = post(f"{gateway.url}/v1/responses", body(TRIGGER, stream=stream))
    assert status == 502
    assert "wrote none" in orjson.loads(data)["error"]["message"]


def test_an_upstream_with_the_same_protocol_compacts_natively(tmp_path, upstream):
    reply = {
        "id": "resp_1",
        "object": "response",
        "status": "completed",
        "model": "m",
        "output": [{"type": "compaction", "id": "cmp_1", "encrypted_content": "theirs"}],
    }
    upstream.then(Scripted(orjson.dumps(reply), kind="application/json"))
    flags = ("--upstream", f"up=openai-responses:{upstream.url}")
    with weft_serve(tmp_path, *flags) as running:
        sent = orjson.dumps(body(TRIGGER) | {"model": "gpt-5"})
        _, _, data = post(f"{running.url}/v1/responses", sent)
        assert upstream.requests[0]["body"] == sent
        assert orjson.loads(data) == reply
        post(f"{running.url}/v1/responses/compact", sent)
        assert upstream.requests[1]["path"] == "/v1/responses/compact"
        assert upstream.requests[1]["body"] == sent
        item = {"type": "compaction", "encrypted_content": SEAL + "cXVpbmNl"}
        post(f"{running.url}/v1/responses", body(item, message_of("user", "Go on.")))
        asked = orjson.loads(upstream.requests[2]["body"])
        assert asked["input"][2] == message_of("assistant", OPENING + "quince")
        assert asked["input"][3] == message_of("user", CLOSING)


@pytest.mark.parametrize("compacted_by", ["trigger", "answer"])
def test_another_vendors_encrypted_item_is_sent_as_text(tmp_path, upstream, compacted_by):
    """What the item stood for is read from the thread; the item itself stays as it is."""
    item = {"type": "compaction", "id": "cmp_1", "encrypted_content": "gAAAAtheirs"}
    rule = "Never peel the green quinces of crate QC-4711."
    turns = [
        message_of("user", rule),
        message_of("assistant", "Understood, I leave crate QC-4711 alone."),
    ]

    def answered(*output):
        reply = {"id": "resp_1", "object": "response", "status": "completed", "model": "gpt-5"}
        return Scripted(orjson.dumps(reply | {"output": list(output)}), kind="application/json")

    session = {"session-id": "sealed"}
    flags = ("--upstream", f"oai=openai-responses:{upstream.url}")
    flags += ("--upstream", f"up=anthropic:{upstream.url}")
    with weft_serve(tmp_path, *flags) as running:
        url = f"{running.url}/v1/responses"
        upstream.then(answered(turns[1]))
        post(url, body(turns[0]) | {"model": "oai/gpt-5"}, session)
        upstream.then(answered(item))
        last = TRIGGER if compacted_by == "trigger" else message_of("user", "How many are left?")
        post(url, body(*turns, last) | {"model": "oai/gpt-5"}, session)
        upstream.then(answered(message_of("assistant", "Two are left.")))
        listed = {
            "model": "oai/gpt-5",
            "input": [item, message_of("user", "Go on.")],
            "tools": TOOLS,
        }
        post(url, listed, session)
        upstream.requests.clear()
        upstream.then(whole(text("Three are left.")))
        listed["model"] = "up/claude-x"
        listed["input"] += [
            message_of("assistant", "Two are left."),
            message_of("user", "And now?"),
        ]
        status, _, _ = post(url, listed, session)
        asked = upstream.requests[-1]["body"].decode()
        assert status == 200
        assert rule in asked
        assert "QC-4711 alone" in asked
        assert "gAAAAtheirs" not in asked
        status, _, _ = post(url, listed, session)  # the same again: not at the end of a branch
        assert status == 200
        assert rule in upstream.requests[-1]["body"].decode()
        status, _, _ = post(url, listed | {"max_output_tokens": -1}, session)
        assert status == 400  # refused by the translation, and recorded like any failed attempt
        with weft.open(running.store, thread="codex-sealed") as t:
            assert len(t.attempts()) == 1
        upstream.requests.clear()
        upstream.then(answered(message_of("assistant", "Two are left.")))
        listed["model"] = "oai/gpt-5"
        post(url, listed, session)
        sent = orjson.loads(upstream.requests[-1]["body"])
        assert sent["input"][0] == item
        with closing(open_store(running.store)) as store:
            names = [record.name for record in store.threads()]
            assert names.count("codex-sealed") == 1


@pytest.mark.parametrize(
    "item",
    [
        {"type": "compaction", "encrypted_content": "gAAAAtheirs"},
        {"type": "compaction", "encrypted_content": SEAL + "not base64"},
        {"type": "compaction", "encrypted_content": None},
        message_of("user", f"what is {SEAL}?"),
        "words",
        None,
    ],
)
def test_items_that_weft_did_not_create_are_unchanged(item):
    assert open_summaries({"input": [item]}) == {"input": [item]}
    assert open_summaries({"input": item}) == {"input": item}


def test_a_request_without_tools_has_no_tool_choice():
    asked = ask_for_summary({"input": [TRIGGER]})
    assert asked.keys() == {"input"}
    [question] = asked["input"]
    assert question["role"] == "user"
    assert question["content"][0]["text"].endswith(QUESTION_END)
