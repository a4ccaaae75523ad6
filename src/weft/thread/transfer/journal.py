"""A branch as the lines of a session file: the original lines, and new ones.

If the thread has not changed since the import, the journal is the original file: every line, from
all branches, in the old order. Otherwise it has the messages that the branch has now:

- The line of an unchanged message is copied.
- If a compaction that was already in the file is still in effect, the lines that it replaced and
  its boundary stay. If it was reverted, its boundary and summary are left out.
- A message that is not in the file is a `NewLine` after the line of the message before it. If no
  message with a line comes before it, it is written right before the first remaining turn.
- A summary with nothing before it begins the conversation. Session formats have special lines for
  that.

The time of a new line is that of the commit that added its message.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import takewhile

from msgspec import Struct

from weft.history import (
    Append,
    Rewrite,
    Row,
    decode_appended,
    decode_body,
    inserted_slots,
    read_writers,
)
from weft.ids import Id
from weft.model import Message, is_system
from weft.store import Step
from weft.thread.handle import Handle
from weft.thread.source_lines import SourceLine, SourceLines, read_source_lines


def read_times(handle: Handle, slots: Collection[Id]) -> dict[Id, float]:
    """The time at which each of these slots was first added to the branch."""
    head = handle.head()
    if head is None or not slots:
        return {}
    times: dict[Id, float] = {}
    for step in read_writers(handle.store, handle.name, head, slots):
        for slot in _added_slots(step):
            times.setdefault(slot, step.commit.created)
    return times


def _added_slots(step: Step) -> Iterator[Id]:
    """The slots that a commit added."""
    match decode_body(step).op:
        case Append(slot=slot):
            yield slot or step.commit.id
        case Rewrite() as op:
            yield from inserted_slots(step.commit.id, op)
        case _:
            pass


ROOT = "/"
"""The working directory of a conversation that names none."""

INSTRUCTION = "instruction"
"""The kind of a message that a person added to the thread as an instruction."""

LINE_GAP, TURN_GAP = 1e-6, 1e-3
"""The distance between two new lines, and between two moved turns.

They get fractional line numbers, so that they sort between the lines of the file.
"""


class FileLine(Struct, frozen=True):
    """A line of the imported file; `edited` is the new message, if it was edited since."""

    line: SourceLine
    slot: Id | None = None
    edited: Message | None = None


class NewLine(Struct, frozen=True):
    """A message that the imported file does not have.

    `is_start`: it is a summary that begins the conversation.
    """

    slot: Id
    message: Message
    created: float
    is_summary: bool = False
    is_start: bool = False
    kind: str = "dialogue"

    @property
    def is_clients_prompt(self) -> bool:
        return is_clients_prompt(self.message, self.kind)


def is_clients_prompt(message: Message, kind: str) -> bool:
    """Whether this is a system prompt of a client, which the client will send again by itself.

    Instructions that a person added to the thread are not.
    """
    return is_system(message) and kind != INSTRUCTION


class RemovedLine(Struct, frozen=True):
    """A line of the imported file whose message was removed."""

    line: SourceLine


Piece = FileLine | NewLine | RemovedLine


class Journal(Struct, frozen=True):
    """The pieces of a file in order; `source` is the session that it was imported from.

    `is_untouched`: the thread has not changed since the import. `is_reordered`: the messages are in
    another order than in the file.
    """

    source: str
    pieces: tuple[Piece, ...]
    is_untouched: bool = False
    is_reordered: bool = False


def read_journal(handle: Handle, format: str, *, repeats: bool = False) -> Journal:
    """The lines of the handle's branch; all are new if it was not imported in this format.

    `repeats`: in this format the line of a compaction repeats the messages that it keeps.
    """
    head = handle.head()
    chain = [] if head is None else handle.store.walk(handle.name, head)
    sources = _source_lines(chain, format)
    source = next(iter(sources.values())).source if sources else ""
    branches = _branches_of_source(handle, format, source) if sources else []
    if chain and chain[-1].commit.id in sources and _has_last_turn(chain, sources, branches):
        lines = {line.number: line for branch in branches for line in branch.lines}
        lines.update((line.number, line) for item in sources.values() for line in item.lines)
        pieces = tuple(FileLine(lines[number]) for number in sorted(lines))
        return Journal(source, pieces, is_untouched=True)
    rows = handle.view(head).rows
    steps = {step.commit.id: step for step in _with_merged_steps(handle, chain, rows)}
    sources = {
        id: item
        for id, item in _source_lines(steps.values(), format).items()
        if item.source == source
    }
    sidechain_lines = [
        line for branch in branches if branch.root != _root(chain) for line in branch.lines
    ]
    compactions = [
        step for step in chain if step.commit.id in sources and step.commit.kind == "compact"
    ]
    in_effect = _compactions_in_effect(handle, compactions, rows, repeats)
    moved = _moved_positions(rows, sources)
    positioned: list[tuple[float, Piece]] = [
        *((line.number, FileLine(line)) for line in sidechain_lines),
        *_positioned_pieces(handle, rows, steps, sources, in_effect, moved),
    ]
    positioned.sort(key=lambda pair: pair[0])
    return Journal(source, tuple(piece for _, piece in positioned), is_reordered=bool(moved))


class _Branch(Struct, frozen=True):
    """The lines of a source in one branch, and the branch's first commit."""

    root: Id
    lines: tuple[SourceLine, ...]


