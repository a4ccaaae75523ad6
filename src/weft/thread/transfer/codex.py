"""Rollout files of Codex: JSON lines of `{timestamp, type, payload}`.

**Reading.** A `response_item` is an item of the Responses API. The items of one answer (reasoning,
text, tool calls) are on separate lines; they become one message.

A `compacted` line has the history that replaces everything before it. It becomes a compaction.
Messages that are identical before and after it keep their slots. The answer in which the model
wrote the summary becomes part of the compaction.

**Writing.** Imported lines are written with the same bytes. If a compaction was reverted, its line
is left out, so the turns before it are in effect again. New messages become items of the Responses
API. A new summary becomes a `compacted` line, with the items before it and the summary as its
history. A thread that was not imported from Codex gets a `session_meta` line, which `codex resume`
needs.

New lines do not contain the system and developer messages of a client, nor the user messages with
Codex's own context (`<environment_context>`, AGENTS.md). Codex sends all of them again if the file
has no `turn_context` line, which Weft does not write.
"""

from collections import Counter
from collections.abc import Sequence
from typing import cast

from weft import exact_json
from weft.codec import CODECS
from weft.errors import WeftError
from weft.history import find_folder, is_codex_context
from weft.model import JsonObject, Message, Text, ToolCall, ToolResult
from weft.thread.handle import Handle
from weft.thread.info import auto_note
from weft.thread.sessions import session_id
from weft.thread.source_lines import SourceLine

from .journal import (
    ROOT,
    FileLine,
    NewLine,
    Piece,
    RemovedLine,
    read_journal,
)
from .plan import (
    CompactionStep,
    ImportPlan,
    Line,
    LinesStep,
    MessageStep,
    Progress,
    Remark,
    Step,
    join_lines,
    last_time,
    line_time,
    read_object,
    report_progress,
    split_lines,
    write_time,
)

FORMAT = "codex"
PROTOCOL = "openai-responses"
ANSWER_ITEMS = frozenset({"reasoning", "function_call", "custom_tool_call", "local_shell_call"})
"""The types of items, besides messages, that a model writes."""


def read_codex(data: bytes, progress: Progress | None = None) -> ImportPlan:
    """Parse a rollout file."""
    lines = list(split_lines(data))
    steps: list[Step] = []
    remarks: list[Remark] = []
    pending: list[SourceLine] = []  # lines without messages, for the next step
    item_lines: list[Line] = []  # the items of one message so far
    for number, line in enumerate([*lines, None]):  # `None` ends the last message
        report_progress(progress, 0, number, len(lines))
        if item_lines and (line is None or not _continues_answer(item_lines[-1], line)):
            _add_messages(steps, item_lines, pending, remarks)
            item_lines = []
        if line is None:
            continue
        kind = _kind(line)
        if kind == "response_item":
            item_lines.append(line)
        elif kind == "compacted":
            _add_compaction(steps, line, pending, remarks)
        else:
            pending.append(SourceLine(line.number, line.text))
            if line.value is None and line.text.strip():
                remarks.append(Remark("unread", line.number, "this line is not a JSON object"))
    if pending:
        steps.append(
            LinesStep(
                key="trailing",
                parent=_last_key(steps),
                lines=tuple(pending),
                created=last_time(lines),
            )
        )
    other_lines = Counter(_kind(line) for line in lines if _kind(line) not in ("response_item", ""))
    return ImportPlan(
        format=FORMAT,
        steps=tuple(steps),
        branches={"main": steps[-1].key} if steps else {},
        name=_session(lines),
        lines=len(lines),
        other_lines=dict(sorted(other_lines.items())),
        remarks=tuple(remarks),
    )


def _add_messages(
    steps: list[Step],
    item_lines: Sequence[Line],
    pending: list[SourceLine],
    remarks: list[Remark],
) -> None:
    """Add a step for each message of these items, with the pending lines before it."""
    first = item_lines[0]
    messages = _decode([_payload(line) for line in item_lines], first, remarks)
    lines = [*pending, *(SourceLine(line.number, line.text, True) for line in item_lines)]
    pending.clear()
    for number, message in enumerate(messages):
        has_results = any(isinstance(block, ToolResult) for block in message.blocks)
        kind = "tool_io" if has_results else "dialogue"
        steps.append(
            MessageStep(
                key=f"{first.number}.{number}",
                parent=_last_key(steps),
                message=message,
                kind=kind,
                note=auto_note(kind, message.text),
                created=line_time(first),
                lines=tuple(lines) if number == 0 else (),
            )
        )


