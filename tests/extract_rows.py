"""Short notation for conversations, and their extracts."""

import json

from weft.compact import extract_summary, plan_budget
from weft.history import Row
from weft.ids import object_id
from weft.model import Message, Text, ToolCall, ToolResult
from weft.tokens import counter_for

count = counter_for("estimate").message


def talk(*texts: str) -> list[Row]:
    """A conversation in turns, the user first."""
    roles = ("user", "assistant")
    messages = [Message(roles[n % 2], (Text(text),)) for n, text in enumerate(texts)]
    return number(messages)


def number(messages: list[Message]) -> list[Row]:
    return [Row(object_id("slot", b"%d" % n), message) for n, message in enumerate(messages)]


def work(*uses: tuple[str, dict, str]) -> list[Message]:
    """Calls with their results."""
    messages: list[Message] = []
    for n, (name, arguments, result) in enumerate(uses):
        call = ToolCall(f"c{n}", name, json.dumps(arguments))
        messages.append(Message("assistant", (call,)))
        messages.append(Message("tool", (ToolResult(call.id, (Text(result),)),)))
    return messages


def sections(rows: list[Row], room: int = 2000) -> dict[str, str]:
    summary = extract_summary(rows, room, count)
    assert summary is not None
    assert count(summary) <= room
    parts = [part.partition(":\n") for part in summary.text.split("\n\n")[1:]]
    return {heading: body for heading, _, body in parts}


def user(text: str) -> Message:
    return Message("user", (Text(text),))


def assistant(text: str) -> Message:
    return Message("assistant", (Text(text),))


def compacted(messages: list[Message], budget: int, keep: int | None = None) -> str:
    """The summary of a compaction to a budget."""
    plan = plan_budget(number(messages), budget, keep=keep, count=count)
    [summary] = [row.message.text for row in plan.rows if row.kind == "summary"]
    return summary
