"""Compaction by range: a model names checkpoints and writes what stands for the turns between.

A range is made of blocks, not messages: it begins behind the `from` checkpoint and ends with the
`to` checkpoint, and both may stand in the middle of a message. What is decided here:

- The leading system run is in no range. A pinned row in a range stays as it is, before the
  summary. What a pinned row's calls or results need to be whole stays with it.
- Where a range takes one part of a call and its result, both go.
- Kept messages lose reminders and thinking, pinned ones nothing.
- A summary never lands between a call and its result: it waits until the pair is closed.
- Any order of the replacements gives the same rows, because all are found before any is applied.

Nothing is guessed: an id that does not stand on this branch, a range that is empty or runs
backwards, two that share a block, are refused by the name of the caller's field.
"""

from collections.abc import Sequence, Set
from itertools import pairwise
from typing import Literal

from msgspec import Struct, structs

from weft.errors import CompactRefused
from weft.history import Row
from weft.model import Block, Checkpoint, Message, Text

from .pairs import Pair, Place, find_pairs, settle_pairs
from .plan import (
    Plan,
    Range,
    Stripped,
    describe_pin,
    describe_stripped,
    leading_system,
    slot,
    strippable,
    with_blocks,
)
from .tool import Replacement

Strip = Literal["all", "after"]

COMPACTED = "I compacted the thread"
"""What stands where the agent's own call stood."""

SHOWN = 12


class Span(Struct, frozen=True):
    """A replacement found in the rows: from the block `start`, up to but without `end`."""

    number: int
    replacement: Replacement
    start: Place
    end: Place


def plan_replacements(
    rows: Sequence[Row],
    replacements: Sequence[Replacement],
    *,
    known: Set[str],
    strip: Strip = "all",
    call_id: str | None = None,
) -> Plan:
    """The rows with each range replaced; raises `CompactRefused` with the field that is wrong.

    `known` are the checkpoints that this thread gave out, on any branch. `call_id` is the agent's
    own `compact` call, which turns into a sentence and has no result.
    """
    spans = _locate(rows, replacements, known)
    pinned = {i for i, row in enumerate(rows) if row.priority == "pinned"}
    taken = {place for span in spans for place in _places(rows, span) if place[0] not in pinned}
    call, pairs = _without_call(find_pairs(rows), call_id)
    removed = settle_pairs(pairs, taken, pinned)
    swapped: dict[Place, Block] = {}
    if call is not None and call.call is not None:
        if call.call[0] in pinned:
            raise CompactRefused("the message that calls compact is pinned", field="call_id")
        removed.update(call.results)
        if call.call not in removed:
            swapped[call.call] = Text(COMPACTED)
    edge = spans[0].start if strip == "after" else (0, 0)
    stripped, leaving = _strip(rows, removed, pinned, edge)
    landings = _landings(rows, spans, pairs, removed)
    return Plan(
        rows=_weave(rows, spans, removed | leaving, swapped, landings),
        ranges=tuple(_describe(rows, span, pinned) for span in spans),
        pins_kept=tuple(describe_pin(rows[i]) for i in sorted(_inside(rows, spans) & pinned)),
        stripped=stripped,
        dropped_calls=tuple(pair.id for pair in pairs if pair.call in removed and not pair.results),
    )


