"""Decodes and encodes complete answers, token counts, stop reasons and errors.

A body is decoded to events, which are then folded. Members that some servers leave out are filled
in before.

Anthropic's `input_tokens` excludes cached input. `Usage.input` includes it.

Errors: https://platform.claude.com/docs/en/api/errors
"""

from typing import Any, cast

from msgspec import structs

from weft.codec.base import Encoded, Locate, Losses, as_object
from weft.codec.errors import (
    NO_REASON,
    STATUS_BY_KIND,
    error_status,
    error_text,
    failed_stop,
    kind_of,
    not_an_answer,
    refusal_explanation,
    upstream_failed,
)
from weft.codec.lenient import (
    arguments_object,
    count_of,
    optional_text,
    read_call_id,
    with_repairs,
    with_text,
    with_type,
)
from weft.codec.read import objects, optional, path_prefix
from weft.codec.reports import report_answer, report_call, report_ext, report_stop
from weft.model import (
    ApiError,
    Audio,
    Block,
    Close,
    End,
    ErrorKind,
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
    Stop,
    Thinking,
    ToolCall,
    Usage,
    fold,
)

from .blocks import Writer, decode_block
from .wire import FAILED_STOPS, PROTOCOL, STOP_KINDS, STOP_REASON_BY_KIND

BLOCK_TYPES = {
    "text": "text",
    "thinking": "thinking",
    "input": "tool_use",
    "data": "redacted_thinking",
}
"""The type of a block without a `type`, by the member that it has."""

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
        if (fields := as_object(block)) is not None
        else block
        for number, block in enumerate(cast(list[Any], content))
    ]


def complete_block(raw: JsonObject, number: int, path: str, losses: Losses) -> JsonObject:
    """A block with defaults for missing members, except for the name of a call."""
    raw = with_type(raw, BLOCK_TYPES, path, losses)
    kind = raw.get("type")
    if kind == "tool_use":
        if type(raw.get("input")) is not dict:
            arguments = arguments_object(raw.get("input"), f"{path}.input", losses)
            raw = {**raw, "input": arguments}
        if not isinstance(raw.get("id"), str):
            raw = {**raw, "id": read_call_id(raw, "id", number, path, losses)}
        return raw
    member = TEXT_MEMBERS.get(kind) if isinstance(kind, str) else None
    return raw if member is None else with_text(raw, member, path, losses)


MAPPED_MEMBERS = frozenset(
    {"id", "type", "role", "model", "content", "stop_reason", "stop_sequence", "usage"}
)
"""Members of a body that have a field in `Response`, or always the same value."""


def decode_response(body: JsonObject) -> Response:
    """Decode a complete answer; raises `Refused` with the path of an invalid member.

    Raises `UpstreamFailed` if it failed, and `NotAnAnswer` if it is not an answer.
    """
    if body.get("type") == "error" or body.get("error"):
        raise upstream_failed(decode_error(body, 0))
    repairs = Losses()
    content = complete_content(body.get("content"), repairs)
    if not isinstance(content, list):
        raise not_an_answer(body, "content")
    error = failed_stop(body.get("stop_reason"), FAILED_STOPS)
    if error is not None:
        raise upstream_failed(error)
    events: list[Event] = [decode_start(body)]
    for number, raw in enumerate(objects(content, "content")):
        with path_prefix(f"content[{number}]"):
            events += (Open(number, decode_block(raw)), Close(number))
    events += (Finish(decode_stop(body)), End())
    origin = Origin(PROTOCOL, model=optional_text(body.get("model")))
    return with_repairs(fold(events, origin), repairs)


def decode_start(body: JsonObject) -> Start:
    """The start event of an answer, from the members of its body."""
    rest = {key: value for key, value in body.items() if key not in MAPPED_MEMBERS}
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
            if check_supported(block, response.message, (0, number), losses)
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
        body["signature"] = ""  # a required member
    return body


def check_supported(
    block: Block, message: Message, position: tuple[int, int], losses: Losses
) -> bool:
    """Whether a client of this protocol can receive this block; an unsupported one is reported.

    Clients get the thinking of every vendor, with its signature: they send it back, and its own
    model needs it.
    """
    if isinstance(block, Opaque) and block.protocol != PROTOCOL:
        losses.add(position, "vendor_block_dropped", block.raw.get("type"))
        return False
    if isinstance(block, ToolCall):
        report_call(block, position, losses, custom=False)
    if isinstance(block, Audio | File | Image):
        losses.add(position, "block_unsupported", type(block).__name__.lower())
        return False
    if isinstance(block, Redacted | Thinking):
        return message.origin is None or block != Thinking("")
    return True


EXACT_STOPS = frozenset(STOP_KINDS.values())
"""Stop kinds that this protocol can express exactly."""


def decode_usage(raw: Any) -> Usage | None:
    usage = as_object(raw)
    if usage is None:
        return None
    uncached = count_of(usage, "input_tokens")
    cached = count_of(usage, "cache_read_input_tokens")
    written = _cache_written(usage)
    details = as_object(usage.get("output_tokens_details")) or {}
    return Usage(
        input=None if uncached is None else uncached + (cached or 0) + (written or 0),
        output=count_of(usage, "output_tokens"),
        cached=cached,
        written=written,
        reasoning=count_of(details, "thinking_tokens"),
        raw={PROTOCOL: usage},
    )


