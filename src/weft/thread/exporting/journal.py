"""A branch as the lines of a session file: the original lines, and new ones.

If nothing was done since the import, the journal is the file: every line of the source, from all
branches, in its old order. Otherwise it follows what the branch compiles to now:

- The line of an unchanged message is copied.
- What a compaction of the file's own replaced stays in the file as long as that compaction is in
  effect, and so does its boundary. If it was reverted, boundary and summary are left out.
- A message that the file never had is a `New` line after the line that it follows. If it follows
  none, it comes right before the first remaining turn.
- A summary with nothing before it `opens` the conversation. Session formats have lines of their own
  for that.

The time of a new line is that of the commit that added its message.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import takewhile

from msgspec import Struct

from weft.history import Append, Rewrite, Row, decode_appended, decode_body, new_slot, read_writers
from weft.ids import Id
from weft.model import Message
from weft.store import Step
from weft.thread.handle import Handle
from weft.thread.source_lines import SourceLine, SourceLines, read_source_lines


def read_moments(handle: Handle, slots: Collection[Id]) -> dict[Id, float]:
    """For each of these slots of the branch, when it was first added."""
    head = handle.head()
    if head is None or not slots:
        return {}
    found: dict[Id, float] = {}
    for step in read_writers(handle.store, handle.name, head, slots):
        for slot in _added_slots(step):
            found.setdefault(slot, step.commit.created)
    return found


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


HAIR, STEP = 1e-6, 1e-3
"""How far apart lines are put that had no number of their own: single ones, and those of a turn."""


class Old(Struct, frozen=True):
    """A line of the source; `edited` is what its message says now, if it says something else."""

    line: SourceLine
    slot: Id | None = None
    edited: Message | None = None


class New(Struct, frozen=True):
    """A message that the source never had; `opens`: a summary that nothing stands before."""

    slot: Id
    message: Message
    created: float
    is_summary: bool = False
    opens: bool = False


class Gone(Struct, frozen=True):
    """A line of the source that is not in force any more."""

    line: SourceLine


Piece = Old | New | Gone


class Journal(Struct, frozen=True):
    """The pieces of a file in order. `moved`: messages stand in another order than their lines."""

    source: str
    pieces: tuple[Piece, ...]
    is_untouched: bool = False
    moved: bool = False


def read_journal(handle: Handle, format: str, *, repeats: bool = False) -> Journal:
    """The lines of the handle's branch in a format; all are new where none came in that way.

    `repeats`: in this format the line of a compaction says again what it keeps.
    """
    head = handle.head()
    chain = [] if head is None else handle.store.walk(handle.name, head)
    carried = _carried(chain, format)
    source = next(iter(carried.values())).source if carried else ""
    others = _other_branches(handle, format, source) if carried else []
    if chain and chain[-1].commit.id in carried and _is_end(chain, carried, others):
        kept = {line.number: line for branch in others for line in branch.lines}
        kept.update((line.number, line) for item in carried.values() for line in item.lines)
        pieces = tuple(Old(kept[number]) for number in sorted(kept))
        return Journal(source, pieces, is_untouched=True)
    rows = handle.view(head).rows
    steps = {step.commit.id: step for step in _steps_of(handle, chain, rows)}
    carried = {
        id: attached
        for id, attached in _carried(steps.values(), format).items()
        if attached.source == source
    }
    aside = [line for branch in others if branch.root != _root(chain) for line in branch.lines]
    folds = [step for step in chain if step.commit.id in carried and step.commit.kind == "compact"]
    in_force = _in_force(handle, folds, rows, repeats)
    return _current(handle, rows, steps, carried, in_force, source, aside)


class _Branch(Struct, frozen=True):
    """What a branch has of a source: where it began, and its lines."""

    root: Id
    lines: tuple[SourceLine, ...]


def _other_branches(handle: Handle, format: str, source: str) -> list[_Branch]:
    """Every branch that has lines of a source; a sidechain has a beginning of its own."""
    found: list[_Branch] = []
    for head in set(handle.store.refs(handle.name).values()):
        steps = handle.store.walk(handle.name, head)
        mine = [item for item in _carried(steps, format).values() if item.source == source]
        if mine:
            lines = tuple(line for item in mine for line in item.lines)
            found.append(_Branch(_root(steps), lines))
    return found


def _is_end(
    chain: Sequence[Step], carried: Mapping[Id, SourceLines], others: Sequence[_Branch]
) -> bool:
    """Whether no other branch of the same conversation goes on behind this one's last turn."""
    last = _last_turn(line for item in carried.values() for line in item.lines)
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
    carried: Mapping[Id, SourceLines],
    in_force: Mapping[Id, "_Force"],
    source: str,
    aside: Iterable[SourceLine],
) -> Journal:
    """What a branch means now, in lines; `aside` are those of its sidechains."""
    standing = {row.id: row for row in rows if row.id is not None}
    places = _places(rows, carried)
    pieces: list[tuple[float, Piece]] = [(line.number, Old(line)) for line in aside]
    starts: dict[Id, float] = {}
    ends: dict[Id, float] = {}
    for id, attached in carried.items():
        step = steps[id]
        is_kept = _keeps(step, standing, in_force)
        said = standing.get(id)
        edited = None if said is None or said.message == _first(step) else said.message
        for order, line in enumerate(attached.lines):
            stays = is_kept or (step.commit.kind == "compact" and not line.is_turn)
            piece = Old(line, id, edited if line.is_turn else None) if stays else Gone(line)
            place = places[id] + order * HAIR if id in places else line.number
            pieces.append((place, piece))
            if line.is_turn:
                starts.setdefault(id, place)
                ends[id] = place
        for slot in in_force.get(id, _Force()).summaries:
            starts[slot] = starts[id]
            ends[slot] = max(line.number for line in attached.lines)
    pieces += _new_pieces(handle, rows, starts, ends)
    pieces.sort(key=lambda placed: placed[0])
    return Journal(source, tuple(piece for _, piece in pieces), moved=bool(places))


