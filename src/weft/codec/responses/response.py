"""Decodes and encodes complete answers. Decoding turns a body into events and folds them.

A response object repeats the whole request next to the answer. This envelope is kept in `ext`, so
that it can be written back to the same protocol. Other protocols have no equivalent.

Token counts and stop reasons are here too.

Errors have OpenAI's common body (`codec.openai`), and two forms that only streams have. An
`error` event is the error itself. A `response.failed` event has it inside the response:
https://platform.openai.com/docs/api-reference/responses-streaming/response/failed
"""

from collections.abc import Sequence
from typing import Any, cast

from weft.codec.base import Encoded, Locate, Losses, as_object
from weft.codec.errors import NO_REASON, declined_in_text, not_an_answer, upstream_failed
from weft.codec.lenient import (
    arguments_text,
    optional_text,
    read_call_id,
    with_repairs,
    with_text,
    with_type,
)
from weft.codec.openai import decode_counts, decode_error
from weft.codec.read import objects, path_prefix
from weft.codec.reports import report_answer, report_ext, report_stop
from weft.model import (
    ApiError,
    Audio,
    Block,
    Checkpoint,
    Close,
    End,
    ErrorKind,
    Event,
    Ext,
    File,
    Finish,
    Image,
    JsonObject,
    Opaque,
    Open,
    Origin,
    Position,
    Redacted,
    Refusal,
    Reminder,
    Response,
    Start,
    Stop,
    StopKind,
    Text,
    Thinking,
    ToolCall,
    Usage,
    fold,
)

from .items import Writer, decode_output_item, item_members, reasoning
from .wire import (
    DEFAULT_ID,
    FAILED_STOPS,
    POLICIES,
    PROTOCOL,
    STOP_KINDS,
    STOP_REASON_BY_KIND,
    item_id,
)

ITEM_TYPES = {
    "content": "message",
    "arguments": "function_call",
    "input": "custom_tool_call",
    "summary": "reasoning",
    "encrypted_content": "reasoning",
}
"""By a member that only one type of item has: that type, for items without a `type`."""

PART_TYPES = {"text": "output_text", "refusal": "refusal"}
"""The same for the parts of a message item."""


def complete_item(raw: JsonObject, number: int, path: str, losses: Losses) -> JsonObject:
    """An output item with defaults for a call's missing id or arguments; its name is required."""
    raw = with_type(raw, ITEM_TYPES, path, losses)
    match raw.get("type"):
        case "message":
            content = raw.get("content")
            if isinstance(content, list):
                parts = [
                    complete_part(part, f"{path}.content[{index}]", losses)
                    for index, part in enumerate(cast(list[Any], content))
                ]
                raw = {**raw, "content": parts}
        case "function_call":
            if type(raw.get("arguments")) is not str:
                arguments = arguments_text(raw.get("arguments"), f"{path}.arguments", losses)
                raw = {**raw, "arguments": arguments}
            raw = _with_call_id(raw, number, path, losses)
        case "custom_tool_call":
            raw = _with_call_id(with_text(raw, "input", path, losses), number, path, losses)
        case _:
            pass
    return raw


def complete_part(part: Any, path: str, losses: Losses) -> Any:
    """A part of a message item with defaults for missing members; a string becomes a text part."""
    if isinstance(part, str):
        losses.add(path, "value_retyped", "string -> part")
        return {"type": "output_text", "text": part}
    fields = as_object(part)
    if fields is None:
        return part
    fields = with_type(fields, PART_TYPES, path, losses)
    if fields.get("type") == "output_text":
        return with_text(fields, "text", path, losses)
    return fields


def _with_call_id(raw: JsonObject, number: int, path: str, losses: Losses) -> JsonObject:
    """The item with a `call_id`, which results refer to; the item's own id is the fallback."""
    if isinstance(raw.get("call_id"), str):
        return raw
    key = "id" if raw.get("call_id") is None and isinstance(raw.get("id"), str) else "call_id"
    call_id = read_call_id(raw, key, number, path, losses)
    if key == "id":
        losses.add(f"{path}.call_id", "missing_value_added", call_id)
    return {**raw, "call_id": call_id}


