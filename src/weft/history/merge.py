"""Three-way merge of compiled lists, row by row, with conflicts as values.

The *slot* of a row is its id, which an edit does not change. A row is *folded* if a summary has
replaced it. Rows are matched by slot, never by text:

- What only one side changed is taken. What both sides added is kept, ours first, then theirs.
- If both sides added rows between a call and its result, and only they answered the call, their
  rows come first: nothing may come between a call and its result.
- A conflict is a row that both sides changed differently, folded into different summaries, or that
  one side changed and the other folded or hid. Two different results for one call are a conflict
  too (`conflict`), and so are two different values of one part of the setup.
- Two summaries of the same rows are one conflict, however many rows they cover. The summaries of a
  folded row are those between the same two rows that are still there (its *gap*).
- `choose` resolves each conflict. Without it, conflicts are listed and our side is kept, which is
  what a preview shows.

A revert uses the same function: the base is the list after the commit, and the other side is the
list before it.

`restore_original_order` sorts rows into their original order, including rows that were folded. A
compiled list does not record where a dropped row was. The position is found by replaying the branch
from before the drop: a dropped row leaves an empty position, its replacement comes after the empty
positions, and a restored row gets its old position again. A revert uses this order to put rows back
where they were, however often they were folded since.

`replay` repeats commits on top of another list of rows, for rebase and cherry-pick. A replayed row
keeps its slot, so it stays the same row: its priority and later edits still apply to it, a later
merge of its original branch does not add it twice, and its id stays valid. A rewrite is replayed as
a merge: its changes are merged into the current rows.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Struct, structs

from weft.errors import MergeConflict
from weft.ids import Id
from weft.model import (
    Audio,
    Block,
    File,
    Image,
    Message,
    Params,
    Redacted,
    Refusal,
    Text,
    Thinking,
    Tool,
    ToolCall,
    ToolResult,
)
from weft.store import Step, Store

from .conflict import (
    CHOICES,
    AnyConflict,
    Choose,
    Conflict,
    RowsBySlot,
    SetupConflict,
    concat_results,
    has_second_result,
    is_same_result,
    open_calls,
    resolve_results,
)
from .objects import (
    PRIORITIES,
    Append,
    Body,
    Draft,
    Priority,
    Rewrite,
    Row,
    Setup,
    State,
    decode_appended,
    decode_body,
)
from .ops import ListRows, common_prefix_length, plan_state, run_step, run_steps, with_slots

TOOLS = "tools"


def merge_setup(
    base: Setup | None, ours: Setup | None, theirs: Setup | None, choose: Choose
) -> Setup | None:
    """The tools and parameters after a merge; `choose` decides if both sides changed a part.

    The parts are the list of tools and each parameter. A part is taken whole, except that `concat`
    keeps our tools and adds those of theirs whose names we do not have. Raises `MergeConflict` if
    the answer is not one of `CHOICES`, because free text cannot be a setup.
    """
    if ours == theirs or theirs == base:
        return ours
    if ours == base:
        return theirs
    base_parts, our_parts, their_parts = (_parts(setup) for setup in (base, ours, theirs))
    parts = {
        name: their_parts[name] if our_parts[name] == base_parts[name] else our_parts[name]
        for name in base_parts
    }
    conflicting = [
        name
        for name, old in base_parts.items()
        if our_parts[name] != their_parts[name] and old not in (our_parts[name], their_parts[name])
    ]
    if conflicting:
        conflict = SetupConflict(tuple(conflicting), base, ours, theirs)
        parts.update(_chosen_parts(conflict, choose(conflict), our_parts, their_parts))
    merged = _setup_of(parts)
    return ours if merged == (ours or Setup()) else merged  # no setup stays `None`


def setup_changes(before: Setup | None, after: Setup | None) -> tuple[str, ...]:
    """The names of the parts that differ."""
    old_parts, new_parts = _parts(before), _parts(after)
    return tuple(name for name in old_parts if old_parts[name] != new_parts[name])


def _chosen_parts(
    conflict: SetupConflict, choice: str, our_parts: dict[str, Any], their_parts: dict[str, Any]
) -> dict[str, Any]:
    """The values of the conflicting parts after the choice."""
    if choice not in CHOICES:
        message = (
            f"resolve the setup's conflict with ours, theirs or concat, not the text {choice!r}"
        )
        raise MergeConflict(message, (conflict,))
    side = their_parts if choice == "theirs" else our_parts
    chosen = {name: side[name] for name in conflict.parts}
    if choice == "concat" and TOOLS in chosen:
        chosen[TOOLS] = _both_tool_lists(our_parts[TOOLS], their_parts[TOOLS])
    return chosen


def _both_tool_lists(ours: tuple[Tool, ...], theirs: tuple[Tool, ...]) -> tuple[Tool, ...]:
    our_names = {tool.name for tool in ours}
    return (*ours, *(tool for tool in theirs if tool.name not in our_names))


def _parts(setup: Setup | None) -> dict[str, Any]:
    setup = setup or Setup()
    return {TOOLS: setup.tools, **structs.asdict(setup.params)}


def _setup_of(parts: dict[str, Any]) -> Setup:
    params = {name: value for name, value in parts.items() if name != TOOLS}
    return Setup(parts[TOOLS], Params(**params))


def edit_text(message: Message, text: str) -> Message:
    """The message with `text` as its new text; calls, media and results stay.

    In a message that has only tool results, the text of the first one is replaced. Thinking is
    removed, because its signature covers text that no longer exists.
    """
    result_positions = [
        position for position, b in enumerate(message.blocks) if isinstance(b, ToolResult)
    ]
    text_positions = [
        position for position, b in enumerate(message.blocks) if isinstance(b, Text | Refusal)
    ]
    if result_positions and not text_positions:
        return _edit_result(message, result_positions[0], text)
    first = text_positions[0] if text_positions else _new_text_position(message.blocks)
    before = [block for block in message.blocks[:first] if _stays(block)]
    after = [block for block in message.blocks[first:] if _stays(block)]
    new_text: list[Block] = [Text(text)] if text or not (before or after) else []
    return structs.replace(message, blocks=(*before, *new_text, *after), form="")


def _stays(block: Block) -> bool:
    return not isinstance(block, Text | Refusal | Thinking | Redacted)


def _new_text_position(blocks: tuple[Block, ...]) -> int:
    """Where new text goes: after media, before calls and a closing checkpoint."""
    before = (Image, File, Audio, Thinking, Redacted)
    return next((n for n, b in enumerate(blocks) if not isinstance(b, before)), len(blocks))


def _edit_result(message: Message, position: int, text: str) -> Message:
    result = message.blocks[position]
    assert isinstance(result, ToolResult)
    media = tuple(block for block in result.content if not isinstance(block, Text | Refusal))
    new_result = structs.replace(result, content=(Text(text), *media), form="")
    blocks = (*message.blocks[:position], new_result, *message.blocks[position + 1 :])
    return structs.replace(message, blocks=blocks)


def resolve_folds(
    base: RowsBySlot, ours: RowsBySlot, theirs: RowsBySlot, choose: Choose
) -> dict[Id, Row | None]:
    """Resolve the conflicts between summaries; returns the rows that change, by slot."""
    changed_rows: dict[Id, Row | None] = {}
    our_folds, their_folds = _folds(base, ours), _folds(base, theirs)
    choices: dict[tuple[tuple[Id, ...], tuple[Id, ...]], str] = {}
    for slot in base:
        our_summaries, their_summaries = our_folds.get(slot, ()), their_folds.get(slot, ())
        if not our_summaries or not their_summaries or our_summaries == their_summaries:
            continue
        if (our_summaries, their_summaries) not in choices:
            conflict = Conflict(
                slot, "folded", base[slot], ours[our_summaries[0]], theirs[their_summaries[0]]
            )
            choices[our_summaries, their_summaries] = choose(conflict)
    for (our_summaries, their_summaries), choice in choices.items():
        if choice == "ours":
            _undo_fold(their_summaries, their_folds, ours, changed_rows)
        elif choice == "theirs":
            _undo_fold(our_summaries, our_folds, theirs, changed_rows)
        elif choice != "concat":
            _undo_fold(their_summaries, their_folds, ours, changed_rows)
            summary = ours[our_summaries[0]]
            message = edit_text(summary.message, choice)
            changed_rows[our_summaries[0]] = structs.replace(summary, message=message)
    return changed_rows


def _folds(base: RowsBySlot, side: RowsBySlot) -> dict[Id, tuple[Id, ...]]:
    """For every row that a side folded, the summaries in its gap."""
    gaps: dict[Id | None, list[Id]] = {}
    anchor: Id | None = None
    for slot, row in side.items():
        if slot in base:
            anchor = slot
        elif row.kind == "summary":
            gaps.setdefault(anchor, []).append(slot)
    folds: dict[Id, tuple[Id, ...]] = {}
    anchor = None
    for slot in base:
        if slot in side:
            anchor = slot
        elif anchor in gaps:
            folds[slot] = tuple(gaps[anchor])
    return folds


def _undo_fold(
    summaries: tuple[Id, ...],
    folds: dict[Id, tuple[Id, ...]],
    other_side: RowsBySlot,
    changed_rows: dict[Id, Row | None],
) -> None:
    """Remove one side's summaries and restore the rows that only they had folded."""
    for summary in summaries:
        changed_rows[summary] = other_side.get(summary)
    for slot, replaced_by in folds.items():
        if replaced_by == summaries:
            changed_rows[slot] = other_side.get(slot)


