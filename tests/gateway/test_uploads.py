"""Files that the page attaches: uploaded, limited, stored by hash, and sent in every protocol."""

import asyncio
from base64 import b64decode, b64encode
from hashlib import sha256
from urllib.error import HTTPError
from urllib.parse import urlencode
from urllib.request import Request, urlopen

import aiohttp
import orjson
import pytest

import weft.thread
from servers import SECONDS, Scripted, post
from weft.model import Image, Inline, Message, Text, ToolCall, ToolResult, Url

PNG = b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
PNG_URL = f"data:image/png;base64,{b64encode(PNG).decode()}"
PDF = b"%PDF-1.4\n%%EOF\n"
MARKUP = b"<script>alert(1)</script>"


def upload(url, name, data, kind="application/octet-stream"):
    return post(f"{url}/api/upload?{urlencode({'name': name})}", data, {"content-type": kind})


def stored(url, name, data):
    status, _, body = upload(url, name, data)
    assert status == 200, body
    return orjson.loads(body)


def fetch(url, path, **query):
    try:
        with urlopen(Request(f"{url}{path}?{urlencode(query)}"), timeout=SECONDS) as reply:
            return reply.status, {k.lower(): v for k, v in reply.headers.items()}, reply.read()
    except HTTPError as error:
        with error:
            return error.code, {}, error.read()


def say(url, **frame):
    """Send a frame, and return what ends its run."""

    async def talk():
        async with aiohttp.ClientSession() as session, session.ws_connect(url + "/ws") as socket:
            await socket.send_json({"type": "say", **frame})
            while True:
                answer = await socket.receive_json(timeout=SECONDS)
                if answer["type"] in ("message_complete", "error"):
                    return answer

    return asyncio.run(talk())


def rows(url, thread):
    return orjson.loads(fetch(url, "/api/rows", thread=thread)[2])["rows"]


def test_a_file_is_stored_by_its_hash_and_named_without_its_folder(gateway):
    first = stored(gateway.url, "../../etc/photo.png", PNG)
    assert first == {
        "id": sha256(PNG).hexdigest(),
        "name": "photo.png",
        "media_type": "image/png",
        "size": len(PNG),
        "shown": True,
    }
    assert stored(gateway.url, "again.png", PNG)["id"] == first["id"]
    status, headers, body = fetch(gateway.url, "/api/upload", id=first["id"])
    assert (status, body, headers["content-type"]) == (200, PNG, "image/png")


@pytest.mark.parametrize(
    ("name", "data", "kind", "status", "message"),
    [
        ("a.zip", b"PK\x03\x04\0\0", None, 415, "has an unsupported type"),
        ("a.png", b"not an image", None, 415, "it contains text"),  # a wrong name
        ("empty.txt", b"", None, 415, "is empty"),
        ("big.txt", b"x" * (weft.thread.MAX_FILE_BYTES + 1), None, 413, "larger than the 20 MB"),
        ("a.txt", b"x", "text/plain", 415, "application/octet-stream"),  # any page may send this
    ],
)
def test_a_file_that_no_model_accepts_is_refused(gateway, name, data, kind, status, message):
    answer = upload(gateway.url, name, data, kind or "application/octet-stream")
    assert answer[0] == status
    assert message in orjson.loads(answer[2])["error"]["message"]


@pytest.mark.parametrize(
    ("model", "image", "document"),
    [
        ("a/claude-sonnet-4-5", ("source", "data"), ("document", PDF)),
        ("c/gpt-4o", ("image_url", "url"), ("file", PDF)),
        ("r/gpt-5", ("image_url",), ("input_file", PDF)),
        ("g/gemini-2.5-flash", ("inlineData", "data"), ("application/pdf", PDF)),
    ],
)
def test_attached_files_reach_every_upstream_in_its_format(
    gateway, upstream, model, image, document
):
    upstream.then(Scripted(b'{"error": {"message": "no"}}', status=400, kind="application/json"))
    ids = [stored(gateway.url, f"f{n}", data)["id"] for n, data in enumerate((PNG, PDF, b"notes"))]
    thread = f"attached-{model[0]}"
    answer = say(gateway.url, thread=thread, text="What is this?", model=model, attach=ids)
    assert answer["type"] == "error"
    body = upstream.requests[0]["body"].decode()
    assert b64encode(PNG).decode() in body
    assert b64encode(document[1]).decode() in body
    assert all(f'"{key}"' in body for key in image)
    assert f'"{document[0]}"' in body
    assert "notes" in body or b64encode(b"notes").decode() in body
    # The message is in the thread with its files, and a retry sends them again.
    [row] = [row for row in rows(gateway.url, thread) if row["role"] == "user"]
    media = [part for part in row["parts"] if part["type"] == "media"]
    assert [(part["kind"], part["shown"]) for part in media] == [
        ("image", True),
        ("document", False),
        ("document", False),
    ]
    status, headers, content = fetch(
        gateway.url, "/api/media", thread=thread, **media[0]["address"]
    )
    assert (status, content, headers["content-type"]) == (200, PNG, "image/png")
    status, headers, content = fetch(
        gateway.url, "/api/media", thread=thread, **media[2]["address"]
    )
    assert (status, content) == (200, b"notes")
    assert headers["content-type"] == "application/octet-stream"
    assert headers["content-disposition"].startswith("attachment")


