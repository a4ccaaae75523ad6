"""Conflicts as values: a row, the setup or a result that both sides changed.

Both sides of a merge may have answered a call that they share. No vendor accepts two results for
one call, and neither may be lost. The two results are in different rows, so the merge of rows does
not see a conflict. `resolve_results` finds these calls in the merged list: the earlier row gets the
chosen result, and the later row loses its own.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Literal

from msgspec import Struct, structs

from weft.ids import Id
from weft.model import Block, Checkpoint, Message, Reminder, Text, ToolCall, ToolResult, texts

from .objects import Row, Setup

CHOICES = ("ours", "theirs", "concat")
SETUP = "setup"
SHOWN_RESULT = 32  # characters of a result in the description of a conflict

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
        ours, theirs = (_shorten(result) for result in (self.ours, self.theirs))
        return f"the result of call {self.call_id} (ours {ours!r}, theirs {theirs!r})"


AnyConflict = Conflict | SetupConflict | ResultConflict

Choose = Callable[[AnyConflict], str]
"""Resolves one conflict: returns `ours`, `theirs`, `concat` (both), or the text to use."""


def _shorten(result: ToolResult) -> str:
    text = " ".join(" ".join(texts(result.content)).split())
    return text if len(text) <= SHOWN_RESULT else text[: SHOWN_RESULT - 1] + "…"


def resolve_results(
    order: Sequence[Id],
    rows: dict[Id, Row | None],
    ours_by_slot: RowsBySlot,
    theirs_by_slot: RowsBySlot,
    choose: Choose,
) -> tuple[str, ...]:
    """Keep one result for each call in `rows`; returns the calls that both sides had answered.

    `order` has the slots of the merged list. Equal results are no conflict: `choose` is called only
    if the results differ.
    """
    answered_twice: list[str] = []
    for call, first, second in list(_answered_twice(order, rows, ours_by_slot, theirs_by_slot)):
        answered_twice.append(call)
        first_result = _find_result(rows[first], call)
        second_result = _find_result(rows[second], call)
        ours, theirs = (
            (first_result, second_result)
            if first in ours_by_slot
            else (second_result, first_result)
        )
        chosen = ours
        if not is_same_result(ours, theirs):
            conflict = ResultConflict(call, ours, theirs)
            chosen = choose_result(conflict, choose(conflict))
        rows[first] = _with_result(rows[first], chosen)
        rows[second] = _without_result(rows[second], call)
    return tuple(sorted(set(answered_twice)))


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


def has_second_result(rows: Iterable[Row], message: Message) -> bool:
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


def answers_to_open_calls(base: Sequence[Row], side: Sequence[Row]) -> list[Row]:
    """The results that one side added for calls without a result in `base`, as rows."""
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


def _answered_twice(
    order: Sequence[Id], rows: dict[Id, Row | None], ours: RowsBySlot, theirs: RowsBySlot
) -> Iterator[tuple[str, Id, Id]]:
    """Calls that each side answers in a row of its own, with the slots of both rows."""
    answered_in: dict[str, Id] = {}
    for slot in order:
        row = rows[slot]
        if row is None or row.priority == "skip":
            continue
        for block in row.message.blocks:
            if isinstance(block, ToolCall):
                answered_in.pop(block.id, None)  # an id that is used again is another call
            elif isinstance(block, ToolResult):
                earlier = answered_in.setdefault(block.call_id, slot)
                sides = {_side(earlier, ours, theirs), _side(slot, ours, theirs)}
                if earlier != slot and sides == {"ours", "theirs"}:
                    yield block.call_id, earlier, slot


def _side(slot: Id, ours: RowsBySlot, theirs: RowsBySlot) -> str:
    if slot in ours and slot in theirs:
        return "both"
    return "ours" if slot in ours else "theirs"


def _find_result(row: Row | None, call: str) -> ToolResult:
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
