"""Resolves names to commits and messages.

A revision is a branch, a tag, an id or its beginning, or `HEAD` for the tip of the current branch.
Suffixes work as in git: `~N` is the N-th first-parent ancestor, `^` the first parent, `^2` the
second parent of a merge. Branch and tag names cannot contain these characters.
"""

from collections.abc import Sequence
from datetime import datetime

from weft.errors import Ambiguous, NotFound, ThreadError, WrongValue
from weft.history import TAG, Append, Rewrite, Row, View, compile_slots, decode_body, inserted_slots
from weft.ids import SIZE, Id
from weft.lazy import lazy_pattern

from .arguments import check_name, check_text
from .handle import Handle
from .info import CommitInfo

HEX_DIGITS = frozenset("0123456789abcdef")
FULL_LENGTH = 2 * SIZE
"""The length of a whole id in hex digits."""

MIN_PREFIX = 4
"""The shortest prefix that is taken for an id where the name may also be a text to search for."""

MICROSECOND = 1e-6
FIRST_PAGE, PAGE_GROWTH = 64, 64
"""How many commits to read first in the search for a time, and the factor of the next query. It is
large because each query reads the chain from its head again."""

HEAD = "HEAD"
REVISION = lazy_pattern(r"(?P<base>[^~^]*)(?P<steps>(?:[~^][0-9]{0,9})*)")
STEP = lazy_pattern(r"([~^])([0-9]*)")
NAME_HINT = "give a branch, a tag, the beginning of an id, or HEAD, optionally followed by ~N or ^"
FORBIDDEN = frozenset(" ~^:?*[\\\t\n\r\x7f")
NAME_RULES = (
    "it must not be empty or HEAD, contain spaces, `..` or one of ~^:?*[\\, begin with . - /, or "
    "end with . / .lock"
)

Name = str | CommitInfo
"""A revision, or the id of a message."""

At = Name | datetime | float | None
"""A revision, a time (a `datetime` or seconds since 1970), or `None` for the head."""


def resolve_commit(handle: Handle, at: At) -> Id | None:
    """The commit of a revision or a time; the head for `None`."""
    match at:
        case None:
            return handle.head()
        case CommitInfo(id=id):
            return _find_by_prefix(handle, id)
        case str():
            return _resolve_revision(handle, at)
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
        raise NotFound("commit", str(at), NAME_HINT)
    return commit


def resolve_row(handle: Handle, view: View, name: Name) -> Row:
    """The row with this id, or the only row that the commit with this id changed."""
    prefix = _id_prefix(_expand_revision(handle, name))
    rows = [row for row in view.rows if row.id is not None and row.id.hex().startswith(prefix)]
    commits = handle.store.find(handle.name, prefix)
    ids = {row.id.hex() for row in rows if row.id is not None} | {id.hex() for id in commits}
    if len(ids) > 1:
        raise Ambiguous(prefix, tuple(sorted(ids)))
    if rows:
        return rows[0]
    changed = _changed_slots(handle, commits)
    row = view.find(changed[0]) if len(changed) == 1 else None
    if row is None:
        raise NotFound("message", str(name), _why_no_row(handle, commits))
    return row


def _why_no_row(handle: Handle, commits: Sequence[Id]) -> str:
    """The reason why a commit has no row: it is a compaction, or its message was removed."""
    steps = handle.store.read_commits(handle.name, commits)
    if len(steps) == 1 and steps[0].commit.kind == "compact":
        return "it is a compaction, and its summary is not a message of its own"
    head = handle.head()
    if steps and head is not None and handle.store.read_depths(handle.name, head, commits):
        return "it is folded into a summary, or a later commit removed it"
    return NAME_HINT


def read_row(handle: Handle, name: Name) -> Row:
    """The row with this name on the branch. A whole id is found without compiling the thread."""
    head, prefix = handle.head(), _id_prefix(_expand_revision(handle, name))
    if head is not None and len(prefix) == FULL_LENGTH and not handle.has_view(head):
        slot = bytes.fromhex(prefix)
        row = compile_slots(handle.store, handle.name, head, [slot]).get(slot)
        if row is not None:
            return row
    return resolve_row(handle, handle.view(head), name)