def _cache_written(usage: JsonObject) -> int | None:
    """Tokens written to the cache: the reported total, else the sum over the cache lifetimes."""
    total = count_of(usage, "cache_creation_input_tokens")
    by_lifetime = as_object(usage.get("cache_creation"))
    if total is not None or not by_lifetime:
        return total
    return sum(count for count in by_lifetime.values() if isinstance(count, int))


def decode_final_usage(first: JsonObject, raw: Any) -> Usage | None:
    """The usage at the end of a stream; `first` and `raw` are the counts of its first and last
    event.

    The last event may omit counts that were in the first, but the total input needs all of them.
    `Usage.raw` keeps only the last event.
    """
    last = as_object(raw)
    if last is None:
        return None
    counts = {key: value for key, value in last.items() if value is not None}
    usage = decode_usage({**first, **counts})
    return None if usage is None else structs.replace(usage, raw={PROTOCOL: last})


def encode_usage(usage: Usage | None, *, partial: bool = False) -> JsonObject:
    """The counts in Anthropic's form; with `partial`, unknown counts are omitted."""
    if usage is not None and usage.raw is not None and PROTOCOL in usage.raw:
        return dict(usage.raw[PROTOCOL])
    usage = usage or Usage()
    body: JsonObject = {}
    if usage.input is not None or not partial:
        body["input_tokens"] = max(
            0, (usage.input or 0) - (usage.cached or 0) - (usage.written or 0)
        )
    if usage.written is not None:
        body["cache_creation_input_tokens"] = usage.written
    if usage.cached is not None:
        body["cache_read_input_tokens"] = usage.cached
    body["output_tokens"] = usage.output or 0
    return body


def decode_stop(raw: JsonObject) -> Stop | None:
    reason = optional(raw, "stop_reason", str)
    if reason is None:
        return None
    return Stop(
        STOP_KINDS.get(reason, "other"),
        reason,
        optional(raw, "stop_sequence", str),
        raw.get("stop_details"),
    )


def stop_reason(stop: Stop | None, losses: Losses, *, native: bool) -> str | None:
    """The original reason of an Anthropic answer, else the nearest one; an inexact one is reported.

    An explanation is not reported as lost, because `stop_details` writes it.
    """
    if stop is None:
        return None
    if native and stop.raw is not None:
        return stop.raw
    reported_stop = structs.replace(stop, details=None) if refusal_explanation(stop) else stop
    report_stop(reported_stop, EXACT_STOPS, losses, "sequence")
    return STOP_REASON_BY_KIND[stop.kind]


def stop_details(stop: Stop | None) -> JsonObject | None:
    """The `stop_details` for another protocol's explanation of a refusal, if there is one."""
    text = refusal_explanation(stop)
    if stop is None or not text:
        return None
    category = (as_object(stop.details) or {}).get("category")
    return {"type": "refusal", "category": category, "explanation": text}


TYPES: dict[str, ErrorKind] = {
    "invalid_request_error": "invalid_request",
    "authentication_error": "authentication",
    "billing_error": "billing",
    "permission_error": "permission",
    "not_found_error": "not_found",
    "request_too_large": "too_large",
    "rate_limit_error": "rate_limit",
    "timeout_error": "timeout",
    "api_error": "server",
    "overloaded_error": "overloaded",
}

TYPE_BY_KIND: dict[ErrorKind, str] = {
    **{kind: name for name, kind in TYPES.items()},
    "context_length": "invalid_request_error",
}

STATUSES: dict[ErrorKind, int] = {**STATUS_BY_KIND, "overloaded": 529}


def decode_error(body: Any, status: int) -> ApiError:
    """Read an error body; any other body is accepted too, and its text becomes the message."""
    envelope = as_object(body) or {}
    error = as_object(envelope.get("error")) or {}
    error_type = error.get("type")
    message = error_text(body) or NO_REASON
    kind = kind_of(status, message, TYPES.get(str(error_type)))
    other_members = {key: value for key, value in envelope.items() if key not in ("type", "error")}
    return ApiError(
        kind,
        message,
        status or STATUSES[kind],
        error_type if isinstance(error_type, str) else None,
        ext={PROTOCOL: other_members} if other_members else None,
    )


def encode_error(error: ApiError) -> tuple[int, JsonObject]:
    """The status and body for an Anthropic client.

    Claude Code compacts when it reads "prompt is too long", so the message for a full context
    window begins with that phrase.
    """
    error_type = error.type if error.type in TYPES else TYPE_BY_KIND[error.kind]
    message = error.message
    if error.kind == "context_length" and "prompt is too long" not in message.lower():
        message = f"prompt is too long: {message}"
    if error.param is not None and error.param not in message:
        message = f"{error.param}: {message}"
    body: JsonObject = {"type": "error", "error": {"type": error_type, "message": message}}
    if error.ext is not None:
        body.update(error.ext.get(PROTOCOL, {}))
    return error_status(error, STATUSES), body
