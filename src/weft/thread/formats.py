"""The shapes in which a compiled thread is read: pure functions from messages to plain values.

These are for looking at and for passing on by hand. They say everything that was said: a name or
a role that some vendor would refuse stays. Beside these, each vendor takes its own shape: calls and
results are paired, a tool that answers no call speaks as the user, and where a vendor takes no
empty text there is none. What a vendor's `create(**...)` accepts, with tools and with a report of
what could not be said, is `params.py`.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast

import orjson
from msgspec import structs

from weft.codec import pair_messages
from weft.history import Row
from weft.model import (
    Audio,
    Block,
    Checkpoint,
    File,
    FileRef,
    Image,
    Inline,
    JsonObject,
    Message,
    Opaque,
    Redacted,
    Refusal,
    Reminder,
    Source,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    Url,
    checkpoint_text,
    is_system,
    reminder_text,
    speaker,
    spoken,
)

Dict = dict[str, Any]

RESPONSES = "openai-responses"
EMPTY = "(empty)"
"""What the codecs say where a user said nothing and the vendor takes no empty message."""


def to_dicts(rows: Iterable[Row]) -> list[Dict]:
    """`{"role", "content", "name"?}` per line; content is what a person would read."""
    return [_named(row.message, {"role": row.message.role, "content": _plain(row)}) for row in rows]


def to_openai(rows: Iterable[Row]) -> list[Dict]:
    """Chat Completions' messages; text alone is the same as `to_dicts`."""
    found: list[Dict] = []
    for row in _paired(rows):
        found.extend(_openai_messages(row))
    return found


def to_anthropic(rows: Iterable[Row]) -> Dict:
    """Exactly `system` and `messages`: every system text joined by a blank line, or `None`."""
    system: list[str] = []
    messages: list[Dict] = []
    for row in _paired(rows):
        message = row.message
        if is_system(message):
            text = "\n".join(part for part in _texts(message.blocks) if part)
            if text:
                system.append(text)
            continue
        said = anthropic_message(row)
        if not said["content"] and said["role"] == "assistant":
            continue  # the API takes no empty message, and this one says nothing
        said["content"] = said["content"] or EMPTY
        if _continues_results(messages, said):
            messages[-1]["content"].extend(said["content"])
        else:
            messages.append(said)
    return {"system": "\n\n".join(system) if system else None, "messages": messages}


def to_responses(rows: Iterable[Row]) -> list[Dict]:
    """The Responses API's input items; calls and results are items of their own."""
    items: list[Dict] = []
    for row in _paired(rows):
        items.extend(_responses_items(row))
    return items


def to_gemini(params: Mapping[str, Any]) -> Dict:
    """Exactly `system_instruction` and `contents`, out of what Google's SDK takes."""
    config: Dict = params.get("config", {})
    parts = config.get("systemInstruction", {}).get("parts", ())
    system = "\n\n".join(part["text"] for part in parts if part.get("text"))
    return {"system_instruction": system or None, "contents": params["contents"]}


def to_text(rows: Iterable[Row]) -> str:
    """The conversation as a person reads it, calls included."""
    return "\n\n".join(f"{speaker(row.message)}: {_spoken(row)}" for row in rows)


def _paired(rows: Iterable[Row]) -> Sequence[Row]:
    """The lines with results right behind their calls, as every vendor demands; one is made up
    that says so where a call has none, and a tool that answers no call speaks as the user."""
    rows = tuple(rows)
    blocks = (type(block) for row in rows for block in row.message.blocks)
    if any(kind is ToolCall or kind is ToolResult for kind in blocks):
        paired = pair_messages([row.message for row in rows])
        rows = [structs.replace(rows[number], message=said) for number, said in paired]
    return [row if row.message.role != "tool" else _answering(row) for row in rows]


def _answering(row: Row) -> Row:
    """A tool's line as a vendor takes it: an answer to a call, or else the user's."""
    if any(isinstance(block, ToolResult) for block in row.message.blocks):
        return row
    return structs.replace(row, message=structs.replace(row.message, role="user"))


def _openai_messages(row: Row) -> list[Dict]:
    message = row.message
    results = [block for block in message.blocks if isinstance(block, ToolResult)]
    calls = [block for block in message.blocks if isinstance(block, ToolCall)]
    found: list[Dict] = [
        {"role": "tool", "tool_call_id": result.call_id, "content": _joined(result.content)}
        for result in results
    ]
    content = _openai_content(row)
    if content or not (results or calls):
        role = "user" if results and message.role == "tool" else message.role
        found.append(_named(message, {"role": role, "content": content}))
    if calls:
        if not content:
            found.append(_named(message, {"role": message.role, "content": None}))
        found[-1]["tool_calls"] = [
            {
                "id": call.id,
                "type": "function",
                "function": {"name": call.name, "arguments": call.arguments},
            }
            for call in calls
        ]
    return found


