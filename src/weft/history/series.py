"""Several commits that land as one write: a request's new messages, or an answer.

Each message is a commit of its own, so that it can be edited, pinned and branched from; together
they are one landing, one transaction and one line of the log, so that undo takes them back
together.
"""

from collections.abc import Sequence

from msgspec import Struct, structs

from weft.ids import Id
from weft.model import is_system
from weft.store import CommitRecord, Landing

from .match import chain_message, first_link
from .objects import Append, Draft, encode_commit


class Series(Struct, frozen=True):
    """Encoded commits behind one another, and the chain that the last one ends in."""

    commits: tuple[CommitRecord, ...]
    entries: tuple[tuple[Id, bytes], ...]
    chain: bytes | None

    def landing(self, verb: str, ref: str, old: Id | None) -> Landing:
        """The write that moves `ref` from `old` to the last commit."""
        last = self.commits[-1]
        return Landing(verb, ref, old, last.id, last.created, self.entries, self.commits)


def encode_series(
    drafts: Sequence[Draft],
    parent: Id | None,
    *,
    scope: str,
    chain: bytes | None,
    created: float,
) -> Series:
    """The commits of these drafts, the first behind `parent`, whose chain is `chain`.

    Only appends lengthen the chain: a draft of another kind must not touch what a client echoes.
    """
    commits: list[CommitRecord] = []
    entries: dict[Id, bytes] = {}
    tip = parent
    for draft in drafts:
        record, brought = encode_commit(draft, () if tip is None else (tip,), created=created)
        if isinstance(draft.op, Append) and not is_system(draft.messages[0]):
            chain = chain_message(chain or first_link(scope), draft.messages[0])
        commits.append(structs.replace(record, chain=chain))
        entries.update(brought)
        tip = record.id
    return Series(tuple(commits), tuple(entries.items()), chain)
