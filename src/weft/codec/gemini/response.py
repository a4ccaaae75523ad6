"""Decodes and encodes complete answers:
https://ai.google.dev/api/generate-content#v1beta.GenerateContentResponse

The candidate with index 0 is the answer, the other ones are its alternatives. A blocked prompt has
no candidate, only `promptFeedback`; it is decoded to an answer with the stop kind `filter`. The
response's `ext` has the candidate's other members, and these notes:

- `envelope`: the other members of the body,
- `candidates`: the candidates that cannot be decoded, by their place in the list,
- `@position`: the place of the answer in the list, unless it is the first,
- `@finishReason`: the original reason, if it is a number or says nothing,
- `content`: the original `content` without its parts, if it is unusual,
- `unanswered`: the original `candidates` of a body without an answer.

Token counts and finish reasons are here too:
https://ai.google.dev/api/generate-content#UsageMetadata

- `promptTokenCount` includes cached input.
- `candidatesTokenCount` excludes thoughts; `Usage.output` includes them.
- Tokens that Gemini's own tools read count as input.

Error bodies are decoded and encoded here too: https://cloud.google.com/apis/design/errors

- `status` is a name from google.rpc.Code.
- `code` is the HTTP status.
- `details` names the invalid field, or says that the API key is invalid.
"""

from typing import Any, cast

from msgspec import structs