def _add_compaction(
    steps: list[Step], line: Line, pending: list[SourceLine], remarks: list[Remark]
) -> None:
    """Add the step of a `compacted` line, with the pending lines before it."""
    payload = _payload(line)
    history = payload.get("replacement_history")
    if not isinstance(history, list):
        summary = {"type": "message", "role": "user", "content": str(payload.get("message", ""))}
        history = [summary]
    messages: list[Message] = []
    for item in cast(list[JsonObject], history):
        messages += _decode([item], line, remarks)
    lines = (
        *_pop_summary_answer(steps, payload),
        *pending,
        SourceLine(line.number, line.text, True),
    )
    pending.clear()
    steps.append(
        CompactionStep(
            key=str(line.number),
            parent=_last_key(steps),
            rows=tuple(messages),
            note="Codex compacted",
            metadata={"by": FORMAT},
            created=line_time(line),
            lines=lines,
        )
    )


def _pop_summary_answer(steps: list[Step], payload: JsonObject) -> tuple[SourceLine, ...]:
    """Remove the answer with this compaction's summary from the steps; returns its lines.

    Codex does not write the prompt for the summary to the file, so the answer would have no
    question.
    """
    last = steps[-1] if steps else None
    if not isinstance(last, MessageStep) or last.message.role != "assistant":
        return ()
    summary = last.message.text.strip()
    if not summary or summary not in str(payload.get("message", "")):
        return ()
    steps.pop()
    return last.lines


def _decode(items: list[JsonObject], line: Line, remarks: list[Remark]) -> list[Message]:
    """Decode the items of one message; items that no codec can read become text."""
    try:
        return list(CODECS[PROTOCOL].decode_request({"input": items}, "").messages)
    except WeftError as error:
        remarks.append(Remark("unread", line.number, str(error)))
        return [Message("user", (Text(line.text.strip()),))]


def _continues_answer(previous: Line, line: Line) -> bool:
    """Whether two adjacent items are parts of the same answer."""
    return _kind(line) == "response_item" and _is_answer(previous) and _is_answer(line)


def _is_answer(line: Line) -> bool:
    payload = _payload(line)
    kind = payload.get("type")
    is_message = kind == "message" and payload.get("role") == "assistant"
    return is_message or (isinstance(kind, str) and kind in ANSWER_ITEMS)


def _kind(line: Line) -> str:
    """The type of a line; empty if it has no payload."""
    if line.value is None or not isinstance(line.value.get("payload"), dict):
        return ""
    return str(line.value.get("type"))


def _payload(line: Line) -> JsonObject:
    return cast(JsonObject, cast(JsonObject, line.value)["payload"])


def _last_key(steps: Sequence[Step]) -> str | None:
    return steps[-1].key if steps else None


def _session(lines: Sequence[Line]) -> str | None:
    """The session id in the first `session_meta` line."""
    for line in lines:
        if _kind(line) == "session_meta":
            id = _payload(line).get("id")
            return id if isinstance(id, str) else None
    return None


def write_codex(handle: Handle, folder: str = ROOT) -> bytes:
    """The branch as JSON lines of Codex.

    `folder` is the working directory of a conversation that does not name its own.
    """
    journal = read_journal(handle, FORMAT, repeats=True)
    texts: list[str] = []
    edited_slots: set[bytes] = set()
    new_lines: list[NewLine] = []  # adjacent ones, which are written together
    if not any(isinstance(piece, FileLine | RemovedLine) for piece in journal.pieces):
        messages = (row.message for row in handle.view(handle.head()).rows)
        texts += _session_meta(handle.name, journal.pieces, find_folder(messages) or folder)
    for piece in journal.pieces:
        if isinstance(piece, NewLine) and not piece.is_summary:
            if not (piece.is_clients_prompt or _is_context(piece.message)):
                new_lines.append(piece)
            continue
        texts += _write_new_lines(new_lines, texts)
        new_lines = []
        match piece:
            case FileLine(line=line, slot=slot, edited=message) if message is not None and slot:
                if slot not in edited_slots:  # its first line gets all items of the message
                    value = read_object(line.text.encode()) or {}
                    texts += _write_items(message, str(value.get("timestamp", "")))
                edited_slots.add(slot)
            case FileLine(line=line):
                texts.append(line.text)
            case NewLine():
                texts.append(_write_compacted(piece, _read_history(texts)))
            case RemovedLine(line=line):
                texts.append("" if line.is_turn else line.text)
    texts += _write_new_lines(new_lines, texts)
    return join_lines(texts)