def _places(rows: Sequence[Row], carried: Mapping[Id, SourceLines]) -> dict[Id, float]:
    """Where the lines of messages go that stand behind others than in their file."""
    places: dict[Id, float] = {}
    last = -1.0
    for row in rows:
        attached = None if row.id is None else carried.get(row.id)
        if row.id is None or attached is None:
            continue
        start = next(line.number for line in attached.lines if line.is_turn)
        if start < last:
            places[row.id] = last = last + STEP
        else:
            last = float(start)
    return places


class _Force(Struct, frozen=True):
    """A compaction of the file's own that stands: what it folded, and what stands for it."""

    folded: frozenset[Id] = frozenset()
    summaries: tuple[Id, ...] = ()


def _in_force(
    handle: Handle, folds: Sequence[Step], rows: Sequence[Row], repeats: bool
) -> dict[Id, _Force]:
    """The compactions that stand, newest first: a newer one may have folded an older's summary."""
    found: dict[Id, _Force] = {}
    for step in reversed(folds):
        parent = next(iter(step.commit.parents), None)
        before = [row.id for row in handle.view(parent).rows if row.id]
        after = {row.id: row for row in handle.view(step.commit.id).rows if row.id}
        summaries = tuple(slot for slot in after if slot not in before)
        folded_again = any(force.folded.issuperset(summaries) for force in found.values())
        if folded_again or _stands(rows, after, summaries, repeats):
            found[step.commit.id] = _Force(frozenset(before) - frozenset(after), summaries)
    return found


def _stands(
    rows: Sequence[Row], after: Mapping[Id, Row], summaries: Sequence[Id], repeats: bool
) -> bool:
    """Whether a compaction's lines say what they said, and hide nothing that was put before."""
    shown = {row.id: row.message for row in rows if row.id and row.priority != "skip"}
    if any(shown.get(slot) != after[slot].message for slot in (after if repeats else summaries)):
        return False
    return all(slot in after for slot in takewhile(lambda slot: slot not in summaries, shown))


def _keeps(step: Step, standing: Mapping[Id, Row], in_force: Mapping[Id, _Force]) -> bool:
    """Whether the lines of a commit still belong into the file."""
    id = step.commit.id
    if step.commit.kind == "compact":
        return id in in_force
    if step.commit.kind != "append":
        return True
    row = standing.get(id)
    if row is None:
        return any(id in force.folded for force in in_force.values())
    op = decode_body(step).op
    return row.priority != "skip" or (isinstance(op, Append) and op.priority == "skip")


def _new_pieces(
    handle: Handle, rows: Sequence[Row], starts: Mapping[Id, float], ends: Mapping[Id, float]
) -> list[tuple[float, Piece]]:
    """The lines to be written anew, each a hair behind what it follows."""
    shown = [row for row in rows if row.priority != "skip"]
    new = {row.id for row in shown if row.id is not None and row.id not in ends}
    moments = read_moments(handle, new)
    found: list[tuple[float, Piece]] = []
    place = _beginning(rows, starts, ends)
    for row in rows:
        assert row.id is not None
        if row.id in ends:
            place = ends[row.id]
        elif row.id in new:
            place += HAIR
            sums = row.kind == "summary"
            new_line = New(row.id, row.message, moments[row.id], sums, sums and row is shown[0])
            found.append((place, new_line))
    return found


def _beginning(rows: Sequence[Row], starts: Mapping[Id, float], ends: Mapping[Id, float]) -> float:
    """Before the first turn that is left, or behind all turns where none is."""
    first = next((starts[row.id] for row in rows if row.id is not None and row.id in starts), None)
    return max(ends.values(), default=-1.0) if first is None else first - 0.5


def _steps_of(handle: Handle, chain: Sequence[Step], rows: Sequence[Row]) -> list[Step]:
    """The commits of a branch, and those that brought lines from elsewhere by a merge."""
    known = {step.commit.id for step in chain}
    foreign = [row.id for row in rows if row.id is not None and row.id not in known]
    return [*chain, *handle.store.read_commits(handle.name, foreign)]


def _carried(steps: Iterable[Step], format: str) -> dict[Id, SourceLines]:
    found: dict[Id, SourceLines] = {}
    for step in steps:
        attached = read_source_lines(step)
        if attached is not None and attached.format == format:
            found[step.commit.id] = attached
    return found


def _first(step: Step) -> Message:
    return decode_appended(step)
