"""Documents that are words: Anthropic's plain text and nested content, on every other wire."""

from base64 import b64encode

import pytest

import weft

A, C, R, G = "anthropic", "openai-chat", "openai-responses", "gemini"
WORDS = {"type": "text", "media_type": "text/plain", "data": "one\ntwo"}
PARTS = [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]
DATA = b64encode(b"one\ntwo").decode()


def document(source, **members):
    return {"type": "document", "source": source, **members}


def asked(*blocks):
    return {"model": "m", "max_tokens": 64, "messages": [{"role": "user", "content": [*blocks]}]}


def lost(done):
    return [(loss.path, loss.level) for loss in done.losses]


SAME = [
    document(WORDS),
    document(WORDS, title="notes.txt", context="c", citations={"enabled": True}),
    document({"type": "content", "content": "one"}),
    document({"type": "content", "content": PARTS}, title="t"),
    document({"type": "base64", "media_type": "text/plain", "data": DATA}),  # its vendor refuses it
    document({**WORDS, "media_type": "text/markdown"}),  # and this, and what nobody knows yet
    document({**WORDS, "new": 1}),
    document({"type": "content", "content": [{"type": "new"}]}),
]


@pytest.mark.parametrize("block", SAME)
def test_a_document_comes_back_as_it_was(block):
    result = {"type": "tool_result", "tool_use_id": "t", "content": [block]}
    call = {"type": "tool_use", "id": "t", "name": "f", "input": {}}
    body = asked({"type": "text", "text": "read"}, block)
    body["messages"] += [
        {"role": "assistant", "content": [call]},
        {"role": "user", "content": [result]},
    ]
    assert weft.translate(body, A, A).body == body
    for target in (C, R, G):
        there = weft.translate(body, A, target)
        home = weft.translate(there.body, target, A, model="m", sidecar=there.sidecar)
        assert home.body == body


FILE = {"type": "input_file", "file_data": f"data:text/plain;base64,{DATA}"}
HOMES = [
    (document(WORDS), C, {"type": "text", "text": "one\ntwo"}, ["form"]),
    (document(WORDS, title="n.txt"), C, {"type": "text", "text": "n.txt\n\none\ntwo"}, ["form"]),
    (document(WORDS, title="n.txt"), R, {**FILE, "filename": "n.txt"}, []),
    (document(WORDS), G, {"inlineData": {"mimeType": "text/plain", "data": DATA}}, []),
    (document({"type": "content", "content": PARTS}), R, FILE, ["form"]),
]


@pytest.mark.parametrize(("block", "target", "part", "levels"), HOMES)
def test_a_document_of_words_has_a_home_elsewhere(block, target, part, levels):
    done = weft.translate(asked({"type": "text", "text": "read"}, block), A, target)
    said = done.body.get("contents") or done.body.get("input") or done.body["messages"]
    assert (said[0].get("content") or said[0]["parts"])[1] == part
    inside = [level for path, level in lost(done) if path.startswith("messages[0].content[1]")]
    assert inside == levels


def test_a_document_in_a_result_stays_in_it_where_it_is_words():
    call = {"type": "tool_use", "id": "t", "name": "f", "input": {}}
    result = {"type": "tool_result", "tool_use_id": "t", "content": [document(WORDS)]}
    body = asked({"type": "text", "text": "read"})
    body["messages"] += [
        {"role": "assistant", "content": [call]},
        {"role": "user", "content": [result]},
    ]
    done = weft.translate(body, A, C)
    assert done.body["messages"][2] == {
        "role": "tool",
        "tool_call_id": "t",
        "content": [{"type": "text", "text": "one\ntwo"}],
    }
