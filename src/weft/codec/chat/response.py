"""Decodes and encodes complete answers: https://platform.openai.com/docs/api-reference/chat/object

The choice with index 0 is the answer, the other ones are its alternatives. Members without a field
in the model are kept in the response's `ext`, under their path in the body (`choices[0].logprobs`;
`choices[1]` for a choice that cannot be decoded). Losses use that path, and a client of the same
protocol gets the members back there. `ext` also has these notes:

- `@position`: the place of the answer in the list, unless it is the first,
- `@message`: the original `message` in a list, or an empty list, if the choice has none,
- `@content`: the original `content`, if it is a JSON value and not text (JSON mode of Cloudflare).

Token counts and finish reasons are here too. Like `Usage.input`, `prompt_tokens` includes the
tokens read from the cache and written to it.
"""

from collections.abc import Sequence
from typing import Any, cast

from msgspec import structs

from weft.codec.base import Encoded, Locate, Losses, ThinkingMember, as_object
from weft.codec.errors import declined_in_text, failed_stop, not_an_answer, upstream_failed
from weft.codec.lenient import (
    arguments_text,
    optional_text,
    read_call_id,
    with_repairs,
    with_text,
    with_type,
)
from weft.codec.openai import decode_counts, decode_error
from weft.codec.read import json_text, objects, with_prefix, wrong
from weft.codec.reports import report_answer, report_call, report_ext, report_stop, report_thinking
from weft.errors import Refused
from weft.model import (
    ApiError,
    Audio,
    Block,
    File,
    FileRef,
    Image,
    JsonObject,
    Message,
    Opaque,
    Origin,
    Position,
    Redacted,
    Refusal,
    Response,
    Stop,
    StopKind,
    Text,
    Thinking,
    ToolCall,
    Usage,
)

from .messages import decode_message, own_members, write_assistant
from .wire import (
    COMPLETION_OBJECT,
    FAILED_STOPS,
    HIDDEN,
    PROTOCOL,
    REASONING_DETAILS,
    REASONING_SIGNATURE,
    SOURCE_MEMBER,
    STOP_KINDS,
    STOP_REASON_BY_KIND,
    THINKING_MEMBERS,
)

PART_TYPES = {"text": "text", "refusal": "refusal", "image_url": "image_url"}
"""The type of a part without a `type`, by the member that it has."""


def complete_message(raw: JsonObject, path: str, losses: Losses) -> JsonObject:
    """The assistant message with defaults for missing members."""
    message = {**raw, "role": "assistant"}
    content = raw.get("content")
    if is_json_value(content):
        message["content"] = json_text(content, "content")
    elif isinstance(content, list):
        message["content"] = [
            complete_part(part, f"{path}.content[{number}]", losses)
            for number, part in enumerate(cast(list[Any], content))
        ]
    calls = raw.get("tool_calls")
    if isinstance(calls, list):
        message["tool_calls"] = [
            complete_call(call, number, f"{path}.tool_calls[{number}]", losses)
            for number, call in enumerate(cast(list[Any], calls))
        ]
    legacy = as_object(raw.get("function_call"))
    if legacy is not None and legacy.get("name"):
        arguments_path = f"{path}.function_call.arguments"
        arguments = arguments_text(legacy.get("arguments"), arguments_path, losses)
        message["function_call"] = {**legacy, "arguments": arguments}
    return message


def is_json_value(content: Any) -> bool:
    """Whether `content` is a value that the model was asked for, and not text or a list of parts.

    In JSON mode, Cloudflare sends the parsed value: an object, or a list of objects without a type.
    """
    if isinstance(content, list):
        items = cast(list[Any], content)
        return any(not isinstance(item, str | dict) for item in items) or any(
            isinstance(item, dict) and not item.keys() & {"type", *PART_TYPES} for item in items
        )
    return content is not None and not isinstance(content, str)


def complete_part(part: Any, path: str, losses: Losses) -> Any:
    """A content part with defaults for missing members; a string becomes a text part."""
    if isinstance(part, str):
        losses.add(path, "value_retyped", "string -> part")
        return {"type": "text", "text": part}
    fields = as_object(part)
    if fields is None:
        return part
    fields = with_type(fields, PART_TYPES, path, losses)
    return with_text(fields, "text", path, losses) if fields.get("type") == "text" else fields


