"""Codex' rollout files: JSON lines of `{timestamp, type, payload}`.

A `response_item` is an item of the Responses API. Items of one answer (reasoning, words, calls)
stand on lines of their own and are one message here, as they were when the model made it. A
`compacted` line gives the history that went on in place of the old one; it becomes a compaction
whose parent is the old one. What it says again word for word keeps its line, and the answer that is
the compaction's own summary belongs to it.
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
from .script import Aside, Folded, Progress, Remark, Said, Script, Step, tell

FORMAT = "codex"
PROTOCOL = "openai-responses"
ANSWERS = frozenset({"reasoning", "function_call", "custom_tool_call", "local_shell_call"})


def read_codex(data: bytes, progress: Progress | None = None) -> Script:
    """The conversation and all lines of a rollout."""
    lines = list(split_lines(data))
    steps: list[Step] = []
    remarks: list[Remark] = []
    waiting: list[SourceLine] = []
    run: list[Line] = []
    for number, line in enumerate([*lines, None]):
        tell(progress, 0, number, len(lines))
        if run and (line is None or not _continues(run[-1], line)):
            _say(steps, run, waiting, remarks)
            run = []
        if line is None:
            continue
        kind = _kind(line)
        if kind == "response_item":
            run.append(line)
        elif kind == "compacted":
            _fold(steps, line, waiting, remarks)
        else:
            waiting.append(SourceLine(line.number, line.text))
            if line.value is None and line.text.strip():
                remarks.append(Remark("unread", line.number, "this line is no JSON object"))
    if waiting:
        steps.append(Aside(key="trailing", parent=_last(steps), lines=tuple(waiting)))
    kept = Counter(_kind(line) for line in lines if _kind(line) not in ("response_item", ""))
    return Script(
        format=FORMAT,
        steps=tuple(steps),
        branches={"main": steps[-1].key} if steps else {},
        name=_session(lines),
        lines=len(lines),
        kept=dict(sorted(kept.items())),
        remarks=tuple(remarks),
    )


def _say(
    steps: list[Step], run: Sequence[Line], waiting: list[SourceLine], remarks: list[Remark]
) -> None:
    """Take up the items of one message; the lines before it come with it."""
    messages = _decode([_payload(line) for line in run], run[0], remarks)
    lines = [*waiting, *(SourceLine(line.number, line.text, True) for line in run)]
    waiting.clear()
    for number, message in enumerate(messages):
        results = any(isinstance(block, ToolResult) for block in message.blocks)
        kind = "tool_io" if results else "dialogue"
        steps.append(
            Said(
                key=f"{run[0].number}.{number}",
                parent=_last(steps),
                message=message,
                kind=kind,
                note=auto_note(kind, message.text),
                created=_time(run[0]),
                lines=tuple(lines) if number == 0 else (),
            )
        )


def _fold(steps: list[Step], line: Line, waiting: list[SourceLine], remarks: list[Remark]) -> None:
    payload = _payload(line)
    history = payload.get("replacement_history")
    if not isinstance(history, list):
        said = {"type": "message", "role": "user", "content": str(payload.get("message", ""))}
        history = [said]
    messages: list[Message] = []
    for item in cast(list[JsonObject], history):
        messages += _decode([item], line, remarks)
    lines = (*_summary_lines(steps, payload), *waiting, SourceLine(line.number, line.text, True))
    waiting.clear()
    steps.append(
        Folded(
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
    """Take the answer that is this compaction's summary from the steps, if it stands there.

    Codex asks for it out of sight, so it answers nothing that the file has.
    """
    last = steps[-1] if steps else None
    if not isinstance(last, Said) or last.message.role != "assistant":
        return ()
    said = last.message.text.strip()
    if not said or said not in str(payload.get("message", "")):
        return ()
    steps.pop()
    return last.lines


def _decode(items: list[JsonObject], line: Line, remarks: list[Remark]) -> list[Message]:
    """The messages of items that belong together."""
    try:
        return list(CODECS[PROTOCOL].decode_request({"input": items}, "").messages)
    except WeftError as error:
        remarks.append(Remark("unread", line.number, str(error)))
        return [Message("user", (Text(line.text.strip()),))]


def _continues(before: Line, line: Line) -> bool:
    """Whether two neighbouring items are parts of one answer."""
    return _kind(line) == "response_item" and _answers(before) and _answers(line)


def _answers(line: Line) -> bool:
    payload = _payload(line)
    spoken = payload.get("type") == "message" and payload.get("role") == "assistant"
    return spoken or payload.get("type") in ANSWERS


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
