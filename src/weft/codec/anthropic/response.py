"""Complete answers, both ways. Decoding turns a body into events and folds them.

Gaps that some servers leave in an answer are completed before it is read.
"""

from typing import Any, cast

from weft.codec.base import Encoded, Locate, Losses, members
from weft.codec.errors import failed, failed_stop, not_an_answer
from weft.codec.lenient import (
    arguments_object,
    made_call_id,
    optional_text,
    with_repairs,
    with_text,
    with_type,
)
from weft.codec.read import at, objects
from weft.codec.reports import report_answer, report_call, report_ext
from weft.model import (
    Audio,
    Block,
    Close,
    End,
    Event,
    File,
    Finish,
    Image,
    JsonObject,
    Message,
    Opaque,
    Open,
    Origin,
    Position,
    Redacted,
    Response,
    Start,
    Thinking,
    ToolCall,
    fold,
)

from .blocks import Writer, decode_block
from .errors import decode_error
from .usage import decode_stop, decode_usage, encode_usage, stop_details, stop_reason
from .wire import FAILED_STOPS, PROTOCOL

BLOCK_TYPES = {
    "text": "text",
    "thinking": "thinking",
    "input": "tool_use",
    "data": "redacted_thinking",
}
TEXT_MEMBERS = {"text": "text", "thinking": "thinking", "redacted_thinking": "data"}
"""The member of a block that must be a text, by the type of the block."""


def complete_content(content: Any, losses: Losses) -> Any:
    """The content of an answer as a list of complete blocks."""
    if isinstance(content, str):
        losses.add("content", "value_retyped", "string -> list")
        return [{"type": "text", "text": content}] if content else []
    if not isinstance(content, list):
        return content
    return [
        complete_block(fields, number, f"content[{number}]", losses)
        if (fields := members(block)) is not None
        else block
        for number, block in enumerate(cast(list[Any], content))
    ]


def complete_block(raw: JsonObject, number: int, path: str, losses: Losses) -> JsonObject:
    """A block with defaults for a call's missing id or input; its name is required."""
    raw = with_type(raw, BLOCK_TYPES, path, losses)
    kind = raw.get("type")
    if kind == "tool_use":
        if type(raw.get("input")) is not dict:
            written = arguments_object(raw.get("input"), f"{path}.input", losses)
            raw = {**raw, "input": written}
        if not isinstance(raw.get("id"), str):
            raw = {**raw, "id": made_call_id(raw, "id", number, path, losses)}
        return raw
    member = TEXT_MEMBERS.get(kind) if isinstance(kind, str) else None
    return raw if member is None else with_text(raw, member, path, losses)


ENVELOPE = frozenset(
    {"id", "type", "role", "model", "content", "stop_reason", "stop_sequence", "usage"}
)


def decode_response(body: JsonObject) -> Response:
    """Decode a complete answer; raises `Refused` with the path of an invalid member.

    Raises `UpstreamFailed` if it failed, and `NotAnAnswer` if it is not an answer.
    """
    if body.get("type") == "error" or body.get("error"):
        raise failed(decode_error(body, 0))
    repairs = Losses()
    content = complete_content(body.get("content"), repairs)
    if not isinstance(content, list):
        raise not_an_answer(body, "content")
    error = failed_stop(body.get("stop_reason"), FAILED_STOPS)
    if error is not None:
        raise failed(error)
    events: list[Event] = [decode_start(body)]
    for number, raw in enumerate(objects(content, "content")):
        with at(f"content[{number}]"):
            events += (Open(number, decode_block(raw)), Close(number))
    events += (Finish(decode_stop(body)), End())
    origin = Origin(PROTOCOL, model=optional_text(body.get("model")))
    return with_repairs(fold(events, origin), repairs)


def decode_start(body: JsonObject) -> Start:
    """The start event for an envelope."""
    rest = {key: value for key, value in body.items() if key not in ENVELOPE}
    return Start(
        optional_text(body.get("id")),
        optional_text(body.get("model")),
        decode_usage(body.get("usage")),
        {PROTOCOL: rest} if rest else None,
    )


def locate_answer(_response: Response, position: Position) -> str:
    """The path of a position in an answer of this protocol."""
    match position:
        case (int(), int(block), *_):
            return f"content[{block}]"
        case ("stop", *part):
            return f"stop_{part[0]}" if part else "stop_reason"
        case ("member", name):
            return str(name)
        case _:
            return ""


def encode_response(response: Response, _created: int, locate: Locate | None = None, /) -> Encoded:
    """Encode a complete answer."""
    losses = Losses(locate=locate)
    origin = response.message.origin
    native = origin is not None and origin.protocol == PROTOCOL
    writer = Writer(None, losses, native=True)
    body: JsonObject = {
        "id": response.id or "msg_weft",
        "type": "message",
        "role": "assistant",
        "model": response.model or "",
        "content": [
            _write_block(block, (0, number), writer)
            for number, block in enumerate(response.message.blocks)
            if is_supported(block, response.message, (0, number), losses)
        ],
        "stop_reason": stop_reason(response.stop, losses, native=native),
        "stop_sequence": response.stop.sequence if response.stop is not None else None,
        "usage": encode_usage(response.usage),
    }
    if not native and (details := stop_details(response.stop)) is not None:
        body["stop_details"] = details
    if response.ext is not None:
        report_answer(response.ext, PROTOCOL, losses)
        body.update(response.ext.get(PROTOCOL, {}))
    return Encoded(body, losses.items)


def _write_block(block: Block, position: tuple[int, int], writer: Writer) -> JsonObject:
    body = writer.block(block, position)
    ext = getattr(block, "ext", None)
    if ext is not None:
        report_ext(ext, PROTOCOL, position, writer.losses)
    if isinstance(block, Thinking) and block.signature is None:
        body["signature"] = (
            ""  # thinking of this protocol always has a signature; this one is unsigned
        )
    return body


def is_supported(block: Block, message: Message, position: tuple[int, int], losses: Losses) -> bool:
    """Whether a client of this protocol can receive this block; an unsupported one is reported.

    Thinking is shown to every client. Another vendor's signature is sent too, because the client
    sends it back and the original model needs it.
    """
    if isinstance(block, Opaque) and block.protocol != PROTOCOL:
        losses.add(position, "vendor_block_dropped", block.raw.get("type"))
        return False
    if isinstance(block, ToolCall):
        report_call(block, position, losses, custom=False)
    if isinstance(block, Audio | File | Image):
        what = type(block).__name__.lower()
        losses.add(position, "block_unsupported", what)
        return False
    if isinstance(block, Redacted | Thinking):
        return message.origin is None or block != Thinking("")
    return True