def complete_call(call: Any, number: int, path: str, losses: Losses) -> Any:
    """A tool call with defaults for its id and arguments; its name is required.

    A custom call without a type gets the type `custom`.
    """
    raw = as_object(call)
    if raw is None:
        return call
    if raw.get("type") is None and "type" in raw:  # a null type counts as missing
        raw = {key: value for key, value in raw.items() if key != "type"}
    is_custom = raw.get("type") == "custom" or ("type" not in raw and "custom" in raw)
    kind, key = ("custom", "input") if is_custom else ("function", "arguments")
    if is_custom and "type" not in raw:
        raw = {**raw, "type": "custom"}
    inner = as_object(raw.get(kind))
    if inner is not None and type(inner.get(key)) is not str:
        inner_path = f"{path}.{kind}"
        if is_custom:
            inner = with_text(inner, key, inner_path, losses)
        else:
            arguments = arguments_text(inner.get(key), f"{inner_path}.{key}", losses)
            inner = {**inner, key: arguments}
        raw = {**raw, kind: inner}
    if not isinstance(raw.get("id"), str):
        raw = {**raw, "id": read_call_id(raw, "id", number, path, losses)}
    return raw


CHOICE_PATH = "choices[0]"
MESSAGE_PATH = "choices[0].message"

MAPPED_MEMBERS = frozenset({"id", "model", "choices", "usage"})
"""Members of a body that have a field in `Response`."""


def decode_response(body: JsonObject) -> Response:
    """Decode a complete answer.

    Raises `UpstreamFailed` if it failed, and `NotAnAnswer` if it is not an answer.
    """
    if body.get("error"):
        raise upstream_failed(decode_error(body, 0))
    if not body.get("choices") or not isinstance(body["choices"], list):
        raise not_an_answer(body, "choices")
    choices = objects(body["choices"], "choices")
    position = next(
        (place for place, choice in enumerate(choices) if choice.get("index") in (None, 0, "0")), 0
    )
    choice = choices[position]
    error = failed_choice(choice)
    if error is not None:
        raise upstream_failed(error)
    response = _decode_choice(body, choice, with_body=True)
    others: list[tuple[int, Response]] = []
    notes: JsonObject = {"@position": position} if position else {}
    for place, other in enumerate(choices):
        if place == position:
            continue
        number = other.get("index")
        number = number if isinstance(number, int) else place
        try:
            if failed_choice(other) is not None:
                raise Refused("the choice has failed")
            others.append((number, _decode_choice(body, other, with_body=False)))
        except Refused:
            notes[f"choices[{place}]"] = other
    if not others and not notes:
        return response
    ext = {PROTOCOL: {**(response.ext or {}).get(PROTOCOL, {}), **notes}}
    return structs.replace(response, alternatives=tuple(others), ext=ext)


def _decode_choice(body: JsonObject, choice: JsonObject, *, with_body: bool) -> Response:
    """Decode one answer of a body, and the members of the body itself."""
    repairs = Losses()
    raw = _message_of(choice)
    if raw is None:
        raise with_prefix(CHOICE_PATH, wrong("message", choice.get("message"), "an object"))
    try:
        message = decode_message(complete_message(raw, MESSAGE_PATH, repairs))
    except Refused as error:
        raise with_prefix(MESSAGE_PATH, error) from None
    model = optional_text(body.get("model"))
    has_calls, refused = _has(message.blocks, ToolCall), _has(message.blocks, Refusal)
    members = _choice_members(choice, message, raw)
    if with_body:
        members = {**_body_members(body), **members}
    response = Response(
        structs.replace(
            message,
            role="assistant",
            origin=Origin(PROTOCOL, model=model),
            # The members keep the other forms: an empty or null `content`.
            form="list" if message.form == "list" else "",
            ext=None,
        ),
        id=optional_text(body.get("id")),
        model=model,
        stop=decode_stop(choice.get("finish_reason"), has_calls=has_calls, refused=refused),
        usage=decode_usage(body.get("usage")) if with_body else None,
        ext={PROTOCOL: members},
    )
    return with_repairs(response, repairs)


