"""A branch as the lines of a session file: the original lines, and new ones.

If the thread has not changed since the import, the journal is the original file: every line, from
all branches, in the old order. Otherwise it has the messages that the branch has now:

- The line of an unchanged message is copied.
- If a compaction that was already in the file is still in effect, the lines that it replaced and
  its boundary stay. If it was reverted, its boundary and summary are left out.
- A message that is not in the file is a `NewLine` after the line of the message before it. If no
  message with a line comes before it, it is written right before the first remaining turn.
- A summary with nothing before it `opens` the conversation. Session formats have special lines for
  that.

The time of a new line is that of the commit that added its message.
"""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import takewhile

from msgspec import Struct

from weft.history import Append, Rewrite, Row, decode_appended, decode_body, new_slot, read_writers
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
        case Rewrite(insert=inserts):
            placed = [row for insert in inserts for row in insert.rows]
            for number, row in enumerate(placed):
                yield row.slot or new_slot(step.commit.id, number)
        case _:
            pass


ROOT = "/"
"""The working directory of a conversation that names none."""

INSTRUCTION = "instruction"
"""The kind of a message that a person added to the thread as an instruction."""

_FOLDER = re.compile(
    r"<cwd>\s*([^<\n]+?)\s*</cwd>|^\W*(?:Primary w|W|Current w)orking directory:\s*(\S.*?)\s*$",
    re.MULTILINE,
)


def find_folder(messages: Iterable[Message]) -> str | None:
    """The folder that a client works in, from the system prompt or the context that it sends."""
    for message in messages:
        if message.role != "assistant":
            match = _FOLDER.search(message.text)
            if match is not None:
                return match[1] or match[2]
    return None


LINE_GAP, TURN_GAP = 1e-6, 1e-3
"""New lines get fractional line numbers: the distance of two lines, and of two moved turns."""


class FileLine(Struct, frozen=True):
    """A line of the imported file; `edited` is its message now, if it was changed."""

    line: SourceLine
    slot: Id | None = None
    edited: Message | None = None


class NewLine(Struct, frozen=True):
    """A message that the imported file does not have; `opens`: a summary with nothing before it."""

    slot: Id
    message: Message
    created: float
    is_summary: bool = False
    opens: bool = False
    kind: str = "dialogue"

    @property
    def is_clients_prompt(self) -> bool:
        return is_clients_prompt(self.message, self.kind)


def is_clients_prompt(message: Message, kind: str) -> bool:
    """Whether this is a system prompt that a client sent, and will send again by itself.

    Instructions that a person added to the thread are not.
    """
    return is_system(message) and kind != INSTRUCTION


class RemovedLine(Struct, frozen=True):
    """A line of the imported file whose message was removed."""

    line: SourceLine


Piece = FileLine | NewLine | RemovedLine


class Journal(Struct, frozen=True):
    """The pieces of a file in order. `moved`: the messages are in another order than the lines."""

    source: str
    pieces: tuple[Piece, ...]
    is_untouched: bool = False
    moved: bool = False


def read_journal(handle: Handle, format: str, *, repeats: bool = False) -> Journal:
    """The lines of the handle's branch; all are new if it was not imported in this format.

    `repeats`: in this format the line of a compaction contains the messages that it keeps.
    """
    head = handle.head()
    chain = [] if head is None else handle.store.walk(handle.name, head)
    attached = _source_lines(chain, format)
    source = next(iter(attached.values())).source if attached else ""
    others = _other_branches(handle, format, source) if attached else []
    if chain and chain[-1].commit.id in attached and _is_end(chain, attached, others):
        lines = {line.number: line for branch in others for line in branch.lines}
        lines.update((line.number, line) for item in attached.values() for line in item.lines)
        pieces = tuple(FileLine(lines[number]) for number in sorted(lines))
        return Journal(source, pieces, is_untouched=True)
    rows = handle.view(head).rows
    steps = {step.commit.id: step for step in _steps_of(handle, chain, rows)}
    attached = {
        id: item
        for id, item in _source_lines(steps.values(), format).items()
        if item.source == source
    }
    sidechain_lines = [
        line for branch in others if branch.root != _root(chain) for line in branch.lines
    ]
    compactions = [
        step for step in chain if step.commit.id in attached and step.commit.kind == "compact"
    ]
    in_effect = _read_in_effect(handle, compactions, rows, repeats)
    return _current(handle, rows, steps, attached, in_effect, source, sidechain_lines)


class _Branch(Struct, frozen=True):
    """The lines of a source in one branch, and the branch's first commit."""

    root: Id
    lines: tuple[SourceLine, ...]


def _other_branches(handle: Handle, format: str, source: str) -> list[_Branch]:
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


def _is_end(
    chain: Sequence[Step], attached: Mapping[Id, SourceLines], others: Sequence[_Branch]
) -> bool:
    """Whether no other branch of the conversation has a turn after the last one of this branch."""
    last = _last_turn(line for item in attached.values() for line in item.lines)
    siblings = [branch for branch in others if branch.root == _root(chain)]
    return all(_last_turn(branch.lines) <= last for branch in siblings)