def _locate(
    rows: Sequence[Row], replacements: Sequence[Replacement], known: Set[str]
) -> list[Span]:
    """The ranges in thread order, each of them sound and none sharing a block with another."""
    lead = leading_system(rows)
    if not replacements:
        raise CompactRefused("is empty; give at least one range", field="replacements")
    if lead == len(rows):
        what = "only system messages" if lead else "no messages"
        raise CompactRefused(f"the thread has {what}: nothing to compact", field="replacements")
    places = _checkpoints(rows, lead)
    spans = [
        _span(number, replacement, rows, lead, places, known)
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


def _checkpoints(rows: Sequence[Row], lead: int) -> dict[str, list[Place]]:
    places: dict[str, list[Place]] = {}
    for i in range(lead, len(rows)):
        for j, block in enumerate(rows[i].message.blocks):
            if isinstance(block, Checkpoint):
                places.setdefault(block.id, []).append((i, j))
    return places


def _span(
    number: int,
    replacement: Replacement,
    rows: Sequence[Row],
    lead: int,
    places: dict[str, list[Place]],
    known: Set[str],
) -> Span:
    path = f"replacements[{number}]"
    start, end = (lead, 0), (len(rows), 0)
    if replacement.from_ is not None:
        i, j = _find(replacement.from_, f"{path}.from", places, known)
        start = (i, j + 1)
    if replacement.to is not None:
        i, j = _find(replacement.to, f"{path}.to", places, known)
        end = (i, j + 1)
    if start == end:
        raise CompactRefused(
            f"is the same checkpoint as `from`: {replacement.to!r}", field=f"{path}.to"
        )
    if start > end:
        raise CompactRefused(
            f"checkpoint {replacement.from_!r} stands after {replacement.to!r}",
            field=f"{path}.from",
        )
    span = Span(number, replacement, start, end)
    if not _covered(rows, span):
        raise CompactRefused(
            f"nothing stands after checkpoint {replacement.from_!r}", field=f"{path}.from"
        )
    return span


def _find(id: str, path: str, places: dict[str, list[Place]], known: Set[str]) -> Place:
    found = places.get(id, []) if id in known else []
    if len(found) == 1:
        return found[0]
    if found:
        raise CompactRefused(f"checkpoint {id!r} stands more than once on this branch", field=path)
    here = [name for name in places if name in known]
    why = "is not on this branch" if id in known else "is not in this thread"
    shown = ", ".join(here[-SHOWN:]) or "none"
    more = "..., " if len(here) > SHOWN else ""
    raise CompactRefused(f"checkpoint {id!r} {why}; there are {more}{shown}", field=path)


def _covered(rows: Sequence[Row], span: Span) -> list[int]:
    """The rows of which a range takes a block, or which have none and stand inside."""
    first, last = span.start[0], min(span.end[0], len(rows) - 1)
    return [
        i
        for i in range(first, last + 1)
        if any(span.start <= (i, j) < span.end for j in range(len(rows[i].message.blocks) or 1))
    ]


def _places(rows: Sequence[Row], span: Span) -> list[Place]:
    """The blocks of a range; a row without blocks is there as its place 0."""
    return [
        (i, j)
        for i in _covered(rows, span)
        for j in range(len(rows[i].message.blocks) or 1)
        if span.start <= (i, j) < span.end
    ]


def _inside(rows: Sequence[Row], spans: Sequence[Span]) -> set[int]:
    return {i for span in spans for i in _covered(rows, span)}


def _without_call(pairs: list[Pair], call_id: str | None) -> tuple[Pair | None, list[Pair]]:
    """The compact call apart from the others: it follows its own rule."""
    if call_id is None:
        return None, pairs
    for pair in reversed(pairs):
        if pair.id == call_id and pair.call is not None:
            return pair, [other for other in pairs if other is not pair]
    return None, pairs


def _strip(
    rows: Sequence[Row], removed: set[Place], pinned: set[int], edge: Place
) -> tuple[tuple[Stripped, ...], set[Place]]:
    stripped: list[Stripped] = []
    leaving: set[Place] = set()
    for i, row in enumerate(rows):
        kinds = strippable(row.message)
        if i in pinned or not kinds:
            continue
        for j, block in enumerate(row.message.blocks):
            if isinstance(block, kinds) and (i, j) >= edge and (i, j) not in removed:
                stripped.append(describe_stripped(row, j))
                leaving.add((i, j))
    return tuple(stripped), leaving


def _landings(
    rows: Sequence[Row], spans: Sequence[Span], pairs: Sequence[Pair], removed: set[Place]
) -> dict[Place, list[Row]]:
    """Where each summary goes: behind its range, a pinned row at its edge, and open pairs."""
    landings: dict[Place, list[Row]] = {}
    whole = [pair for pair in pairs if pair.call and pair.results and pair.call not in removed]
    reached = (0, 0)
    for span in spans:
        at = max(span.end, reached)
        if at[0] < len(rows) and rows[at[0]].priority == "pinned":
            at = (at[0], len(rows[at[0]].message.blocks))
        while (last := _straddling(whole, at)) is not None:
            at = (last, len(rows[last].message.blocks))
        reached = at
        if span.replacement.summary.strip():
            message = Message("assistant", (Text(span.replacement.summary),))
            landings.setdefault(at, []).append(Row(id=None, message=message, kind="summary"))
    return landings


def _straddling(pairs: Sequence[Pair], at: Place) -> int | None:
    """The last row of a pair that a summary at this place would stand in."""
    rows = [pair.places[-1][0] for pair in pairs if pair.places[0] < at <= pair.places[-1]]
    return max(rows, default=None)


def _weave(
    rows: Sequence[Row],
    spans: Sequence[Span],
    removed: set[Place],
    swapped: dict[Place, Block],
    landings: dict[Place, list[Row]],
) -> tuple[Row, ...]:
    empty = {i for span in spans for i in _covered(rows, span) if not rows[i].message.blocks}
    out: list[Row] = []
    for i, row in enumerate(rows):
        size = len(row.message.blocks)
        cuts = [j for j in range(1, size + 1) if (i, j) in landings]
        touched = any((i, j) in removed or (i, j) in swapped for j in range(size))
        if touched or any(j < size for j in cuts):
            out.extend(_split(row, i, cuts, removed, swapped, landings))
            continue
        if i not in empty or row.priority == "pinned":
            out.append(row)
        for j in cuts:
            out.extend(landings[(i, j)])
    out.extend(landings.get((len(rows), 0), ()))
    return tuple(out)


def _split(
    row: Row,
    i: int,
    cuts: list[int],
    removed: set[Place],
    swapped: dict[Place, Block],
    landings: dict[Place, list[Row]],
) -> list[Row]:
    """A row that lost blocks or has a summary inside: its first part keeps the slot."""
    out: list[Row] = []
    blocks = row.message.blocks
    id, start = row.id, 0
    for cut in (*cuts, len(blocks)):
        kept = [swapped.get((i, j), blocks[j]) for j in range(start, cut) if (i, j) not in removed]
        if kept:
            out.append(structs.replace(row, id=id, message=with_blocks(row.message, kept)))
            id = None
        if cut in cuts and cut != start:
            out.extend(landings[(i, cut)])
        start = cut
    return out


def _describe(rows: Sequence[Row], span: Span, pinned: set[int]) -> Range:
    folded = [i for i in _covered(rows, span) if i not in pinned]
    return Range(
        from_=span.replacement.from_,
        to=span.replacement.to,
        first=slot(rows[folded[0]]) if folded else None,
        last=slot(rows[folded[-1]]) if folded else None,
        messages=len(folded),
        blocks=sum(
            i not in pinned and bool(rows[i].message.blocks) for i, _ in _places(rows, span)
        ),
        summary=span.replacement.summary,
    )