def _message_of(choice: JsonObject) -> JsonObject | None:
    """The message of a choice; `None` if it has none, and no reason for that.

    Azure leaves it out if the answer was filtered. Some servers send a `delta` in its place.
    """
    if choice.get("message") is not None:
        return as_object(choice["message"])
    delta = as_object(choice.get("delta"))
    if delta:
        return delta
    return {} if choice.get("finish_reason") in ("content_filter", "length") else None


def failed_choice(choice: JsonObject) -> ApiError | None:
    """The error of a failed choice; OpenRouter adds an `error` to the choice."""
    if choice.get("error"):
        return decode_error({"error": choice["error"]}, 0)
    return failed_stop(choice.get("finish_reason"), FAILED_STOPS)


def _has(blocks: Sequence[Block], kind: type) -> bool:
    return any(isinstance(block, kind) for block in blocks)


def _body_members(body: JsonObject) -> JsonObject:
    """The members of a body, except its choices, without a field in `Response`."""
    members = {key: value for key, value in body.items() if key not in MAPPED_MEMBERS}
    if members.get("object") == COMPLETION_OBJECT:
        del members["object"]
    if "usage" in body and body["usage"] is None:
        members["usage"] = None
    return members


def _choice_members(choice: JsonObject, message: Message, raw: JsonObject) -> JsonObject:
    """The members of a choice without a field in `Response`, by path, and the notes about it."""
    members_by_path: JsonObject = {}
    for key, value in choice.items():
        if key not in ("message", "finish_reason") and (key, value) != ("index", 0):
            members_by_path[f"{CHOICE_PATH}.{key}"] = value
    if "finish_reason" in choice and choice["finish_reason"] is None:
        members_by_path[f"{CHOICE_PATH}.finish_reason"] = None
    if choice.get("message") is None:
        members_by_path["@message"] = [None] if "message" in choice else []
        return members_by_path
    for key, value in own_members(message.ext).items():
        members_by_path[f"{MESSAGE_PATH}.{key}"] = value
    if is_json_value(raw.get("content")):
        members_by_path["@content"] = raw["content"]
    elif "content" in raw and not raw["content"]:
        members_by_path[f"{MESSAGE_PATH}.content"] = raw["content"]
    if raw.get("role") != "assistant":
        members_by_path[f"{MESSAGE_PATH}.role"] = raw.get("role")
    return members_by_path


def locate_answer(response: Response, position: Position) -> str:
    """The path of a position in an answer of this protocol."""
    match position:
        case (int(), int(block), *deeper):
            path = f"{MESSAGE_PATH}.{_member_of(response.message, block)}"
            return path + (".function.arguments" if deeper == ["arguments"] else "")
        case ("stop", *_):
            return f"{CHOICE_PATH}.finish_reason"
        case ("member", name):
            return str(name)
        case ("alternative", number):
            return f"choices[{number}]"
        case _:
            return MESSAGE_PATH


def _member_of(message: Message, number: int) -> str:
    """The member of the message that a block was decoded from."""
    block, before = message.blocks[number], message.blocks[:number]
    source_member = own_members(getattr(block, "ext", None)).get(SOURCE_MEMBER)
    match block:
        case Thinking(signature=signature):
            return source_member or (
                REASONING_SIGNATURE if signature is not None else REASONING_DETAILS
            )
        case ToolCall():
            calls = [
                b
                for b in before
                if isinstance(b, ToolCall) and SOURCE_MEMBER not in own_members(b.ext)
            ]
            return source_member or f"tool_calls[{len(calls)}]"
        case Audio():
            return "audio"
        case Refusal() if message.form != "list" or source_member:
            return "refusal"
        case _ if message.form != "list":
            return "content"
        case _:
            not_content = Thinking | ToolCall | Audio
            return f"content[{sum(not isinstance(b, not_content) for b in before)}]"


def encode_response(response: Response, created: int, locate: Locate | None = None, /) -> Encoded:
    """Encode a complete answer."""
    losses = Losses(locate=locate)
    body: JsonObject = {
        "id": "chatcmpl-weft" if response.id is None else response.id,
        "object": COMPLETION_OBJECT,
    }
    if not _is_decoded(response):
        body["created"] = created
    body["model"] = response.model or ""
    choices: list[JsonObject] = [_encode_choice(response, losses)]
    for number, other in response.alternatives:
        at = losses.path(("alternative", number))
        inner = Losses(locate=lambda _position, path=at: path)
        choice = _encode_choice(other, inner)
        choices.append(choice if _is_decoded(other) else {**choice, "index": number})
        losses.items += inner.items
    body["choices"] = choices
    usage = encode_usage(response.usage)
    if usage is not None:
        body["usage"] = usage
    if response.ext is not None:
        report_answer(response.ext, PROTOCOL, losses)
        _restore_body(body, response.ext.get(PROTOCOL, {}))
    return Encoded(body, losses.items)


