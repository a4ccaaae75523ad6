"""Fsck: checks every hash, parent, ref and checksum of a store, and repairs what it can.

- The text index must have every commit, and the terms of sampled commits must fit their text.

- An entry must hash to its id, and so must a commit with its parents, entries and body.
- Columns that no id covers must match their checksum.
- A tombstone is not damage: the object keeps its id, and its new bytes have a checksum.

`repair` changes only what is damaged:

- A damaged message becomes a row with the text `[damaged]`.
- A commit with a damaged body keeps its rows and loses its note and metadata.
- A branch that points at a missing commit goes back to the newest one that the log has for it.
- A damaged text index is built again.
"""

from collections.abc import Callable, Iterator
from functools import partial

import msgspec
from msgspec import Struct

from weft.errors import Damaged, StoreError
from weft.ids import Id, object_id
from weft.model import Message, Text
from weft.store import Flaw, Landing, Maintenance, ObjectFormat, Step, Store, Tombstone

from .attempts import damaged_attempt, decode_attempt
from .compile import View
from .objects import (
    PLAIN_BODIES,
    Append,
    Body,
    Rewrite,
    commit_id,
    decode_body,
    decode_entry,
    encode_body,
)
from .search import index_flaws, rebuild_index

DAMAGED = "[damaged]"

Tombstones = dict[tuple[str, Id], Tombstone]


class Report(Struct, frozen=True):
    """How many objects were checked, and the flaws."""

    entries: int
    commits: int
    forgotten: int
    flaws: tuple[Flaw, ...]
    attempts: int = 0

    @property
    def clean(self) -> bool:
        return not self.flaws

    def to_dict(self) -> dict[str, object]:
        return {**msgspec.to_builtins(self), "clean": self.clean}


def examine(store: Store, checksum: Callable[[tuple[object, ...]], int]) -> Report:
    """Check every object; damage that stops the check is reported as a flaw too."""
    maintenance = store.maintenance()
    flaws: list[Flaw] = []
    counts = {"entry": 0, "commit": 0, "attempt": 0}
    tombstones: Tombstones = {}
    try:
        tombstones = maintenance.tombstones()
        for look in (_wrong_entries, _wrong_commits, _wrong_attempts):
            for kind, flaw in look(maintenance, tombstones, checksum):
                counts[kind] += 1
                flaws += [] if flaw is None else [flaw]
        flaws += maintenance.flaws()
        wrong = {bytes.fromhex(flaw.name) for flaw in flaws if flaw.kind in ("entry", "commit")}
        unreliable = wrong | {id for _, id in tombstones}
        flaws += index_flaws(store, counts["commit"], unreliable)
    except StoreError as error:
        flaws.append(Flaw("file", "store", str(error)))
    forgotten = sum(tombstone.reason == "forgotten" for tombstone in tombstones.values())
    return Report(
        counts["entry"],
        counts["commit"],
        forgotten,
        tuple(dict.fromkeys(flaws)),
        counts["attempt"],
    )


def repair(store: Store, report: Report, created: float) -> list[str]:
    """Repair what can be repaired; returns what was done, a line for each."""
    maintenance = store.maintenance()
    done: list[str] = []
    with store.transaction():
        wrong = {(flaw.kind, flaw.name) for flaw in report.flaws}
        for id, data in list(maintenance.entries()):
            if ("entry", id.hex()) in wrong:
                maintenance.write_tombstone("entry", id, _stand_in(data), "damaged", created)
                done.append(f"entry {id.hex()} is a line that says {DAMAGED}")
        for _, step in list(maintenance.commits()):
            if ("commit", step.commit.id.hex()) in wrong and not _is_whole(step):
                body = Body(Append() if step.commit.kind == "append" else Rewrite())
                maintenance.write_tombstone(
                    "commit", step.commit.id, encode_body(body), "damaged", created
                )
                done.append(
                    f"commit {step.commit.id.hex()} keeps its lines and no words of its own"
                )
        for key, _, attempt in list(maintenance.attempts()):
            if ("attempt", str(key)) in wrong:
                maintenance.put_attempt(key, "failed", damaged_attempt(DAMAGED))
                done.append(f"an attempt at commit {attempt.commit.hex()} says {DAMAGED}")
        done += maintenance.repair_structure()
    if any(flaw.kind == "index" for flaw in report.flaws):
        rebuild_index(store)
        done.append("the text index was built again")
    return done


