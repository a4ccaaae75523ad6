"""Convert the Claude Agent SDK's messages, and Claude Code's stream-json lines, to agent events.

Both have the same content: the SDK gives Python objects, the command line prints one JSON object
per line. An object is first converted to its line (`to_line`). It is recognised by the name of its
class, so the SDK need not be installed. One state machine (`EventReader`) reads the lines. It skips
what it does not know: a new message type, block or field never stops a run.

With partial messages on, the text of an answer arrives twice, first as deltas and then whole; the
second is skipped. The text of a sub-agent is not part of the answer: a message with a parent call
emits only its tool events. If the answer is only in the final result (structured output), its text
is emitted then.

https://docs.claude.com/en/api/agent-sdk/python
"""

from collections.abc import AsyncIterable, AsyncIterator, Callable
from importlib import import_module
from typing import Any, ClassVar, cast

import orjson

from weft.errors import ConfigError
from weft.model import JsonObject

from .events import (
    AgentEvent,
    Failure,
    MessageComplete,
    SystemMessage,
    TextDelta,
    ThinkingDelta,
    ToolEnd,
    ToolStart,
    UsageReport,
)

# The type of a block or delta: the member with its text, and the event for it.
DELTAS: dict[str, tuple[str, type[TextDelta] | type[ThinkingDelta]]] = {
    "text": ("text", TextDelta),
    "text_delta": ("text", TextDelta),
    "thinking": ("thinking", ThinkingDelta),
    "thinking_delta": ("thinking", ThinkingDelta),
}
CALL_TYPES = frozenset({"tool_use", "server_tool_use", "mcp_tool_use"})
RESULT_SUFFIX = "tool_result"  # `mcp_tool_result`, `web_search_tool_result`, ...


async def query(prompt: str, **options: Any) -> AsyncIterator[AgentEvent]:
    """Ask Claude through its SDK and yield the events of the run.

    It needs the extra `claude`: `pip install '.[claude]'`.
    """
    sdk = load_sdk()
    messages = sdk.query(prompt=prompt, options=sdk.ClaudeAgentOptions(**options))
    async for event in watch(messages):
        yield event


def load_sdk() -> Any:
    """The module of the Claude Agent SDK; raises `ConfigError` if it is not installed."""
    try:
        return import_module("claude_agent_sdk")
    except ImportError as error:
        raise ConfigError(
            "the Claude Agent SDK is not installed: pip install '.[claude]' in the folder of Weft"
        ) from error


async def watch(messages: AsyncIterable[object]) -> AsyncIterator[AgentEvent]:
    """The events of an SDK client's messages, as they arrive."""
    reader = EventReader()
    async for message in messages:
        for event in reader.feed(message):
            yield event


class EventReader:
    """Converts one session's messages, in order: SDK objects, dicts, or lines of text."""

    def __init__(self) -> None:
        self._block_count = 0
        self._streamed_ids: set[str] = set()  # of messages whose text arrived as deltas
        self._block_ids: dict[int, str] = {}  # of the message that streams, by its block's index
        self._has_text = False  # since the last result

    def feed(self, message: object) -> list[AgentEvent]:
        """The events of this message; none if it is unknown or not JSON."""
        line = to_line(message)
        read = self._READERS.get(_text(line.get("type")))
        return read(self, line) if read else []

    def _read_assistant(self, line: JsonObject) -> list[AgentEvent]:
        message = _object(line.get("message"))
        hides_text = (
            bool(line.get("parent_tool_use_id")) or _text(message.get("id")) in self._streamed_ids
        )
        events: list[AgentEvent] = []
        for block in _objects(message.get("content")):
            kind = _text(block.get("type"))
            if kind in DELTAS and not hides_text:
                events += self._read_delta(self._next_block_id(), kind, block)
            elif kind in CALL_TYPES:
                call_input = block.get("input")
                input = call_input if isinstance(call_input, str) else _object(call_input)
                events.append(ToolStart(_text(block.get("id")), _text(block.get("name")), input))
            else:
                events += _read_result(block)
        return events

    def _read_user(self, line: JsonObject) -> list[AgentEvent]:
        """Tool results only; the caller already has the user's text."""
        blocks = _objects(_object(line.get("message")).get("content"))
        return [event for block in blocks for event in _read_result(block)]

    def _read_partial(self, line: JsonObject) -> list[AgentEvent]:
        if line.get("parent_tool_use_id"):
            return []
        event = _object(line.get("event"))
        kind, index = _text(event.get("type")), _count(event.get("index"))
        if kind == "message_start":
            self._streamed_ids |= {_text(_object(event.get("message")).get("id"))} - {""}
            self._block_ids.clear()
        if kind != "content_block_delta":
            return []
        if index not in self._block_ids:
            self._block_ids[index] = self._next_block_id()
        delta = _object(event.get("delta"))
        return self._read_delta(self._block_ids[index], _text(delta.get("type")), delta)

    def _read_system(self, line: JsonObject) -> list[AgentEvent]:
        data = {key: value for key, value in line.items() if key not in ("type", "subtype")}
        return [SystemMessage(_text(line.get("subtype")), data)]

    def _read_end(self, line: JsonObject) -> list[AgentEvent]:
        """The result of a run: its usage, its end, and its text if that did not arrive before."""
        usage = _read_usage(line)
        text = "" if self._has_text else _text(line.get("result"))
        self._has_text = False
        if line.get("is_error"):
            status = line.get("api_error_status")
            status = status if isinstance(status, int) else None
            return [usage, Failure(_failure_text(line), status)]
        from weft.codec.anthropic.wire import STOP_KINDS  # a codec is slow to import

        stop = _text(line.get("stop_reason"))
        answer: list[AgentEvent] = [TextDelta(self._next_block_id(), text)] if text else []
        return [*answer, usage, MessageComplete(STOP_KINDS.get(stop, stop or "end"))]

    def _read_delta(self, block_id: str, kind: str, source: JsonObject) -> list[AgentEvent]:
        """The event for the text of a block or delta; none if it has no text."""
        field, make = DELTAS.get(kind, ("", TextDelta))
        text = _text(source.get(field))
        self._has_text |= bool(text) and make is TextDelta
        return [make(block_id, text)] if text else []

    def _next_block_id(self) -> str:
        self._block_count += 1
        return f"block-{self._block_count}"

    _READERS: ClassVar["dict[str, Callable[[EventReader, JsonObject], list[AgentEvent]]]"] = {
        "assistant": _read_assistant,
        "user": _read_user,
        "stream_event": _read_partial,
        "system": _read_system,
        "result": _read_end,
    }


