"""Two results for one call: a conflict, because no vendor accepts both and neither may be lost.

Both sides of a merge may have answered a call that they share. The two results are in different
rows, so the merge of rows does not see a conflict. They are found here, in the order of
the merged list: the earlier row gets the result that was chosen, the later one loses its own.
"""

from collections.abc import Iterable, Iterator, Sequence

from msgspec import structs

from weft.ids import Id
from weft.model import Block, Checkpoint, Message, Reminder, Text, ToolCall, ToolResult

from .conflict import Choose, Lines, ResultConflict
from .objects import Row


def settle_results(
    order: Sequence[Id], lines: dict[Id, Row | None], left: Lines, right: Lines, settle: Choose
) -> tuple[str, ...]:
    """Keep one result for each call in `lines`; returns the calls that both sides had answered.

    Equal results are no conflict: `settle` is called only if something would be lost.
    """
    answered: list[str] = []
    for call, first, second in list(_rivals(order, lines, left, right)):
        answered.append(call)
        one, other = _result(lines[first], call), _result(lines[second], call)
        ours, theirs = (one, other) if first in left else (other, one)
        chosen = ours
        if not is_same_result(ours, theirs):
            conflict = ResultConflict(call, ours, theirs)
            chosen = choose_result(conflict, settle(conflict))
        lines[first] = _with_result(lines[first], chosen)
        lines[second] = _without_result(lines[second], call)
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
    """Our result with their content behind it; it is an error only if both are."""
    failed = (ours.is_error and theirs.is_error) or None
    content = (*ours.content, *theirs.content)
    return structs.replace(ours, content=content, is_error=failed, form="")


def is_answered_again(rows: Iterable[Row], message: Message) -> bool:
    """Whether the message has a result for a call that these rows have answered already."""
    wanted = {block.call_id for block in message.blocks if isinstance(block, ToolResult)}
    answered: set[str] = set()
    for row in rows if wanted else ():
        for block in row.message.blocks:
            if isinstance(block, ToolCall):
                answered.discard(block.id)
            elif isinstance(block, ToolResult) and row.priority != "skip":
                answered.add(block.call_id)
    return bool(wanted & answered)


def open_calls(rows: Iterable[Row]) -> set[str]:
    """Ids of calls that nothing has answered yet."""
    waiting: set[str] = set()
    for row in rows:
        for block in row.message.blocks:
            if isinstance(block, ToolCall):
                waiting.add(block.id)
            elif isinstance(block, ToolResult):
                waiting.discard(block.call_id)
    return waiting


def open_answers(base: Sequence[Row], side: Sequence[Row]) -> list[Row]:
    """The rows that one side added to answer calls that are open in `base`."""
    known = {row.id for row in base}
    waiting = open_calls(base)
    answers: list[Row] = []
    for row in side:
        if row.id in known or row.priority == "skip":
            continue
        results = tuple(
            block
            for block in row.message.blocks
            if isinstance(block, ToolResult) and block.call_id in waiting
        )
        waiting -= {block.call_id for block in results}
        if results:
            message = structs.replace(row.message, blocks=results, form="")
            answers.append(structs.replace(row, message=message))
    return answers


def _rivals(
    order: Sequence[Id], lines: dict[Id, Row | None], left: Lines, right: Lines
) -> Iterator[tuple[str, Id, Id]]:
    """Calls that each side answers in a row of its own, with the slots of both rows."""
    first: dict[str, Id] = {}
    for slot in order:
        row = lines[slot]
        if row is None or row.priority == "skip":
            continue
        for block in row.message.blocks:
            if isinstance(block, ToolCall):
                first.pop(block.id, None)  # an id that is used again is another call
            elif isinstance(block, ToolResult):
                earlier = first.setdefault(block.call_id, slot)
                if earlier != slot and {_side(earlier, left, right), _side(slot, left, right)} == {
                    "ours",
                    "theirs",
                }:
                    yield block.call_id, earlier, slot


def _side(slot: Id, left: Lines, right: Lines) -> str:
    return "both" if slot in left and slot in right else "ours" if slot in left else "theirs"


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
    """The row without its result for this call; `None` if nothing else is in it."""
    assert row is not None
    blocks = tuple(
        block
        for block in row.message.blocks
        if not (isinstance(block, ToolResult) and block.call_id == call)
    )
    if all(isinstance(block, Reminder | Checkpoint) for block in blocks):
        return None
    return structs.replace(row, message=structs.replace(row.message, blocks=blocks))
