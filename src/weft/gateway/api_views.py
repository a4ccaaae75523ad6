"""Rows, commits and changes of a thread as JSON for the page, with text as safe HTML.

The functions take values, such as a walk of stored commits, and return JSON. The row of a summary
says how many rows it replaced (`fold`). A commit that changed earlier rows can be shown with both
sides of the change.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import orjson
from msgspec import Struct

from weft.history import Count, Row, View, shows
from weft.ids import Id
from weft.model import (
    Audio,
    Block,
    Checkpoint,
    File,
    Image,
    JsonObject,
    Message,
    Opaque,
    Redacted,
    Refusal,
    Reminder,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    describe_call,
    speaker,
    texts,
)
from weft.printable import without_bold, without_sequences
from weft.store import Step
from weft.thread import Attempt, CommitInfo, listed_text

from .render import render

EXCERPT = 120
RENDERED = 100_000
"""How many characters of a text are rendered in a list: a very long text would take minutes."""
AUTOMATIC_NOTES = ("dialogue: ", "tool_io: ", "instruction: ")
"""Prefixes of the notes on an agent's own commits. Such notes only repeat the message."""
SCANNED = 50
"""How much of a long text is read for an excerpt, as a multiple of the excerpt's length."""
SUMMARY = "summary"
ANNOTATIONS = {
    "pinned": "Pinned a message",
    "important": "Marked a message as important",
    "normal": "Made a message normal again",
    "skip": "Left a message out",
}
REWRITES = frozenset({"compact", "edit", "merge", "revert", "splice"})


class Change(Struct, frozen=True):
    """What one commit changed in the rows before it."""

    before: tuple[Row, ...]
    after: tuple[Row, ...]

    @property
    def removed(self) -> list[Row]:
        """Rows that the commit removed."""
        after_ids = {row.id for row in self.after}
        return [row for row in self.before if row.id not in after_ids]

    @property
    def added(self) -> list[Row]:
        """Rows that the commit added; in a preview they have no id yet."""
        before_ids = {row.id for row in self.before}
        return [row for row in self.after if row.id not in before_ids]

    @property
    def reworded(self) -> list[tuple[Row, Row]]:
        """Rows whose message changed: before and after."""
        old_rows = {row.id: row for row in self.before}
        pairs = ((old_rows[row.id], row) for row in self.after if row.id in old_rows)
        return [(old, new) for old, new in pairs if old.message != new.message]

    @property
    def pins(self) -> list[Row]:
        """Pinned rows that were kept between removed ones."""
        removed_ids = {row.id for row in self.removed}
        indexes = [index for index, row in enumerate(self.before) if row.id in removed_ids]
        if not indexes:
            return []
        span = self.before[indexes[0] : indexes[-1] + 1]
        return [row for row in span if row.priority == "pinned" and row.id not in removed_ids]


def count_once(count: Count) -> Count:
    """A counter that counts each message object once: both sides of a change share most of them.

    It identifies messages by their address in memory, so use it only while the rows exist.
    """
    counts: dict[int, int] = {}

    def counted(message: Message) -> int:
        key = id(message)
        if key not in counts:
            counts[key] = count(message)
        return counts[key]

    return counted


def read_changes(steps: Iterable[Step]) -> tuple[View, dict[Id, Change]]:
    """The rows after all steps, and the change of each commit that touched earlier rows."""
    view, changes, appending = View(), dict[Id, Change](), list[Step]()
    for step in steps:
        if step.commit.kind not in REWRITES:
            appending.append(step)
            continue
        view, appending = view.extend(appending), []
        before = tuple(view.rows)
        view = view.extend([step])
        changes[step.commit.id] = Change(before, tuple(view.rows))
    return view.extend(appending), changes


def thread_json(view: View, changes: Mapping[Id, Change], count: Count, last: int) -> JsonObject:
    """The last rows, with hidden ones, and the number of tokens that a model would be sent."""
    folds = {
        row.id: fold_json(commit, change, count)
        for commit, change in changes.items()
        for row in change.added
        if row.kind == SUMMARY and change.removed
    }
    rows = view.rows
    last_rows = [{**row_json(row, count), "fold": folds.get(row.id)} for row in rows[-last:]]
    return {"rows": last_rows, "earlier": len(rows) - len(last_rows), "tokens": view.tokens(count)}


