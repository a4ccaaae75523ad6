"""Turns the plan of an import into commits. The same plan gives the same commit ids in every store.

All branches are written in one transaction, with one log entry for each branch, so `undo` reverts
the import of a branch. Commits that the thread already has are not written again: importing a file
twice changes nothing.

- If the file grew since its last import, its branch moves forward.
- An older copy of the file moves nothing back.
- If the gateway recorded a part of the session, only the missing messages are added, to the branch
  that has the others (`align_turns`).
- If the user committed to the branch, it stays as it is, and the import creates a branch with
  another name.

New commits go through the handle's hooks, and each branch through its budget, before anything is
written. If one of them raises, nothing is imported. If a hook changes a message, neither the
original line nor the whole file is stored, because both contain the text that the hook removed.
"""

from collections.abc import Mapping, Sequence

from msgspec import Struct, structs

from weft.history import (
    Append,
    Draft,
    Rewrite,
    Row,
    View,
    align_turns,
    chain_message,
    chain_messages,
    empty_chain,
    encode_commit,
    index_after_write,
    is_visible,
    plan_rewrite,
    read_branches,
    visible_rows,
)
from weft.ids import Id
from weft.model import Message, is_system
from weft.store import IMPORT, CommitRecord, Landing, Step as StoredStep
from weft.thread.handle import Handle, checkpoint_ids
from weft.thread.source_lines import (
    SourceLines,
    read_source_lines,
    without_attachments,
    write_source_lines,
)

from .plan import (
    CompactionStep,
    ImportPlan,
    LinesStep,
    MessageStep,
    Progress,
    SetupStep,
    Step,
    report_progress,
)


class PlannedCommit(Struct, frozen=True):
    """The commit of a step, and the view after it.

    `is_reworded`: a hook changed its messages. `has_turn`: it is not only a `LinesStep`.
    """

    record: CommitRecord
    entries: tuple[tuple[Id, bytes], ...]
    view: View
    messages: tuple[Message, ...]
    is_reworded: bool = False
    has_turn: bool = True


class CommittedPlan(Struct, frozen=True):
    """The result of an import: the head of each branch, and the number of new commits.

    `renamed` has the new name of each branch whose own name was in use. `behind` are the branches
    on which the thread already has more commits than the file.
    """

    branches: Mapping[str, str]
    renamed: Mapping[str, str]
    new: int
    behind: tuple[str, ...] = ()


class Placement(Struct, frozen=True):
    """Where a branch of the file is written: the thread's branch, and the commits to write.

    `commits` is empty if the thread has everything already.
    """

    branch: str
    commits: tuple[PlannedCommit, ...] = ()


MAX_CANDIDATES = 16
"""How many branches are compared with a file message by message."""


def commit_plan(
    handle: Handle, plan: ImportPlan, progress: Progress | None = None
) -> CommittedPlan:
    """Commit a plan to the handle's thread; if it raises, nothing is written."""
    source = plan.name or ""
    with handle.lock, handle.store.transaction():
        commits = _plan_commits(handle, plan, source, progress)
        placements = {
            name: _place_branch(handle, plan, name, _keys_up_to(plan, last_key), commits)
            for name, last_key in plan.branches.items()
        }
        written = {name: placement for name, placement in placements.items() if placement.commits}
        for placement in written.values():
            _check_budget(handle, placement.branch, placement.commits[-1].view)
        planned = [commit for placement in written.values() for commit in placement.commits]
        new_ids = _missing_commits(handle, planned) if handle.after else []
        count_before = handle.store.count(handle.name)
        # The newest branch comes last, because the last operation dates the thread.
        for placement in sorted(
            written.values(), key=lambda placement: placement.commits[-1].record.created
        ):
            _land_branch(handle, placement.branch, placement.commits)
        new_count = handle.store.count(handle.name) - count_before
        for id in new_ids:
            handle.run_after_hooks(handle.info(id))
        heads = {
            placement.branch: handle.store.read_ref(handle.name, placement.branch)
            for placement in placements.values()
        }
    if new_count:
        index_after_write(handle.store)
    return CommittedPlan(
        {name: head.hex() for name, head in heads.items() if head is not None},
        {name: placement.branch for name, placement in written.items() if placement.branch != name},
        new_count,
        tuple(name for name, placement in placements.items() if not placement.commits),
    )


