"""Rows in few words, and what a list of rows must satisfy to be sent to anybody.

`rows("s:rules", "u:hi @aaaaaa", "a:?deep hello !c1", "u:=c1 @bbbbbb")` is a thread: the letter is
the role, `?word` thinking, `#word` redacted thinking, `~word` a reminder, `!id` a call, `=id` a
result, `@id` a checkpoint, anything else text. A `*` before the letter pins the row, a `-` skips
it.
"""

from collections.abc import Iterable, Sequence

from weft.history import Priority, Row
from weft.ids import object_id
from weft.model import (
    Block,
    Checkpoint,
    Message,
    Redacted,
    Reminder,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
)

ROLES = {"s": "system", "d": "developer", "u": "user", "a": "assistant", "t": "tool"}
PRIORITIES: dict[str, Priority] = {"*": "pinned", "-": "skip", "+": "important"}


def block(word: str) -> Block:
    mark, text = word[0], word[1:]
    match mark:
        case "?":
            return Thinking(text, signature="sealed")
        case "#":
            return Redacted(text)
        case "~":
            return Reminder(text)
        case "!":
            return ToolCall(text, "read", f'{{"path": "{text}"}}')
        case "=":
            return ToolResult(text, (Text(f"content of {text}"),))
        case "@":
            return Checkpoint(text)
        case _:
            return Text(word)


def message(written: str) -> Message:
    role, _, words = written.partition(":")
    return Message(ROLES[role], tuple(block(word) for word in words.split()))


def rows(*written: str) -> list[Row]:
    made: list[Row] = []
    for number, line in enumerate(written):
        priority = PRIORITIES.get(line[0], "normal")
        texts = message(line.lstrip("*+-"))
        made.append(Row(object_id("slot", b"%d" % number), texts, priority))
    return made


def word(block: Block) -> str:
    match block:
        case Thinking(text=text):
            return f"?{text}"
        case Redacted(data=data):
            return f"#{data}"
        case Reminder(text=text):
            return f"~{text}"
        case ToolCall(id=id):
            return f"!{id}"
        case ToolResult(call_id=id):
            return f"={id}"
        case Checkpoint(id=id):
            return f"@{id}"
        case Text(text=text):
            return text.replace(" ", "_")
        case _:
            return type(block).__name__


def write(made: Iterable[Row]) -> list[str]:
    """The rows in the builders' own words, priorities left out."""
    letters = {role: letter for letter, role in ROLES.items()}
    return [
        f"{letters[row.message.role]}:{' '.join(word(block) for block in row.message.blocks)}"
        for row in made
    ]


def checkpoints(made: Iterable[Row]) -> frozenset[str]:
    return frozenset(
        block.id for row in made for block in row.message.blocks if isinstance(block, Checkpoint)
    )


def broken_pairs(made: Sequence[Row]) -> list[str]:
    """What a vendor would refuse: a result without its call before it, a call whose result does
    not come in the next turn, a message without blocks."""
    faults: list[str] = []
    waiting: set[str] = set()
    for number, row in enumerate(made):
        calls = [block.id for block in row.message.blocks if isinstance(block, ToolCall)]
        results = [block.call_id for block in row.message.blocks if isinstance(block, ToolResult)]
        if not row.message.blocks:
            faults.append(f"row {number} is empty")
        faults.extend(
            f"row {number}: result {id} without call" for id in results if id not in waiting
        )
        waiting.difference_update(results)
        if waiting and row.message.role == "assistant":
            faults.append(f"row {number}: {sorted(waiting)} had no result")
        if calls:
            waiting = set(calls)
    return faults