def find_row(handle: Handle, name: Name) -> Row | None:
    """The row with this name; `None` if there is none, or the name is too short or ambiguous."""
    if isinstance(name, str) and len(name.strip()) < MIN_PREFIX:
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
        or any(character in FORBIDDEN for character in name)
    )
    if is_invalid:
        raise ThreadError(f"{name!r} is not a valid name for a {kind}: {NAME_RULES}")
    return name


def _resolve_revision(handle: Handle, name: str) -> Id | None:
    """The commit of a name with its suffixes; `None` for `HEAD` of an empty branch."""
    parts = REVISION.fullmatch(name.strip())
    if parts is None or not parts["steps"]:
        return _resolve_name(handle, name)
    commit = _resolve_name(handle, parts["base"] or HEAD)
    for sign, digits in STEP.findall(parts["steps"]):
        count = int(digits or 1)
        commit = _ancestor(handle, commit, count) if sign == "~" else _parent(handle, commit, count)
        if commit is None:
            raise NotFound("commit", name, NAME_HINT)
    return commit


def _resolve_name(handle: Handle, name: str) -> Id | None:
    """The commit of `HEAD`, a branch, a tag or an id, in this order."""
    if name == HEAD:
        return handle.head()
    refs = (handle.store.read_ref(handle.name, ref) for ref in (name, TAG + name))
    return next((id for id in refs if id is not None), None) or _find_by_prefix(handle, name)


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


def _expand_revision(handle: Handle, name: Name) -> Name:
    """The id of a revision with `HEAD` or a suffix; any other name is returned unchanged."""
    if not isinstance(name, str) or not (name == HEAD or "~" in name or "^" in name):
        return name
    commit = _resolve_revision(handle, name)
    return name if commit is None else commit.hex()


def _find_by_prefix(handle: Handle, name: str) -> Id:
    """The only commit whose id begins with this prefix; raises `NotFound` or `Ambiguous`."""
    prefix = _id_prefix(name)
    commits = handle.store.find(handle.name, prefix)
    if not commits:
        raise NotFound("commit", name, NAME_HINT)
    if len(commits) > 1:
        raise Ambiguous(prefix, tuple(id.hex() for id in commits))
    return commits[0]


def _id_prefix(name: Name) -> str:
    """The name as an id or its beginning; raises `NotFound` if it cannot be one."""
    prefix = (name.id if isinstance(name, CommitInfo) else check_text("id", name)).strip().lower()
    if not prefix or len(prefix) > FULL_LENGTH or not HEX_DIGITS.issuperset(prefix):
        raise NotFound("id", str(name), NAME_HINT)
    return prefix


def _changed_slots(handle: Handle, commits: Sequence[Id]) -> list[Id]:
    """The slots of the messages that the commits added, or else edited; none for a compaction."""
    slots: list[Id] = []
    for step in handle.store.read_commits(handle.name, commits):
        op = decode_body(step).op
        match op:
            case Append(slot=slot):
                slots.append(slot or step.commit.id)
            case Rewrite(drop=()):
                inserted = inserted_slots(step.commit.id, op)
                slots += inserted or [change.slot for change in op.change]
            case _:
                pass
    return slots


def _commit_at(handle: Handle, moment: float) -> Id | None:
    """The newest commit of the branch at that time. It reads backwards, and stops there."""
    head = handle.head()
    until = moment + MICROSECOND  # the resolution of a `datetime`, which may have been rounded down
    limit = FIRST_PAGE
    while head is not None:
        steps = handle.store.walk(handle.name, head, limit=limit)
        for step in reversed(steps):
            if step.commit.created < until:
                return step.commit.id
        if len(steps) < limit:
            break
        limit *= PAGE_GROWTH
    return None
