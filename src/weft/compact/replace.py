"""Compaction by range: a model names checkpoints and writes a summary of the turns between them.

A range consists of blocks, not messages: it starts after the `from` checkpoint and ends with the
`to` checkpoint, and either may be in the middle of a message. A `Span` is a range with its
positions, and a `Range` is the record of what was replaced. A row is a message of the thread with
its id and priority. The rules:

- The leading system messages are never in a range. A pinned row in a range stays unchanged, before
  the summary. Calls and results that belong to a pinned row stay too.
- If a range contains a call or its result, both are removed.
- Remaining messages lose reminders and thinking. Pinned messages lose nothing.
- A summary is never placed between a call and its result, but after the result.
- The order of the replacements does not matter: all ranges are located before any is replaced.

An unknown checkpoint, an empty or reversed range, and overlapping ranges raise `CompactRefused`
with the field that is wrong.
"""

from collections.abc import Sequence, Set
from itertools import pairwise
from typing import Literal

from msgspec import Struct, structs

from weft.errors import CompactRefused
from weft.history import Row, running_turn
from weft.model import Block, Checkpoint, Message, Text, ToolCall, side

from .layout import BlockPosition, Pair, find_pairs, keep_pairs_together
from .plan import (
    Plan,
    Range,
    Stripped,
    count_leading_system,
    describe_pin,
    describe_stripped,
    hex_id,
    strippable,
    with_blocks,
)
from .tool import Replacement

Strip = Literal["all", "after"]
"""Which of the remaining messages lose reminders and thinking: all of them, or only those after the
start of the first range."""

COMPACTED = "I compacted the thread"
"""The text that replaces the agent's own `compact` call."""

MAX_IDS_SHOWN = 12
"""How many checkpoints an error lists."""


class Span(Struct, frozen=True):
    """The blocks that a replacement covers: from `start` up to, but not including, `end`.

    `number` is the index of the replacement in the caller's list.
    """

    number: int
    replacement: Replacement
    start: BlockPosition
    end: BlockPosition


def plan_replacements(
    rows: Sequence[Row],
    replacements: Sequence[Replacement],
    *,
    known: Set[str],
    strip: Strip = "all",
    call_id: str | None = None,
) -> Plan:
    """The rows with each range replaced; raises `CompactRefused` with the field that is wrong.

    `known` are the checkpoints of this thread, on any branch. `call_id` is the agent's own
    `compact` call. Its results are removed, and it is replaced by a sentence unless it is in a
    range.
    """
    spans = _locate_spans(rows, replacements, known)
    pinned = {i for i, row in enumerate(rows) if row.priority == "pinned"}
    removed_positions = {
        position
        for span in spans
        for position in _positions_in(rows, span)
        if position[0] not in pinned
    }
    compact_pair, pairs = _separate_pair(find_pairs(rows), call_id)
    removed = keep_pairs_together(pairs, removed_positions, pinned)
    replaced: dict[BlockPosition, Block] = {}
    if compact_pair is not None and compact_pair.call is not None:
        if compact_pair.call[0] in pinned:
            raise CompactRefused("the message that calls compact is pinned", field="call_id")
        removed.update(compact_pair.results)
        if compact_pair.call not in removed:
            replaced[compact_pair.call] = Text(COMPACTED)
    strip_from = spans[0].start if strip == "after" else (0, 0)
    stripped, stripped_positions = _strip(rows, removed | replaced.keys(), pinned, strip_from)
    summaries = _place_summaries(rows, spans, pairs, removed)
    return Plan(
        rows=_assemble(rows, spans, removed | stripped_positions, replaced, summaries),
        ranges=tuple(_describe_range(rows, span, pinned) for span in spans),
        pins_kept=tuple(describe_pin(rows[i]) for i in sorted(_rows_in_any(rows, spans) & pinned)),
        stripped=stripped,
        dropped_calls=_removed_open_calls(pairs, removed),
    )


def _removed_open_calls(pairs: Sequence[Pair], removed: set[BlockPosition]) -> tuple[str, ...]:
    """The ids of removed calls that have no result yet: the agent must not commit it later."""
    return tuple(pair.id for pair in pairs if pair.call in removed and not pair.results)


def _locate_spans(
    rows: Sequence[Row], replacements: Sequence[Replacement], known: Set[str]
) -> list[Span]:
    """The ranges in thread order; raises `CompactRefused` if one is invalid or two overlap."""
    system_count = count_leading_system(rows)
    if not replacements:
        raise CompactRefused("is empty; give at least one range", field="replacements")
    if system_count == len(rows):
        what = "only system messages" if system_count else "no messages"
        raise CompactRefused(f"the thread has {what}: nothing to compact", field="replacements")
    checkpoints = _checkpoint_positions(rows, system_count)
    spans = [
        _locate_span(number, replacement, rows, system_count, checkpoints, known)
        for number, replacement in enumerate(replacements)
    ]
    spans.sort(key=lambda span: (span.start, span.end))
    for before, after in pairwise(spans):
        if after.start < before.end:
            low, high = sorted((before.number, after.number))
            raise CompactRefused(
                f"shares blocks with replacements[{low}]", field=f"replacements[{high}]"
            )
    return spans