def merge_order(
    base: RowsBySlot, ours: RowsBySlot, theirs: RowsBySlot, merged_rows: Mapping[Id, Row | None]
) -> list[Id]:
    """All slots of the merged list in order.

    Our list sets the order. Its rows that the base or their side has too are *anchors*. After each
    anchor come our new rows (`our_run`) and the rows that only they have there (`their_run`).

    `merged_rows` has the merged row of each slot. A row that our side dropped, but that the merge
    keeps, is at the position that it has on their side.
    """
    their_runs = _their_runs(base, ours, theirs, merged_rows)
    order: list[Id] = []
    anchor: Id | None = None
    our_run: list[Id] = []
    for slot in ours:
        if slot not in base and slot not in theirs:
            our_run.append(slot)
            continue
        order += _order_runs(our_run, their_runs.get(anchor, []), order, ours, theirs)
        order.append(slot)
        anchor, our_run = slot, []
    return order + _order_runs(our_run, their_runs.get(anchor, []), order, ours, theirs)


def _order_runs(
    our_run: list[Id],
    their_run: list[Id],
    before: list[Id],
    ours: RowsBySlot,
    theirs: RowsBySlot,
) -> list[Id]:
    """Both runs: ours first, unless only theirs answers an open call of the rows before."""
    if not our_run or not their_run:
        return our_run + their_run
    open_ids = open_calls(ours.get(slot) or theirs[slot] for slot in before)
    our_answers = _answers([ours[slot] for slot in our_run], open_ids)
    their_answers = _answers([theirs[slot] for slot in their_run], open_ids)
    theirs_first = their_answers and not our_answers
    return their_run + our_run if theirs_first else our_run + their_run