def _branches_of_source(handle: Handle, format: str, source: str) -> list[_Branch]:
    """Every branch that has lines of a source; a sidechain has its own root."""
    branches: list[_Branch] = []
    for head in set(handle.store.refs(handle.name).values()):
        steps = handle.store.walk(handle.name, head)
        source_items = [
            item for item in _source_lines(steps, format).values() if item.source == source
        ]
        if source_items:
            lines = tuple(line for item in source_items for line in item.lines)
            branches.append(_Branch(_root(steps), lines))
    return branches


def _has_last_turn(
    chain: Sequence[Step], sources: Mapping[Id, SourceLines], branches: Sequence[_Branch]
) -> bool:
    """Whether no other branch of the conversation has a later turn than this branch."""
    last = _last_turn_number(line for item in sources.values() for line in item.lines)
    siblings = [branch for branch in branches if branch.root == _root(chain)]
    return all(_last_turn_number(branch.lines) <= last for branch in siblings)


def _last_turn_number(lines: Iterable[SourceLine]) -> int:
    """The number of the last line that is part of a turn; -1 if there is none."""
    return max((line.number for line in lines if line.is_turn), default=-1)


def _root(chain: Sequence[Step]) -> Id:
    """The first commit."""
    return chain[0].commit.id if chain else b""


def _positioned_pieces(
    handle: Handle,
    rows: Sequence[Row],
    steps: Mapping[Id, Step],
    sources: Mapping[Id, SourceLines],
    in_effect: Mapping[Id, "_Compaction"],
    moved: Mapping[Id, float],
) -> list[tuple[float, Piece]]:
    """The pieces of a branch that has changed since the import, each with its position.

    A position is a line number, or a fraction between two line numbers.
    """
    current_rows = {row.id: row for row in rows if row.id is not None}
    pieces: list[tuple[float, Piece]] = []
    starts: dict[Id, float] = {}
    ends: dict[Id, float] = {}
    for id, item in sources.items():
        step = steps[id]
        is_kept = _keeps_lines(step, current_rows, in_effect)
        row = current_rows.get(id)
        edited = None if row is None or row.message == decode_appended(step) else row.message
        for order, line in enumerate(item.lines):
            if is_kept or (step.commit.kind == "compact" and not line.is_turn):
                piece = FileLine(line, id, edited if line.is_turn else None)
            else:
                piece = RemovedLine(line)
            position = moved[id] + order * LINE_GAP if id in moved else line.number
            pieces.append((position, piece))
            if line.is_turn:
                starts.setdefault(id, position)
                ends[id] = position
        for slot in in_effect.get(id, _Compaction()).summaries:
            starts[slot] = starts[id]
            ends[slot] = max(line.number for line in item.lines)
    return pieces + _new_pieces(handle, rows, starts, ends)


def _moved_positions(rows: Sequence[Row], sources: Mapping[Id, SourceLines]) -> dict[Id, float]:
    """The new positions of messages that come later in the thread than in the file."""
    positions: dict[Id, float] = {}
    last = -1.0
    for row in rows:
        source_lines = None if row.id is None else sources.get(row.id)
        if row.id is None or source_lines is None:
            continue
        start = next(line.number for line in source_lines.lines if line.is_turn)
        if start < last:
            positions[row.id] = last = last + TURN_GAP
        else:
            last = float(start)
    return positions