def _is_decoded(response: Response) -> bool:
    """Whether an answer was decoded from a body of this protocol."""
    return response.ext is not None and PROTOCOL in response.ext


def _encode_choice(response: Response, losses: Losses) -> JsonObject:
    """One answer as a choice."""
    message = response.message
    blocks = _supported_blocks(message, losses)
    answer_message: JsonObject = {"role": "assistant"}
    answer_message.update(write_assistant(blocks, as_list=message.form == "list"))
    if message.form != "list" and isinstance(answer_message.get("content"), list):
        _join_texts(answer_message, message, losses)
    has_calls, refused = _has(blocks, ToolCall), _has(blocks, Refusal)
    choice: JsonObject = {"index": 0, "message": answer_message}
    if _is_decoded(response):
        if response.stop is not None and response.stop.raw is not None:
            choice["finish_reason"] = response.stop.raw
    else:
        answer_message.setdefault("content", None)
        answer_message.setdefault("refusal", None)
        choice["logprobs"] = None
        choice["finish_reason"] = finish_reason(
            response.stop, losses, has_calls=has_calls, refused=refused
        )
    _restore_choice(choice, (response.ext or {}).get(PROTOCOL, {}))
    return choice


def _supported_blocks(message: Message, losses: Losses) -> list[Block]:
    """The blocks that a client of this protocol can receive; the others are reported."""
    blocks: list[Block] = []
    thinking_count = sum(isinstance(block, Thinking) for block in message.blocks)
    for number, block in enumerate(message.blocks):
        if not check_supported(block, message.origin, (0, number), losses):
            continue
        if isinstance(block, Thinking) and not _is_native(message.origin):
            if thinking_count > 1:
                losses.add((0, number), "text_boundary_dropped", "thinking blocks")
            thinking = convert_thinking(block, (0, number), losses)
            if thinking is not None:
                blocks.append(thinking)
            continue
        ext = getattr(block, "ext", None)
        if ext is not None:
            report_ext(ext, PROTOCOL, (0, number), losses)
        blocks.append(block)
    return blocks


def convert_thinking(block: Thinking, position: Position, losses: Losses) -> Thinking | None:
    """Another protocol's thinking for a client of this one: only its text, in the member that
    `place_thinking` chose; `None` if it has no text."""
    report_thinking(block, PROTOCOL, position, losses)
    if not block.text:
        return None
    return Thinking(block.text, None, {PROTOCOL: {SOURCE_MEMBER: thinking_member(block)}})


def thinking_member(block: Thinking) -> str:
    """The member for this thinking, or `HIDDEN`."""
    return str(own_members(block.ext).get(SOURCE_MEMBER) or THINKING_MEMBERS[0])


def place_thinking(block: Thinking, member: ThinkingMember) -> Thinking:
    """The block, with a note of the member in which the client reads thinking."""
    if member == THINKING_MEMBERS[0]:
        return block
    ext = {**(block.ext or {}), PROTOCOL: {**own_members(block.ext), SOURCE_MEMBER: member}}
    return structs.replace(block, ext=ext)


def _is_native(origin: Origin | None) -> bool:
    return origin is not None and origin.protocol == PROTOCOL


def _join_texts(answer_message: JsonObject, message: Message, losses: Losses) -> None:
    """Join the texts to one string, without a separator: a text may end in the middle of a
    sentence."""
    answer_message["content"] = "".join(part.get("text", "") for part in answer_message["content"])
    for number, block in enumerate(message.blocks):
        if isinstance(block, Text):
            losses.add((0, number), "text_boundary_dropped", "texts")