def _their_runs(
    base: RowsBySlot, ours: RowsBySlot, theirs: RowsBySlot, merged_rows: Mapping[Id, Row | None]
) -> dict[Id | None, list[Id]]:
    """The rows that only they have, by the nearest row before them that we have too."""
    runs: dict[Id | None, list[Id]] = {}
    anchor: Id | None = None
    for slot in theirs:
        if slot in ours:
            anchor = slot
        elif slot not in base or merged_rows.get(slot) is not None:
            runs.setdefault(anchor, []).append(slot)
    return runs


def _answers(rows: Sequence[Row], calls: set[str]) -> frozenset[str]:
    """The calls among these that the rows answer."""
    return frozenset(
        block.call_id
        for row in rows
        for block in row.message.blocks
        if isinstance(block, ToolResult) and block.call_id in calls
    )


class Merged(Struct, frozen=True):
    """The merged list, the unresolved conflicts, and the calls that both sides had answered."""

    rows: Sequence[Row]
    conflicts: tuple[AnyConflict, ...] = ()
    answered_twice: tuple[str, ...] = ()
    setup: Setup | None = None

    @property
    def state(self) -> State:
        return State(self.rows, self.setup)


def merge3(
    base: Sequence[Row],
    ours: Sequence[Row],
    theirs: Sequence[Row],
    choose: Choose | None = None,
) -> Merged:
    """The changes of both sides since `base`, merged into one list."""
    start = _common_start(base, ours, theirs)
    base_rows, our_rows, their_rows = (_by_slot(rows[start:]) for rows in (base, ours, theirs))
    conflicts: list[AnyConflict] = []
    choose = choose or record_conflicts(conflicts)
    merged_rows: dict[Id, Row | None] = {}
    for slot in {**base_rows, **our_rows, **their_rows}:
        merged_rows[slot] = _merge_row(
            slot, base_rows.get(slot), our_rows.get(slot), their_rows.get(slot), choose
        )
    merged_rows.update(resolve_folds(base_rows, our_rows, their_rows, choose))
    order = merge_order(base_rows, our_rows, their_rows, merged_rows)
    answered = resolve_results(order, merged_rows, our_rows, their_rows, choose)
    rows = list(ours[:start])
    rows += [row for slot in order if (row := merged_rows[slot]) is not None]
    return Merged(rows, tuple(conflicts), answered)