def _openai_content(row: Row) -> Any:
    """A plain string for one text, parts for several or for media."""
    if row.kind == "reasoning":
        return _plain(row)
    blocks = row.message.blocks
    shown = [item for b in blocks if isinstance(b, ToolResult) for item in _media(b)]
    parts = _worded([part for block in (*blocks, *shown) for part in _openai_parts(block)])
    if len(parts) <= 1 and all(part["type"] == "text" for part in parts):
        return parts[0]["text"] if parts else ""
    return parts


def _media(result: ToolResult) -> list[Block]:
    """What a tool showed: a `tool` message takes text alone, so the user's next one shows it."""
    return [block for block in result.content if isinstance(block, Image | File | Audio)]


def _openai_parts(block: Block) -> list[Dict]:
    match block:
        case Image(source=source):
            return [{"type": "image_url", "image_url": {"url": _address(source)}}]
        case File(source=Inline() as source, name=name):
            return [
                {
                    "type": "file",
                    "file": {"file_data": _address(source), "filename": name or "file"},
                }
            ]
        case File(source=FileRef(id=id)):
            return [{"type": "file", "file": {"file_id": id}}]
        case Audio(source=Inline(data=data, media_type=media)):
            audio = {"data": data, "format": media.rpartition("/")[2]}
            return [{"type": "input_audio", "input_audio": audio}]
        case Opaque(protocol="openai-chat", raw=raw):
            return [raw]
        case _:
            return [{"type": "text", "text": text} for text in _texts([block])]


def anthropic_message(row: Row) -> Dict:
    """One line by itself, whatever stands before and behind it."""
    message = row.message
    if row.kind == "reasoning":
        return _named(message, {"role": message.role, "content": _plain(row)})
    blocks = [part for block in message.blocks for part in _anthropic_blocks(block, message)]
    plain = all(part["type"] == "text" for part in blocks) and len(blocks) <= 1
    content: Any = (blocks[0]["text"] if blocks else "") if plain else blocks
    results = any(part["type"] == "tool_result" for part in blocks)
    role = "user" if results and message.role == "tool" else message.role
    return _named(message, {"role": role, "content": content})


def _anthropic_blocks(block: Block, message: Message) -> list[Dict]:
    own = message.origin is not None and message.origin.protocol == "anthropic"
    match block:
        case ToolCall():
            return [
                {
                    "type": "tool_use",
                    "id": block.id,
                    "name": block.name,
                    "input": _arguments(block.arguments),
                }
            ]
        case ToolResult():
            return [_anthropic_result(block, message)]
        case Thinking(text=text, signature=signature) if own and signature:
            return [{"type": "thinking", "thinking": text, "signature": signature}]
        case Redacted(data=data) if own:
            return [{"type": "redacted_thinking", "data": data}]
        case Image(source=source):
            return [{"type": "image", "source": _anthropic_source(source)}]
        case File(source=source, name=name):
            title = {"title": name} if name else {}
            return [{"type": "document", "source": _anthropic_source(source), **title}]
        case Opaque(protocol="anthropic", raw=raw):
            return [raw]
        case _:
            return [{"type": "text", "text": text} for text in _texts([block]) if text.strip()]


def _anthropic_result(block: ToolResult, message: Message) -> Dict:
    inner = [part for item in block.content for part in _anthropic_blocks(item, message)]
    plain = len(inner) == 1 and inner[0]["type"] == "text"
    found: Dict = {"type": "tool_result", "tool_use_id": block.call_id}
    found["content"] = inner[0]["text"] if plain else inner or ""
    if block.is_error is not None:
        found["is_error"] = block.is_error
    return found


def _continues_results(messages: Sequence[Dict], said: Dict) -> bool:
    """Results of one turn share a message: the API wants all of them right behind the calls."""
    return bool(messages) and _only_results(messages[-1]) and _only_results(said)


def _only_results(said: Dict) -> bool:
    if said["role"] != "user" or isinstance(said["content"], str):
        return False
    return all(part["type"] == "tool_result" for part in said["content"])


def _responses_items(row: Row) -> list[Dict]:
    """A line's results, then its words, then its calls.

    An assistant's texts are items of their own: a list of them is an answer's form, which asks for
    the answer's ids.
    """
    message = row.message
    results = [block for block in message.blocks if isinstance(block, ToolResult)]
    calls = [block for block in message.blocks if isinstance(block, ToolCall)]
    parts = _worded([part for block in message.blocks for part in _responses_parts(block)])
    if not any(part.get("text", "x") for part in parts):
        parts = [] if results or calls else [{"type": "input_text", "text": _plain(row)}]
    runs = [[part] for part in parts] if message.role == "assistant" else [parts] if parts else []
    role = "user" if message.role == "tool" else message.role
    return [
        *(
            {"type": "function_call_output", "call_id": r.call_id, "output": _responses_output(r)}
            for r in results
        ),
        *_reasoning_items(message),
        *(_named(message, {"role": role, "content": _lone_text(run)}) for run in runs),
        *(
            {"type": "function_call", "call_id": c.id, "name": c.name, "arguments": c.arguments}
            for c in calls
        ),
    ]


