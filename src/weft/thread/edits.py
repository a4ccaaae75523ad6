"""The verbs that change lines in place: edit, priorities, notes, restore, revert.

Each plans a new list of lines and commits the difference; what the plan does not mention stays
as it is, byte by byte. With `preview` the plan is looked at and not landed.
"""

from collections.abc import Callable, Sequence

from msgspec import structs

from weft.errors import MergeConflict, NotFound, ThreadError
from weft.history import (
    AnyConflict,
    Append,
    Change,
    CommitKind,
    Draft,
    Priority,
    Rewrite,
    Row,
    State,
    edit_text,
    merge_states,
    plan_state,
    read_writers,
    restore_original_order,
)
from weft.ids import Id
from weft.model import JsonObject, Message, Text, is_system

from .arguments import check_beside, check_name, check_priority, check_text
from .handle import Handle, Plan
from .info import CommitInfo, read_info
from .lineage import read_versions
from .merge import Strategy, conflict_chooser
from .preview import Preview, preview_state
from .resolve import Name, require_commit, resolve_row

# """Remarks beside commits and lines: for people, never for a model.
#
# A note is a commit that touches no line. So it belongs to its branch, is undone, exported and
# checked like everything else, and the log shows when it was made.
# """


def note(handle: Handle, about: Name, text: str) -> CommitInfo:
    """Say something about a commit or a line."""
    if not check_text("text", text).strip():
        raise ThreadError("a note needs words")

    def plan(head: Id | None) -> tuple[Draft, tuple[Id, ...]]:
        target = _about(handle, head, about)
        return Draft("note", Rewrite(), (), text, {"about": target.hex()}), ()

    return handle.land("note", plan)


def notes(handle: Handle, about: Name | None = None) -> list[CommitInfo]:
    """The notes of the branch and of all that was merged into it, oldest first; `about` leaves
    those on one commit or line."""
    head = handle.head()
    wanted = None if about is None else _about(handle, head, about).hex()
    steps = [] if head is None else read_writers(handle.store, handle.name, head, ())
    steps.sort(key=lambda step: step.commit.created)
    found = [read_info(s, handle.count) for s in steps if s.commit.kind == "note"]
    said = [info for info in found if "about" in info.metadata]
    return [info for info in said if wanted in (None, info.metadata["about"])]


def _about(handle: Handle, head: Id | None, name: Name) -> Id:
    """The line that is meant, or the commit where no line is."""
    try:
        row = resolve_row(handle, handle.view(head), name)
    except NotFound:
        return require_commit(handle, name)
    assert row.id is not None
    return row.id


def carry_out(handle: Handle, verb: str, plan: Plan, preview: bool) -> CommitInfo | Preview:
    """Land a plan, or say what it would come to."""
    if preview:
        return preview_state(handle, verb, handle.simulate(plan))
    return handle.land(verb, plan)


def edit(
    handle: Handle,
    name: Name,
    text: str,
    *,
    note: str | None = None,
    metadata: JsonObject | None = None,
    preview: bool = False,
) -> CommitInfo | Preview:
    """Give a line other words; its calls, media and results stay."""
    check_text("text", text)
    check_beside(message=note, metadata=metadata)

    def change(row: Row) -> Row:
        return structs.replace(row, message=edit_text(row.message, text))

    return carry_out(
        handle, "edit", _plan_row(handle, "edit", name, change, note, metadata), preview
    )


def annotate(
    handle: Handle, name: Name, priority: Priority, *, preview: bool = False
) -> CommitInfo | Preview:
    """Give a line another priority on this branch."""
    check_priority(priority)

    def change(row: Row) -> Row:
        return structs.replace(row, priority=priority)

    plan = _plan_row(handle, "annotate", name, change, None, None)
    return carry_out(handle, "annotate", plan, preview)