def merge_states(base: State, ours: State, theirs: State, choose: Choose | None = None) -> Merged:
    """The changes of both sides since `base`, merged: rows and setup."""
    merged = merge3(base.rows, ours.rows, theirs.rows, choose)
    conflicts = list(merged.conflicts)
    choose = choose or record_conflicts(conflicts)
    setup = merge_setup(base.setup, ours.setup, theirs.setup, choose)
    return structs.replace(merged, setup=setup, conflicts=tuple(conflicts))


def record_conflicts(conflicts: list[AnyConflict]) -> Choose:
    """A chooser that records each conflict and keeps our side."""

    def choose(conflict: AnyConflict) -> str:
        conflicts.append(conflict)
        return "ours"

    return choose


def _merge_row(
    slot: Id,
    base: Row | None,
    ours: Row | None,
    theirs: Row | None,
    choose: Choose,
) -> Row | None:
    if ours == theirs or theirs == base:
        return ours
    if ours == base:
        return theirs
    if ours is None or theirs is None:
        changed = ours or theirs
        if changed is not None and changed.priority == "skip":
            return None  # folded on one side, hidden on the other: visible on neither
        conflict = Conflict(slot, "folded", base, ours, theirs)
        return _chosen_row(conflict, choose(conflict))
    combined = _combine(base, ours, theirs)
    if combined is not None:
        return combined
    skipped = "skip" in (ours.priority, theirs.priority) and ours.priority != theirs.priority
    conflict = Conflict(slot, "skipped" if skipped else "edited", base, ours, theirs)
    return _chosen_row(conflict, choose(conflict))