def attempts_json(steps: Sequence[Step], attempts: Sequence[Attempt]) -> list[JsonObject]:
    """The attempts at answers that failed or were stopped, oldest first.

    `after` is the id of the row after which an attempt is shown: the last row of its commit.
    """
    commits = {attempt.commit for attempt in attempts}
    rows: dict[str, str] = {}
    view, start = View(), 0
    for index, step in enumerate(steps):
        commit = step.commit.id.hex()
        if commit in commits:
            view = view.extend(steps[start : index + 1])
            start = index + 1
            rows[commit] = _hex(view.rows[-1].id) if view.rows else ""
    return [
        attempt_json(attempt, rows[attempt.commit])
        for attempt in attempts
        if attempt.commit in rows
    ]


def attempt_json(attempt: Attempt, after: str) -> JsonObject:
    """One attempt: why it has no complete answer, and the part that arrived."""
    blocks = () if attempt.message is None else attempt.message.blocks
    reason = attempt.reason
    return {
        "after": after,
        "state": attempt.state,
        "reason": None if reason is None else reason.message,
        "status": None if reason is None else reason.status,
        "model": attempt.model,
        "created": attempt.created.timestamp(),
        "parts": [part for block in blocks for part in part_json(block)],
    }


def row_json(row: Row, count: Count) -> JsonObject:
    """One row with its blocks; its `id` is the argument of pin, skip and edit."""
    parts = [part for block in row.message.blocks for part in part_json(block)]
    return {
        "id": _hex(row.id),
        "role": row.message.role,
        "name": row.message.name,
        "kind": row.kind,
        "priority": row.priority,
        "tokens": count(row.message),
        "parts": parts,
    }


def part_json(block: Block) -> list[JsonObject]:
    """The parts that the page shows for a block."""
    match block:
        case Text(text=text) | Refusal(text=text):
            return [{"type": "text", "text": text, "html": render(text)}] if text else []
        case Thinking(text=text):
            return [{"type": "thinking", "text": text}] if text else []
        case ToolCall(id=id, name=name, arguments=arguments):
            return [{"type": "call", "id": id, "name": name, "input": read_input(arguments)}]
        case ToolResult(call_id=call_id, is_error=is_error):
            content = result_text(block)
            return [
                {
                    "type": "result",
                    "call_id": call_id,
                    "content": content,
                    "is_error": is_error is True,
                }
            ]
        case Checkpoint(id=id):
            return [{"type": "checkpoint", "id": id}]
        case Reminder(text=text):
            return [{"type": "reminder", "text": f"Reminder: {text}"}]
        case Redacted():
            return [{"type": "note", "text": "Encrypted reasoning"}]
        case Image() | File() | Audio():
            return [{"type": "note", "text": f"[{block.__struct_config__.tag}]"}]
        case Opaque(raw=raw):
            return [{"type": "note", "text": f"[{raw.get('type', 'block')}]"}]


def read_input(arguments: str) -> Any:
    """The arguments of a call as an object; as text if they are not JSON."""
    try:
        return orjson.loads(arguments or "{}")
    except orjson.JSONDecodeError:
        return arguments


def result_text(result: ToolResult) -> str:
    """The text of a result, with placeholders for media."""
    lines = list(texts(result.content))
    lines += [
        f"[{block.__struct_config__.tag}]"
        for block in result.content
        if isinstance(block, Image | File | Audio)
    ]
    return "\n".join(lines)


def brief_json(row: Row, count: Count) -> JsonObject:
    """A row as a short excerpt, with its whole text as HTML."""
    text = message_text(row.message)
    if len(text) > RENDERED:
        text = text[:RENDERED] + "…"
    return {
        "id": _hex(row.id),
        "role": SUMMARY if row.kind == SUMMARY else row.message.role,
        "excerpt": excerpt(text),
        "html": render(text),
        "tokens": count(row.message),
    }


