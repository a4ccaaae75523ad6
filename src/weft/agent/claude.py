"""Convert the Claude Agent SDK's messages, and Claude Code's stream-json lines, to agent events.

Both have the same content: the SDK gives Python objects, the command line prints one JSON object
per line. A Python object is first converted to its JSON object (`to_json_object`). It is recognised
by the name of its class, so the SDK need not be installed. One state machine (`EventDecoder`) reads
the JSON objects. It skips what it does not know: a new message type, block or field never stops a
run.

With partial messages on, the text of an answer arrives twice: first as deltas, then as a complete
message. The text of the complete message is skipped. The text of a subagent is not part of the
answer: a message with a parent call emits only its tool events. If the answer is only in the final
result (structured output), its text is emitted then.

https://docs.claude.com/en/api/agent-sdk/python
"""

from collections.abc import AsyncIterable, AsyncIterator, Callable
from importlib import import_module
from typing import Any, ClassVar, cast

from weft import exact_json
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

# By the type of a block or delta: the member with its text, and the event to emit.
TEXT_TYPES: dict[str, tuple[str, type[TextDelta] | type[ThinkingDelta]]] = {
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
    """Convert the messages of an SDK client to agent events, as they arrive."""
    decoder = EventDecoder()
    async for message in messages:
        for event in decoder.feed(message):
            yield event


class EventDecoder:
    """Converts one session's messages, in order: SDK objects, dicts, or lines of text."""

    def __init__(self) -> None:
        self._block_count = 0
        self._streamed_ids: set[str] = set()  # of messages whose text arrived as deltas
        self._block_ids: dict[int, str] = {}  # of the message that streams, by its block's index
        self._has_text = False  # whether answer text was emitted since the last run ended

    def feed(self, message: object) -> list[AgentEvent]:
        """The events of this message; none if it is unknown or not JSON."""
        raw = to_json_object(message)
        read = self._READERS.get(_string(raw.get("type")))
        return read(self, raw) if read else []

    def _read_assistant(self, message: JsonObject) -> list[AgentEvent]:
        api_message = _object(message.get("message"))
        hides_text = (
            bool(message.get("parent_tool_use_id"))
            or _string(api_message.get("id")) in self._streamed_ids
        )
        events: list[AgentEvent] = []
        for block in _objects(api_message.get("content")):
            kind = _string(block.get("type"))
            if kind in TEXT_TYPES and not hides_text:
                events += self._read_delta(self._next_block_id(), kind, block)
            elif kind in CALL_TYPES:
                call_input = block.get("input")
                input = call_input if isinstance(call_input, str) else _object(call_input)
                events.append(
                    ToolStart(_string(block.get("id")), _string(block.get("name")), input)
                )
            else:
                events += _read_tool_result(block)
        return events

    def _read_user(self, message: JsonObject) -> list[AgentEvent]:
        """Tool results only; the caller already has the user's text."""
        blocks = _objects(_object(message.get("message")).get("content"))
        return [event for block in blocks for event in _read_tool_result(block)]

    def _read_partial(self, message: JsonObject) -> list[AgentEvent]:
        if message.get("parent_tool_use_id"):
            return []
        event = _object(message.get("event"))
        kind, index = _string(event.get("type")), _integer(event.get("index"))
        if kind == "message_start":
            if message_id := _string(_object(event.get("message")).get("id")):
                self._streamed_ids.add(message_id)
            self._block_ids.clear()
        if kind != "content_block_delta":
            return []
        if index not in self._block_ids:
            self._block_ids[index] = self._next_block_id()
        delta = _object(event.get("delta"))
        return self._read_delta(self._block_ids[index], _string(delta.get("type")), delta)

    def _read_system(self, message: JsonObject) -> list[AgentEvent]:
        data = {key: value for key, value in message.items() if key not in ("type", "subtype")}
        return [SystemMessage(_string(message.get("subtype")), data)]

    def _read_run_result(self, message: JsonObject) -> list[AgentEvent]:
        """The result of a run: its usage, its end, and its text if that did not arrive before."""
        usage = _read_usage(message)
        text = "" if self._has_text else _string(message.get("result"))
        self._has_text = False
        if message.get("is_error"):
            status = message.get("api_error_status")
            status = status if isinstance(status, int) else None
            return [usage, Failure(_failure_text(message), status)]
        from weft.codec.anthropic.wire import STOP_KINDS  # a codec is slow to import

        stop = _string(message.get("stop_reason"))
        answer: list[AgentEvent] = [TextDelta(self._next_block_id(), text)] if text else []
        return [*answer, usage, MessageComplete(STOP_KINDS.get(stop, stop or "end"))]

    def _read_delta(self, block_id: str, kind: str, source: JsonObject) -> list[AgentEvent]:
        """The event for the text of a block or delta; none if it has no text."""
        if kind not in TEXT_TYPES:
            return []
        member, make = TEXT_TYPES[kind]
        text = _string(source.get(member))
        self._has_text |= bool(text) and make is TextDelta
        return [make(block_id, text)] if text else []

    def _next_block_id(self) -> str:
        self._block_count += 1
        return f"block-{self._block_count}"

    _READERS: ClassVar["dict[str, Callable[[EventDecoder, JsonObject], list[AgentEvent]]]"] = {
        "assistant": _read_assistant,
        "user": _read_user,
        "stream_event": _read_partial,
        "system": _read_system,
        "result": _read_run_result,
    }


def to_json_object(message: object) -> JsonObject:
    """The JSON object of a message or block, as stream-json writes it; `{}` if it is unknown."""
    if isinstance(message, str | bytes):
        try:
            return _object(exact_json.loads(message))
        except exact_json.JSONDecodeError:
            return {}
    if isinstance(message, dict):
        return cast(JsonObject, message)
    for base in type(message).__mro__:
        if base.__name__ in CONVERTERS:
            return CONVERTERS[base.__name__](message)
    return {}


def _attributes_converter(kind: str, *names: str) -> Callable[[object], JsonObject]:
    """A function that returns these attributes of an object as a JSON object. Attributes that the
    object does not have are left out."""

    def convert(item: object) -> JsonObject:
        attributes = {name: getattr(item, name) for name in names if hasattr(item, name)}
        return {"type": kind, **attributes}

    return convert


def _message_converter(kind: str) -> Callable[[object], JsonObject]:
    """A function that returns the JSON object of a user or assistant message."""

    def convert(item: object) -> JsonObject:
        content: Any = getattr(item, "content", None)
        blocks = cast(list[object], content) if isinstance(content, list) else []
        return {
            "type": kind,
            "message": {
                "id": getattr(item, "message_id", None),
                "content": content
                if isinstance(content, str)
                else [to_json_object(block) for block in blocks],
            },
            "parent_tool_use_id": getattr(item, "parent_tool_use_id", None),
        }

    return convert


def _convert_system(item: object) -> JsonObject:
    data = _object(getattr(item, "data", None))
    return {**data, "type": "system", "subtype": getattr(item, "subtype", "")}


CONVERTERS: dict[str, Callable[[object], JsonObject]] = {
    "AssistantMessage": _message_converter("assistant"),
    "UserMessage": _message_converter("user"),
    "SystemMessage": _convert_system,
    "StreamEvent": _attributes_converter("stream_event", "event", "parent_tool_use_id"),
    "ResultMessage": _attributes_converter(
        "result",
        "subtype",
        "is_error",
        "result",
        "errors",
        "usage",
        "model_usage",
        "stop_reason",
        "total_cost_usd",
        "api_error_status",
    ),
    "TextBlock": _attributes_converter("text", "text"),
    "ThinkingBlock": _attributes_converter("thinking", "thinking"),
    "ToolUseBlock": _attributes_converter("tool_use", "id", "name", "input"),
    "ToolResultBlock": _attributes_converter("tool_result", "tool_use_id", "content", "is_error"),
    "ServerToolUseBlock": _attributes_converter("server_tool_use", "id", "name", "input"),
    "ServerToolResultBlock": _attributes_converter("server_tool_result", "tool_use_id", "content"),
}
"""By the name of the SDK's class: a function that returns the JSON object."""


def _read_tool_result(block: JsonObject) -> list[AgentEvent]:
    if not _string(block.get("type")).endswith(RESULT_SUFFIX):
        return []
    call = _string(block.get("tool_use_id"))
    return [ToolEnd(call, _content_text(block.get("content")), block.get("is_error") is True)]


def _content_text(content: object) -> str:
    """The text of a result, with the type of each part that is not text."""
    if isinstance(content, str):
        return content
    parts = _objects(content) or [part for part in (_object(content),) if part]
    return "\n".join(
        _string(part.get("text")) or f"[{_string(part.get('type')) or 'data'}]" for part in parts
    )


def _read_usage(message: JsonObject) -> UsageReport:
    usage = _object(message.get("usage"))
    cache_read, cache_written = (
        _integer(usage.get(name))
        for name in ("cache_read_input_tokens", "cache_creation_input_tokens")
    )
    thinking = _object(usage.get("output_tokens_details")).get("thinking_tokens")
    # The command line writes `modelUsage`, the SDK `model_usage`.
    models = _object(message.get("modelUsage") or message.get("model_usage")).values()
    windows = [_integer(_object(model).get("contextWindow")) for model in models]
    cost = message.get("total_cost_usd")
    return UsageReport(
        _integer(usage.get("input_tokens")) + cache_read + cache_written,
        _integer(usage.get("output_tokens")),
        cached=cache_read or None,
        written=cache_written or None,
        written_1h=_integer(_object(usage.get("cache_creation")).get("ephemeral_1h_input_tokens"))
        or None,
        reasoning=_integer(thinking) or None,
        window=max(windows, default=0) or None,
        cost=float(cost) if isinstance(cost, int | float) else None,
    )


def _failure_text(message: JsonObject) -> str:
    errors = message.get("errors")
    texts = cast(list[object], errors) if isinstance(errors, list) else []
    reasons = [text for text in (message.get("result"), *texts) if isinstance(text, str) and text]
    return (
        "; ".join(reasons) or _string(message.get("subtype")) or "the agent failed without a reason"
    )


# The JSON is not validated. These functions return an empty value if the type is wrong.


def _object(value: object) -> JsonObject:
    return cast(JsonObject, value) if isinstance(value, dict) else {}


def _objects(value: object) -> list[JsonObject]:
    items = cast(list[object], value) if isinstance(value, list) else []
    return [cast(JsonObject, item) for item in items if isinstance(item, dict)]


def _string(value: object) -> str:
    return value if isinstance(value, str) else ""


def _integer(value: object) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) else 0
