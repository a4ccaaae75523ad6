"""Clients of every protocol that echo an answer in their next request.

A *whole* client sends back everything it got. A *thrifty* client sends back only text, and calls
with id, name and arguments, as many real clients do.
"""

from typing import Any

from weft.codec import CODECS, SseParser, as_dict
from weft.model import Origin, fold

Body = dict[str, Any]
OPEN, GO_ON = "a question", "go on"


def next_request(protocol: str, answer: Body, *, whole: bool = True) -> Body:
    """The client's request after this answer: the question, the echo, and results or another
    text."""
    return CLIENTS[protocol](answer, whole)


def anthropic(answer: Body, whole: bool) -> Body:
    content = answer["content"]
    if not whole:
        members = {"text": ("type", "text"), "tool_use": ("type", "id", "name", "input")}
        content = [
            {key: block[key] for key in members[block["type"]]}
            for block in content
            if block["type"] in members
        ]
    uses = [block["id"] for block in content if block["type"] == "tool_use"]
    after: Any = [{"type": "tool_result", "tool_use_id": use, "content": "ok"} for use in uses]
    return {
        "model": "m",
        "max_tokens": 99,
        "messages": [
            {"role": "user", "content": OPEN},
            *([{"role": "assistant", "content": content}] if content else ()),
            {"role": "user", "content": after or GO_ON},
        ],
    }


def chat(answer: Body, whole: bool) -> Body:
    texts = answer["choices"][0]["message"]
    names = ("role", "content", "tool_calls")
    echo = {key: value for key, value in texts.items() if whole or key in names}
    echo = {key: value for key, value in echo.items() if key == "content" or not _is_empty(value)}
    calls = [call["id"] for call in texts.get("tool_calls") or ()]
    after = [{"role": "tool", "tool_call_id": call, "content": "ok"} for call in calls]
    return {
        "model": "m",
        "messages": [
            {"role": "user", "content": OPEN},
            echo,
            *(after or [{"role": "user", "content": GO_ON}]),
        ],
    }


def _is_empty(value: Any) -> bool:
    """Whether a member is empty: some servers write every member that exists."""
    return not value or (isinstance(value, dict) and not any(value.values()))


CALLS = {
    "function_call": ("type", "call_id", "name", "arguments", "namespace"),
    "custom_tool_call": ("type", "call_id", "name", "input", "namespace"),
}


def responses(answer: Body, whole: bool) -> Body:
    items = list(answer["output"])
    calls = [item for item in items if item["type"] in CALLS]
    if not whole:
        items = [echo for item in items if (echo := _thrifty_item(item)) is not None]
    after = [
        {"type": f"{call['type']}_output", "call_id": call["call_id"], "output": "ok"}
        for call in calls
    ]
    first = {"role": "user", "content": OPEN}
    return {
        "model": "m",
        "input": [first, *items, *(after or [{"role": "user", "content": GO_ON}])],
    }


def _thrifty_item(item: Body) -> Body | None:
    if item["type"] in CALLS:
        return {key: item[key] for key in CALLS[item["type"]] if item.get(key) is not None}
    if item["type"] != "message":
        return None
    words = [part["text"] for part in item["content"] if part["type"] == "output_text"]
    return {"role": "assistant", "content": "".join(words)} if words else None


def gemini(answer: Body, whole: bool) -> Body:
    content = (answer.get("candidates") or [{}])[0].get("content") or {}
    parts = content.get("parts") or []
    if not whole:
        members = ("text", "functionCall")
        parts = [
            {key: part[key] for key in members if key in part}
            for part in parts
            if not part.get("thought") and any(key in part for key in members)
        ]
    calls = [part["functionCall"] for part in parts if "functionCall" in part]
    after = [{"functionResponse": _gemini_result(call)} for call in calls]
    model = [{"role": "model", "parts": parts}] if parts else []
    last = {"role": "user", "parts": after or [{"text": GO_ON}]}
    return {"contents": [{"role": "user", "parts": [{"text": OPEN}]}, *model, last]}


def _gemini_result(call: Body) -> Body:
    result: Body = {"name": call["name"], "response": {"output": "ok"}}
    if call.get("id"):
        result["id"] = call["id"]
    return result


CLIENTS = {
    "anthropic": anthropic,
    "openai-chat": chat,
    "openai-responses": responses,
    "gemini": gemini,
}


def plain(messages: list[Body]) -> list[Body]:
    """Messages with contents in one form: a string equals one text, null equals an absent
    member."""
    return [_plain_message(message) for message in messages]


def _plain_message(message: Body) -> Body:
    content = message.get("content")
    if not content:
        return {key: value for key, value in message.items() if key != "content"}
    if isinstance(content, str):
        kind = "output_text" if message.get("type") == "message" else "text"
        return {**message, "content": [{"type": kind, "text": content}]}
    return message


def answer_of(stream: bytes, protocol: str) -> Body:
    """The complete answer that a client builds from a stream."""
    codec = CODECS[protocol]
    parser, decoder = SseParser(), codec.stream_decoder()
    frames = parser.feed(stream) + parser.close()
    events = [event for frame in frames for event in decoder.feed(frame)] + decoder.close()
    return as_dict(codec.encode_response(fold(events, Origin(protocol)), 0).body)[0]