def _reasoning_items(message: Message) -> list[Dict]:
    """What a model of this API thought, in the items that it gave; no other model's."""
    if message.origin is None or message.origin.protocol != RESPONSES:
        return []
    items: list[Dict] = []
    for block in message.blocks:
        match block:
            case Thinking(text=text, signature=signature, ext=ext):
                summary = [{"type": "summary_text", "text": text}] if text else []
                item: Dict = {"type": "reasoning", "summary": summary}
                if signature is not None:
                    item["encrypted_content"] = signature
                items.append({**item, **((ext or {}).get(RESPONSES) or {})})
            case Redacted(data=data):
                items.append({"type": "reasoning", "summary": [], "encrypted_content": data})
            case _:
                pass
    return items


def _responses_output(result: ToolResult) -> Any:
    parts = [part for block in result.content for part in _responses_parts(block)]
    if all(part["type"] == "input_text" for part in parts):
        return _joined(result.content)
    return _worded(parts)


def _lone_text(parts: list[Dict]) -> Any:
    """A plain string for one text, the parts for several or for media."""
    is_text = len(parts) == 1 and parts[0]["type"] == "input_text"
    return parts[0]["text"] if is_text else parts


def _worded(parts: list[Dict]) -> list[Dict]:
    """The parts without empty texts, as long as one is left."""
    return [part for part in parts if part.get("text", "x")] or parts[:1]


def _responses_parts(block: Block) -> list[Dict]:
    match block:
        case Image(source=FileRef(id=id)):
            return [{"type": "input_image", "file_id": id}]
        case Image(source=source, detail=detail):
            return [
                {"type": "input_image", "image_url": _address(source), "detail": detail or "auto"}
            ]
        case File(source=FileRef(id=id)):
            return [{"type": "input_file", "file_id": id}]
        case File(source=Url(url=url)):
            return [{"type": "input_file", "file_url": url}]
        case File(source=source, name=name):
            return [
                {"type": "input_file", "file_data": _address(source), "filename": name or "file"}
            ]
        case Opaque(protocol="openai-responses", raw=raw):
            return [raw]
        case ToolResult() | ToolCall():
            return []
        case _:
            return [{"type": "input_text", "text": text} for text in _texts([block])]


def _named(message: Message, found: Dict) -> Dict:
    if message.name is not None:
        found["name"] = message.name
    return found


def _plain(row: Row) -> str:
    """What a person would read; a line of reasoning that is asked for reads as its thought."""
    if row.kind == "reasoning":
        thoughts = [block.text for block in row.message.blocks if isinstance(block, Thinking)]
        return "\n".join([*thoughts, *_texts(row.message.blocks)])
    return row.message.text


def _texts(blocks: Iterable[Block]) -> list[str]:
    """The words of text-like blocks; results, which have their own places, are not read out."""
    found: list[str] = []
    for block in blocks:
        match block:
            case Text(text=text) | Refusal(text=text):
                found.append(text)
            case Reminder():
                found.append(reminder_text(block))
            case Checkpoint():
                found.append(checkpoint_text(block))
            case _:
                pass
    return found


def _joined(blocks: Iterable[Block]) -> str:
    return "\n".join(_texts(blocks))


def _spoken(row: Row) -> str:
    """A line with its calls; one of reasoning reads as its thought."""
    return spoken(row.message, _plain(row) if row.kind == "reasoning" else None)


def _arguments(text: str) -> JsonObject:
    """The object that a call's text means; text that is none is carried under `_raw`."""
    try:
        value = orjson.loads(text or "{}")
    except orjson.JSONDecodeError:
        return {"_raw": text}
    return cast(JsonObject, value) if isinstance(value, dict) else {"_raw": text}


def _address(source: Source) -> str:
    match source:
        case Inline(data=data, media_type=media):
            return f"data:{media};base64,{data}"
        case Url(url=url):
            return url
        case FileRef(id=id):
            return id


def _anthropic_source(source: Source) -> Dict:
    match source:
        case Inline(data=data, media_type=media):
            return {"type": "base64", "media_type": media, "data": data}
        case Url(url=url):
            return {"type": "url", "url": url}
        case FileRef(id=id):
            return {"type": "file", "file_id": id}
