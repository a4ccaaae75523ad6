"""From what a person types to the object that is meant.

A revision is a branch, a tag, an id or the beginning of one, or `HEAD` for the tip of the branch
at hand; behind each may stand `~N`, the commit so many before it, and `^`, the one before it (`^2`
is what a merge brought in). No branch or tag can be called so: its name may hold neither sign.
"""

import re
from collections.abc import Sequence
from datetime import datetime

from weft.errors import Ambiguous, NotFound, ThreadError, WrongValue
from weft.history import TAG, Append, Rewrite, Row, View, decode_body, new_slot, read_rows
from weft.ids import SIZE, Id

from .arguments import check_name as check_line, check_text
from .handle import Handle
from .info import CommitInfo

HEX = frozenset("0123456789abcdef")
FULL = 2 * SIZE
SHORTEST = 4  # digits of an id, where words may be meant as well
MICROSECOND = 1e-6
PAGE = 64  # how many commits are looked through for a time, before many more
HEAD = "HEAD"
REVISION = re.compile(r"(?P<base>[^~^]*)(?P<steps>(?:[~^][0-9]{0,9})*)")
STEP = re.compile(r"([~^])([0-9]*)")
NAMES = "it takes a branch, a tag, the beginning of an id, or HEAD, each also with ~N or ^ behind"
FORBIDDEN = frozenset(" ~^:?*[\\\t\n\r\x7f")

Name = str | CommitInfo
At = Name | datetime | float | None


def resolve_commit(handle: Handle, at: At) -> Id | None:
    """The commit of a branch, a tag, an id or its prefix, a time; the head where none is named."""
    match at:
        case None:
            return handle.head()
        case CommitInfo(id=id):
            return _only(handle, id)
        case str():
            return _revision(handle, at)
        case datetime():
            return _commit_at(handle, at.timestamp())
        case int() | float() if not isinstance(at, bool):
            return _commit_at(handle, float(at))
        case _:
            raise WrongValue("at", f"must name a commit or a time, not be {at!r}")


def require_commit(handle: Handle, at: Name) -> Id:
    """The commit that is meant; raises `NotFound` where the thread is empty."""
    found = resolve_commit(handle, at)
    if found is None:
        raise NotFound("commit", str(at), NAMES)
    return found


def resolve_row(handle: Handle, view: View, name: Name) -> Row:
    """The line that is meant: by its own id, or by a commit that touched it alone."""
    typed = _typed(_named(handle, name))
    slots = [row for row in view.rows if row.id is not None and row.id.hex().startswith(typed)]
    commits = handle.store.find(handle.name, typed)
    ids = {row.id.hex() for row in slots if row.id is not None} | {id.hex() for id in commits}
    if len(ids) > 1:
        raise Ambiguous(typed, tuple(sorted(ids)))
    if slots:
        return slots[0]
    touched = _touched_slots(handle, commits)
    row = view.find(touched[0]) if len(touched) == 1 else None
    if row is None:
        raise NotFound("message", str(name), NAMES)
    return row


def read_row(handle: Handle, name: Name) -> Row:
    """The line of the branch that is meant; a whole id finds it without compiling the list."""
    head, typed = handle.head(), _typed(_named(handle, name))
    if head is not None and len(typed) == FULL and not handle.has_view(head):
        slot = bytes.fromhex(typed)
        lines = read_rows(handle.store, handle.name, head, [slot])
        if lines is not None and slot in lines:
            return lines[slot]
    return resolve_row(handle, handle.view(head), name)


def find_row(handle: Handle, wanted: Name) -> Row | None:
    """The line that is meant, where words may be meant as well: what is short, or begins more than
    one id, are words."""
    if isinstance(wanted, str) and len(wanted.strip()) < SHORTEST:
        return None
    try:
        return read_row(handle, wanted)
    except (NotFound, Ambiguous):
        return None


