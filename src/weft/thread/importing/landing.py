"""From a script to commits: the same script gives the same ids, on every store, at any time.

All steps are planned and written in one transaction, one line in the log for each branch, so that
one `undo` takes a branch's import back. A commit that the thread has already is not written again:
importing twice moves nothing.

A branch that grew since its last import moves on. One that the user has worked on is left alone,
and the import lands beside it under another name.

What is new passes the handle's hooks, and each branch its budget, before anything is written: one
that is refused refuses the import. Where a hook says a message otherwise, the file's own line is
not kept beside it, because that line still says what the hook took out; nor is the whole file.
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

from .script import Aside, Equipped, Folded, Progress, Said, Script, Step, tell


class Made(Struct, frozen=True):
    """A step as a commit, with what it compiles to; `is_reworded`: a hook said it otherwise."""

    record: CommitRecord
    entries: tuple[tuple[Id, bytes], ...]
    view: View
    messages: tuple[Message, ...]
    is_reworded: bool = False


class Landed(Struct, frozen=True):
    """Where an import's branches ended up; `new` counts commits that the thread did not have."""

    branches: Mapping[str, str]
    renamed: Mapping[str, str]
    new: int


def land_script(handle: Handle, script: Script, progress: Progress | None = None) -> Landed:
    """Commit a script to the handle's thread; raises nothing that leaves half of it behind."""
    source = script.name or ""
    with handle.lock, handle.store.transaction():
        made = _make_all(handle, script, source, progress)
        chains = {
            name: [made[key] for key in _chain_of(script, last)]
            for name, last in script.branches.items()
        }
        targets = {name: chain[-1].record.id for name, chain in chains.items()}
        landing = {name: _free_name(handle, name, chains[name], source) for name in chains}
        for name, to in landing.items():
            _weigh(handle, to, chains[name][-1].view)
        fresh = _unknown(handle, made) if handle.after else []
        before = handle.store.count(handle.name)
        for name, to in landing.items():
            _land_branch(handle, to, targets[name], chains[name])
        new = handle.store.count(handle.name) - before
        for id in fresh:
            handle.run_after_hooks(handle.info(id))
    if new:
        index_behind(handle.store)
    branches = {landing[name]: target.hex() for name, target in targets.items()}
    return Landed(branches, {name: to for name, to in landing.items() if to != name}, new)


def _make_all(
    handle: Handle, script: Script, source: str, progress: Progress | None
) -> dict[str, Made]:
    """Every step as a commit, by its key."""
    made: dict[str, Made] = {}
    total = len(script.steps)
    for number, step in enumerate(script.steps):
        made[step.key] = _make(handle, script.format, source, step, made)
        tell(progress, 1, number, total)
    return made


def _make(handle: Handle, format: str, source: str, step: Step, made: Mapping[str, Made]) -> Made:
    """The commit of a step, and the view behind it."""
    above = None if step.parent is None else made[step.parent]
    view = View() if above is None else above.view
    draft = _draft(step, view, made)
    if step.lines and not (isinstance(step, Said) and step.is_file and _reworded(made)):
        extra = write_source_lines(SourceLines(format, source, step.lines))
        draft = structs.replace(draft, messages=(*draft.messages, extra))
    created = handle.clock() if step.created is None else step.created
    parents = () if above is None else (above.record.id,)
    record, entries = encode_commit(draft, parents, created=created)
    reworded = False
    if handle.before and not handle.store.read_nodes(handle.name, [record.id]):
        asked = _asked(handle, draft)
        draft, reworded = (
            asked,
            without_attachments(asked.messages) != without_attachments(draft.messages),
        )
        record, entries = encode_commit(draft, parents, created=created)
    stored = StoredStep(record, view.depth + 1, tuple(data for _, data in entries))
    after = view.extend([stored])
    if handle.scope is not None:
        before = None if above is None else above.record.chain
        record = structs.replace(record, chain=_link(handle.scope, before, step, after))
    return Made(record, entries, after, draft.messages, reworded)


def _reworded(made: Mapping[str, Made]) -> bool:
    """Whether a hook said any of this otherwise than the file."""
    return any(one.is_reworded for one in made.values())


def _asked(handle: Handle, draft: Draft) -> Draft:
    """The draft that the hooks let through; lines ride along only beside what they said."""
    answer = handle.run_before_hooks(draft)
    said = without_attachments(answer.messages)
    same = (
        said == without_attachments(draft.messages)
        and answer.messages[len(said) :] == draft.messages[len(said) :]
    )
    return answer if same else structs.replace(answer, messages=said)