def end_where_readable(store: Store, thread: str, branch: str, created: float) -> str | None:
    """End a branch with lost commits at the last commit that can still be compiled.

    A rewrite may name rows that only a lost commit would have. Returns what was done.
    """
    head = store.read_ref(thread, branch)
    tombstones = store.maintenance().tombstones()
    view, passed = View(), False
    for step in [] if head is None else store.walk(thread, head):
        try:
            view = view.extend([step])
        except Damaged:
            break
        passed = passed or ("commit", step.commit.id) in tombstones
    if view.head == head:
        return None
    new = view.head if passed else None  # before the first lost commit it is the old branch
    landing = Landing(verb="repair", ref=branch, old=head, new=new, created=created)
    store.land(thread, landing)
    place = f"ends at {new.hex()}" if new else "is not kept"
    return f"branch {branch!r} of thread {thread!r} {place}: more needs lines that are lost"


def _wrong_entries(
    maintenance: Maintenance, tombstones: Tombstones, checksum: Callable[[tuple[object, ...]], int]
) -> Iterator[tuple[str, Flaw | None]]:
    for id, data in maintenance.entries():
        tombstone = tombstones.get(("entry", id))
        if tombstone is not None:
            wrong = checksum((data,)) != tombstone.checksum
            what = "is a tombstone whose checksum does not fit"
        else:
            wrong = object_id("entry", data) != id
            what = "does not hash to its id"
        yield "entry", Flaw("entry", id.hex(), what) if wrong else None


def _wrong_commits(
    maintenance: Maintenance, tombstones: Tombstones, checksum: Callable[[tuple[object, ...]], int]
) -> Iterator[tuple[str, Flaw | None]]:
    for thread, step in maintenance.commits():
        commit = step.commit
        tombstone = tombstones.get(("commit", commit.id))
        if tombstone is not None:
            wrong = checksum((commit.data,)) != tombstone.checksum
            what = "is a tombstone whose checksum does not fit"
        else:
            wrong = not _is_whole(step)
            what = "does not hash to its id"
        yield "commit", Flaw("commit", commit.id.hex(), what, thread) if wrong else None


def _wrong_attempts(
    maintenance: Maintenance,
    tombstones: Tombstones,  # noqa: ARG001 - no id covers an attempt, so none has a tombstone
    checksum: Callable[[tuple[object, ...]], int],  # noqa: ARG001 - the store checks its own
) -> Iterator[tuple[str, Flaw | None]]:
    for key, thread, attempt in maintenance.attempts():
        try:
            decode_attempt(attempt)
        except StoreError:
            yield "attempt", Flaw("attempt", str(key), "does not read as an attempt", thread)
        else:
            yield "attempt", None


def _is_whole(step: Step) -> bool:
    commit = step.commit
    try:
        id = commit_id(commit.kind, commit.parents, commit.entries, commit.data)
        decode_body(step)
    except (StoreError, msgspec.MsgspecError, UnicodeDecodeError):
        return False
    return id == commit.id


def _stand_in(data: bytes) -> bytes:
    """The replacement for a damaged message, with its role if that can be read."""
    try:
        role = decode_entry(data).role
    except StoreError:
        role = "user"
    return msgspec.json.encode(Message(role, (Text(DAMAGED),)), order="sorted")


OBJECT_FORMAT = ObjectFormat(
    entry_id=partial(object_id, "entry"),
    commit_id=commit_id,
    stand_in=_stand_in,
    plain=tuple(PLAIN_BODIES),
)
"""The object format, with which a store recognises objects in a damaged file."""
