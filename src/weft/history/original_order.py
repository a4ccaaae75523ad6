"""Where lines stood: a list in which those that were folded away still have their place.

A compiled list forgets where a dropped line was. Played back from before it was dropped, the
branch says so: a line that goes leaves its place empty, what is said in its stead stands behind
the empty places, and a line that comes back takes its own again. By this order a revert gives
turns back before everything that was said after them, however often they were folded since.
"""

from collections.abc import Callable, Iterable, Sequence

from weft.ids import Id
from weft.store import Step, Store

from .objects import Append, Rewrite, Row, decode_body, new_slot

Lines = Callable[[Id | None], Sequence[Row]]
"""What a commit compiles to."""


def restore_original_order(
    store: Store, thread: str, head: Id, target: Id, rows: Sequence[Row], lines: Lines
) -> Sequence[Row]:
    """The rows that taking back `target` comes to, in the order in which they were said.

    They stay as they are where the branch never went through `target`.
    """
    steps = _since(store, thread, head, target)
    if not steps:
        return rows
    parents = steps[0].commit.parents
    start = [row.id for row in lines(parents[0] if parents else None) if row.id is not None]
    places = {slot: place for place, slot in enumerate(replay_places(start, steps))}
    if any(row.id not in places for row in rows):
        return rows
    return sorted(rows, key=lambda row: places[row.id or b""])


def replay_places(start: Sequence[Id], steps: Iterable[Step]) -> list[Id]:
    """Every slot that the branch had from `start` on, present or gone, in its place."""
    order, present = list(start), list(start)
    known = set(order)
    for step in steps:
        op = decode_body(step).op
        if isinstance(op, Append) and (op.slot or step.commit.id) not in known:
            order.append(op.slot or step.commit.id)
            present.append(order[-1])
        elif isinstance(op, Append) and op.slot is not None:
            present = [*(slot for slot in present if slot != op.slot), op.slot]
            order = _placed(order, present, {op.slot})
        elif isinstance(op, Rewrite) and (op.drop or op.insert):
            present, said = _rewritten(present, op, step.commit.id)
            order = _placed(order, present, said)
        known.update(order[-1:] if isinstance(op, Append) else present)
    return order


def _since(store: Store, thread: str, head: Id, target: Id) -> list[Step]:
    """The branch from `target` on, or from the oldest commit that was taken back since."""
    depth = store.read_depths(thread, head, [target]).get(target)
    while depth is not None:
        steps = store.walk(thread, head, after=depth - 1)
        taken_back = [_reverted(step) for step in steps if step.commit.kind == "revert"]
        found = store.read_depths(thread, head, [id for id in taken_back if id is not None])
        oldest = min(found.values(), default=depth)
        if oldest >= depth:
            return steps
        depth = oldest
    return []


def _reverted(step: Step) -> Id | None:
    target = (decode_body(step).metadata or {}).get("reverts")
    return bytes.fromhex(target) if isinstance(target, str) else None


def _rewritten(present: list[Id], op: Rewrite, commit: Id) -> tuple[list[Id], set[Id]]:
    """The slots after a rewrite, and those that it put in."""
    position = {slot: place for place, slot in enumerate(present)}
    gone: set[Id] = set()
    for first, last in op.drop:
        gone.update(present[position[first] : position[last] + 1])
    behind: dict[Id | None, list[Id]] = {}
    number = 0
    for insert in op.insert:
        for placed in insert.rows:
            slot = new_slot(commit, number) if placed.slot is None else placed.slot
            behind.setdefault(insert.after, []).append(slot)
            number += 1
    slots = list(behind.get(None, ()))
    for slot in present:
        if slot not in gone:
            slots.append(slot)
        slots += behind.get(slot, ())
    return slots, {slot for run in behind.values() for slot in run}


def _placed(order: list[Id], present: Sequence[Id], said: set[Id]) -> list[Id]:
    """The order with the present lines in it; one that came back elsewhere has moved."""
    here, known = set(present), set(order)
    if [slot for slot in order if slot in here] != [slot for slot in present if slot in known]:
        order = [slot for slot in order if slot not in said]
        known -= said
    before: dict[Id | None, list[Id]] = {}
    run: list[Id] = []
    for slot in present:
        if slot not in known:
            run.append(slot)
        elif run:
            before[slot], run = run, []
    woven: list[Id] = []
    for slot in order:
        woven += before.get(slot, ())
        woven.append(slot)
    return [*woven, *run]
