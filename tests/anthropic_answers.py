"""Scripted answers in the form of Anthropic's stream."""

from typing import Any

import orjson

from servers import Scripted


def streamed(*blocks: Any, stop: str = "end_turn") -> Scripted:
    """An Anthropic stream of these texts and calls."""
    usage = {"input_tokens": 1, "output_tokens": 1}
    begin = {"id": "msg_1", "type": "message", "role": "assistant", "model": "m", "content": []}
    frames: list[dict[str, Any]] = [
        {"type": "message_start", "message": {**begin, "stop_reason": None, "usage": usage}}
    ]
    for index, block in enumerate(blocks):
        if isinstance(block, str):
            opened: Any = {"type": "text", "text": ""}
            delta: Any = {"type": "text_delta", "text": block}
        else:
            opened = {**block, "input": {}}
            written = orjson.dumps(block["input"]).decode()
            delta = {"type": "input_json_delta", "partial_json": written}
        frames += [
            {"type": "content_block_start", "index": index, "content_block": opened},
            {"type": "content_block_delta", "index": index, "delta": delta},
            {"type": "content_block_stop", "index": index},
        ]
    frames.append({"type": "message_delta", "delta": {"stop_reason": stop}, "usage": usage})
    frames.append({"type": "message_stop"})
    return Scripted(
        *(b"event: %b\ndata: %b\n\n" % (f["type"].encode(), orjson.dumps(f)) for f in frames)
    )


def call(id: str, name: str, /, **arguments: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": id, "name": name, "input": arguments}