from weft.codec.base import Encoded, Locate, Losses, as_object
from weft.codec.errors import (
    NO_REASON,
    STATUS_BY_KIND,
    STATUS_KINDS,
    error_status,
    error_text,
    failed_stop,
    kind_of,
    not_an_answer,
    refusal_explanation,
    upstream_failed,
)
from weft.codec.lenient import arguments_object, count_of, optional_text, with_repairs
from weft.codec.read import objects, path_prefix, with_prefix, wrong
from weft.codec.reports import report_answer, report_call, report_ext, report_stop, report_thinking
from weft.errors import Refused, UpstreamFailed
from weft.model import (
    ApiError,
    Block,
    Close,
    End,
    ErrorKind,
    Event,
    Ext,
    Finish,
    JsonObject,
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

from .blocks import DATA, PartReader, Writer, own_ext
from .enums import BLOCK_REASONS, UNSPECIFIED, VERTEX_REASONS, enum_name, finish_reasons
from .spelling import read_spelling
from .streamed_calls import CallJoiner
from .wire import (
    EXACT_STOPS,
    FAILED_STOPS,
    FAILED_WITHOUT_CALL,
    PROTOCOL,
    STOP_KINDS,
    STOP_REASON_BY_KIND,
)


def complete_part(raw: JsonObject, path: str, losses: Losses) -> JsonObject:
    """A part with exactly one data member, and with arguments that are an object.

    Some servers write all data members, most of them null, or the arguments as a string.
    """
    data = [key for key in raw if key in DATA]
    null_data = [key for key in data if raw[key] is None]
    if null_data and len(data) - len(null_data) == 1:
        raw = {key: value for key, value in raw.items() if key not in null_data}
        losses.add(path, "null_value_dropped", ", ".join(null_data))
    elif null_data == data == ["text"]:
        raw = {**raw, "text": ""}
        losses.add(f"{path}.text", "missing_value_added", '""')
    call = as_object(raw.get("functionCall"))
    if call is not None and isinstance(call.get("args"), str):
        args = arguments_object(call["args"], f"{path}.functionCall.args", losses)
        raw = {**raw, "functionCall": {**call, "args": args}}
    return raw


MAPPED_MEMBERS = frozenset(
    {"candidates", "promptFeedback", "usageMetadata", "modelVersion", "responseId"}
)
MAPPED_CANDIDATE_MEMBERS = frozenset({"content", "finishReason", "finishMessage"})
"""Members of a body, and of a candidate, that have a field in `Response`."""
USUAL_CONTENT = {"role": "model"}
"""The members of a content beside its parts."""


def decode_response(body: JsonObject) -> Response:
    """Decode a complete answer.

    Raises `UpstreamFailed` for a failed answer and `NotAnAnswer` for a body without an answer.
    """
    if body.get("error"):
        raise upstream_failed(decode_error(body, 0))
    if not body.get("candidates") and decode_block(body.get("promptFeedback")) is None:
        raise not_an_answer(body, "candidates")
    answer = _decode_candidate(body, first_candidate(body))
    others: list[tuple[int, Response]] = []
    broken: JsonObject = {}
    position = 0
    for place, candidate in enumerate(body.get("candidates") or ()):
        if candidate is first_candidate(body):
            position = place
            continue
        number = candidate_number(candidate, place)
        try:
            other = _decode_candidate({**body, "candidates": [candidate]}, candidate)
        except (Refused, UpstreamFailed):
            broken[str(place)] = candidate
            continue
        others.append((number, structs.replace(other, usage=None, ext=_own_members(other.ext))))
    notes: JsonObject = {"candidates": broken} if broken else {}
    if position:
        notes["@position"] = position
    ext = answer.ext
    if notes:
        ext = {PROTOCOL: {**own_ext(ext), **notes}}
    return structs.replace(answer, alternatives=tuple(others), ext=ext)


def _own_members(ext: Ext | None) -> Ext | None:
    """The members of a candidate without those of its body."""
    members = {key: value for key, value in own_ext(ext).items() if key != "envelope"}
    return {PROTOCOL: members} if members else None


def candidate_number(candidate: JsonObject, place: int) -> int:
    """The index of a candidate; its place in the list if it has none."""
    index = candidate.get("index")
    if isinstance(index, str) and index.isdecimal() and len(index) < 20:
        return int(index)
    return index if isinstance(index, int) else place


def _decode_candidate(body: JsonObject, candidate: JsonObject) -> Response:
    """Decode one answer of a body."""
    events: list[Event] = [decode_start(body)]
    reader = PartReader(str(body.get("responseId") or "answer"))
    called = False
    repairs = Losses()
    joiner = CallJoiner(repairs)
    blocks: list[Block] = []
    for number, raw in enumerate(answer_parts(candidate)):
        for part in joiner.feed(raw):
            if part is not raw:
                path = f"candidates[0].content.parts[{number}].functionCall"
                repairs.add(path, "value_retyped", "partialArgs -> args")
            blocks.append(decode_part(reader, part, number, repairs))
    blocks += close_calls(joiner, reader, candidate, repairs)
    for number, block in enumerate(blocks):
        called = called or isinstance(block, ToolCall)
        events += (Open(number, block), Close(number))
    error = failed_candidate(candidate, body, called=called)
    if error is not None:
        raise upstream_failed(error, native=True)
    events += (decode_finish(body, candidate, called), End())
    origin = Origin(PROTOCOL, model=optional_text(body.get("modelVersion")))
    return with_repairs(fold(events, origin), repairs)


def close_calls(
    joiner: CallJoiner, reader: PartReader, candidate: JsonObject, repairs: Losses
) -> list[ToolCall]:
    """The calls whose end never came: whole, or cut off where the answer was cut off."""
    blocks: list[ToolCall] = []
    is_cut = enum_name(candidate.get("finishReason"), VERTEX_REASONS) == "MAX_TOKENS"
    for streamed in joiner.close():
        block = decode_part(reader, streamed.part(), 0, repairs)
        if not isinstance(block, ToolCall):
            continue
        if is_cut:
            block = structs.replace(block, arguments=streamed.arguments.cut_text())
        blocks.append(block)
    return blocks


def failed_candidate(candidate: JsonObject, body: JsonObject, *, called: bool) -> ApiError | None:
    """The error of a failed candidate; `called` is whether the answer contains a call."""
    failures = FAILED_STOPS if called else FAILED_STOPS | FAILED_WITHOUT_CALL
    reason = enum_name(candidate.get("finishReason"), finish_reasons(body))
    return failed_stop(reason, failures, candidate.get("finishMessage"))


def decode_start(body: JsonObject) -> Start:
    """The start event: the id and model of the answer."""
    return Start(optional_text(body.get("responseId")), optional_text(body.get("modelVersion")))


def first_candidate(body: JsonObject) -> JsonObject:
    """The candidate with index 0; empty if there is none."""
    candidates = body.get("candidates")
    if candidates is None:
        return {}
    for candidate in objects(candidates, "candidates"):
        if candidate.get("index") in (None, 0, "0"):
            return candidate
    return {}


def answer_parts(candidate: JsonObject) -> list[JsonObject]:
    raw = candidate.get("content")
    content = {} if raw is None else as_object(raw)
    if content is None:
        raise wrong("candidates[0].content", raw, "an object")
    parts = content.get("parts")
    if parts is None:
        return []
    with path_prefix("candidates[0].content"):
        return objects(parts, "parts")


def decode_part(reader: PartReader, raw: JsonObject, number: int, repairs: Losses) -> Block:
    """Decode a part of an answer; raises `Refused` with its path."""
    path = f"candidates[0].content.parts[{number}]"
    camel_part, spelling = read_spelling(raw)
    complete = complete_part(camel_part, path, repairs)
    is_original = complete is camel_part
    try:
        block = reader.part(complete, 0, number)
    except Refused as error:
        raise with_prefix(path, error) from None
    if isinstance(block, Opaque) and spelling is not None and is_original:
        return Opaque(PROTOCOL, raw)  # an unknown part keeps its spelling
    return block


def decode_finish(body: JsonObject, candidate: JsonObject, called: bool) -> Finish:
    """The finish event: stop reason, usage and other members."""
    ext = {key: value for key, value in candidate.items() if key not in MAPPED_CANDIDATE_MEMBERS}
    stop = decode_stop(candidate, body, called)
    if stop is None or stop.raw != candidate["finishReason"]:
        ext |= {f"@{key}": candidate[key] for key in ("finishReason",) if key in candidate}
    if stop is None and "finishMessage" in candidate:
        ext["finishMessage"] = candidate["finishMessage"]
    ext |= _content_note(candidate)
    envelope = {key: value for key, value in body.items() if key not in MAPPED_MEMBERS}
    blocked = None if candidate else decode_block(body.get("promptFeedback"))
    if blocked is not None:
        stop = blocked
        ext["unanswered"] = body.get("candidates")
    elif "promptFeedback" in body:
        envelope["promptFeedback"] = body["promptFeedback"]
    if not candidate and blocked is None:
        ext["unanswered"] = body.get("candidates")
    if envelope:
        ext["envelope"] = envelope
    return Finish(stop, decode_usage(body.get("usageMetadata")), {PROTOCOL: ext} if ext else None)


def _content_note(candidate: JsonObject) -> JsonObject:
    """The note `content`; empty if the content is just parts with the role `model`."""
    if not candidate:
        return {}
    content = as_object(candidate.get("content"))
    if content is None:
        return {"content": candidate.get("content")}
    other_members = {key: value for key, value in content.items() if key != "parts" or not value}
    return {} if other_members == USUAL_CONTENT else {"content": other_members}


def locate_answer(response: Response, position: Position) -> str:
    """The path of a position in an answer of this protocol."""
    match position:
        case (int(), int(block), *_):
            return f"candidates[0].content.parts[{block}]"
        case ("stop", *details):
            if _block_feedback(response.stop) is not None:
                return "promptFeedback" if details else "promptFeedback.blockReason"
            return "candidates[0].finishMessage" if details else "candidates[0].finishReason"
        case ("alternative", int(number)):
            return f"candidates[{number}]"
        case ("member", str(name)):
            return NOTE_PATHS.get(name, f"candidates[0].{name}")
        case _:
            return ""


NOTE_PATHS = {
    "candidates": "candidates",
    "content": "candidates[0].content",
    "envelope": "",
    "unanswered": "candidates",
}
"""The path of each note that the decoder keeps in `ext`."""


def encode_response(response: Response, _created: int, locate: Locate | None = None, /) -> Encoded:
    """Encode a complete answer."""
    losses = Losses(locate=locate)
    writer = Writer(None, losses)
    message = response.message
    parts: list[JsonObject] = []
    for number, block in enumerate(message.blocks):
        supported = client_block(block, message.origin, (0, number), losses)
        if supported is not None:
            parts.append(writer.part(supported, (0, number)))
    if message.origin is None or message.origin.protocol != PROTOCOL:
        report_stop(response.stop, EXACT_STOPS, losses)
    if response.ext is not None:
        report_answer(response.ext, PROTOCOL, losses)
    body = write_answer(parts, response.stop, own_ext(response.ext))
    if response.alternatives:
        _add_alternatives(body, response, losses)
    usage = encode_usage(response.usage)
    if usage is not None:
        body["usageMetadata"] = usage
    if response.model is not None:
        body["modelVersion"] = response.model
    if response.id is not None:
        body["responseId"] = response.id
    return Encoded(body, losses.items)


def _add_alternatives(body: JsonObject, response: Response, losses: Losses) -> None:
    """Add the other answers to the list of candidates."""
    candidates: list[JsonObject] = body["candidates"]
    for number, other in response.alternatives:

        def locate(_position: Position, path: str = losses.path(("alternative", number))) -> str:
            return path

        encoded = encode_response(other, 0, locate)
        losses.items += encoded.losses
        candidate: JsonObject = encoded.body["candidates"][0]
        if other.message.origin is None or other.message.origin.protocol != PROTOCOL:
            candidate["index"] = number
        candidates.append(candidate)
    notes = own_ext(response.ext)
    candidates.insert(notes.get("@position", 0), candidates.pop(0))
    for place, candidate in notes.get("candidates", {}).items():
        candidates.insert(int(place), candidate)


def write_answer(parts: list[JsonObject], stop: Stop | None, notes: JsonObject) -> JsonObject:
    """The body with its candidates; `notes` are the decoder's, and members of the candidate."""
    notes = dict(notes)
    envelope = dict(notes.pop("envelope", ()))
    notes.pop("candidates", None)
    notes.pop("@position", None)
    feedback = _block_feedback(stop)
    if feedback is not None and not parts:
        return {"promptFeedback": feedback, **envelope}
    if "unanswered" in notes:
        candidates = notes.pop("unanswered")
        if not parts:
            return envelope if candidates is None else {"candidates": candidates, **envelope}
    candidate = _write_candidate(parts, stop, notes)
    return {"candidates": [candidate], **envelope}


def _block_feedback(stop: Stop | None) -> JsonObject | None:
    """The `promptFeedback` of a blocked prompt, else `None`."""
    details = as_object(stop.details) if stop is not None else None
    return details if details is not None and "blockReason" in details else None


def _write_candidate(parts: list[JsonObject], stop: Stop | None, notes: JsonObject) -> JsonObject:
    content: Any = notes.pop("content", USUAL_CONTENT)
    candidate: JsonObject = {}
    if content is not None or parts:
        candidate["content"] = {**(content or {}), **({"parts": parts} if parts else {})}
    if stop is not None:
        candidate["finishReason"] = finish_reason(stop)
        if isinstance(stop.details, str):
            candidate["finishMessage"] = stop.details
        elif message := refusal_explanation(stop):
            candidate["finishMessage"] = message
    if "@finishReason" in notes:
        candidate["finishReason"] = notes.pop("@finishReason")
    candidate.update(notes)
    return candidate


def client_block(
    block: Block, origin: Origin | None, position: tuple[int, int], losses: Losses
) -> Block | None:
    """The block to send to a client of this protocol; `None`, with a loss, if it is unsupported.

    Thinking is sent without another vendor's signature: clients of this protocol decode and
    re-encode signatures, so it would come back corrupted.
    """
    if isinstance(block, Opaque) and block.protocol != PROTOCOL:
        losses.add(position, "vendor_block_dropped", block.raw.get("type"))
        return None
    if isinstance(block, Redacted):
        losses.add(position, "redacted_thinking_dropped", "redacted thinking")
        return None
    if isinstance(block, Thinking) and origin is not None and origin.protocol != PROTOCOL:
        report_thinking(block, PROTOCOL, position, losses)
        return Thinking(block.text) if block.text else None
    if isinstance(block, ToolCall):
        report_call(block, position, losses, custom=False)
    ext = getattr(block, "ext", None)
    if ext is not None:
        report_ext(ext, PROTOCOL, position, losses)
    return block


def decode_usage(raw: Any) -> Usage | None:
    usage = as_object(raw)
    if usage is None:
        return None
    thoughts = count_of(usage, "thoughtsTokenCount")
    return Usage(
        input=_sum(count_of(usage, "promptTokenCount"), count_of(usage, "toolUsePromptTokenCount")),
        output=_sum(count_of(usage, "candidatesTokenCount"), thoughts),
        cached=count_of(usage, "cachedContentTokenCount"),
        reasoning=thoughts,
        raw={PROTOCOL: usage},
    )


def encode_usage(usage: Usage | None) -> JsonObject | None:
    """The counts in Gemini's form; `None` if there are none."""
    if usage is None:
        return None
    if usage.raw is not None and PROTOCOL in usage.raw:
        return dict(usage.raw[PROTOCOL])
    body: JsonObject = {}
    if usage.input is not None:
        body["promptTokenCount"] = usage.input
    if usage.cached is not None:
        body["cachedContentTokenCount"] = usage.cached
    if usage.output is not None:
        body["candidatesTokenCount"] = max(0, usage.output - (usage.reasoning or 0))
    if usage.reasoning is not None:
        body["thoughtsTokenCount"] = usage.reasoning
    if body:
        body["totalTokenCount"] = (usage.input or 0) + (usage.output or 0)
    return body or None


def decode_stop(candidate: JsonObject, body: JsonObject, called: bool) -> Stop | None:
    """Why a candidate ended; `called` distinguishes calls from text, which both end with `STOP`."""
    reason = enum_name(candidate.get("finishReason"), finish_reasons(body))
    if not isinstance(reason, str) or reason == UNSPECIFIED:
        return None
    kind = STOP_KINDS.get(reason, "other")
    if called and kind == "end":
        kind = "tool"
    return Stop(kind, reason, details=candidate.get("finishMessage"))


def decode_block(feedback: Any) -> Stop | None:
    """The stop of a prompt that was blocked before any answer."""
    raw = as_object(feedback)
    if raw is None or "blockReason" not in raw:
        return None
    return Stop("filter", str(enum_name(raw["blockReason"], BLOCK_REASONS)), details=raw)


def finish_reason(stop: Stop) -> str:
    """The original reason of a Gemini answer, else the nearest one."""
    reason = stop.raw or ""
    # Gemini's reasons are in capitals. `STOP` means `end`, but Gemini sends it for tool calls, too.
    if reason.isupper() and STOP_KINDS.get(reason, "other") in (stop.kind, "end"):
        return reason
    return STOP_REASON_BY_KIND[stop.kind]


def _sum(first: int | None, second: int | None) -> int | None:
    return None if first is None and second is None else (first or 0) + (second or 0)


STATUSES: dict[str, ErrorKind] = {
    "INVALID_ARGUMENT": "invalid_request",
    "FAILED_PRECONDITION": "invalid_request",
    "OUT_OF_RANGE": "invalid_request",
    "ALREADY_EXISTS": "invalid_request",
    "ABORTED": "server",
    "CANCELLED": "timeout",
    "UNAUTHENTICATED": "authentication",
    "PERMISSION_DENIED": "permission",
    "NOT_FOUND": "not_found",
    "RESOURCE_EXHAUSTED": "rate_limit",
    "INTERNAL": "server",
    "UNKNOWN": "server",
    "DATA_LOSS": "server",
    "UNIMPLEMENTED": "invalid_request",
    "UNAVAILABLE": "overloaded",
    "DEADLINE_EXCEEDED": "timeout",
}
"""https://github.com/googleapis/googleapis/blob/master/google/rpc/code.proto"""

STATUS_NAME_BY_KIND: dict[ErrorKind, str] = {
    "invalid_request": "INVALID_ARGUMENT",
    "context_length": "INVALID_ARGUMENT",
    "too_large": "INVALID_ARGUMENT",
    "authentication": "UNAUTHENTICATED",
    "permission": "PERMISSION_DENIED",
    "billing": "FAILED_PRECONDITION",
    "not_found": "NOT_FOUND",
    "rate_limit": "RESOURCE_EXHAUSTED",
    "overloaded": "UNAVAILABLE",
    "timeout": "DEADLINE_EXCEEDED",
    "server": "INTERNAL",
}

BAD_REQUEST = "type.googleapis.com/google.rpc.BadRequest"
"""https://github.com/googleapis/googleapis/blob/master/google/rpc/error_details.proto"""

TOO_LONG = "the input token count exceeds the maximum number of tokens allowed"
"""Google's text for a request that is too long."""


def decode_error(body: Any, status: int) -> ApiError:
    """Read an error body; any other body is accepted too, and its text becomes the message."""
    items = cast("list[Any]", body) if isinstance(body, list) else []
    if items:  # without `alt=sse`, a stream is a JSON array
        return decode_error(items[0], status)
    envelope = as_object(body) or {}
    error = as_object(envelope.get("error")) or {}
    status_name = error.get("status")
    message = error_text(cast(Any, body)) or NO_REASON
    code = error.get("code")
    status = status or (code if isinstance(code, int) else 0)
    details = _details(error)
    kind = STATUSES.get(str(status_name))
    if any(detail.get("reason") == "API_KEY_INVALID" for detail in details):
        kind = "authentication"
    if kind == "invalid_request" and status in STATUS_KINDS:
        kind = STATUS_KINDS[status]
    kind = kind_of(status, message, kind)
    other_members = {
        key: value for key, value in error.items() if key not in ("code", "message", "status")
    }
    return ApiError(
        kind,
        message,
        status or STATUS_BY_KIND[kind],
        status_name if isinstance(status_name, str) else None,
        param=_invalid_field(details),
        ext={PROTOCOL: other_members} if other_members else None,
    )


def _details(error: JsonObject) -> list[JsonObject]:
    details = error.get("details")
    if not isinstance(details, list):
        return []
    return [detail for item in cast(list[Any], details) if (detail := as_object(item)) is not None]


def _invalid_field(details: list[JsonObject]) -> str | None:
    """The path of the invalid field, if the error names one."""
    for detail in details:
        violations = detail.get("fieldViolations")
        for item in cast(list[Any], violations) if isinstance(violations, list) else ():
            field = (as_object(item) or {}).get("field")
            if isinstance(field, str) and field:
                return field
    return None


def encode_error(error: ApiError) -> tuple[int, JsonObject]:
    """The status and body that a Gemini client understands."""
    other_members = (error.ext or {}).get(PROTOCOL, {})
    status = error_status(error)
    message = error.message
    if error.kind == "context_length" and "token count" not in message:
        message = f"{TOO_LONG}: {message}"
    status_name = error.type if error.type in STATUSES else STATUS_NAME_BY_KIND[error.kind]
    body: JsonObject = {"code": status, "message": message, "status": status_name, **other_members}
    if error.param is not None and "details" not in body:
        violation = {"field": error.param, "description": error.message}
        body["details"] = [{"@type": BAD_REQUEST, "fieldViolations": [violation]}]
    return status, {"error": body}
