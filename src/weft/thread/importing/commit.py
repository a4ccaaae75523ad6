"""Turns the plan of an import into commits. The same plan gives the same commit ids in every store.

All branches are written in one transaction, with one log entry for each branch, so `undo` reverts
the import of a branch. Commits that the thread already has are not written again: importing a file
twice changes nothing.

If the file grew since its last import, its branch moves forward. If the user committed to the
branch, it stays as it is, and the import creates a branch with another name.

New commits go through the handle's hooks, and each branch through its budget, before anything is
written. If one of them raises, nothing is imported. If a hook changes a message, the original line
is not stored, and neither is the whole file: both still contain what the hook removed.
"""

from collections.abc import Mapping

from msgspec import Struct, structs

from weft.history import (
    Append,
    Draft,
    Rewrite,
    Row,
    View,
    chain_message,
    chain_messages,
    encode_commit,
    first_link,
    index_behind,
    plan_rewrite,
    show_rows,
    shows,
)
from weft.ids import Id
from weft.model import Checkpoint, Message, is_system
from weft.store import CommitRecord, Landing, Step as StoredStep
from weft.thread.handle import Handle
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
    """The commit of a step, and the view after it; `is_reworded`: a hook changed its messages."""

    record: CommitRecord
    entries: tuple[tuple[Id, bytes], ...]
    view: View
    messages: tuple[Message, ...]
    is_reworded: bool = False


class CommittedPlan(Struct, frozen=True):
    """The heads of the imported branches; `new` counts the commits that the thread did not have."""

    branches: Mapping[str, str]
    renamed: Mapping[str, str]
    new: int


def commit_plan(
    handle: Handle, plan: ImportPlan, progress: Progress | None = None
) -> CommittedPlan:
    """Commit a plan to the handle's thread; if it raises, nothing is written."""
    source = plan.name or ""
    with handle.lock, handle.store.transaction():
        commits = _plan_commits(handle, plan, source, progress)
        chains = {
            name: [commits[key] for key in _chain_of(plan, last)]
            for name, last in plan.branches.items()
        }
        targets = {name: chain[-1].record.id for name, chain in chains.items()}
        names = {name: _free_name(handle, name, chains[name], source) for name in chains}
        for name, to in names.items():
            _check_budget(handle, to, chains[name][-1].view)
        fresh = _missing_commits(handle, commits) if handle.after else []
        before = handle.store.count(handle.name)
        for name, to in names.items():
            _land_branch(handle, to, targets[name], chains[name])
        new = handle.store.count(handle.name) - before
        for id in fresh:
            handle.run_after_hooks(handle.info(id))
    if new:
        index_behind(handle.store)
    branches = {names[name]: target.hex() for name, target in targets.items()}
    return CommittedPlan(branches, {name: to for name, to in names.items() if to != name}, new)


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
    above = None if step.parent is None else commits[step.parent]
    view = View() if above is None else above.view
    draft = _draft(step, view, commits)
    if step.lines and not (
        isinstance(step, MessageStep) and step.is_file and _is_any_reworded(commits)
    ):
        extra = write_source_lines(SourceLines(format, source, step.lines))
        draft = structs.replace(draft, messages=(*draft.messages, extra))
    created = handle.clock() if step.created is None else step.created
    parents = () if above is None else (above.record.id,)
    record, entries = encode_commit(draft, parents, created=created)
    reworded = False
    if handle.before and not handle.store.read_nodes(handle.name, [record.id]):
        original, draft = draft, _run_hooks(handle, draft)
        reworded = without_attachments(draft.messages) != without_attachments(original.messages)
        record, entries = encode_commit(draft, parents, created=created)
    stored = StoredStep(record, view.depth + 1, tuple(data for _, data in entries))
    after = view.extend([stored])
    if handle.scope is not None:
        before = None if above is None else above.record.chain
        record = structs.replace(record, chain=_link(handle.scope, before, step, after))
    return PlannedCommit(record, entries, after, draft.messages, reworded)


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


