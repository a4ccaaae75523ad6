"""Conflicts as values: a row, the setup or a result that both sides changed.

Both sides of a merge may have answered a call that they share. No vendor accepts two results for
one call, and neither may be lost. The two results are in different rows, so the merge of rows does
not see a conflict. `settle_results` finds them, in the order of the merged list: the earlier row
gets the result that was chosen, the later one loses its own.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Literal

from msgspec import Struct, structs

from weft.ids import Id
from weft.model import Block, Checkpoint, Message, Reminder, Text, ToolCall, ToolResult, texts

from .objects import Row, Setup

CHOICES = ("ours", "theirs", "concat")
SETUP = "setup"
SHORT = 32  # how much of a result is shown where a conflict is described

RowsBySlot = Mapping[Id, Row]


class Conflict(Struct, frozen=True):
    """One row that both sides changed; a side that no longer has it is `None`.

    `kind` is `edited` (two versions of the row), `skipped` (hidden on one side, changed on the
    other) or `folded` (two summaries of it, or a summary on one side and a change on the other).
    """

    slot: Id
    kind: Literal["edited", "folded", "skipped"]
    base: Row | None
    ours: Row | None
    theirs: Row | None

    @property
    def id(self) -> str:
        """The id that an answer names to resolve the conflict."""
        return self.slot.hex()

    @property
    def place(self) -> str:
        """A short description of the position."""
        return f"{self.id[:12]} ({self.kind})"


class SetupConflict(Struct, frozen=True):
    """Tools or parameters that both sides changed differently; `parts` names them.

    Parts that only one side changed are always taken from that side.
    """

    parts: tuple[str, ...]
    base: Setup | None
    ours: Setup | None
    theirs: Setup | None

    @property
    def id(self) -> str:
        """The id that an answer names to resolve the conflict; a thread has one setup."""
        return SETUP

    @property
    def kind(self) -> str:
        return SETUP

    @property
    def place(self) -> str:
        """A short description of the position."""
        return f"the setup ({', '.join(self.parts)})"


class ResultConflict(Struct, frozen=True):
    """A call that both sides answered with different results.

    It is resolved like a row: `ours`, `theirs`, `concat` (both in one result), or a text.
    """

    call_id: str
    ours: ToolResult
    theirs: ToolResult

    @property
    def id(self) -> str:
        """The call's id, which an answer names to resolve the conflict."""
        return self.call_id

    @property
    def kind(self) -> str:
        return "answered"

    @property
    def place(self) -> str:
        """A short description: the call, and the result on each side."""
        ours, theirs = (_short(result) for result in (self.ours, self.theirs))
        return f"the result of call {self.call_id} (ours {ours!r}, theirs {theirs!r})"


AnyConflict = Conflict | SetupConflict | ResultConflict

Choose = Callable[[AnyConflict], str]
"""Resolves one conflict: returns `ours`, `theirs`, `concat` (both), or the text to use."""


def _short(result: ToolResult) -> str:
    text = " ".join(" ".join(texts(result.content)).split())
    return text if len(text) <= SHORT else text[: SHORT - 1] + "…"


def settle_results(
    order: Sequence[Id],
    rows: dict[Id, Row | None],
    ours_by_slot: RowsBySlot,
    theirs_by_slot: RowsBySlot,
    settle: Choose,
) -> tuple[str, ...]:
    """Keep one result for each call in `rows`; returns the calls that both sides had answered.

    Equal results are no conflict: `settle` is called only if the results differ.
    """
    answered: list[str] = []
    for call, first, second in list(_rivals(order, rows, ours_by_slot, theirs_by_slot)):
        answered.append(call)
        first_result, second_result = _result(rows[first], call), _result(rows[second], call)
        ours, theirs = (
            (first_result, second_result)
            if first in ours_by_slot
            else (second_result, first_result)
        )
        chosen = ours
        if not is_same_result(ours, theirs):
            conflict = ResultConflict(call, ours, theirs)
            chosen = choose_result(conflict, settle(conflict))
        rows[first] = _with_result(rows[first], chosen)
        rows[second] = _without_result(rows[second], call)
    return tuple(sorted(set(answered)))


def is_same_result(one: ToolResult, other: ToolResult) -> bool:
    """Whether two results mean the same to the model."""
    return one.content == other.content and bool(one.is_error) == bool(other.is_error)