def _combine(base: Row | None, ours: Row, theirs: Row) -> Row | None:
    """The row with both sides' changes, or `None` if they conflict."""
    priorities = {ours.priority, theirs.priority}
    if base is None:  # both sides replayed the row: different priorities are no conflict
        is_same = ours.message == theirs.message and "skip" not in priorities
        priority = _higher_priority(ours.priority, theirs.priority)
        return structs.replace(ours, priority=priority) if is_same else None
    if ours.priority != base.priority and theirs.priority != base.priority:
        priority = _higher_priority(ours.priority, theirs.priority)
    else:
        priority = theirs.priority if ours.priority == base.priority else ours.priority
    is_skipped_by_one = len(priorities) == 2 and "skip" in priorities
    if is_skipped_by_one and ours.message != theirs.message:
        return None  # one side hides the row, the other one shows it with another text
    if is_skipped_by_one and base.priority not in priorities:
        return None  # one side hides the row, the other one gives it another priority
    if ours.message == theirs.message or theirs.message == base.message:
        return structs.replace(ours, priority=priority)
    if ours.message == base.message:
        return structs.replace(theirs, priority=priority)
    return None


def _chosen_row(conflict: Conflict, choice: str) -> Row | None:
    """The row that a choice results in; `None` if the chosen side has dropped it."""
    if choice == "ours":
        return conflict.ours
    if choice == "theirs":
        return conflict.theirs
    if choice == "concat":
        return _concat_rows(conflict)
    row = conflict.ours or conflict.base or conflict.theirs
    assert row is not None
    return structs.replace(row, message=edit_text(row.message, choice))


def _concat_rows(conflict: Conflict) -> Row | None:
    """Our row with their text added; if only one side still has the row, that one."""
    ours, theirs = conflict.ours, conflict.theirs
    if ours is None or theirs is None:
        return ours or theirs
    if ours.message == theirs.message or conflict.kind == "skipped":
        visible = theirs if ours.priority == "skip" else ours
        return structs.replace(visible, priority=_higher_priority(ours.priority, theirs.priority))
    their_texts = tuple(b for b in theirs.message.blocks if isinstance(b, Text | Refusal))
    message = structs.replace(ours.message, blocks=_both_results(ours.message, theirs.message))
    message = structs.replace(message, blocks=_add_texts(message, their_texts), form="")
    return structs.replace(ours, message=message)


def _both_results(ours: Message, theirs: Message) -> tuple[Block, ...]:
    """Our blocks; results that differ on their side have the content of both."""
    their_results = {
        block.call_id: block for block in theirs.blocks if isinstance(block, ToolResult)
    }
    blocks: list[Block] = []
    for block in ours.blocks:
        if isinstance(block, ToolResult):
            their_result = their_results.get(block.call_id)
            if their_result is not None and not is_same_result(block, their_result):
                block = concat_results(block, their_result)
        blocks.append(block)
    return tuple(blocks)


def _add_texts(message: Message, texts: tuple[Text | Refusal, ...]) -> tuple[Block, ...]:
    """The blocks, with these texts added after the last text block."""
    positions = [i for i, b in enumerate(message.blocks) if isinstance(b, Text | Refusal)]
    position = positions[-1] + 1 if positions else 0
    return (*message.blocks[:position], *texts, *message.blocks[position:])


def _higher_priority(one: Priority, other: Priority) -> Priority:
    return PRIORITIES[max(PRIORITIES.index(one), PRIORITIES.index(other))]


def _common_start(base: Sequence[Row], ours: Sequence[Row], theirs: Sequence[Row]) -> int:
    """How many leading rows the merge can skip.

    They are equal on all sides, and have no calls that later rows answer.
    """
    equal = min(common_prefix_length(base, ours), common_prefix_length(base, theirs))
    start = max(0, equal - 1)  # keep one row as the anchor of inserts
    earlier_calls = _calls_before([*base[start:], *ours[start:], *theirs[start:]])
    for position in range(start - 1, -1, -1) if earlier_calls else ():
        for block in base[position].message.blocks:
            if isinstance(block, ToolCall) and block.id in earlier_calls:
                start = position
                earlier_calls.remove(block.id)
        if not earlier_calls:
            break
    return start