def _plan_commits(
    handle: Handle, plan: ImportPlan, source: str, progress: Progress | None
) -> dict[str, PlannedCommit]:
    """The commits of all steps, by step key."""
    commits: dict[str, PlannedCommit] = {}
    total = len(plan.steps)
    for number, step in enumerate(plan.steps):
        commits[step.key] = _plan_commit(handle, plan.format, source, step, commits)
        report_progress(progress, 1, number, total)
    return commits


def _plan_commit(
    handle: Handle, format: str, source: str, step: Step, commits: Mapping[str, PlannedCommit]
) -> PlannedCommit:
    """The commit of a step, after the hooks."""
    parent = None if step.parent is None else commits[step.parent]
    view = View() if parent is None else parent.view
    draft = _step_draft(step, view, commits)
    has_whole_file = isinstance(step, MessageStep) and step.is_file
    if step.lines and not (has_whole_file and _is_any_reworded(commits)):
        attachment = write_source_lines(SourceLines(format, source, step.lines))
        draft = structs.replace(draft, messages=(*draft.messages, attachment))
    created = _created(handle, step, parent)
    parents = () if parent is None else (parent.record.id,)
    record, entries = encode_commit(draft, parents, created=created)
    is_reworded = False
    if handle.before and not handle.store.read_nodes(handle.name, [record.id]):
        original, draft = draft, _run_hooks(handle, draft)
        is_reworded = without_attachments(draft.messages) != without_attachments(original.messages)
        record, entries = encode_commit(draft, parents, created=created)
    stored = StoredStep(record, view.depth + 1, tuple(data for _, data in entries))
    view_after = view.extend([stored])
    if handle.scope is not None:
        chain_before = None if parent is None else parent.record.chain
        chain = _chain_key(handle.scope, chain_before, step, view_after)
        record = structs.replace(record, chain=chain)
    has_turn = not isinstance(step, LinesStep)
    return PlannedCommit(record, entries, view_after, draft.messages, is_reworded, has_turn)


def _created(handle: Handle, step: Step, parent: PlannedCommit | None) -> float:
    """The time of a step; a step without one has the time of the step before it."""
    if step.created is not None:
        return step.created
    return handle.clock() if parent is None else parent.record.created


def _is_any_reworded(commits: Mapping[str, PlannedCommit]) -> bool:
    """Whether a hook changed any of these commits."""
    return any(commit.is_reworded for commit in commits.values())


def _run_hooks(handle: Handle, draft: Draft) -> Draft:
    """The draft after the hooks, without the source lines if a hook changed its messages."""
    result = handle.run_before_hooks(draft)
    messages = without_attachments(result.messages)
    is_same = (
        messages == without_attachments(draft.messages)
        and result.messages[len(messages) :] == draft.messages[len(messages) :]
    )
    return result if is_same else structs.replace(result, messages=messages)


def _step_draft(step: Step, view: View, commits: Mapping[str, PlannedCommit]) -> Draft:
    match step:
        case MessageStep():
            return Draft(
                "append",
                Append(step.kind, step.priority),
                (step.message,),
                step.note,
                step.metadata,
                step.generation_config,
                step.usage,
            )
        case CompactionStep():
            planned = plan_rewrite(view.rows, _compacted_rows(step, view, commits))
            return Draft("compact", planned.op, planned.messages, step.note, step.metadata)
        case SetupStep():
            return Draft("setup", step.setup)
        case LinesStep():
            return Draft("splice", Rewrite(), (), f"{len(step.lines)} lines kept aside")


def _compacted_rows(
    step: CompactionStep, view: View, commits: Mapping[str, PlannedCommit]
) -> list[Row]:
    """The rows after a compaction; rows that it keeps unchanged keep their slots."""
    rows_by_id = {row.id: row for row in view.rows}
    unused = list(view.rows)
    rows: list[Row] = []
    for item in step.rows:
        if isinstance(item, str):  # the key of a step
            row = rows_by_id.get(commits[item].record.id)
        else:
            row = next((row for row in unused if row.message == item), None)
        if row is not None and row in unused:
            unused.remove(row)
            rows.append(row)
        elif not isinstance(item, str):
            rows.append(Row(None, item, "normal", "summary"))
    return rows


