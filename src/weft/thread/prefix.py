"""Find the thread that a stateless request continues, by its longest known prefix."""

from collections.abc import Sequence

from msgspec import Struct

from weft.history import chain_messages, read_branches
from weft.ids import Id
from weft.model import Message
from weft.store import Store

Chains = dict[bytes, int]


class Prefix(Struct, frozen=True):
    """A known prefix: the first `length` messages of a request equal the thread at `commit`.

    `branch` is a branch with this commit as its head. If there is none (`is_head` is false), it is
    a branch that contains the commit, and continuing from there means a fork.
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
    longest_matches = [match for match in matches if lengths[match.chain] == longest]
    for match in longest_matches:  # newest first; the head of a branch needs no fork
        for branch, head in read_branches(store, match.thread).items():
            if head == match.commit:
                return Prefix(match.thread, branch, match.commit, longest, True)
    for match in longest_matches:
        branch = _branch_through(store, match.thread, match.commit)
        if branch is not None:
            return Prefix(match.thread, branch, match.commit, longest, False)
    record = store.read_thread(longest_matches[0].thread)
    branch = "main" if record is None else record.head
    return Prefix(longest_matches[0].thread, branch, longest_matches[0].commit, longest, False)


def _branch_through(store: Store, thread: str, commit: Id) -> str | None:
    """A branch with this commit on its first-parent chain."""
    (node,) = store.read_nodes(thread, [commit])
    for branch, head in read_branches(store, thread).items():
        steps = store.walk(thread, head, after=node.depth - 1)
        if steps and steps[0].commit.id == commit:
            return branch
    return None
