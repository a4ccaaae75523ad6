"""Resolves names to commits and messages.

A revision is a branch, a tag, an id or its beginning, or `HEAD` for the tip of the current branch.
Suffixes work as in git: `~N` is the N-th first-parent ancestor, `^` the first parent, `^2` the
second parent of a merge. Branch and tag names cannot contain these characters.
"""

from collections.abc import Sequence
from datetime import datetime

from weft.errors import Ambiguous, NotFound, ThreadError, WrongValue
from weft.history import TAG, Append, Rewrite, Row, View, compile_slots, decode_body, new_slot
from weft.ids import SIZE, Id
from weft.lazy import lazy_pattern

from .arguments import check_name, check_text
from .handle import Handle
from .info import CommitInfo

HEX = frozenset("0123456789abcdef")
FULL = 2 * SIZE
SHORTEST = 4  # the shortest id prefix where a text search is possible too
MICROSECOND = 1e-6
PAGE = 64  # how many commits to read first when looking for a time
HEAD = "HEAD"
REVISION = lazy_pattern(r"(?P<base>[^~^]*)(?P<steps>(?:[~^][0-9]{0,9})*)")
STEP = lazy_pattern(r"([~^])([0-9]*)")
NAMES = "give a branch, a tag, the beginning of an id, or HEAD, optionally followed by ~N or ^"
FORBIDDEN = frozenset(" ~^:?*[\\\t\n\r\x7f")
NAME_RULES = (
    "it must not be empty or HEAD, contain spaces, `..` or one of ~^:?*[\\, begin with . - /, or "
    "end with . / .lock"
)

Name = str | CommitInfo
At = Name | datetime | float | None


def resolve_commit(handle: Handle, at: At) -> Id | None:
    """The commit of a revision or a time; the head for `None`."""
    match at:
        case None:
            return handle.head()
        case CommitInfo(id=id):
            return _unique(handle, id)
        case str():
            return _revision(handle, at)
        case datetime():
            return _commit_at(handle, at.timestamp())
        case int() | float() if not isinstance(at, bool):
            return _commit_at(handle, float(at))
        case _:
            raise WrongValue("at", f"must be a commit name or a time, not {at!r}")


def require_commit(handle: Handle, at: Name) -> Id:
    """The commit of a revision; raises `NotFound` if the thread is empty."""
    commit = resolve_commit(handle, at)
    if commit is None:
        raise NotFound("commit", str(at), NAMES)
    return commit


def resolve_row(handle: Handle, view: View, name: Name) -> Row:
    """The row with this id, or the only row that the commit with this id changed."""
    prefix = _id_prefix(_expand(handle, name))
    slots = [row for row in view.rows if row.id is not None and row.id.hex().startswith(prefix)]
    commits = handle.store.find(handle.name, prefix)
    ids = {row.id.hex() for row in slots if row.id is not None} | {id.hex() for id in commits}
    if len(ids) > 1:
        raise Ambiguous(prefix, tuple(sorted(ids)))
    if slots:
        return slots[0]
    changed = _changed_slots(handle, commits)
    row = view.find(changed[0]) if len(changed) == 1 else None
    if row is None:
        raise NotFound("message", str(name), _why_no_row(handle, commits))
    return row


def _why_no_row(handle: Handle, commits: Sequence[Id]) -> str:
    """Why a commit has no message in what is sent: it is a compaction, or is folded into one."""
    steps = handle.store.read_commits(handle.name, commits)
    if len(steps) == 1 and steps[0].commit.kind == "compact":
        return "it is a compaction, and its summary is not a message of its own"
    head = handle.head()
    if steps and head is not None and handle.store.read_depths(handle.name, head, commits):
        return "it is folded into a summary, or a later commit removed it"
    return NAMES


def read_row(handle: Handle, name: Name) -> Row:
    """The row with this name on the branch; a full id needs no compile."""
    head, prefix = handle.head(), _id_prefix(_expand(handle, name))
    if head is not None and len(prefix) == FULL and not handle.has_view(head):
        slot = bytes.fromhex(prefix)
        row = compile_slots(handle.store, handle.name, head, [slot]).get(slot)
        if row is not None:
            return row
    return resolve_row(handle, handle.view(head), name)