def _chain_key(
    scope: str, chain_before: bytes | None, step: Step, view_after: View
) -> bytes | None:
    """The chain key after a step, by which the gateway recognises an imported conversation."""
    match step:
        case MessageStep():
            message = step.message
            if not is_visible(Row(None, message, step.priority, step.kind)) or is_system(message):
                return chain_before
            return chain_message(chain_before or empty_chain(scope), message)
        case CompactionStep():
            rows = visible_rows(view_after.rows)
            links = list(chain_messages(scope, (row.message for row in rows)))
            return links[-1] if links else None
        case _:
            return chain_before


def _keys_up_to(plan: ImportPlan, key: str) -> list[str]:
    """The keys of the steps from the first one to this one."""
    parents = {step.key: step.parent for step in plan.steps}
    keys: list[str] = []
    current: str | None = key
    while current is not None:
        keys.append(current)
        current = parents[current]
    return keys[::-1]


def _place_branch(
    handle: Handle,
    plan: ImportPlan,
    name: str,
    keys: Sequence[str],
    commits: Mapping[str, PlannedCommit],
) -> Placement:
    """Where a branch of the file is written; `keys` are the keys of its steps."""
    chain = tuple(commits[key] for key in keys)
    head = handle.store.read_ref(handle.name, name)
    is_empty_thread = head is None and not handle.store.refs(handle.name)
    if is_empty_thread or head == chain[-1].record.id:
        return Placement(name, chain)
    if head is not None and (
        _is_older_import(handle, head, chain, plan) or _is_prefix(handle, head, chain)
    ):
        return Placement(name, chain)  # the file has grown: the branch moves forward
    if handle.store.read_nodes(handle.name, [_last_turn(chain).record.id]):
        # The thread has the file's last turn. Only a missing branch has to be written.
        return Placement(name, () if head is not None else chain)
    aligned = _align_branch(handle, chain)
    if aligned is not None and aligned.is_complete:
        return Placement(aligned.branch)
    is_main = name == next(iter(plan.branches))
    if aligned is not None and is_main:
        remaining = _plan_remaining(handle, plan, keys, aligned, commits)
        if remaining:
            branch = aligned.branch if aligned.is_tip else _free_name(handle, name, remaining[-1])
            return Placement(branch, remaining)
    return Placement(name if head is None else _free_name(handle, name, chain[-1]), chain)


class _Alignment(Struct, frozen=True):
    """The part of a file that a branch of the thread has.

    It ends at `commit` in the branch, and at the message `last` in the file. `is_tip`: `commit` is
    the head of the branch. `is_complete`: the branch has the whole file.
    """

    branch: str
    commit: Id
    last: Id
    is_tip: bool
    is_complete: bool


def _align_branch(handle: Handle, chain: Sequence[PlannedCommit]) -> _Alignment | None:
    """The branch that has most of the file's messages; `None` if no branch has an answer of it.

    The client does not know about a compaction or an edit in Weft, so a branch is also compared
    as it was appended.
    """
    planned = _dialogue(chain[-1].view)
    branches = read_branches(handle.store, handle.name)
    names = [handle.branch, *(name for name in reversed(branches) if name != handle.branch)]
    best: tuple[int, _Alignment] | None = None  # with the number of aligned messages
    for name in [name for name in names if name in branches][:MAX_CANDIDATES]:
        head = branches[name]
        for stored in (_dialogue(handle.view(head)), _appended_dialogue(handle, head)):
            stored_count, planned_count = align_turns(
                [m for _, m in stored], [m for _, m in planned]
            )
            if not planned_count or (best is not None and planned_count <= best[0]):
                continue
            is_tip = stored_count == len(stored)
            commit = head if is_tip else stored[stored_count - 1][0]
            if handle.store.read_nodes(handle.name, [commit]):
                last = planned[planned_count - 1][0]
                alignment = _Alignment(name, commit, last, is_tip, planned_count == len(planned))
                best = (planned_count, alignment)
    return None if best is None else best[1]


def _appended_dialogue(handle: Handle, head: Id) -> list[tuple[Id, Message]]:
    """The messages that were appended to a branch, without system messages, each with its slot.

    Empty if nothing was rewritten: the view has the same messages.
    """
    steps = list(handle.store.walk(handle.name, head))
    if all(step.commit.kind in ("append", "setup") for step in steps):
        return []
    appended = [step for step in steps if step.commit.kind == "append"]
    return _dialogue(View().extend(appended))


def _dialogue(view: View) -> list[tuple[Id, Message]]:
    """The messages of a view without system messages, each with its slot."""
    return [
        (row.id, row.message)
        for row in visible_rows(view.rows)
        if row.id is not None and not is_system(row.message)
    ]


