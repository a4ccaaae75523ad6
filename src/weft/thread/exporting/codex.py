"""A branch as a rollout file of Codex.

Imported lines are written with the same bytes. If a compaction was reverted, its line is left out,
so the turns before it are in effect again. New messages become items of the Responses API. A new
summary becomes a `compacted` line, with the items before it and the summary as its history. A
thread that was not imported from Codex gets a `session_meta` line, which `codex resume` needs.

System prompts that a client sent are left out: Codex sends its own. Its developer messages are part
of the conversation, and stay.
"""

from collections.abc import Sequence
from datetime import UTC, datetime

import orjson

from weft.codec import CODECS
from weft.model import JsonObject, Message, Text, ToolCall, ToolResult
from weft.thread.handle import Handle
from weft.thread.importing.lines import join_lines, read_object, split_lines
from weft.thread.sessions import session_id

from .journal import ROOT, FileLine, NewLine, Piece, RemovedLine, find_folder, read_journal

FORMAT = "codex"


def write_codex(handle: Handle, folder: str = ROOT) -> bytes:
    """The branch as JSON lines of Codex.

    `folder` is the working directory of a conversation that does not name its own.
    """
    journal = read_journal(handle, FORMAT, repeats=True)
    texts: list[str] = []
    edited: set[bytes] = set()
    run: list[NewLine] = []
    if not any(isinstance(piece, FileLine | RemovedLine) for piece in journal.pieces):
        messages = (row.message for row in handle.view(handle.head()).rows)
        texts += _begin(handle.name, journal.pieces, find_folder(messages) or folder)
    for piece in journal.pieces:
        if isinstance(piece, NewLine) and not piece.is_summary:
            if not (piece.is_clients_prompt and piece.message.role == "system"):
                run.append(piece)
            continue
        texts += _run_items(run, texts)
        run = []
        match piece:
            case FileLine(line=line, slot=slot, edited=message) if message is not None and slot:
                if slot not in edited:
                    value = read_object(line.text.encode()) or {}
                    texts += _items(message, str(value.get("timestamp", "")))
                edited.add(slot)
            case FileLine(line=line):
                texts.append(line.text)
            case NewLine():
                texts.append(_compacted(piece, _history(texts)))
            case RemovedLine(line=line):
                texts.append("" if line.is_turn else line.text)
    texts += _run_items(run, texts)
    return join_lines(texts)


def _run_items(run: Sequence[NewLine], texts: Sequence[str]) -> list[str]:
    """The lines of adjacent new messages; `texts` are the lines before them.

    They are written together, because a result is only written as a result if its call is there.
    """
    if not run:
        return []
    messages = [piece.message for piece in run]
    open_calls = _open_calls(messages, texts)
    call_message = [Message("assistant", tuple(open_calls))] if open_calls else []
    items = CODECS["openai-responses"].write_messages([*call_message, *messages])[len(open_calls) :]
    times = {id: piece.created for piece in run for id in _call_ids(piece.message)}
    spoken = iter([piece.created for piece in run if _has_text(piece.message)])
    lines: list[str] = []
    created = run[0].created
    for item in items:
        id = item.get("call_id")
        created = times.get(id, created) if isinstance(id, str) else next(spoken, created)
        lines.append(_line(_stamp(created), "response_item", _typed(item)))
    return lines


def _open_calls(messages: Sequence[Message], texts: Sequence[str]) -> list[ToolCall]:
    """The calls in earlier lines whose results are in these messages."""
    own_ids = {block.id for m in messages for block in m.blocks if isinstance(block, ToolCall)}
    results = {b.call_id for m in messages for b in m.blocks if isinstance(b, ToolResult)}
    missing = results - own_ids
    return [
        ToolCall(item["call_id"], str(item.get("name", "")), str(item.get("arguments", "")))
        for item in (_history(texts) if missing else ())
        if item.get("type") == "function_call" and item.get("call_id") in missing
    ]


def _call_ids(message: Message) -> list[str]:
    calls = [block.id for block in message.blocks if isinstance(block, ToolCall)]
    return calls or [b.call_id for b in message.blocks if isinstance(b, ToolResult)]


def _has_text(message: Message) -> bool:
    return any(not isinstance(b, ToolCall | ToolResult) for b in message.blocks)


def _begin(thread: str, pieces: Sequence[Piece], folder: str) -> list[str]:
    """The `session_meta` line for a thread that was not imported; none if there are no messages."""
    started = next((_stamp(piece.created) for piece in pieces if isinstance(piece, NewLine)), None)
    if started is None:
        return []
    payload = {
        "id": session_id(FORMAT, thread),
        "timestamp": started,
        "cwd": folder,
        "originator": "weft",
        "cli_version": "0.0.0",
        "source": "exec",
    }
    return [_line(started, "session_meta", payload)]


def _stamp(created: float) -> str:
    moment = datetime.fromtimestamp(created, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _line(stamp: str, kind: str, payload: JsonObject) -> str:
    return orjson.dumps({"timestamp": stamp, "type": kind, "payload": payload}).decode() + "\n"


def _compacted(piece: NewLine, before: Sequence[JsonObject]) -> str:
    """The line after which Codex uses another history."""
    history = [*before, *_payloads(piece.message)]
    payload = {"message": piece.message.text, "replacement_history": history}
    return _line(_stamp(piece.created), "compacted", payload)


def _history(texts: Sequence[str]) -> list[JsonObject]:
    """The items in Codex's context after these lines."""
    items: list[JsonObject] = []
    for value in filter(None, (read_object(text.encode(errors="replace")) for text in texts)):
        match value:
            case {"type": "response_item", "payload": {**item}}:
                items.append(item)
            case {"type": "compacted", "payload": {"replacement_history": [*history]}}:
                items = history
            case {"type": "compacted", "payload": {"message": str(summary)}}:
                items = _payloads(Message("user", (Text(summary),)))
            case _:
                pass
    return items


def _items(message: Message, stamp: str) -> list[str]:
    return [_line(stamp, "response_item", item) for item in _payloads(message)]


def _payloads(message: Message) -> list[JsonObject]:
    return [_typed(item) for item in CODECS["openai-responses"].write_messages([message])]


def _typed(item: JsonObject) -> JsonObject:
    """An item as Codex writes it: always with a type, and its content a list of parts."""
    if "type" in item:
        return item
    content = item["content"]
    if isinstance(content, str):
        kind = "output_text" if item["role"] == "assistant" else "input_text"
        content = [{"type": kind, "text": content}]
    return {"type": "message", **item, "content": content}


def rename_session(data: bytes, session: str) -> bytes:
    """The file under another session id."""
    texts: list[str] = []
    for line in split_lines(data):
        match line.value:
            case {"type": "session_meta", "payload": {**payload}}:
                names = {name: session for name in ("id", "session_id") if name in payload}
                renamed = {**line.value, "payload": {**payload, **names}}
                texts.append(orjson.dumps(renamed).decode() + "\n")
            case _:
                texts.append(line.text)
    return join_lines(texts)


def read_folder(data: bytes) -> str | None:
    """The working directory in the file's `session_meta` line."""
    for line in split_lines(data):
        match line.value:
            case {"type": "session_meta", "payload": {"cwd": str(folder)}}:
                return folder
            case _:
                pass
    return None