def find_row(handle: Handle, name: Name) -> Row | None:
    """The row with this name; `None` if there is none, or the name is too short or ambiguous."""
    if isinstance(name, str) and len(name.strip()) < SHORTEST:
        return None
    try:
        return read_row(handle, name)
    except (NotFound, Ambiguous):
        return None


def check_ref_name(name: str, kind: str = "branch") -> str:
    """The name, if a branch or a tag can have it; the rules are git's."""
    is_invalid = (
        not check_name(kind, name)
        or name == HEAD
        or name.startswith((".", "-", "/"))
        or name.endswith((".", ".lock", "/"))
        or ".." in name
        or any(sign in FORBIDDEN for sign in name)
    )
    if is_invalid:
        raise ThreadError(f"{name!r} is not a valid name for a {kind}: {NAME_RULES}")
    return name


def _revision(handle: Handle, name: str) -> Id | None:
    """The commit of a name with its suffixes; `None` for `HEAD` of an empty branch."""
    parts = REVISION.fullmatch(name.strip())
    if parts is None or not parts["steps"]:
        return _commit_named(handle, name)
    commit = _commit_named(handle, parts["base"] or HEAD)
    for sign, digits in STEP.findall(parts["steps"]):
        count = int(digits or 1)
        commit = _ancestor(handle, commit, count) if sign == "~" else _parent(handle, commit, count)
        if commit is None:
            raise NotFound("commit", name, NAMES)
    return commit


def _commit_named(handle: Handle, name: str) -> Id | None:
    if name == HEAD:
        return handle.head()
    refs = (handle.store.read_ref(handle.name, ref) for ref in (name, TAG + name))
    return next((id for id in refs if id is not None), None) or _unique(handle, name)


def _ancestor(handle: Handle, commit: Id | None, count: int) -> Id | None:
    """The `count`-th first-parent ancestor."""
    if commit is None:
        return None
    nodes = handle.store.walk_nodes(handle.name, commit, count + 1)
    return nodes[count].id if count < len(nodes) else None


def _parent(handle: Handle, commit: Id | None, number: int) -> Id | None:
    """The parent with this number, starting at 1; 0 is the commit itself, as in git."""
    if commit is None or number == 0:
        return commit
    (step,) = handle.store.read_commits(handle.name, [commit])
    return step.commit.parents[number - 1] if number <= len(step.commit.parents) else None


def _expand(handle: Handle, name: Name) -> Name:
    """The id of a revision with `HEAD` or a suffix; anything else stays as it is."""
    if not isinstance(name, str) or not (name == HEAD or "~" in name or "^" in name):
        return name
    commit = _revision(handle, name)
    return name if commit is None else commit.hex()


def _unique(handle: Handle, name: str) -> Id:
    prefix = _id_prefix(name)
    commits = handle.store.find(handle.name, prefix)
    if not commits:
        raise NotFound("commit", name, NAMES)
    if len(commits) > 1:
        raise Ambiguous(prefix, tuple(id.hex() for id in commits))
    return commits[0]


def _id_prefix(name: Name) -> str:
    prefix = (name.id if isinstance(name, CommitInfo) else check_text("id", name)).strip().lower()
    if not prefix or len(prefix) > FULL or not HEX.issuperset(prefix):
        raise NotFound("id", str(name), NAMES)
    return prefix


def _changed_slots(handle: Handle, commits: Sequence[Id]) -> list[Id]:
    """The slots that commits appended or inserted, or else edited; none for a compaction."""
    slots: list[Id] = []
    for step in handle.store.read_commits(handle.name, commits):
        op = decode_body(step).op
        match op:
            case Append(slot=slot):
                slots.append(slot or step.commit.id)
            case Rewrite(drop=()):
                placed = [placed for insert in op.insert for placed in insert.rows]
                added = [p.slot or new_slot(step.commit.id, n) for n, p in enumerate(placed)]
                slots += added or [change.slot for change in op.change]
            case _:
                pass
    return slots


def _commit_at(handle: Handle, moment: float) -> Id | None:
    """The newest commit of the branch at that time; reads no older commits."""
    head = handle.head()
    until = moment + MICROSECOND  # the resolution of a `datetime`, which may have been rounded down
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