def _restore_choice(choice: JsonObject, members_by_path: JsonObject) -> None:
    """Put the members of a choice back at their original paths."""
    for path, value in members_by_path.items():
        if path.startswith(f"{MESSAGE_PATH}."):
            choice["message"][path.removeprefix(f"{MESSAGE_PATH}.")] = value
        elif path.startswith(f"{CHOICE_PATH}."):
            choice[path.removeprefix(f"{CHOICE_PATH}.")] = value
    if "@content" in members_by_path:
        choice["message"]["content"] = members_by_path["@content"]
    if "@message" in members_by_path:
        del choice["message"]
        if members_by_path["@message"]:
            choice["message"] = members_by_path["@message"][0]


def _restore_body(body: JsonObject, members_by_path: JsonObject) -> None:
    """Put the members of a body, and the order of its choices, back."""
    choices: list[JsonObject] = body["choices"]
    choices.insert(members_by_path.get("@position", 0), choices.pop(0))
    for path, value in members_by_path.items():
        if path.startswith("choices["):
            place = path.removeprefix("choices[").removesuffix("]")
            if place.isdecimal():
                choices.insert(int(place), value)
        elif not path.startswith("@"):
            body[path] = value


def check_supported(block: Block, origin: Origin | None, position: Any, losses: Losses) -> bool:
    """Whether a client of this protocol can receive this block.

    Reports a block that it cannot receive, and what a call loses.
    """
    native = _is_native(origin)
    match block:
        case Thinking():
            if native or thinking_member(block) != HIDDEN:
                return True
            code = "thinking_hidden"
        case Redacted():
            if native:
                return True
            code = "redacted_thinking_dropped"
        case Opaque(protocol=protocol) if protocol != PROTOCOL:
            code = "vendor_block_dropped"
        case Image() | File():
            code = "media_in_assistant"
        case ToolCall():
            report_call(block, position, losses)
            return True
        case Audio(source=source) if not isinstance(source, FileRef) or not native:
            code = "block_unsupported"
        case _:
            return True
    name = block.raw.get("type") if isinstance(block, Opaque) else type(block).__name__.lower()
    losses.add(position, code, name)
    return False


EXACT_STOPS: frozenset[StopKind] = frozenset({"end", "length", "tool", "filter"})
"""Stop kinds that this protocol can express exactly."""


def decode_usage(raw: Any) -> Usage | None:
    return decode_counts(raw, PROTOCOL, "prompt_tokens", "completion_tokens")


def encode_usage(usage: Usage | None) -> JsonObject | None:
    """The counts in this protocol's form; `None` if there are none."""
    if usage is None:
        return None
    if usage.raw is not None and PROTOCOL in usage.raw:
        return dict(usage.raw[PROTOCOL])
    input_tokens, output_tokens = usage.input or 0, usage.output or 0
    body: JsonObject = {
        "prompt_tokens": input_tokens,
        "completion_tokens": output_tokens,
        "total_tokens": input_tokens + output_tokens,
    }
    details = {"cached_tokens": usage.cached, "cache_write_tokens": usage.written}
    details = {key: value for key, value in details.items() if value is not None}
    if details:
        body["prompt_tokens_details"] = details
    if usage.reasoning is not None:
        body["completion_tokens_details"] = {"reasoning_tokens": usage.reasoning}
    return body


def decode_stop(reason: Any, *, has_calls: bool, refused: bool = False) -> Stop:
    """Why an answer ended.

    Some servers send no reason, or `stop`, for an answer with tool calls; its kind is `tool`.
    OpenAI sends `stop` for a refusal; its kind is `refusal`.
    """
    kind = STOP_KINDS.get(str(reason), "other") if reason else "end"
    if kind == "end":
        if has_calls:
            kind = "tool"
        elif refused:
            kind = "refusal"
    return Stop(kind, None if reason is None else str(reason))


def finish_reason(
    stop: Stop | None, losses: Losses, *, has_calls: bool, refused: bool = False
) -> str:
    """The nearest reason for another protocol's stop; an inexact one is reported.

    If the model declined in the text of its answer, the reason is `stop`, as in OpenAI's own
    answers: https://platform.openai.com/docs/guides/structured-outputs#refusals
    """
    if stop is None:
        return "tool_calls" if has_calls else "stop"
    if stop.kind == "end" and has_calls:
        return "tool_calls"
    if declined_in_text(stop, refused=refused):
        return "stop"
    report_stop(stop, EXACT_STOPS, losses)
    return STOP_REASON_BY_KIND[stop.kind]