def _calls_before(rows: Iterable[Row]) -> set[str]:
    """The calls that these rows answer, but that were made before them."""
    blocks = [block for row in rows for block in row.message.blocks]
    answered = {block.call_id for block in blocks if isinstance(block, ToolResult)}
    return answered - {block.id for block in blocks if isinstance(block, ToolCall)}


def _by_slot(rows: Sequence[Row]) -> dict[Id, Row]:
    return {row.id: row for row in rows if row.id is not None}


Compile = Callable[[Id | None], Sequence[Row]]
"""The rows that a commit compiles to."""


def restore_original_order(
    store: Store, thread: str, head: Id, target: Id, rows: Sequence[Row], compile: Compile
) -> Sequence[Row]:
    """The rows that a revert of `target` results in, in their original order.

    They keep their order if `target` is not in the history of the branch.
    """
    steps = _steps_since(store, thread, head, target)
    if not steps:
        return rows
    parents = steps[0].commit.parents
    start = compile(parents[0] if parents else None)
    positions = {slot: position for position, slot in enumerate(original_order(start, steps))}
    if any(row.id not in positions for row in rows):
        return rows
    return sorted(rows, key=lambda row: positions[row.id or b""])


def original_order(start: Iterable[Row], steps: Iterable[Step]) -> list[Id]:
    """Every slot that the branch ever had from `start` on, in original order."""
    rows = _OrderedRows(start)
    run_steps(steps, rows)
    return rows.order


class _OrderedRows(ListRows):
    """A list of rows that remembers, in `order`, where dropped rows were."""

    def __init__(self, rows: Iterable[Row]) -> None:
        super().__init__(rows)
        self.order = self._slots()
        self._ordered = set(self.order)

    def append(self, row: Row, step: Step, setup: Setup | None) -> None:
        super().append(row, step, setup)
        slot = row.id
        assert slot is not None
        if slot in self._ordered:  # it was dropped, and comes back at the end
            self._reorder({slot})
        else:
            self.order.append(slot)
            self._ordered.add(slot)

    def rewrite(self, op: Rewrite, messages: Sequence[Message], step: Step) -> None:
        super().rewrite(op, messages, step)
        if op.drop or op.insert:
            inserts = with_slots(op, step.commit.id).insert
            self._reorder({new.slot for insert in inserts for new in insert.rows})

    def _slots(self) -> list[Id]:
        return [row.id for row in self.rows if row.id is not None]

    def _reorder(self, inserted: set[Id | None]) -> None:
        current = self._slots()
        self.order = _add_to_order(self.order, current, inserted)
        self._ordered.update(current)


def _steps_since(store: Store, thread: str, head: Id, target: Id) -> list[Step]:
    """The branch's commits from `target` on, or from an older one that was reverted since."""
    depth = store.read_depths(thread, head, [target]).get(target)
    while depth is not None:
        steps = store.walk(thread, head, after=depth - 1)
        reverted = [_reverted_commit(step) for step in steps if step.commit.kind == "revert"]
        depths = store.read_depths(thread, head, [id for id in reverted if id is not None])
        oldest = min(depths.values(), default=depth)
        if oldest >= depth:
            return steps
        depth = oldest
    return []


def _reverted_commit(step: Step) -> Id | None:
    target = (decode_body(step).metadata or {}).get("reverts")
    return bytes.fromhex(target) if isinstance(target, str) else None