def check_name(name: str, kind: str = "branch") -> str:
    """The name, if a branch or a tag may have it; the rules are git's."""
    wrong = (
        not check_line(kind, name)
        or name == HEAD
        or name.startswith((".", "-", "/"))
        or name.endswith((".", ".lock", "/"))
        or ".." in name
        or any(sign in FORBIDDEN for sign in name)
    )
    if wrong:
        raise ThreadError(f"{name!r} is not a name for a {kind}")
    return name


def _revision(handle: Handle, name: str) -> Id | None:
    """The commit of a name and the steps back behind it; `None` for `HEAD` where nothing is."""
    parts = REVISION.fullmatch(name.strip())
    if parts is None or not parts["steps"]:
        return _commit_named(handle, name)
    found = _commit_named(handle, parts["base"] or HEAD)
    for sign, digits in STEP.findall(parts["steps"]):
        count = int(digits or 1)
        found = _back(handle, found, count) if sign == "~" else _parent(handle, found, count)
        if found is None:
            raise NotFound("commit", name, NAMES)
    return found


def _commit_named(handle: Handle, name: str) -> Id | None:
    if name == HEAD:
        return handle.head()
    refs = (handle.store.read_ref(handle.name, ref) for ref in (name, TAG + name))
    return next((id for id in refs if id is not None), None) or _only(handle, name)


def _back(handle: Handle, commit: Id | None, count: int) -> Id | None:
    """The commit so many before this one, along first parents."""
    if commit is None:
        return None
    nodes = handle.store.walk_nodes(handle.name, commit, count + 1)
    return nodes[count].id if count < len(nodes) else None


def _parent(handle: Handle, commit: Id | None, number: int) -> Id | None:
    """That parent of a commit, the first being 1; 0 is the commit itself, as git has it."""
    if commit is None or number == 0:
        return commit
    (step,) = handle.store.read_commits(handle.name, [commit])
    return step.commit.parents[number - 1] if number <= len(step.commit.parents) else None


def _named(handle: Handle, name: Name) -> Name:
    """The id that a revision means; what is an id already, or words, stays as it is."""
    if not isinstance(name, str) or not (name == HEAD or "~" in name or "^" in name):
        return name
    found = _revision(handle, name)
    return name if found is None else found.hex()


def _only(handle: Handle, name: str) -> Id:
    typed = _typed(name)
    found = handle.store.find(handle.name, typed)
    if not found:
        raise NotFound("commit", name, NAMES)
    if len(found) > 1:
        raise Ambiguous(typed, tuple(id.hex() for id in found))
    return found[0]


def _typed(name: Name) -> str:
    typed = (name.id if isinstance(name, CommitInfo) else check_text("id", name)).strip().lower()
    if not typed or len(typed) > FULL or not HEX.issuperset(typed):
        raise NotFound("id", str(name), NAMES)
    return typed


def _touched_slots(handle: Handle, commits: Sequence[Id]) -> list[Id]:
    """The lines that commits said again, added or, where none, edited; a fold names none."""
    found: list[Id] = []
    for step in handle.store.read_commits(handle.name, commits):
        op = decode_body(step).op
        match op:
            case Append(slot=slot):
                found.append(slot or step.commit.id)
            case Rewrite(drop=()):
                placed = [placed for insert in op.insert for placed in insert.rows]
                added = [p.slot or new_slot(step.commit.id, n) for n, p in enumerate(placed)]
                found += added or [change.slot for change in op.change]
            case _:
                pass
    return found


def _commit_at(handle: Handle, moment: float) -> Id | None:
    """The newest commit of the branch that was there at that time; reads no further back."""
    head = handle.head()
    until = moment + MICROSECOND  # a `datetime` is no finer, and may have been rounded down
    limit = PAGE
    while head is not None:
        steps = handle.store.walk(handle.name, head, limit=limit)
        for step in reversed(steps):
            if step.commit.created < until:
                return step.commit.id
        if len(steps) < limit:
            break
        limit *= PAGE
    return None