def _draft(step: Step, view: View, commits: Mapping[str, PlannedCommit]) -> Draft:
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
    present = {row.id: row for row in view.rows}
    free = list(view.rows)
    rows: list[Row] = []
    for item in step.rows:
        if isinstance(item, str):
            row = present.get(commits[item].record.id)
        else:
            row = next((row for row in free if row.message == item), None)
        if row is not None and row in free:
            free.remove(row)
            rows.append(row)
        elif not isinstance(item, str):
            rows.append(Row(None, item, "normal", "summary"))
    return rows


def _link(scope: str, before: bytes | None, step: Step, after: View) -> bytes | None:
    """The chain key after a step, by which the gateway recognises an imported conversation."""
    match step:
        case MessageStep():
            message = step.message
            if not shows(Row(None, message, step.priority, step.kind)) or is_system(message):
                return before
            return chain_message(before or first_link(scope), message)
        case CompactionStep():
            rows = show_rows(after.rows)
            links = list(chain_messages(scope, (row.message for row in rows)))
            return links[-1] if links else None
        case _:
            return before


def _chain_of(plan: ImportPlan, key: str) -> list[str]:
    """The keys of the steps from the first one to this one."""
    parents = {step.key: step.parent for step in plan.steps}
    chain: list[str] = []
    at: str | None = key
    while at is not None:
        chain.append(at)
        at = parents[at]
    return chain[::-1]


def _free_name(handle: Handle, name: str, chain: list[PlannedCommit], source: str) -> str:
    """A branch name that the import may create or move."""
    target, planned_ids = chain[-1].record.id, {commit.record.id for commit in chain}
    while True:
        head = handle.store.read_ref(handle.name, name)
        if head is None or head == target or _is_older_import(handle, head, planned_ids, source):
            return name
        if _is_prefix(handle, head, chain):
            return name
        name = f"import-{target.hex()[:8]}" if not name.startswith("import-") else f"{name}-again"


def _check_budget(handle: Handle, branch: str, after: View) -> None:
    """Raise or warn if the imported branch is over the budget."""
    if handle.budget is not None:
        before = handle.view(handle.store.read_ref(handle.name, branch))
        handle.budget.check(before.tokens(handle.count), after.tokens(handle.count))


def _missing_commits(handle: Handle, commits: Mapping[str, PlannedCommit]) -> list[Id]:
    """The commits that the thread does not have yet, in order."""
    ids = list(dict.fromkeys(commit.record.id for commit in commits.values()))
    known = {node.id for node in handle.store.read_nodes(handle.name, ids)}
    return [id for id in ids if id not in known]


def _land_branch(handle: Handle, name: str, target: Id, chain: list[PlannedCommit]) -> None:
    """Write a branch's commits and move its ref, unless it is already there."""
    head = handle.store.read_ref(handle.name, name)
    if head == target:
        return
    handle.write_landing(
        Landing(
            verb="import",
            ref=name,
            old=head,
            new=target,
            created=handle.clock(),
            entries=tuple(entry for commit in chain for entry in commit.entries),
            commits=tuple(commit.record for commit in chain),
            checkpoints=tuple(
                block.id
                for commit in chain
                for message in commit.messages
                for block in message.blocks
                if isinstance(block, Checkpoint)
            ),
        ),
    )


def _is_older_import(handle: Handle, head: Id, planned_ids: set[Id], source: str) -> bool:
    """Whether the branch has no commits except the plan's and an older import of this source."""
    if head in planned_ids:
        return True
    if not source:
        return False
    for step in reversed(handle.store.walk(handle.name, head)):
        if step.commit.id in planned_ids:
            return True
        if not _came_from(step, source):
            return False
    return True


def _is_prefix(handle: Handle, head: Id, chain: list[PlannedCommit]) -> bool:
    """Whether the branch is an older import of a shorter version of this file.

    For files without a session name. The last commit of the old import may differ, because it has
    the whole file attached.
    """
    steps = handle.store.walk(handle.name, head)
    last = len(steps) - 1
    if last >= len(chain) or read_source_lines(steps[last]) is None:
        return False
    before = [commit.record.id for commit in chain[:last]]
    message = [data for _, data in chain[last].entries][:1]
    return [step.commit.id for step in steps[:last]] == before and (
        list(steps[last].contents[:1]) == message
    )


def _came_from(step: StoredStep, source: str) -> bool:
    attached = read_source_lines(step)
    return attached is not None and attached.source == source