def _is_context(message: Message) -> bool:
    """Whether this is a user message with nothing but context that Codex sends by itself."""
    texts = [block.text if isinstance(block, Text) else "" for block in message.blocks]
    return message.role == "user" and bool(texts) and all(map(is_codex_context, texts))


def _write_new_lines(new_lines: Sequence[NewLine], texts: Sequence[str]) -> list[str]:
    """The texts of adjacent new lines; `texts` are those of the lines before them.

    They are written together, because a result is only written as a result if its call is there.
    """
    if not new_lines:
        return []
    messages = [new_line.message for new_line in new_lines]
    open_calls = _open_calls(messages, texts)
    call_message = [Message("assistant", tuple(open_calls))] if open_calls else []
    items = CODECS[PROTOCOL].write_messages([*call_message, *messages])[len(open_calls) :]
    call_times = {
        id: new_line.created for new_line in new_lines for id in _call_ids(new_line.message)
    }
    other_times = iter(
        [new_line.created for new_line in new_lines if _has_other_blocks(new_line.message)]
    )
    lines: list[str] = []
    created = new_lines[0].created
    for item in items:
        id = item.get("call_id")
        created = call_times.get(id, created) if isinstance(id, str) else next(other_times, created)
        lines.append(_write_line(write_time(created), "response_item", _with_type(item)))
    return lines


def _open_calls(messages: Sequence[Message], texts: Sequence[str]) -> list[ToolCall]:
    """The calls in earlier lines whose results are in these messages."""
    own_ids = {block.id for m in messages for block in m.blocks if isinstance(block, ToolCall)}
    result_ids = {b.call_id for m in messages for b in m.blocks if isinstance(b, ToolResult)}
    missing = result_ids - own_ids
    return [
        ToolCall(item["call_id"], str(item.get("name", "")), str(item.get("arguments", "")))
        for item in (_read_history(texts) if missing else ())
        if item.get("type") == "function_call" and item.get("call_id") in missing
    ]


def _call_ids(message: Message) -> list[str]:
    """The ids of a message's calls, or else of its results."""
    call_ids = [block.id for block in message.blocks if isinstance(block, ToolCall)]
    return call_ids or [b.call_id for b in message.blocks if isinstance(b, ToolResult)]


def _has_other_blocks(message: Message) -> bool:
    """Whether a message has blocks besides calls and results, such as text."""
    return any(not isinstance(b, ToolCall | ToolResult) for b in message.blocks)


def _session_meta(thread: str, pieces: Sequence[Piece], folder: str) -> list[str]:
    """The `session_meta` line for a thread that was not imported; none if there are no messages."""
    started = next(
        (write_time(piece.created) for piece in pieces if isinstance(piece, NewLine)), None
    )
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
    return [_write_line(started, "session_meta", payload)]


def _write_line(stamp: str, kind: str, payload: JsonObject) -> str:
    return exact_json.dumps({"timestamp": stamp, "type": kind, "payload": payload}).decode() + "\n"


def _write_compacted(summary: NewLine, before: Sequence[JsonObject]) -> str:
    """The `compacted` line: from here on, Codex uses the history in it."""
    history = [*before, *_payloads(summary.message)]
    payload = {"message": summary.message.text, "replacement_history": history}
    return _write_line(write_time(summary.created), "compacted", payload)


def _read_history(texts: Sequence[str]) -> list[JsonObject]:
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


def _write_items(message: Message, stamp: str) -> list[str]:
    return [_write_line(stamp, "response_item", item) for item in _payloads(message)]


def _payloads(message: Message) -> list[JsonObject]:
    return [_with_type(item) for item in CODECS[PROTOCOL].write_messages([message])]


def _with_type(item: JsonObject) -> JsonObject:
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
                ids = {name: session for name in ("id", "session_id") if name in payload}
                renamed = {**line.value, "payload": {**payload, **ids}}
                texts.append(exact_json.dumps(renamed).decode() + "\n")
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