MAPPED_MEMBERS = frozenset({"id", "model", "output"})
"""Members of a response object that have a field; all others are its envelope."""

PENDING = frozenset({"queued", "in_progress"})
"""Values of `status` for an answer that is still to come."""


def decode_response(body: JsonObject) -> Response:
    """Decode a complete answer.

    Raises `UpstreamFailed` for a failed response, `NotAnAnswer` for a body without an answer, and
    `Refused` with a path for a member that cannot be decoded.
    """
    error = failed_response(body)
    if error is not None:
        raise upstream_failed(error)
    if not isinstance(body.get("output"), list) and str(body.get("status")) not in PENDING:
        raise not_an_answer(body, "output")
    events: list[Event] = [decode_start(body)]
    blocks: list[Block] = []
    repairs = Losses()
    for number, raw in enumerate(objects(body.get("output"), "output")):
        with path_prefix(f"output[{number}]"):
            blocks += decode_output_item(complete_item(raw, number, f"output[{number}]", repairs))
    for number, block in enumerate(blocks):
        events += (Open(number, block), Close(number))
    finish = decode_finish(body, called=_any(blocks, ToolCall), refused=_any(blocks, Refusal))
    origin = Origin(PROTOCOL, model=optional_text(body.get("model")))
    return with_repairs(fold([*events, finish, End()], origin), repairs)


def failed_response(body: JsonObject) -> ApiError | None:
    """The error of a failed response; `None` for an answer or a refusal by policy."""
    if refused_by(body) is not None:
        return None
    if not body.get("error") and str(body.get("status")) not in FAILED_STOPS:
        return None
    return decode_failure(body.get("error"))


def decode_start(body: JsonObject) -> Start:
    """The start event of a response object."""
    return Start(
        optional_text(body.get("id")),
        optional_text(body.get("model")),
        decode_usage(body.get("usage")),
        _envelope_ext(body),
    )


def decode_finish(body: JsonObject, *, called: bool, refused: bool) -> Finish:
    """The finish event of a response object."""
    return Finish(
        decode_stop(body, called=called, refused=refused),
        decode_usage(body.get("usage")),
        _envelope_ext(body),
    )


def _envelope_ext(body: JsonObject) -> Ext:
    """The envelope of a response object; usage that was decoded is not part of it."""
    envelope = {key: value for key, value in body.items() if key not in MAPPED_MEMBERS}
    if envelope.get("usage") is not None:
        del envelope["usage"]
    return {PROTOCOL: {"envelope": envelope}}


def _any(blocks: Sequence[Block], kind: type) -> bool:
    return any(isinstance(block, kind) for block in blocks)


def locate_answer(response: Response, position: Position) -> str:
    """The path of a position in an answer of this protocol."""
    match position:
        case (int(), int(block), *steps):
            member = ".arguments" if steps == ["arguments"] else ""
            return _part_path(response.message.blocks, block) + member
        case ("stop", *_):
            return _stop_path(response.stop)
        case ("member", str(name)) if name != "envelope":
            return name
        case _:
            return ""


def _stop_path(stop: Stop | None) -> str:
    """The path of the member that a stop reason was decoded from."""
    if stop is None:
        return "status"
    if stop.raw in POLICIES and stop.details is not None:
        return "error"
    return "incomplete_details.reason" if stop.raw in STOP_KINDS else "status"


def _part_path(blocks: Sequence[Block], number: int) -> str:
    """The path of the item or part that a block was decoded from."""
    item, part, in_message = -1, 0, False
    for block in blocks[: number + 1]:
        is_part = isinstance(block, Text | Refusal)
        if is_part and in_message and item_members(block) is None:
            part += 1
        else:
            item, part = item + 1, 0
        in_message = is_part
    return f"output[{item}].content[{part}]" if in_message else f"output[{item}]"