def _last_turn(lines: Iterable[SourceLine]) -> int:
    return max((line.number for line in lines if line.is_turn), default=-1)


def _root(chain: Sequence[Step]) -> Id:
    return chain[0].commit.id if chain else b""


def _current(
    handle: Handle,
    rows: Sequence[Row],
    steps: Mapping[Id, Step],
    attached: Mapping[Id, SourceLines],
    in_effect: Mapping[Id, "_Compaction"],
    source: str,
    sidechain_lines: Iterable[SourceLine],
) -> Journal:
    """The lines of the branch as it is now, with the lines of its sidechains."""
    current = {row.id: row for row in rows if row.id is not None}
    moved_positions = _moved_positions(rows, attached)
    pieces: list[tuple[float, Piece]] = [(line.number, FileLine(line)) for line in sidechain_lines]
    starts: dict[Id, float] = {}
    ends: dict[Id, float] = {}
    for id, item in attached.items():
        step = steps[id]
        is_kept = _keeps(step, current, in_effect)
        row = current.get(id)
        edited = None if row is None or row.message == _first(step) else row.message
        for order, line in enumerate(item.lines):
            stays = is_kept or (step.commit.kind == "compact" and not line.is_turn)
            piece = (
                FileLine(line, id, edited if line.is_turn else None) if stays else RemovedLine(line)
            )
            position = (
                moved_positions[id] + order * LINE_GAP if id in moved_positions else line.number
            )
            pieces.append((position, piece))
            if line.is_turn:
                starts.setdefault(id, position)
                ends[id] = position
        for slot in in_effect.get(id, _Compaction()).summaries:
            starts[slot] = starts[id]
            ends[slot] = max(line.number for line in item.lines)
    pieces += _new_pieces(handle, rows, starts, ends)
    pieces.sort(key=lambda placed: placed[0])
    return Journal(source, tuple(piece for _, piece in pieces), moved=bool(moved_positions))


def _moved_positions(rows: Sequence[Row], attached: Mapping[Id, SourceLines]) -> dict[Id, float]:
    """The new line numbers of messages that were moved relative to their file."""
    positions: dict[Id, float] = {}
    last = -1.0
    for row in rows:
        source_lines = None if row.id is None else attached.get(row.id)
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


def _read_in_effect(
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
    shown = {row.id: row.message for row in rows if row.id and row.priority != "skip"}
    if any(shown.get(slot) != after[slot].message for slot in (after if repeats else summaries)):
        return False
    return all(slot in after for slot in takewhile(lambda slot: slot not in summaries, shown))


def _keeps(step: Step, current: Mapping[Id, Row], in_effect: Mapping[Id, _Compaction]) -> bool:
    """Whether the lines of a commit are still part of the file."""
    id = step.commit.id
    if step.commit.kind == "compact":
        return id in in_effect
    if step.commit.kind != "append":
        return True
    row = current.get(id)
    if row is None:
        return any(id in compaction.folded for compaction in in_effect.values())
    op = decode_body(step).op
    return row.priority != "skip" or (isinstance(op, Append) and op.priority == "skip")


def _new_pieces(
    handle: Handle, rows: Sequence[Row], starts: Mapping[Id, float], ends: Mapping[Id, float]
) -> list[tuple[float, Piece]]:
    """The new lines, each right after the line that it follows."""
    shown = [row for row in rows if row.priority != "skip"]
    first = next((row for row in shown if not is_clients_prompt(row.message, row.kind)), None)
    new_slots = {row.id for row in shown if row.id is not None and row.id not in ends}
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
            opens = is_summary and row is first
            new_line = NewLine(row.id, row.message, times[row.id], is_summary, opens, row.kind)
            pieces.append((position, new_line))
    return pieces


def _first_position(
    rows: Sequence[Row], starts: Mapping[Id, float], ends: Mapping[Id, float]
) -> float:
    """The position before the first remaining turn, or after all lines if no turn remains."""
    first = next((starts[row.id] for row in rows if row.id is not None and row.id in starts), None)
    return max(ends.values(), default=-1.0) if first is None else first - 0.5


def _steps_of(handle: Handle, chain: Sequence[Step], rows: Sequence[Row]) -> list[Step]:
    """The commits of a branch, and those whose messages a merge brought in."""
    chain_ids = {step.commit.id for step in chain}
    merged = [row.id for row in rows if row.id is not None and row.id not in chain_ids]
    return [*chain, *handle.store.read_commits(handle.name, merged)]


def _source_lines(steps: Iterable[Step], format: str) -> dict[Id, SourceLines]:
    attached: dict[Id, SourceLines] = {}
    for step in steps:
        source_lines = read_source_lines(step)
        if source_lines is not None and source_lines.format == format:
            attached[step.commit.id] = source_lines
    return attached


def _first(step: Step) -> Message:
    return decode_appended(step)
