"""Rollout files of Codex: JSON lines of `{timestamp, type, payload}`.

A `response_item` is an item of the Responses API. The items of one answer (reasoning, text, tool
calls) are on separate lines; they become one message.

A `compacted` line has the history that replaces everything before it. It becomes a compaction.
Messages that are identical before and after it keep their slots. The answer in which the model
wrote the summary becomes part of the compaction.
"""

from collections import Counter
from collections.abc import Sequence
from typing import cast

from weft.codec import CODECS
from weft.errors import WeftError
from weft.model import JsonObject, Message, Text, ToolResult
from weft.thread.info import auto_note
from weft.thread.source_lines import SourceLine

from .lines import Line, read_time, split_lines
from .plan import (
    CompactionStep,
    ImportPlan,
    LinesStep,
    MessageStep,
    Progress,
    Remark,
    Step,
    report_progress,
)

FORMAT = "codex"
PROTOCOL = "openai-responses"
ANSWER_ITEMS = frozenset({"reasoning", "function_call", "custom_tool_call", "local_shell_call"})


def read_codex(data: bytes, progress: Progress | None = None) -> ImportPlan:
    """Parse a rollout file."""
    lines = list(split_lines(data))
    steps: list[Step] = []
    remarks: list[Remark] = []
    pending: list[SourceLine] = []
    run: list[Line] = []
    for number, line in enumerate([*lines, None]):
        report_progress(progress, 0, number, len(lines))
        if run and (line is None or not _continues(run[-1], line)):
            _add_messages(steps, run, pending, remarks)
            run = []
        if line is None:
            continue
        kind = _kind(line)
        if kind == "response_item":
            run.append(line)
        elif kind == "compacted":
            _add_compaction(steps, line, pending, remarks)
        else:
            pending.append(SourceLine(line.number, line.text))
            if line.value is None and line.text.strip():
                remarks.append(Remark("unread", line.number, "this line is not a JSON object"))
    if pending:
        stamp = next((t for line in reversed(lines) if (t := _time(line)) is not None), None)
        trailing_lines = tuple(pending)
        steps.append(
            LinesStep(key="trailing", parent=_last(steps), lines=trailing_lines, created=stamp)
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
    steps: list[Step], run: Sequence[Line], pending: list[SourceLine], remarks: list[Remark]
) -> None:
    """Add a step for each message of a run of items, with the pending lines before it."""
    messages = _decode([_payload(line) for line in run], run[0], remarks)
    lines = [*pending, *(SourceLine(line.number, line.text, True) for line in run)]
    pending.clear()
    for number, message in enumerate(messages):
        results = any(isinstance(block, ToolResult) for block in message.blocks)
        kind = "tool_io" if results else "dialogue"
        steps.append(
            MessageStep(
                key=f"{run[0].number}.{number}",
                parent=_last(steps),
                message=message,
                kind=kind,
                note=auto_note(kind, message.text),
                created=_time(run[0]),
                lines=tuple(lines) if number == 0 else (),
            )
        )


def _add_compaction(
    steps: list[Step], line: Line, pending: list[SourceLine], remarks: list[Remark]
) -> None:
    payload = _payload(line)
    history = payload.get("replacement_history")
    if not isinstance(history, list):
        summary = {"type": "message", "role": "user", "content": str(payload.get("message", ""))}
        history = [summary]
    messages: list[Message] = []
    for item in cast(list[JsonObject], history):
        messages += _decode([item], line, remarks)
    lines = (*_summary_lines(steps, payload), *pending, SourceLine(line.number, line.text, True))
    pending.clear()
    steps.append(
        CompactionStep(
            key=str(line.number),
            parent=_last(steps),
            rows=tuple(messages),
            note="Codex compacted",
            metadata={"by": FORMAT},
            created=_time(line),
            lines=lines,
        )
    )


def _summary_lines(steps: list[Step], payload: JsonObject) -> tuple[SourceLine, ...]:
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


def _continues(previous: Line, line: Line) -> bool:
    """Whether two adjacent items are parts of the same answer."""
    return _kind(line) == "response_item" and _is_answer(previous) and _is_answer(line)


def _is_answer(line: Line) -> bool:
    payload = _payload(line)
    kind = payload.get("type")
    is_message = kind == "message" and payload.get("role") == "assistant"
    return is_message or (isinstance(kind, str) and kind in ANSWER_ITEMS)


def _kind(line: Line) -> str:
    if line.value is None or not isinstance(line.value.get("payload"), dict):
        return ""
    return str(line.value.get("type"))


def _payload(line: Line) -> JsonObject:
    return cast(JsonObject, cast(JsonObject, line.value)["payload"])


def _time(line: Line) -> float | None:
    return None if line.value is None else read_time(line.value.get("timestamp"))


def _last(steps: Sequence[Step]) -> str | None:
    return steps[-1].key if steps else None


def _session(lines: Sequence[Line]) -> str | None:
    for line in lines:
        if _kind(line) == "session_meta":
            name = _payload(line).get("id")
            return name if isinstance(name, str) else None
    return None