def encode_response(response: Response, created: int, locate: Locate | None = None, /) -> Encoded:
    """Encode a complete answer."""
    losses = Losses(locate=locate)
    original = (response.ext or {}).get(PROTOCOL)
    if response.ext is not None:
        report_answer(response.ext, PROTOCOL, losses)
    if original is not None:
        return Encoded(_write_native(response, original["envelope"], losses), losses.items)
    response_id = response.id or DEFAULT_ID
    output: list[JsonObject] = []
    for number, block in enumerate(response.message.blocks):
        if check_supported(block, (0, number), losses):
            ext = getattr(block, "ext", None)
            if ext is not None:
                report_ext(ext, PROTOCOL, (0, number), losses)
            output.append(output_item(block, response_id, len(output)))
    refused = _any(response.message.blocks, Refusal)
    status, incomplete = encode_status(response.stop, losses, refused=refused)
    body = response_object(response_id, response.model, created, status, output)
    body["incomplete_details"] = incomplete
    body["usage"] = encode_usage(response.usage)
    return Encoded(body, losses.items)


def _write_native(response: Response, envelope: JsonObject, losses: Losses) -> JsonObject:
    """An answer of this protocol with its original envelope."""
    blocks = list(response.message.blocks)
    writer = Writer(losses, native=True)
    positions: list[Position] = [(0, number) for number in range(len(blocks))]
    body: JsonObject = {**envelope, "id": response.id or DEFAULT_ID}
    if response.model is not None:
        body["model"] = response.model
    body["output"] = writer.assistant(response.message, blocks, positions) if blocks else []
    if response.usage is not None:
        body["usage"] = encode_usage(response.usage)
    return body


def response_object(
    response_id: str, model: str | None, created: int, status: str, output: list[JsonObject]
) -> JsonObject:
    """A response object with only the members that the vendor's schema requires."""
    return {
        "id": response_id,
        "object": "response",
        "created_at": created,
        "status": status,
        "error": None,
        "incomplete_details": None,
        "instructions": None,
        "metadata": None,
        "model": model or "",
        "output": output,
        "parallel_tool_calls": True,
        "temperature": None,
        "tool_choice": "auto",
        "tools": [],
        "top_p": None,
    }


def output_item(
    block: Block, response_id: str, number: int, status: str = "completed"
) -> JsonObject:
    """The item for one block of another protocol's answer."""
    body: JsonObject
    match block:
        case ToolCall():
            body = Writer(Losses(), native=True).call(block)
            if not block.custom:  # a custom call has no `status`
                body["status"] = status
        case Thinking() | Redacted():
            body = reasoning(block)
        case Opaque(raw=raw):
            return raw
        case _:
            parts = [output_part(block)]
            body = {"type": "message", "role": "assistant", "status": status, "content": parts}
    return {"id": item_id(body["type"], response_id, number), **body}


def output_part(block: Block) -> JsonObject:
    """The part of a message item for this block."""
    match block:
        case Refusal(text=text):
            return {"type": "refusal", "refusal": text}
        case Text(text=text):
            return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}
        case _:
            raise TypeError(f"{type(block).__name__} is not a part of a message item")


UNSUPPORTED = Audio | File | Image | Checkpoint | Reminder


def check_supported(
    block: Block, position: tuple[int, int], losses: Losses, *, streamed: bool = False
) -> bool:
    """Whether a client of this protocol can receive this block; an unsupported one is reported.

    Thinking is sent with another vendor's signature, because the client sends it back and the
    original model needs it. Empty thinking is skipped, unless it is `streamed`: then its text is
    still to come.
    """
    if isinstance(block, Opaque) and block.protocol != PROTOCOL:
        losses.add(position, "vendor_block_dropped", block.raw.get("type"))
        return False
    if isinstance(block, UNSUPPORTED):
        losses.add(position, "block_unsupported", type(block).__name__.lower())
        return False
    if isinstance(block, Redacted):
        losses.add(position, "redacted_as_reasoning")
    return streamed or block != Thinking("")


