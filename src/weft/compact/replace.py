"""Compaction by range: a model names checkpoints and writes a summary of the turns between them.

A range consists of blocks, not messages: it starts after the `from` checkpoint and ends with the
`to` checkpoint, and either may be in the middle of a message. The rules:

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
from weft.history import Row
from weft.model import Block, Checkpoint, Message, Text

from .layout import BlockPosition, Pair, find_pairs, keep_pairs_together
from .plan import (
    Plan,
    Range,
    Stripped,
    describe_pin,
    describe_stripped,
    hex_id,
    leading_system,
    strippable,
    with_blocks,
)
from .tool import Replacement

Strip = Literal["all", "after"]

COMPACTED = "I compacted the thread"
"""The text that replaces the agent's own `compact` call."""

SHOWN = 12


class Span(Struct, frozen=True):
    """The blocks that a replacement covers: from `start` up to, but not including, `end`."""

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
    `compact` call, which is replaced by a sentence and has no result.
    """
    spans = _locate(rows, replacements, known)
    pinned = {i for i, row in enumerate(rows) if row.priority == "pinned"}
    covered = {place for span in spans for place in _places(rows, span) if place[0] not in pinned}
    call, pairs = _without_call(find_pairs(rows), call_id)
    removed = keep_pairs_together(pairs, covered, pinned)
    replaced: dict[BlockPosition, Block] = {}
    if call is not None and call.call is not None:
        if call.call[0] in pinned:
            raise CompactRefused("the message that calls compact is pinned", field="call_id")
        removed.update(call.results)
        if call.call not in removed:
            replaced[call.call] = Text(COMPACTED)
    edge = spans[0].start if strip == "after" else (0, 0)
    stripped, stripped_places = _strip(rows, removed, pinned, edge)
    summaries = _place_summaries(rows, spans, pairs, removed)
    return Plan(
        rows=_assemble(rows, spans, removed | stripped_places, replaced, summaries),
        ranges=tuple(_describe(rows, span, pinned) for span in spans),
        pins_kept=tuple(describe_pin(rows[i]) for i in sorted(_covered_rows(rows, spans) & pinned)),
        stripped=stripped,
        dropped_calls=tuple(pair.id for pair in pairs if pair.call in removed and not pair.results),
    )


def _locate(
    rows: Sequence[Row], replacements: Sequence[Replacement], known: Set[str]
) -> list[Span]:
    """The ranges in thread order; raises `CompactRefused` if one is invalid or two overlap."""
    setup_end = leading_system(rows)
    if not replacements:
        raise CompactRefused("is empty; give at least one range", field="replacements")
    if setup_end == len(rows):
        what = "only system messages" if setup_end else "no messages"
        raise CompactRefused(f"the thread has {what}: nothing to compact", field="replacements")
    positions = _checkpoints(rows, setup_end)
    spans = [
        _locate_span(number, replacement, rows, setup_end, positions, known)
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


def _checkpoints(rows: Sequence[Row], setup_end: int) -> dict[str, list[BlockPosition]]:
    positions: dict[str, list[BlockPosition]] = {}
    for i in range(setup_end, len(rows)):
        for j, block in enumerate(rows[i].message.blocks):
            if isinstance(block, Checkpoint):
                positions.setdefault(block.id, []).append((i, j))
    return positions


def _locate_span(
    number: int,
    replacement: Replacement,
    rows: Sequence[Row],
    setup_end: int,
    positions: dict[str, list[BlockPosition]],
    known: Set[str],
) -> Span:
    path = f"replacements[{number}]"
    start, end = (setup_end, 0), (len(rows), 0)
    if replacement.from_ is not None:
        i, j = _find(replacement.from_, f"{path}.from", positions, known)
        start = (i, j + 1)
    if replacement.to is not None:
        i, j = _find(replacement.to, f"{path}.to", positions, known)
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
    if not _rows_of(rows, span):
        raise CompactRefused(
            f"there is nothing after checkpoint {replacement.from_!r}", field=f"{path}.from"
        )
    return span


def _find(
    id: str, path: str, positions: dict[str, list[BlockPosition]], known: Set[str]
) -> BlockPosition:
    matches = positions.get(id, []) if id in known else []
    if len(matches) == 1:
        return matches[0]
    if matches:
        raise CompactRefused(f"checkpoint {id!r} appears more than once on this branch", field=path)
    here = [name for name in positions if name in known]
    why = "is not on this branch" if id in known else "is not in this thread"
    shown = ", ".join(here[-SHOWN:]) or "none"
    more = "..., " if len(here) > SHOWN else ""
    raise CompactRefused(f"checkpoint {id!r} {why}; there are {more}{shown}", field=path)


def _rows_of(rows: Sequence[Row], span: Span) -> list[int]:
    """The rows with a block in the range, and the empty rows inside it."""
    first, last = span.start[0], min(span.end[0], len(rows) - 1)
    return [
        i
        for i in range(first, last + 1)
        if any(span.start <= (i, j) < span.end for j in range(len(rows[i].message.blocks) or 1))
    ]


def _places(rows: Sequence[Row], span: Span) -> list[BlockPosition]:
    """The blocks of a range; a row without blocks counts as its block 0."""
    return [
        (i, j)
        for i in _rows_of(rows, span)
        for j in range(len(rows[i].message.blocks) or 1)
        if span.start <= (i, j) < span.end
    ]


def _covered_rows(rows: Sequence[Row], spans: Sequence[Span]) -> set[int]:
    return {i for span in spans for i in _rows_of(rows, span)}


def _without_call(pairs: list[Pair], call_id: str | None) -> tuple[Pair | None, list[Pair]]:
    """The agent's `compact` call, which is replaced and not removed, and the other pairs."""
    if call_id is None:
        return None, pairs
    for pair in reversed(pairs):
        if pair.id == call_id and pair.call is not None:
            return pair, [other for other in pairs if other is not pair]
    return None, pairs