def _add_to_order(order: list[Id], current: Sequence[Id], inserted: set[Id | None]) -> list[Id]:
    """The order with all current rows in it.

    If an inserted row was in the order before, and is now at another position, its old position is
    removed first.
    """
    current_slots, ordered = set(current), set(order)
    old_order = [slot for slot in order if slot in current_slots]
    new_order = [slot for slot in current if slot in ordered]
    if old_order != new_order:
        order = [slot for slot in order if slot not in inserted]
        ordered.difference_update(slot for slot in inserted if slot is not None)
    new_before: dict[Id, list[Id]] = {}
    new_slots: list[Id] = []
    for slot in current:
        if slot not in ordered:
            new_slots.append(slot)
        elif new_slots:
            new_before[slot], new_slots = new_slots, []
    result: list[Id] = []
    for slot in order:
        result += new_before.get(slot, ())
        result.append(slot)
    return [*result, *new_slots]


class ReplayedCommit(Struct, frozen=True):
    """The draft of a replayed commit; `merged_parents` are its parents after the first."""

    original: Id
    draft: Draft
    merged_parents: tuple[Id, ...] = ()


class ReplayResult(Struct, frozen=True):
    """All replayed commits, the resulting state, and the conflicts that remain.

    `empty` are the commits that would change nothing here.
    """

    commits: tuple[ReplayedCommit, ...]
    state: State
    conflicts: tuple[AnyConflict, ...] = ()
    empty: tuple[Id, ...] = ()


def replay(
    steps: Iterable[Step], before: State, onto: State, choose: Choose | None = None
) -> ReplayResult:
    """Replay `steps`, the first of which was made from `before`, on top of `onto`.

    Without `choose`, conflicts are listed, and the rows stay as `onto` has them.
    """
    commits: list[ReplayedCommit] = []
    conflicts: list[AnyConflict] = []
    empty: list[Id] = []
    for step in steps:
        after = run_step(before, step)
        body = decode_body(step)
        op = body.op
        if isinstance(op, Append):
            states = (before, onto, after)
            replayed, onto = _replay_append(step, body, op, states, choose, conflicts)
        else:
            replayed, onto = _replay_rewrite(step, body, (before, onto, after), choose, conflicts)
        if replayed is None:
            empty.append(step.commit.id)
        else:
            commits.append(replayed)
        before = after
    return ReplayResult(tuple(commits), onto, tuple(conflicts), tuple(empty))


def _replay_append(
    step: Step,
    body: Body,
    op: Append,
    states: tuple[State, State, State],
    choose: Choose | None,
    conflicts: list[AnyConflict],
) -> tuple[ReplayedCommit | None, State]:
    _, onto, _ = states
    slot = op.slot or step.commit.id
    if any(row.id == slot for row in onto.rows):
        return None, onto
    message = decode_appended(step)
    if has_second_result(onto.rows, message):  # only a merge can combine two results
        return _replay_rewrite(step, body, states, choose, conflicts)
    append = Append(op.kind, op.priority, slot)
    draft = Draft(
        "append", append, (message,), body.note, body.metadata, body.generation_config, _usage(step)
    )
    row = Row(slot, message, op.priority, op.kind)
    return ReplayedCommit(step.commit.id, draft), State([*onto.rows, row], onto.setup)


def _replay_rewrite(
    step: Step,
    body: Body,
    states: tuple[State, State, State],
    choose: Choose | None,
    conflicts: list[AnyConflict],
) -> tuple[ReplayedCommit | None, State]:
    before, onto, after = states
    merged = merge_states(before, onto, after, choose)
    conflicts += merged.conflicts
    planned = plan_state(onto, merged.state)
    op = planned.op
    # An append that is merged into earlier rows is no longer an append.
    kind = "splice" if step.commit.kind == "append" else step.commit.kind
    if not planned and kind != "note":
        return None, onto
    draft = Draft(
        kind,  # pyright: ignore[reportArgumentType] - a stored kind is one of the known
        op.setup if kind == "setup" and op.setup is not None else op,
        planned.messages,
        body.note,
        body.metadata,
        body.generation_config,
        _usage(step),
    )
    return ReplayedCommit(step.commit.id, draft, step.commit.parents[1:]), merged.state


def _usage(step: Step) -> object:
    return None if step.commit.usage is None else msgspec.Raw(step.commit.usage)