EXACT_STOPS: frozenset[StopKind] = frozenset({"end", "length", "tool", "filter"})
"""Stop kinds that this protocol can express exactly, with the items of the answer."""


def decode_usage(raw: Any) -> Usage | None:
    return decode_counts(raw, PROTOCOL, "input_tokens", "output_tokens")


def encode_usage(usage: Usage | None) -> JsonObject | None:
    """The counts in OpenAI's form; its schema requires all of them."""
    if usage is None:
        return None
    if usage.raw is not None and PROTOCOL in usage.raw:
        return usage.raw[PROTOCOL]
    input_details = {"cached_tokens": usage.cached or 0, "cache_write_tokens": usage.written or 0}
    return {
        "input_tokens": usage.input or 0,
        "input_tokens_details": input_details,
        "output_tokens": usage.output or 0,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning or 0},
        "total_tokens": (usage.input or 0) + (usage.output or 0),
    }


def decode_stop(response: JsonObject, *, called: bool, refused: bool) -> Stop | None:
    """Why a response ended.

    The `status` is `completed` for text, tool calls and refusals alike; `called` and `refused`
    distinguish them. A failure because of a policy becomes a refusal, as in other protocols.
    """
    status = response.get("status")
    if status is None:
        return None
    if status == "completed":
        return Stop("tool" if called else "refusal" if refused else "end", "completed")
    details = as_object(response.get("incomplete_details")) or {}
    reason = details.get("reason")
    policy = refused_by(response)
    if policy is not None:
        code, error = policy
        refusal_details = {"category": POLICIES[code], "explanation": error.get("message")}
        return Stop("refusal", code, details=refusal_details)
    if status == "incomplete":
        return Stop(STOP_KINDS.get(str(reason), "other"), reason or status)
    return Stop("other", str(status))


def refused_by(response: JsonObject) -> tuple[str, JsonObject] | None:
    """The policy code and the error of a response that a policy refused, else `None`."""
    error = as_object(response.get("error"))
    code = error.get("code") if error is not None else None
    if error is None or response.get("status") != "failed" or code not in POLICIES:
        return None
    return str(code), error


def encode_status(
    stop: Stop | None, losses: Losses, *, refused: bool = False
) -> tuple[str, JsonObject | None]:
    """The `status` and `incomplete_details` for an answer of another protocol.

    If the model declined in the text of its answer, the status is `completed`, as in OpenAI's own
    answers: https://platform.openai.com/docs/guides/structured-outputs#refusals
    """
    if stop is not None and declined_in_text(stop, refused=refused):
        return "completed", None
    report_stop(stop, EXACT_STOPS, losses)
    reason = STOP_REASON_BY_KIND.get(stop.kind) if stop is not None else None
    return ("completed", None) if reason is None else ("incomplete", {"reason": reason})


CODES: dict[ErrorKind, str] = {
    "context_length": "context_length_exceeded",
    "rate_limit": "rate_limit_exceeded",
    "billing": "insufficient_quota",
    "invalid_request": "invalid_prompt",
    "overloaded": "server_is_overloaded",
}
"""The `code` to send in a stream for each kind; all other kinds are `server_error`."""


def decode_failure(error: Any) -> ApiError:
    """The reason of a failed response, or the members of an `error` event."""
    if isinstance(error, str) and error:
        return decode_error({"error": error}, 0)
    fields = as_object(error) or {}
    inner = as_object(fields.get("error")) or fields
    if not inner:
        return ApiError("server", NO_REASON)
    return decode_error({"error": {**inner, "type": inner.get("error_type")}}, 0)


def encode_failure(error: ApiError) -> JsonObject:
    """The `error` of a failed response."""
    return {"code": CODES.get(error.kind, "server_error"), "message": error.message}