def _checkpoint_positions(rows: Sequence[Row], system_count: int) -> dict[str, list[BlockPosition]]:
    """Where each checkpoint is; a copied one may be at several positions."""
    positions: dict[str, list[BlockPosition]] = {}
    for i in range(system_count, len(rows)):
        for j, block in enumerate(rows[i].message.blocks):
            if isinstance(block, Checkpoint):
                positions.setdefault(block.id, []).append((i, j))
    return positions


def _locate_span(
    number: int,
    replacement: Replacement,
    rows: Sequence[Row],
    system_count: int,
    checkpoints: dict[str, list[BlockPosition]],
    known: Set[str],
) -> Span:
    """The blocks of one replacement; raises `CompactRefused` if there are none."""
    path = f"replacements[{number}]"
    start, end = (system_count, 0), (len(rows), 0)
    if replacement.from_ is not None:
        i, j = _find_checkpoint(replacement.from_, f"{path}.from", checkpoints, known)
        start = (i, j + 1)
    if replacement.to is not None:
        i, j = _find_checkpoint(replacement.to, f"{path}.to", checkpoints, known)
        end = (i, j + 1)
    if start == end:
        raise CompactRefused(
            f"is the same checkpoint as `from`: {replacement.to!r}", field=f"{path}.to"
        )
    if start > end:
        raise CompactRefused(
            f"checkpoint {replacement.from_!r} comes after {replacement.to!r}",
            field=f"{path}.from",
        )
    span = Span(number, replacement, start, end)
    if not _rows_in(rows, span):
        raise CompactRefused(
            f"there is nothing after checkpoint {replacement.from_!r}", field=f"{path}.from"
        )
    return span


def _find_checkpoint(
    id: str, path: str, checkpoints: dict[str, list[BlockPosition]], known: Set[str]
) -> BlockPosition:
    """Where a checkpoint is; raises `CompactRefused` if it is not at exactly one position."""
    matches = checkpoints.get(id, []) if id in known else []
    if len(matches) == 1:
        return matches[0]
    if matches:
        raise CompactRefused(f"checkpoint {id!r} appears more than once on this branch", field=path)
    on_branch = [name for name in checkpoints if name in known]
    why = "is not on this branch" if id in known else "is not in this thread"
    more = "..., " if len(on_branch) > MAX_IDS_SHOWN else ""
    listed = more + ", ".join(on_branch[-MAX_IDS_SHOWN:]) if on_branch else "no checkpoints"
    raise CompactRefused(f"checkpoint {id!r} {why}; this branch has {listed}", field=path)


def _rows_in(rows: Sequence[Row], span: Span) -> list[int]:
    """The rows with a block in the range, and the empty rows inside it."""
    first, last = span.start[0], min(span.end[0], len(rows) - 1)
    return [
        i
        for i in range(first, last + 1)
        if any(span.start <= (i, j) < span.end for j in range(len(rows[i].message.blocks) or 1))
    ]


def _positions_in(rows: Sequence[Row], span: Span) -> list[BlockPosition]:
    """The blocks of a range; a row without blocks counts as its block 0."""
    return [
        (i, j)
        for i in _rows_in(rows, span)
        for j in range(len(rows[i].message.blocks) or 1)
        if span.start <= (i, j) < span.end
    ]


def _rows_in_any(rows: Sequence[Row], spans: Sequence[Span]) -> set[int]:
    """The rows with a block in one of the ranges."""
    return {i for span in spans for i in _rows_in(rows, span)}


def _separate_pair(pairs: list[Pair], call_id: str | None) -> tuple[Pair | None, list[Pair]]:
    """The pair of the agent's `compact` call, and the other pairs."""
    if call_id is None:
        return None, pairs
    for pair in reversed(pairs):  # some models use an id again: the current call is the last one
        if pair.id == call_id and pair.call is not None:
            return pair, [other for other in pairs if other is not pair]
    return None, pairs


def _strip(
    rows: Sequence[Row], removed: set[BlockPosition], pinned: set[int], strip_from: BlockPosition
) -> tuple[tuple[Stripped, ...], set[BlockPosition]]:
    """The reminders and thinking to remove at or after `strip_from`, and their positions.

    The open tool round does not change: the last assistant message, if calls of it remain, and
    their results.
    """
    open_round = _open_round(rows, removed)
    stripped: list[Stripped] = []
    stripped_positions: set[BlockPosition] = set()
    for i, row in enumerate(rows):
        kinds = strippable(row.message)
        if i in pinned or not kinds or i >= open_round:
            continue
        for j, block in enumerate(row.message.blocks):
            if isinstance(block, kinds) and (i, j) >= strip_from and (i, j) not in removed:
                stripped.append(describe_stripped(row, j))
                stripped_positions.add((i, j))
    return tuple(stripped), stripped_positions