class _Compaction(Struct, frozen=True):
    """A compaction from the file that is in effect: the slots it replaced, and its summaries."""

    folded: frozenset[Id] = frozenset()
    summaries: tuple[Id, ...] = ()


def _compactions_in_effect(
    handle: Handle, compactions: Sequence[Step], rows: Sequence[Row], repeats: bool
) -> dict[Id, _Compaction]:
    """The compactions that are still in effect, by commit.

    They are checked newest first, because a newer one may have replaced an older summary.
    """
    in_effect: dict[Id, _Compaction] = {}
    for step in reversed(compactions):
        parent = next(iter(step.commit.parents), None)
        before = [row.id for row in handle.view(parent).rows if row.id]
        after = {row.id: row for row in handle.view(step.commit.id).rows if row.id}
        summaries = tuple(slot for slot in after if slot not in before)
        is_replaced = any(newer.folded.issuperset(summaries) for newer in in_effect.values())
        if is_replaced or _is_in_effect(rows, after, summaries, repeats):
            in_effect[step.commit.id] = _Compaction(frozenset(before) - frozenset(after), summaries)
    return in_effect


def _is_in_effect(
    rows: Sequence[Row], after: Mapping[Id, Row], summaries: Sequence[Id], repeats: bool
) -> bool:
    """Whether a compaction's messages are unchanged, with no new message before its summary."""
    current = {row.id: row.message for row in rows if row.id and row.priority != "skip"}
    written_slots = after if repeats else summaries
    if any(current.get(slot) != after[slot].message for slot in written_slots):
        return False
    slots_before = takewhile(lambda slot: slot not in summaries, current)
    return all(slot in after for slot in slots_before)


def _keeps_lines(
    step: Step, current_rows: Mapping[Id, Row], in_effect: Mapping[Id, _Compaction]
) -> bool:
    """Whether the lines of a commit are still part of the file."""
    id = step.commit.id
    if step.commit.kind == "compact":
        return id in in_effect
    if step.commit.kind != "append":
        return True
    row = current_rows.get(id)
    if row is None:
        return any(id in compaction.folded for compaction in in_effect.values())
    op = decode_body(step).op
    was_hidden_in_file = isinstance(op, Append) and op.priority == "skip"
    return row.priority != "skip" or was_hidden_in_file


def _new_pieces(
    handle: Handle, rows: Sequence[Row], starts: Mapping[Id, float], ends: Mapping[Id, float]
) -> list[tuple[float, Piece]]:
    """The new lines, each positioned right after the line that it follows.

    `starts` and `ends` are the positions of the first and the last line of each message.
    """
    visible = [row for row in rows if row.priority != "skip"]
    first = next((row for row in visible if not is_clients_prompt(row.message, row.kind)), None)
    new_slots = {row.id for row in visible if row.id is not None and row.id not in ends}
    times = read_times(handle, new_slots)
    pieces: list[tuple[float, Piece]] = []
    position = _first_position(rows, starts, ends)
    for row in rows:
        assert row.id is not None
        if row.id in ends:
            position = ends[row.id]
        elif row.id in new_slots:
            position += LINE_GAP
            is_summary = row.kind == "summary"
            is_start = is_summary and row is first
            new_line = NewLine(row.id, row.message, times[row.id], is_summary, is_start, row.kind)
            pieces.append((position, new_line))
    return pieces


def _first_position(
    rows: Sequence[Row], starts: Mapping[Id, float], ends: Mapping[Id, float]
) -> float:
    """The position before the first remaining turn, or after all lines if no turn remains."""
    first = next((starts[row.id] for row in rows if row.id is not None and row.id in starts), None)
    return max(ends.values(), default=-1.0) if first is None else first - 0.5


def _with_merged_steps(handle: Handle, chain: Sequence[Step], rows: Sequence[Row]) -> list[Step]:
    """The commits of a branch, and those whose messages a merge brought in."""
    chain_ids = {step.commit.id for step in chain}
    merged = [row.id for row in rows if row.id is not None and row.id not in chain_ids]
    return [*chain, *handle.store.read_commits(handle.name, merged)]


def _source_lines(steps: Iterable[Step], format: str) -> dict[Id, SourceLines]:
    """The lines that are stored with these commits, by commit."""
    sources: dict[Id, SourceLines] = {}
    for step in steps:
        source_lines = read_source_lines(step)
        if source_lines is not None and source_lines.format == format:
            sources[step.commit.id] = source_lines
    return sources
