"""Where a stateless request belongs: the longest beginning of it that some thread already holds."""

from collections.abc import Sequence

from msgspec import Struct

from weft.history import chain_messages, read_branches
from weft.ids import Id
from weft.model import Message
from weft.store import Store

Chains = dict[bytes, int]


class Prefix(Struct, frozen=True):
    """A known beginning: `length` messages of the request are what `commit` compiles to.

    `branch` is one whose head the commit is; where it is none's head, the nearest branch that
    went on from it, and a continuation from here is a fork.
    """

    thread: str
    branch: str
    commit: Id
    length: int
    is_head: bool


def find_prefix(store: Store, scope: str, messages: Sequence[Message]) -> Prefix | None:
    """The longest known prefix of these messages among the threads of a scope."""
    lengths: Chains = {}
    for length, chain in enumerate(chain_messages(scope, messages), start=1):
        if chain is not None:
            lengths[chain] = length
    matches = store.match(list(lengths))
    if not matches:
        return None
    longest = max(lengths[match.chain] for match in matches)
    found = [match for match in matches if lengths[match.chain] == longest]
    for match in found:  # newest first; a branch's head needs no fork
        for branch, head in read_branches(store, match.thread).items():
            if head == match.commit:
                return Prefix(match.thread, branch, match.commit, longest, True)
    for match in found:
        branch = _branch_through(store, match.thread, match.commit)
        if branch is not None:
            return Prefix(match.thread, branch, match.commit, longest, False)
    record = store.read_thread(found[0].thread)
    branch = "main" if record is None else record.head
    return Prefix(found[0].thread, branch, found[0].commit, longest, False)


def _branch_through(store: Store, thread: str, commit: Id) -> str | None:
    """A branch whose chain of first parents has this commit."""
    (node,) = store.read_nodes(thread, [commit])
    for branch, head in read_branches(store, thread).items():
        steps = store.walk(thread, head, after=node.depth - 1)
        if steps and steps[0].commit.id == commit:
            return branch
    return None