def _open_round(rows: Sequence[Row], removed: set[BlockPosition]) -> int:
    """The number of the assistant message whose calls the running turn waits for; the number of
    rows if there is none."""
    if running_turn(rows) is None:
        return len(rows)
    answers = [i for i, row in enumerate(rows) if side(row.message.role) == "assistant"]
    if not answers:
        return len(rows)
    last = answers[-1]
    calls = [j for j, b in enumerate(rows[last].message.blocks) if isinstance(b, ToolCall)]
    return last if any((last, j) not in removed for j in calls) else len(rows)


def _place_summaries(
    rows: Sequence[Row], spans: Sequence[Span], pairs: Sequence[Pair], removed: set[BlockPosition]
) -> dict[BlockPosition, list[Row]]:
    """The summaries to insert, by position.

    A summary follows its range. If the range ends inside a pinned row, or between a call and its
    result, the summary follows those too.
    """
    summaries: dict[BlockPosition, list[Row]] = {}
    kept_pairs = [pair for pair in pairs if pair.call and pair.results and pair.call not in removed]
    previous = (0, 0)
    for span in spans:
        position = max(span.end, previous)
        row = position[0]
        if row < len(rows) and rows[row].priority == "pinned":
            position = (row, len(rows[row].message.blocks))
        while (last_row := _last_row_around(kept_pairs, position)) is not None:
            position = (last_row, len(rows[last_row].message.blocks))
        previous = position
        if span.replacement.summary.strip():
            message = Message("assistant", (Text(span.replacement.summary),))
            summary = Row(id=None, message=message, kind="summary")
            summaries.setdefault(position, []).append(summary)
    return summaries


def _last_row_around(pairs: Sequence[Pair], at: BlockPosition) -> int | None:
    """The last row of the pairs that a summary at this position would split; `None` if none."""
    split_pairs = [pair for pair in pairs if pair.positions[0] < at <= pair.positions[-1]]
    return max((pair.positions[-1][0] for pair in split_pairs), default=None)


def _assemble(
    rows: Sequence[Row],
    spans: Sequence[Span],
    removed: set[BlockPosition],
    replaced: dict[BlockPosition, Block],
    summaries: dict[BlockPosition, list[Row]],
) -> tuple[Row, ...]:
    """The new rows: without the removed blocks, with the replaced ones and the summaries."""
    empty_rows = {i for span in spans for i in _rows_in(rows, span) if not rows[i].message.blocks}
    new_rows: list[Row] = []
    for i, row in enumerate(rows):
        size = len(row.message.blocks)
        cuts = [j for j in range(1, size + 1) if (i, j) in summaries]
        is_changed = any((i, j) in removed or (i, j) in replaced for j in range(size))
        if is_changed or any(j < size for j in cuts):
            new_rows.extend(_split_row(row, i, cuts, removed, replaced, summaries))
            continue
        if i not in empty_rows or row.priority == "pinned":
            new_rows.append(row)
        for j in cuts:
            new_rows.extend(summaries[(i, j)])
    new_rows.extend(summaries.get((len(rows), 0), ()))
    return tuple(new_rows)


def _split_row(
    row: Row,
    i: int,
    cuts: list[int],
    removed: set[BlockPosition],
    replaced: dict[BlockPosition, Block],
    summaries: dict[BlockPosition, list[Row]],
) -> list[Row]:
    """The parts of a row that lost blocks or has summaries inside; the first part keeps the id.

    `cuts` are the block numbers before which a summary is inserted.
    """
    parts: list[Row] = []
    blocks = row.message.blocks
    id, start = row.id, 0
    for cut in (*cuts, len(blocks)):
        part = [replaced.get((i, j), blocks[j]) for j in range(start, cut) if (i, j) not in removed]
        if part:
            parts.append(structs.replace(row, id=id, message=with_blocks(row.message, part)))
            id = None
        if cut in cuts and cut != start:  # `len(blocks)` may be in the loop twice
            parts.extend(summaries[(i, cut)])
        start = cut
    return parts


def _describe_range(rows: Sequence[Row], span: Span, pinned: set[int]) -> Range:
    """The record of a replaced range, without its pinned rows."""
    replaced_rows = [i for i in _rows_in(rows, span) if i not in pinned]
    replaced_blocks = [
        (i, j)
        for i, j in _positions_in(rows, span)
        if i not in pinned and j < len(rows[i].message.blocks)
    ]
    return Range(
        from_=span.replacement.from_,
        to=span.replacement.to,
        first=hex_id(rows[replaced_rows[0]]) if replaced_rows else None,
        last=hex_id(rows[replaced_rows[-1]]) if replaced_rows else None,
        messages=len(replaced_rows),
        blocks=len(replaced_blocks),
        summary=span.replacement.summary,
    )