def excerpt(text: str, length: int = EXCERPT) -> str:
    """The beginning of a text, on one line, without colours and marks of bold text."""
    flat = without_bold(" ".join(without_sequences(text[: SCANNED * length]).split()))
    return flat if len(flat) <= length else flat[: length - 1] + "…"


def message_text(message: Message) -> str:
    """The readable text of a message: its texts and tool calls, without checkpoints."""
    lines = list(texts(block for block in message.blocks if not isinstance(block, Checkpoint)))
    calls = (block for block in message.blocks if isinstance(block, ToolCall))
    return "\n\n".join([*lines, *(f"`{call.name}` {call.arguments}" for call in calls)])


def describe_commit(info: CommitInfo) -> tuple[str, str]:
    """The kind of a commit (for a message, its speaker), and its text on one line."""
    messages, kind = info.messages, info.kind
    if kind != "append" or not messages:
        edited = " ".join(map(preview, messages)) if kind == "edit" else ""
        return kind, describe_annotation(info) or info.message or edited or kind
    role = speaker(messages[0]).split()[0]  # without the speaker's name
    if info.automatic_type is not None:  # nearly all commits: their notes need not be written
        return role, " ".join(map(preview, messages)) or info.message or kind
    note = info.message or ""
    is_automatic = note.startswith(AUTOMATIC_NOTES)
    text = " ".join(map(preview, messages)) if is_automatic or not note else note
    return role, text or note or kind


def preview(message: Message) -> str:
    """A short text for a message: its own text, and its calls with their main arguments.

    Text that a client put into a user's message is left out. If the message has no other text, the
    names of the client's elements are shown: `[system-reminder]`.
    """
    text = " ".join(texts(block for block in message.blocks if not isinstance(block, Checkpoint)))
    text = listed_text(message.role, text)
    calls = [describe_call(block) for block in message.blocks if isinstance(block, ToolCall)]
    return " ".join([text, f"[{', '.join(calls)}]"] if calls else [text]).strip()


def fold_json(commit: Id, change: Change, count: Count) -> JsonObject:
    """How many rows and tokens a summary replaced, and its commit."""
    return {
        "commit": commit.hex(),
        "dropped": len(change.removed),
        **tokens_json(change.before, change.after, count),
    }


def change_json(change: Change, count: Count) -> JsonObject:
    """Both sides of a change, and the pinned rows that it kept."""
    return {
        "removed": [brief_json(row, count) for row in change.removed],
        "added": [brief_json(row, count) for row in change.added],
        "pins": [brief_json(row, count) for row in change.pins],
        "reworded": [
            {"old": brief_json(old, count), "new": brief_json(new, count)}
            for old, new in change.reworded
        ],
        **tokens_json(change.before, change.after, count),
    }


def tokens_json(before: Sequence[Row], after: Sequence[Row], count: Count) -> JsonObject:
    return {"before": count_rows(before, count), "after": count_rows(after, count)}


def count_rows(rows: Iterable[Row], count: Callable[[Message], int]) -> int:
    return sum(count(row.message) for row in rows if shows(row))


def describe_annotation(info: CommitInfo) -> str | None:
    """A sentence that describes an `annotate` commit; None for any other commit."""
    if info.kind != "annotate" or not info.marked:
        return None
    return ANNOTATIONS.get(next(iter(info.marked.values())), "Marked a message")


def commit_json(info: CommitInfo, compaction: JsonObject | None = None) -> JsonObject:
    """One line of the log; a compaction has its tokens before and after."""
    note = describe_annotation(info)
    speaker_or_kind, label = describe_commit(info)
    return {
        "id": info.id,
        "parents": list(info.parents),
        "kind": info.kind,
        "message": info.message or note or excerpt(" ".join(map(message_text, info.messages))),
        "label": excerpt(f"{speaker_or_kind}: {label}" if info.kind == "append" else label),
        "created": info.created.timestamp(),
        "rewrites": info.kind in REWRITES,
        "compaction": compaction,
    }


def _hex(id: Id | None) -> str:
    return "" if id is None else id.hex()