def choose_result(conflict: ResultConflict, choice: str) -> ToolResult:
    """The result that was chosen: one of the two, both, or a text that replaces them."""
    ours, theirs = conflict.ours, conflict.theirs
    if choice == "ours":
        return ours
    if choice == "theirs":
        return theirs
    if choice == "concat":
        return concat_results(ours, theirs)
    return structs.replace(ours, content=(Text(choice),), form="")


def concat_results(ours: ToolResult, theirs: ToolResult) -> ToolResult:
    """Our result, followed by the content of theirs; it is an error only if both are."""
    failed = (ours.is_error and theirs.is_error) or None
    content = (*ours.content, *theirs.content)
    return structs.replace(ours, content=content, is_error=failed, form="")


def is_answered_again(rows: Iterable[Row], message: Message) -> bool:
    """Whether the message has a result for a call that these rows have answered already."""
    call_ids = {block.call_id for block in message.blocks if isinstance(block, ToolResult)}
    answered: set[str] = set()
    for row in rows if call_ids else ():
        for block in row.message.blocks:
            if isinstance(block, ToolCall):
                answered.discard(block.id)
            elif isinstance(block, ToolResult) and row.priority != "skip":
                answered.add(block.call_id)
    return bool(call_ids & answered)


def open_calls(rows: Iterable[Row]) -> set[str]:
    """The ids of the calls that have no result yet."""
    open_ids: set[str] = set()
    for row in rows:
        for block in row.message.blocks:
            if isinstance(block, ToolCall):
                open_ids.add(block.id)
            elif isinstance(block, ToolResult):
                open_ids.discard(block.call_id)
    return open_ids


def open_answers(base: Sequence[Row], side: Sequence[Row]) -> list[Row]:
    """The rows that one side added to answer calls that are open in `base`."""
    base_slots = {row.id for row in base}
    open_ids = open_calls(base)
    answers: list[Row] = []
    for row in side:
        if row.id in base_slots or row.priority == "skip":
            continue
        results = tuple(
            block
            for block in row.message.blocks
            if isinstance(block, ToolResult) and block.call_id in open_ids
        )
        open_ids -= {block.call_id for block in results}
        if results:
            message = structs.replace(row.message, blocks=results, form="")
            answers.append(structs.replace(row, message=message))
    return answers


def _rivals(
    order: Sequence[Id], rows: dict[Id, Row | None], ours: RowsBySlot, theirs: RowsBySlot
) -> Iterator[tuple[str, Id, Id]]:
    """Calls that each side answers in a row of its own, with the slots of both rows."""
    first: dict[str, Id] = {}
    for slot in order:
        row = rows[slot]
        if row is None or row.priority == "skip":
            continue
        for block in row.message.blocks:
            if isinstance(block, ToolCall):
                first.pop(block.id, None)  # an id that is used again is another call
            elif isinstance(block, ToolResult):
                earlier = first.setdefault(block.call_id, slot)
                if earlier != slot and {
                    _side(earlier, ours, theirs),
                    _side(slot, ours, theirs),
                } == {
                    "ours",
                    "theirs",
                }:
                    yield block.call_id, earlier, slot


def _side(slot: Id, ours: RowsBySlot, theirs: RowsBySlot) -> str:
    return "both" if slot in ours and slot in theirs else "ours" if slot in ours else "theirs"


def _result(row: Row | None, call: str) -> ToolResult:
    assert row is not None
    for block in row.message.blocks:
        if isinstance(block, ToolResult) and block.call_id == call:
            return block
    raise AssertionError(call)


def _with_result(row: Row | None, result: ToolResult) -> Row:
    """The row with its result for the same call replaced by this one."""
    assert row is not None
    blocks: tuple[Block, ...] = tuple(
        result if isinstance(block, ToolResult) and block.call_id == result.call_id else block
        for block in row.message.blocks
    )
    if blocks == row.message.blocks:
        return row
    return structs.replace(row, message=structs.replace(row.message, blocks=blocks))


def _without_result(row: Row | None, call: str) -> Row | None:
    """The row without its result for this call; `None` if it has no other content."""
    assert row is not None
    blocks = tuple(
        block
        for block in row.message.blocks
        if not (isinstance(block, ToolResult) and block.call_id == call)
    )
    if all(isinstance(block, Reminder | Checkpoint) for block in blocks):
        return None
    return structs.replace(row, message=structs.replace(row.message, blocks=blocks))