def directive(handle: Handle, name: str, text: str) -> CommitInfo:
    """Say a named instruction: in place of the one of that name, or at the end."""
    if not check_name("name", name).strip():
        raise ThreadError("a directive needs a name")
    check_text("text", text)
    said = Message("system", (Text(text),), name=name)
    note = f"directive {name}"

    def plan(head: Id | None) -> tuple[Draft, tuple[Id, ...]]:
        for row in handle.view(head).rows:
            if row.message.name == name and is_system(row.message) and row.id is not None:
                op = Rewrite(change=(Change(row.id, 0, "pinned"),))
                return Draft("edit", op, (said,), note), ()
        return Draft("append", Append("instruction", "pinned"), (said,), note), ()

    return handle.land("directive", plan)


def restore(
    handle: Handle, name: Name, version: int, *, preview: bool = False
) -> CommitInfo | Preview:
    """Give a line the words it had in one of its versions, everything else of it included."""
    row = resolve_row(handle, handle.view(handle.head()), name)
    versions = read_versions(handle, row.id)
    if not 0 <= version < len(versions):
        raise ThreadError(f"there is no version {version}: {name} has 0 to {len(versions) - 1}")
    wanted = versions[version]

    def change(row: Row) -> Row:
        return structs.replace(row, message=wanted.message)

    record: JsonObject = {"restores": wanted.commit}
    note = f"restore version {version}"
    return carry_out(handle, "edit", _plan_row(handle, "edit", name, change, note, record), preview)


def revert(
    handle: Handle, name: Name, strategy: Strategy = None, *, preview: bool = False
) -> CommitInfo | Preview:
    """Take one commit's change back from the present list; what came after it stays."""
    target = require_commit(handle, name)
    (step,) = handle.store.read_commits(handle.name, [target])
    parents = step.commit.parents
    made, before = handle.view(target), handle.view(parents[0] if parents else None)
    choose = conflict_chooser(strategy)

    def plan(head: Id | None) -> tuple[Draft, tuple[Id, ...]]:
        view = handle.view(head)
        merged = merge_states(made.state, view.state, before.state, choose)
        if merged.conflicts:
            line = f"{target.hex()[:12]} cannot be taken back: {_changed_since(merged.conflicts)}"
            raise MergeConflict(line, merged.conflicts)
        rows = _in_order(handle, head, target, merged.rows)
        planned = plan_state(view.state, State(rows, merged.setup))
        if not planned:
            raise ThreadError(f"nothing of {target.hex()[:12]} is left here to take back")
        note = f"revert {step.commit.kind} {target.hex()[:12]}"
        return Draft("revert", planned.op, planned.messages, note, {"reverts": target.hex()}), ()

    return carry_out(handle, "revert", plan, preview)


def _plan_row(
    handle: Handle,
    kind: CommitKind,
    name: Name,
    change: Callable[[Row], Row],
    note: str | None,
    metadata: JsonObject | None,
) -> Plan:
    """A change to one line, looked up again whenever the head has moved."""

    def plan(head: Id | None) -> tuple[Draft, tuple[Id, ...]]:
        row = resolve_row(handle, handle.view(head), name)
        assert row.id is not None
        new = change(row)
        words = new.message != row.message
        op = Change(row.id, 0 if words else None, _unless(new.priority, row.priority))
        messages = (new.message,) if words else ()
        return Draft(kind, Rewrite(change=(op,)), messages, note, metadata), ()

    return plan


def _in_order(handle: Handle, head: Id | None, target: Id, rows: Sequence[Row]) -> Sequence[Row]:
    """The lines as they were said; only a revert that gives lines back has any to place."""
    view = handle.view(head)
    if head is None or all(row.id is None or view.find(row.id) for row in rows):
        return rows
    return restore_original_order(
        handle.store, handle.name, head, target, rows, lambda at: handle.view(at).rows
    )


def _unless(new: Priority, old: Priority) -> Priority | None:
    return None if new == old else new


def _changed_since(conflicts: Sequence[AnyConflict]) -> str:
    return ", ".join(f"{conflict.place} was changed since" for conflict in conflicts)
