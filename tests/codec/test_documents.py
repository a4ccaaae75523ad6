"""Text documents: Anthropic's plain text and nested content, in every other protocol."""

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
def test_a_document_round_trips(block):
    result = {"type": "tool_result", "tool_use_id": "t", "content": [block]}
    call = {"type": "tool_use", "id": "t", "name": "f", "input": {}}
    body = asked({"type": "text", "text": "read"}, block)
    body["messages"] += [
        {"role": "assistant", "content": [call]},
        {"role": "user", "content": [result]},
    ]
    assert weft.translate(body, A, A).body == body
    for target in (C, R, G):
        translated = weft.translate(body, A, target)
        round_trip = weft.translate(
            translated.body, target, A, model="m", sidecar=translated.sidecar
        )
        assert round_trip.body == body


FILE = {"type": "input_file", "file_data": f"data:text/plain;base64,{DATA}"}
HOMES = [
    (document(WORDS), C, {"type": "text", "text": "one\ntwo"}, ["form"]),
    (document(WORDS, title="n.txt"), C, {"type": "text", "text": "n.txt\n\none\ntwo"}, ["form"]),
    (document(WORDS, title="n.txt"), R, {**FILE, "filename": "n.txt"}, []),
    (document(WORDS), G, {"inlineData": {"mimeType": "text/plain", "data": DATA}}, []),
    (
        document({"type": "content", "content": PARTS}),
        R,
        {**FILE, "filename": "document.txt"},
        ["form", "form"],
    ),
]


@pytest.mark.parametrize(("block", "target", "part", "levels"), HOMES)
def test_a_text_document_is_translated_to_every_protocol(block, target, part, levels):
    done = weft.translate(asked({"type": "text", "text": "read"}, block), A, target)
    content = done.body.get("contents") or done.body.get("input") or done.body["messages"]
    assert (content[0].get("content") or content[0]["parts"])[1] == part
    inside = [level for path, level in lost(done) if path.startswith("messages[0].content[1]")]
    assert inside == levels


def test_a_text_document_in_a_result_stays_there():
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


PDF = {"type": "base64", "media_type": "application/pdf", "data": "QUJD"}


def files(done):
    """The files in a body for OpenAI, in a message or in the result of a call."""
    for item in done.body.get("messages") or done.body["input"]:
        texts = item.get("content") or item.get("output")
        for part in texts if isinstance(texts, list) else ():
            if part["type"] in ("file", "input_file"):
                yield part.get("file", part)


@pytest.mark.parametrize("target", [C, R])
@pytest.mark.parametrize(
    ("members", "name", "path"),
    [
        ({}, "document.pdf", ["messages[0].content[0]"]),  # "Missing required parameter"
        ({"title": "a.pdf"}, "a.pdf", []),
    ],
)
def test_a_file_gets_a_name_if_one_is_required(target, members, name, path):
    body = asked(document(PDF, **members))
    done = weft.translate(body, A, target)
    assert [file["filename"] for file in files(done)] == [name]
    added = [loss.path for loss in done.losses if loss.detail.startswith("name: ")]
    assert added == path
    assert weft.translate(done.body, target, A, sidecar=done.sidecar).body == body


@pytest.mark.parametrize("target", [C, R])
def test_a_file_in_a_result_gets_a_name_too(target):
    use = {"type": "tool_use", "id": "t", "name": "f", "input": {}}
    result = {"type": "tool_result", "tool_use_id": "t", "content": [document(PDF)]}
    body = asked({"type": "text", "text": "go"})
    body["messages"] += [
        {"role": "assistant", "content": [use]},
        {"role": "user", "content": [result]},
    ]
    done = weft.translate(body, A, target)
    assert [file["filename"] for file in files(done)] == ["document.pdf"]


@pytest.mark.parametrize(
    ("target", "kind", "expected"),
    [
        (C, "image/png", True),
        (C, "image/heic", False),
        (R, "image/heic", False),
        (C, "application/pdf", True),
        (C, "video/mp4", False),
    ],
)
def test_media_that_openai_refuses_is_not_sent(target, kind, expected):
    parts = [{"inlineData": {"mimeType": kind, "data": "QUJD"}}, {"text": "see"}]
    body = {"contents": [{"role": "user", "parts": parts}]}
    done = weft.translate(body, G, target, model="m")
    content = (done.body.get("messages") or done.body["input"])[0]["content"]
    assert (len(content) == 2) == expected
    lost = [loss.path for loss in done.losses if loss.level != "form"]
    assert lost == ([] if expected else ["contents[0].parts[0]"])