def to_line(message: object) -> JsonObject:
    """A message as the object of its stream-json line; `{}` if it is unknown."""
    if isinstance(message, str | bytes):
        try:
            return _object(orjson.loads(message))
        except orjson.JSONDecodeError:
            return {}
    if isinstance(message, dict):
        return cast(JsonObject, message)
    for base in type(message).__mro__:
        if base.__name__ in SDK_CLASSES:
            return SDK_CLASSES[base.__name__](message)
    return {}


def _attributes_writer(kind: str, *names: str) -> Callable[[object], JsonObject]:
    """A function that writes these attributes of an object, without those it does not have."""

    def write(item: object) -> JsonObject:
        attributes = {name: getattr(item, name) for name in names if hasattr(item, name)}
        return {"type": kind, **attributes}

    return write


def _turn_writer(kind: str) -> Callable[[object], JsonObject]:
    """A function that writes a message of the user or the assistant."""

    def write(item: object) -> JsonObject:
        content: Any = getattr(item, "content", None)
        blocks = cast(list[object], content) if isinstance(content, list) else []
        return {
            "type": kind,
            "message": {
                "id": getattr(item, "message_id", None),
                "content": content
                if isinstance(content, str)
                else [to_line(block) for block in blocks],
            },
            "parent_tool_use_id": getattr(item, "parent_tool_use_id", None),
        }

    return write


def _system_line(item: object) -> JsonObject:
    data = _object(getattr(item, "data", None))
    return {**data, "type": "system", "subtype": getattr(item, "subtype", "")}


SDK_CLASSES: dict[str, Callable[[object], JsonObject]] = {
    "AssistantMessage": _turn_writer("assistant"),
    "UserMessage": _turn_writer("user"),
    "SystemMessage": _system_line,
    "StreamEvent": _attributes_writer("stream_event", "event", "parent_tool_use_id"),
    "ResultMessage": _attributes_writer(
        "result",
        *("subtype", "is_error", "result", "errors", "usage", "model_usage", "stop_reason"),
        *("total_cost_usd", "api_error_status"),
    ),
    "TextBlock": _attributes_writer("text", "text"),
    "ThinkingBlock": _attributes_writer("thinking", "thinking"),
    "ToolUseBlock": _attributes_writer("tool_use", "id", "name", "input"),
    "ToolResultBlock": _attributes_writer("tool_result", "tool_use_id", "content", "is_error"),
    "ServerToolUseBlock": _attributes_writer("server_tool_use", "id", "name", "input"),
    "ServerToolResultBlock": _attributes_writer("server_tool_result", "tool_use_id", "content"),
}


def _read_result(block: JsonObject) -> list[AgentEvent]:
    if not _text(block.get("type")).endswith(RESULT_SUFFIX):
        return []
    call = _text(block.get("tool_use_id"))
    return [ToolEnd(call, _content_text(block.get("content")), block.get("is_error") is True)]


def _content_text(content: object) -> str:
    """The text of a result, with the type of each part that is not text."""
    if isinstance(content, str):
        return content
    parts = _objects(content) or [part for part in (_object(content),) if part]
    return "\n".join(
        _text(part.get("text")) or f"[{_text(part.get('type')) or 'data'}]" for part in parts
    )


def _read_usage(line: JsonObject) -> UsageReport:
    usage = _object(line.get("usage"))
    cached, written = (
        _count(usage.get(name))
        for name in ("cache_read_input_tokens", "cache_creation_input_tokens")
    )
    thinking = _object(usage.get("output_tokens_details")).get("thinking_tokens")
    models = _object(line.get("modelUsage") or line.get("model_usage")).values()
    windows = [_count(_object(model).get("contextWindow")) for model in models]
    cost = line.get("total_cost_usd")
    return UsageReport(
        _count(usage.get("input_tokens")) + cached + written,
        _count(usage.get("output_tokens")),
        cached=cached or None,
        written=written or None,
        reasoning=_count(thinking) or None,
        window=max(windows, default=0) or None,
        cost=float(cost) if isinstance(cost, int | float) else None,
    )


def _failure_text(line: JsonObject) -> str:
    errors = line.get("errors")
    texts = cast(list[object], errors) if isinstance(errors, list) else []
    reasons = [text for text in (line.get("result"), *texts) if isinstance(text, str) and text]
    return "; ".join(reasons) or _text(line.get("subtype")) or "the agent failed without a reason"


def _object(value: object) -> JsonObject:
    return cast(JsonObject, value) if isinstance(value, dict) else {}


def _objects(value: object) -> list[JsonObject]:
    items = cast(list[object], value) if isinstance(value, list) else []
    return [cast(JsonObject, item) for item in items if isinstance(item, dict)]


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _count(value: object) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) else 0
