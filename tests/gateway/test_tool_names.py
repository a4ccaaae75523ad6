"""A client's custom and namespaced tools, with an upstream that supports neither."""

import orjson
import pytest

from servers import Scripted, post, scripted_upstream, weft_serve

PATCH = '*** Begin Patch\n+"quoted" \\ ünï\n*** End Patch'
BODY = {
    "model": "claude-x",
    "input": [{"role": "user", "content": "patch it"}],
    "tools": [
        {"type": "custom", "name": "apply_patch", "description": "Edits files."},
        {
            "type": "namespace",
            "name": "files",
            "tools": [{"type": "function", "name": "read", "parameters": {"type": "object"}}],
        },
    ],
}


def answer(tools):
    """What the upstream says: one call of each tool that it was offered."""
    calls = [
        {"type": "tool_use", "id": "toolu_1", "name": tools[0], "input": {"input": PATCH}},
        {"type": "tool_use", "id": "toolu_2", "name": tools[1], "input": {"path": "a.py"}},
    ]
    return {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "claude-up",
        "content": calls,
        "stop_reason": "tool_use",
        "stop_sequence": None,
        "usage": {"input_tokens": 1, "output_tokens": 1},
    }


def streamed(body):
    frames = [{"type": "message_start", "message": body | {"content": [], "stop_reason": None}}]
    for index, call in enumerate(body["content"]):
        frames += [
            {
                "type": "content_block_start",
                "index": index,
                "content_block": call | {"input": {}},
            },
            {
                "type": "content_block_delta",
                "index": index,
                "delta": {
                    "type": "input_json_delta",
                    "partial_json": orjson.dumps(call["input"]).decode(),
                },
            },
            {"type": "content_block_stop", "index": index},
        ]
    frames += [
        {
            "type": "message_delta",
            "delta": {"stop_reason": "tool_use", "stop_sequence": None},
            "usage": {"output_tokens": 1},
        },
        {"type": "message_stop"},
    ]
    return [f"event: {f['type']}\ndata: {orjson.dumps(f).decode()}\n\n".encode() for f in frames]


def output_of(data, stream):
    if not stream:
        return orjson.loads(data)["output"]
    lines = [line[6:] for line in data.splitlines() if line.startswith(b"data: {")]
    return orjson.loads(lines[-1])["response"]["output"]


@pytest.mark.parametrize("stream", [False, True])
def test_a_call_is_returned_under_the_clients_own_name(tmp_path, stream):
    with scripted_upstream() as upstream:
        flags = ("--upstream", f"up=anthropic:{upstream.url}")
        with weft_serve(tmp_path, *flags) as gateway:
            body = answer(["apply_patch", "files__read"])
            whole = Scripted(orjson.dumps(body), kind="application/json")
            upstream.then(Scripted(*streamed(body)) if stream else whole)
            status, _, data = post(f"{gateway.url}/v1/responses", BODY | {"stream": stream})
            offered = [tool["name"] for tool in orjson.loads(upstream.requests[0]["body"])["tools"]]
    assert status == 200
    assert offered == ["apply_patch", "files__read"]
    patch, read = output_of(data, stream)
    assert (patch["type"], patch["name"], patch["input"]) == (
        "custom_tool_call",
        "apply_patch",
        PATCH,
    )
    assert (read["type"], read["name"], read["namespace"]) == ("function_call", "read", "files")
