"""A branch as a rollout file of Codex.

Lines that came in go out as the same bytes; a compaction that was taken back leaves its line out,
so that the turns before it are in force again. New messages are items of the Responses API.
"""

from datetime import UTC, datetime

import orjson

from weft.history import Row
from weft.model import JsonObject, Message
from weft.thread import formats
from weft.thread.handle import Handle
from weft.thread.importing.lines import join_lines, read_object

from .journal import Gone, New, Old, read_journal

FORMAT = "codex"


def write_codex(handle: Handle) -> bytes:
    """The branch as Codex' own JSON lines."""
    texts: list[str] = []
    edited: set[bytes] = set()
    for piece in read_journal(handle, FORMAT).pieces:
        match piece:
            case Old(line=line, slot=slot, edited=message) if message is not None and slot:
                if slot not in edited:
                    value = read_object(line.text.encode()) or {}
                    texts += _items(message, str(value.get("timestamp", "")))
                edited.add(slot)
            case Old(line=line):
                texts.append(line.text)
            case New():
                moment = datetime.fromtimestamp(piece.created, UTC)
                stamp = moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
                texts += _items(piece.message, stamp)
            case Gone(line=line):
                texts.append("" if line.is_turn else line.text)
    return join_lines(texts)


def _items(message: Message, stamp: str) -> list[str]:
    return [
        orjson.dumps(
            {"timestamp": stamp, "type": "response_item", "payload": _typed(item)}
        ).decode()
        + "\n"
        for item in formats.to_responses([Row(None, message)])
    ]


def _typed(item: JsonObject) -> JsonObject:
    """An item as Codex writes it: always typed, its content always a list of parts."""
    if "type" in item:
        return item
    content = item["content"]
    if isinstance(content, str):
        kind = "output_text" if item["role"] == "assistant" else "input_text"
        content = [{"type": kind, "text": content}]
    return {"type": "message", **item, "content": content}