def _strip(
    rows: Sequence[Row], removed: set[BlockPosition], pinned: set[int], edge: BlockPosition
) -> tuple[tuple[Stripped, ...], set[BlockPosition]]:
    stripped: list[Stripped] = []
    stripped_places: set[BlockPosition] = set()
    for i, row in enumerate(rows):
        kinds = strippable(row.message)
        if i in pinned or not kinds:
            continue
        for j, block in enumerate(row.message.blocks):
            if isinstance(block, kinds) and (i, j) >= edge and (i, j) not in removed:
                stripped.append(describe_stripped(row, j))
                stripped_places.add((i, j))
    return tuple(stripped), stripped_places


def _place_summaries(
    rows: Sequence[Row], spans: Sequence[Span], pairs: Sequence[Pair], removed: set[BlockPosition]
) -> dict[BlockPosition, list[Row]]:
    """The place of each summary: after its range, and after a pinned row or a pair at its end."""
    summaries: dict[BlockPosition, list[Row]] = {}
    whole = [pair for pair in pairs if pair.call and pair.results and pair.call not in removed]
    previous = (0, 0)
    for span in spans:
        at = max(span.end, previous)
        if at[0] < len(rows) and rows[at[0]].priority == "pinned":
            at = (at[0], len(rows[at[0]].message.blocks))
        while (last := _last_row_around(whole, at)) is not None:
            at = (last, len(rows[last].message.blocks))
        previous = at
        if span.replacement.summary.strip():
            message = Message("assistant", (Text(span.replacement.summary),))
            summaries.setdefault(at, []).append(Row(id=None, message=message, kind="summary"))
    return summaries


def _last_row_around(pairs: Sequence[Pair], at: BlockPosition) -> int | None:
    """The last row of the pairs that a summary at this place would split."""
    rows = [pair.positions[-1][0] for pair in pairs if pair.positions[0] < at <= pair.positions[-1]]
    return max(rows, default=None)


def _assemble(
    rows: Sequence[Row],
    spans: Sequence[Span],
    removed: set[BlockPosition],
    replaced: dict[BlockPosition, Block],
    summaries: dict[BlockPosition, list[Row]],
) -> tuple[Row, ...]:
    empty = {i for span in spans for i in _rows_of(rows, span) if not rows[i].message.blocks}
    out: list[Row] = []
    for i, row in enumerate(rows):
        size = len(row.message.blocks)
        cuts = [j for j in range(1, size + 1) if (i, j) in summaries]
        touched = any((i, j) in removed or (i, j) in replaced for j in range(size))
        if touched or any(j < size for j in cuts):
            out.extend(_split(row, i, cuts, removed, replaced, summaries))
            continue
        if i not in empty or row.priority == "pinned":
            out.append(row)
        for j in cuts:
            out.extend(summaries[(i, j)])
    out.extend(summaries.get((len(rows), 0), ()))
    return tuple(out)


def _split(
    row: Row,
    i: int,
    cuts: list[int],
    removed: set[BlockPosition],
    replaced: dict[BlockPosition, Block],
    summaries: dict[BlockPosition, list[Row]],
) -> list[Row]:
    """The parts of a row that lost blocks or has a summary inside; the first keeps the slot."""
    out: list[Row] = []
    blocks = row.message.blocks
    id, start = row.id, 0
    for cut in (*cuts, len(blocks)):
        part = [replaced.get((i, j), blocks[j]) for j in range(start, cut) if (i, j) not in removed]
        if part:
            out.append(structs.replace(row, id=id, message=with_blocks(row.message, part)))
            id = None
        if cut in cuts and cut != start:
            out.extend(summaries[(i, cut)])
        start = cut
    return out


def _describe(rows: Sequence[Row], span: Span, pinned: set[int]) -> Range:
    folded = [i for i in _rows_of(rows, span) if i not in pinned]
    return Range(
        from_=span.replacement.from_,
        to=span.replacement.to,
        first=hex_id(rows[folded[0]]) if folded else None,
        last=hex_id(rows[folded[-1]]) if folded else None,
        messages=len(folded),
        blocks=sum(
            i not in pinned and bool(rows[i].message.blocks) for i, _ in _places(rows, span)
        ),
        summary=span.replacement.summary,
    )
