"""The verbs that move names: branch, switch, reset, tags, undo, redo."""

from weft.errors import NotFound, ThreadError
from weft.history import REDO, TAG, UNDO, plan_redo, plan_undo, read_operations
from weft.store import Landing, Operation

from .handle import Handle
from .info import CommitInfo
from .preview import Preview, foresee
from .resolve import At, check_name, resolve_commit


def branch(handle: Handle, name: str, at: At = None) -> CommitInfo:
    """A new branch at this commit; the handle stays where it is."""
    check_name(name)
    target = resolve_commit(handle, at)
    if target is None:
        raise ThreadError("an empty thread cannot be branched")
    with handle.store.transaction():
        if handle.store.read_ref(handle.name, name) is not None:
            raise ThreadError(f"branch {name!r} is there already")
        _land(handle, "branch", name, None, target)
    return handle.info(target)


def delete_branch(handle: Handle, name: str) -> CommitInfo:
    """Forget a branch's name; its commits stay, and undo brings it back."""
    if name == handle.branch:
        raise ThreadError(f"branch {name!r} is where this handle stands; switch first")
    with handle.store.transaction():
        head = handle.store.read_ref(handle.name, name)
        if head is None:
            raise NotFound("branch", name)
        _land(handle, "delete", name, head, None)
    return handle.info(head)


def switch(handle: Handle, name: str) -> CommitInfo | None:
    """Stand on another branch, here and for handles opened later."""
    with handle.lock, handle.store.transaction():
        head = handle.store.read_ref(handle.name, name)
        record = handle.store.read_thread(handle.name)
        known = {handle.branch, "" if record is None else record.head}
        if head is None and name not in known:
            raise NotFound("branch", name)
        if name != handle.branch:
            _land(handle, "switch", name, head, head, was=handle.branch)
            handle.branch = name
    return None if head is None else handle.info(head)


def reset(handle: Handle, at: At, *, preview: bool = False) -> CommitInfo | Preview:
    """Let the branch point at another commit; what it leaves stays reachable by `undo`."""
    with handle.lock, handle.store.transaction():
        target = resolve_commit(handle, at)
        if target is None:
            raise ThreadError("an empty thread cannot be reset")
        if preview:
            return foresee(handle, "reset", handle.view(target))
        if target != handle.head():
            _land(handle, "reset", handle.branch, handle.head(), target)
        return handle.info(target)


def tag(handle: Handle, name: str, at: At = None) -> CommitInfo:
    """Give a commit a name that does not move."""
    check_name(name, "tag")
    with handle.store.transaction():
        target = resolve_commit(handle, at)
        if target is None:
            raise ThreadError("an empty thread cannot be tagged")
        if handle.store.read_ref(handle.name, TAG + name) is not None:
            raise ThreadError(f"tag {name!r} is there already")
        _land(handle, "tag", TAG + name, None, target)
    return handle.info(target)


def untag(handle: Handle, name: str) -> CommitInfo:
    """Forget a tag; its commit stays."""
    with handle.store.transaction():
        target = handle.store.read_ref(handle.name, TAG + name)
        if target is None:
            raise NotFound("tag", name)
        _land(handle, "untag", TAG + name, target, None)
    return handle.info(target)


def undo(handle: Handle) -> CommitInfo | None:
    """Take back the last operation of the thread that still stands."""
    with handle.lock, handle.store.transaction():
        target = plan_undo(read_operations(handle.store, handle.name))
        if target is None:
            raise ThreadError("there is nothing to undo")
        return _turn_back(handle, UNDO, target)


def redo(handle: Handle) -> CommitInfo | None:
    """Take back the last undo, as long as nothing else was done since."""
    with handle.lock, handle.store.transaction():
        target = plan_redo(read_operations(handle.store, handle.name))
        if target is None:
            raise ThreadError("there is nothing to redo")
        return _turn_back(handle, REDO, target)


def _turn_back(handle: Handle, verb: str, target: Operation) -> CommitInfo | None:
    """Move a name back to where it was before this operation."""
    if target.was is not None:
        head = handle.store.read_ref(handle.name, target.was)
        _land(handle, verb, target.was, head, head, was=target.ref)
        if handle.branch == target.ref:
            handle.branch = target.was
    else:
        _land(handle, verb, target.ref, target.new, target.old)
    head = handle.head()
    return None if head is None else handle.info(head)


def _land(
    handle: Handle,
    verb: str,
    ref: str,
    old: bytes | None,
    new: bytes | None,
    was: str | None = None,
) -> None:
    landing = Landing(verb=verb, ref=ref, old=old, new=new, created=handle.clock(), was=was)
    handle.store.land(handle.name, landing)