def test_a_message_can_have_files_without_text_and_errors_name_the_field(gateway, upstream):
    upstream.then(Scripted(b'{"error": {"message": "no"}}', status=400, kind="application/json"))
    id = stored(gateway.url, "photo.png", PNG)["id"]
    frame = {"thread": "no-text", "model": "a/claude-sonnet-4-5"}
    assert say(gateway.url, **frame, text="", attach=[id])["type"] == "error"
    assert [part["type"] for part in rows(gateway.url, "no-text")[-1]["parts"]][:1] == ["media"]
    for attach, message in (
        (["0" * 64], "attach it again"),
        ("x", "must be a list"),
        ([id] * 11, "at most 10 files"),
    ):
        answer = say(gateway.url, thread="refused", text="x", model=frame["model"], attach=attach)
        assert answer["place"] == "attach"
        assert message in answer["message"]
    assert say(gateway.url, thread="refused", text="", model=frame["model"])["place"] == "text"


def test_files_that_exceed_a_vendors_request_in_base64_are_refused(gateway):
    files = [PDF + b"\0" * (size * 2**20) for size in (19, 4)]
    assert sum(len(b64encode(data)) for data in files) > 32_000_000  # what Anthropic accepts
    ids = [stored(gateway.url, "a.pdf", data)["id"] for data in files]
    frame = {"thread": "large", "text": "x", "model": "a/claude-sonnet-4-5"}
    refused = say(gateway.url, **frame, attach=ids)
    assert refused["place"] == "attach"
    assert "limited to 22 MB" in refused["message"]


def test_media_of_a_message_are_shown_only_if_they_are_images(gateway):
    html = Inline(b64encode(MARKUP).decode(), "image/svg+xml")
    lying = Inline(b64encode(MARKUP).decode(), "image/png")
    broken = Inline("%%%", "image/png")
    outside = Url("https://example.com/beacon.png")
    call = ToolCall("call-1", "screenshot", "{}")
    result = ToolResult(
        "call-1", (Text("done"), Image(Inline(b64encode(PNG).decode(), "image/png")))
    )
    with weft.thread.open(gateway.store, "media") as thread:
        images = (Image(source) for source in (html, lying, broken, outside))
        thread.commit_message(Message("user", (Text("look"), *images)))
        thread.commit_message(Message("assistant", (call,)))
        thread.commit_message(Message("tool", (result,)))
    shown = rows(gateway.url, "media")
    media = [part for part in shown[0]["parts"] if part["type"] == "media"]
    assert [part["shown"] for part in media] == [False, True, True, False]
    assert media[3]["source"] == "https://example.com/beacon.png"
    assert media[3]["address"] is None
    for part in media[:2]:  # whatever the message says, markup is never markup
        status, headers, body = fetch(gateway.url, "/api/media", thread="media", **part["address"])
        assert (status, body) == (200, MARKUP)
        assert headers["content-type"] == "application/octet-stream"
        assert headers["content-disposition"].startswith("attachment")
        assert "sandbox" in headers["content-security-policy"]
        assert headers["x-content-type-options"] == "nosniff"
    row = media[0]["address"]["row"]
    assert fetch(gateway.url, "/api/media", thread="media", row=row, index=2)[0] in (200, 422)
    for index in (3, 9, -1, "x"):
        assert fetch(gateway.url, "/api/media", thread="media", row=row, index=index)[0] == 404
    [image] = shown[1]["parts"][0]["result"]["media"]
    assert fetch(gateway.url, "/api/media", thread="media", **image["address"])[2] == PNG


@pytest.mark.parametrize(
    ("path", "request_body", "answer"),
    [
        (
            "/v1/chat/completions",
            {
                "model": "c/gpt-4o",
                "messages": [
                    {
                        "role": "developer",
                        "content": [{"type": "image_url", "image_url": {"url": PNG_URL}}],
                    },
                    {"role": "user", "content": "hi"},
                ],
            },
            {
                "id": "chatcmpl-1",
                "object": "chat.completion",
                "created": 1,
                "model": "gpt-4o",
                "choices": [
                    {
                        "index": 0,
                        "message": {"role": "assistant", "content": "A dot."},
                        "finish_reason": "stop",
                    }
                ],
            },
        ),
        (
            "/v1/responses",
            {
                "model": "r/gpt-5",
                "input": [
                    {
                        "type": "message",
                        "role": "developer",
                        "content": [{"type": "input_image", "image_url": PNG_URL}],
                    },
                    {"type": "message", "role": "user", "content": "hi"},
                ],
            },
            {
                "id": "resp_1",
                "object": "response",
                "created_at": 1,
                "model": "gpt-5",
                "status": "completed",
                "output": [
                    {
                        "id": "msg_1",
                        "type": "message",
                        "role": "assistant",
                        "status": "completed",
                        "content": [{"type": "output_text", "text": "A dot.", "annotations": []}],
                    }
                ],
            },
        ),
    ],
)
def test_a_request_with_an_image_in_its_system_message_is_recorded(
    gateway, upstream, path, request_body, answer
):
    upstream.then(Scripted(orjson.dumps(answer), kind="application/json"))
    status, headers, _ = post(f"{gateway.url}{path}", request_body)
    assert (status, headers["x-weft-recorded"]) == (200, "store")
    with weft.thread.open(gateway.store, headers["x-weft-thread"]) as thread:
        system, question, reply = thread.compile().messages
    assert system.blocks == (Image(Inline(b64encode(PNG).decode(), "image/png")),)
    assert (question.text, reply.text) == ("hi", "A dot.")