def _plan_remaining(
    handle: Handle,
    plan: ImportPlan,
    keys: Sequence[str],
    aligned: _Alignment,
    commits: Mapping[str, PlannedCommit],
) -> tuple[PlannedCommit, ...]:
    """The commits of the steps after the aligned ones, on top of the thread's own.

    Empty if one of them is a compaction: it refers to messages of the file by their commits.
    """
    number = next(n for n, key in enumerate(keys) if commits[key].record.id == aligned.last)
    steps = {step.key: step for step in plan.steps}
    steps_left = [steps[key] for key in keys[number + 1 :]]
    if any(isinstance(step, CompactionStep) for step in steps_left):
        return ()
    (base,) = handle.store.read_commits(handle.name, [aligned.commit])
    view = handle.view(aligned.commit)
    planned = {keys[number]: PlannedCommit(base.commit, (), view, ())}
    for step in steps_left:
        planned[step.key] = _plan_commit(handle, plan.format, plan.name or "", step, planned)
    return tuple(planned[step.key] for step in steps_left)


def _last_turn(chain: Sequence[PlannedCommit]) -> PlannedCommit:
    """The last commit that is more than a file's trailing lines."""
    return next((commit for commit in reversed(chain) if commit.has_turn), chain[-1])


def _free_name(handle: Handle, name: str, last: PlannedCommit) -> str:
    """A free name for a branch whose own name is in use."""
    while handle.store.read_ref(handle.name, name) not in (None, last.record.id):
        candidate = f"import-{last.record.id.hex()[:8]}"
        name = candidate if not name.startswith("import-") else f"{name}-again"
    return name


def _check_budget(handle: Handle, branch: str, after: View) -> None:
    """Raise or warn if the imported branch is over the budget."""
    if handle.budget is not None:
        before = handle.view(handle.store.read_ref(handle.name, branch))
        handle.budget.check(before.tokens(handle.count), after.tokens(handle.count))


def _missing_commits(handle: Handle, commits: Sequence[PlannedCommit]) -> list[Id]:
    """The commits that the thread does not have yet, in order."""
    ids = list(dict.fromkeys(commit.record.id for commit in commits))
    existing_ids = {node.id for node in handle.store.read_nodes(handle.name, ids)}
    return [id for id in ids if id not in existing_ids]


def _land_branch(handle: Handle, name: str, chain: Sequence[PlannedCommit]) -> None:
    """Write a branch's commits and move its ref, unless it is already there."""
    head, target = handle.store.read_ref(handle.name, name), chain[-1].record.id
    if head == target:
        return
    handle.write_landing(
        Landing(
            verb=IMPORT,
            ref=name,
            old=head,
            new=target,
            created=handle.clock(),
            entries=tuple(entry for commit in chain for entry in commit.entries),
            commits=tuple(commit.record for commit in chain),
            checkpoints=checkpoint_ids(message for commit in chain for message in commit.messages),
        ),
    )


def _is_older_import(
    handle: Handle, head: Id, chain: Sequence[PlannedCommit], plan: ImportPlan
) -> bool:
    """Whether the branch has no commits except the plan's and an older import of this file.

    Session files only grow. A copy that lacks lines of the earlier import is the older one.
    """
    planned_ids = {commit.record.id for commit in chain}
    if head in planned_ids:
        return True
    if not plan.name:
        return False
    lines = {(line.number, line.text) for step in plan.steps for line in step.lines}
    for step in reversed(handle.store.walk(handle.name, head)):
        if step.commit.id in planned_ids:
            return True
        source = read_source_lines(step)
        if source is None or source.source != plan.name:
            return False
        if not all((line.number, line.text) in lines for line in source.lines):
            return False
    return True


def _is_prefix(handle: Handle, head: Id, chain: Sequence[PlannedCommit]) -> bool:
    """Whether the branch is an older import of a shorter version of this file.

    For files without a session name. The last commit of the old import may differ, because it has
    the whole file attached.
    """
    steps = handle.store.walk(handle.name, head)
    last = len(steps) - 1
    if last >= len(chain) or read_source_lines(steps[last]) is None:
        return False
    earlier_ids = [commit.record.id for commit in chain[:last]]
    last_entry = [data for _, data in chain[last].entries][:1]
    return [step.commit.id for step in steps[:last]] == earlier_ids and (
        list(steps[last].contents[:1]) == last_entry
    )