def _draft(step: Step, view: View, made: Mapping[str, Made]) -> Draft:
    match step:
        case Said():
            return Draft(
                "append",
                Append(step.kind, step.priority),
                (step.message,),
                step.note,
                step.metadata,
                step.generation_config,
                step.usage,
            )
        case Folded():
            planned = plan_rewrite(view.rows, _folded_rows(step, view, made))
            return Draft("compact", planned.op, planned.messages, step.note, step.metadata)
        case Equipped():
            return Draft("setup", step.setup)
        case Aside():
            return Draft("splice", Rewrite(), (), f"{len(step.lines)} lines kept aside")


def _folded_rows(step: Folded, view: View, made: Mapping[str, Made]) -> list[Row]:
    """The list that a compaction left; lines that it says again keep their slots."""
    present = {row.id: row for row in view.rows}
    free = list(view.rows)
    rows: list[Row] = []
    for wanted in step.rows:
        if isinstance(wanted, str):
            row = present.get(made[wanted].record.id)
        else:
            row = next((row for row in free if row.message == wanted), None)
        if row is not None and row in free:
            free.remove(row)
            rows.append(row)
        elif not isinstance(wanted, str):
            rows.append(Row(None, wanted, "normal", "summary"))
    return rows


def _link(scope: str, before: bytes | None, step: Step, after: View) -> bytes | None:
    """The chained match key behind a step, by which the gateway finds an imported conversation."""
    match step:
        case Said():
            said = step.message
            if not shows(Row(None, said, step.priority, step.kind)) or is_system(said):
                return before
            return chain_message(before or first_link(scope), said)
        case Folded():
            rows = show_rows(after.rows)
            links = list(chain_messages(scope, (row.message for row in rows)))
            return links[-1] if links else None
        case _:
            return before


def _chain_of(script: Script, key: str) -> list[str]:
    """The keys from the beginning to this step."""
    parents = {step.key: step.parent for step in script.steps}
    chain: list[str] = []
    at: str | None = key
    while at is not None:
        chain.append(at)
        at = parents[at]
    return chain[::-1]


def _free_name(handle: Handle, name: str, chain: list[Made], source: str) -> str:
    """The name under which a branch may land."""
    target, coming = chain[-1].record.id, {made.record.id for made in chain}
    while True:
        head = handle.store.read_ref(handle.name, name)
        if head is None or head == target or _may_move(handle, head, coming, source):
            return name
        if _grew(handle, head, chain):
            return name
        name = f"import-{target.hex()[:8]}" if not name.startswith("import-") else f"{name}-again"


def _weigh(handle: Handle, branch: str, after: View) -> None:
    """Refuse, or warn of, a branch that would be above the budget."""
    if handle.budget is not None:
        before = handle.view(handle.store.read_ref(handle.name, branch))
        handle.budget.check(before.tokens(handle.count), after.tokens(handle.count))


def _unknown(handle: Handle, made: Mapping[str, Made]) -> list[Id]:
    """The commits that the thread does not have yet, in their order."""
    ids = list(dict.fromkeys(one.record.id for one in made.values()))
    known = {node.id for node in handle.store.read_nodes(handle.name, ids)}
    return [id for id in ids if id not in known]


def _land_branch(handle: Handle, name: str, target: Id, chain: list[Made]) -> None:
    """Point a branch at its last commit, if it does not yet."""
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
            entries=tuple(entry for made in chain for entry in made.entries),
            commits=tuple(made.record for made in chain),
            checkpoints=tuple(
                block.id
                for made in chain
                for message in made.messages
                for block in message.blocks
                if isinstance(block, Checkpoint)
            ),
        ),
    )


def _may_move(handle: Handle, head: Id, coming: set[Id], source: str) -> bool:
    """Whether all that the branch has beyond the import is an older import of the same source."""
    if head in coming:
        return True
    if not source:
        return False
    for step in reversed(handle.store.walk(handle.name, head)):
        if step.commit.id in coming:
            return True
        if not _came_from(step, source):
            return False
    return True


def _grew(handle: Handle, head: Id, chain: list[Made]) -> bool:
    """Whether a branch is an older import of a file without a name, which says the same and more.

    Only the last message of the two differs, because the file itself rides along with it.
    """
    steps = handle.store.walk(handle.name, head)
    last = len(steps) - 1
    if last >= len(chain) or read_source_lines(steps[last]) is None:
        return False
    before = [made.record.id for made in chain[:last]]
    said = [data for _, data in chain[last].entries][:1]
    return [step.commit.id for step in steps[:last]] == before and (
        list(steps[last].contents[:1]) == said
    )


def _came_from(step: StoredStep, source: str) -> bool:
    carried = read_source_lines(step)
    return carried is not None and carried.source == source
