"""Looking after the store of one process. Nothing decays in it; the rest is the same."""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from msgspec import structs

from weft.ids import Id

from .base import AttemptRecord, Step
from .landing import checksum
from .maintenance import Dropped, Flaw, Kind, Reason, Tombstone

if TYPE_CHECKING:
    from .memory import Tables


class MemoryUpkeep:
    """The other side of a store in dictionaries."""

    def __init__(self, tables: "Tables") -> None:
        self._tables = tables

    def entries(self) -> Iterator[tuple[Id, bytes]]:
        yield from list(self._tables.entries.items())

    def commits(self) -> Iterator[tuple[str, Step]]:
        for name, id in list(self._tables.order):
            yield name, self._tables.shelves[name].commits[id]

    def attempts(self) -> Iterator[tuple[int, str, AttemptRecord]]:
        stored = [
            (key, name, record)
            for name, shelf in self._tables.shelves.items()
            for key, record in shelf.attempts.items()
        ]
        yield from sorted(stored, key=lambda attempt: attempt[0])

    def put_attempt(self, key: int, state: str, data: bytes) -> None:
        for shelf in self._tables.shelves.values():
            if key in shelf.attempts:
                shelf.attempts[key] = structs.replace(shelf.attempts[key], state=state, data=data)

    def flaws(self) -> list[Flaw]:
        return []

    def tombstones(self) -> dict[tuple[str, Id], Tombstone]:
        return dict(self._tables.tombstones)

    def bury(self, kind: Kind, id: Id, data: bytes, reason: Reason, created: float) -> None:  # noqa: ARG002
        tables = self._tables
        if kind == "entry":
            tables.entries[id] = data
        for shelf in tables.shelves.values():
            for name, step in shelf.commits.items():
                if kind == "entry" and id in step.commit.entries:
                    contents = tuple(tables.entries[entry] for entry in step.commit.entries)
                    shelf.commits[name] = structs.replace(step, contents=contents)
                elif kind == "commit" and name == id:
                    commit = structs.replace(step.commit, data=data)
                    shelf.commits[name] = structs.replace(step, commit=commit)
        tables.tombstones[(kind, id)] = Tombstone(reason, checksum((data,)))

    def retext(self, thread: str, commit: Id, old: str, new: str) -> None:  # noqa: ARG002
        if (thread, commit) in self._tables.texts:
            self._tables.texts[(thread, commit)] = new

    def named(self, thread: str, since: float) -> set[Id]:
        shelf = self._tables.shelves[thread]
        found = set(shelf.refs.values())
        for line in shelf.log:
            if line.created >= since:
                found.update(id for id in (line.old, line.new) if id is not None)
        return found

    def drop(self, thread: str, commits: Mapping[Id, str]) -> Dropped:
        tables = self._tables
        shelf = tables.shelves[thread]
        for id in commits:
            step = shelf.commits.pop(id)
            tables.order.remove((thread, id))
            tables.texts.pop((thread, id), None)
            chain = step.commit.chain
            if chain is not None:
                tables.chains[chain] = [m for m in tables.chains[chain] if m.commit != id]
        for key, record in list(shelf.attempts.items()):
            if record.commit in commits:
                del shelf.attempts[key]
        for key, links in tables.links.items():
            tables.links[key] = [
                link for link in links if link.thread != thread or link.commit not in commits
            ]
        named = [place for place, o in enumerate(shelf.log) if {o.old, o.new} & commits.keys()]
        cut = named[-1] + 1 if named else 0
        del shelf.log[:cut]
        needed = {
            entry
            for other in tables.shelves.values()
            for step in other.commits.values()
            for entry in step.commit.entries
        }
        buried = {id for kind, id in tables.tombstones if kind == "entry"}
        gone = tables.entries.keys() - needed - buried
        for id in gone:
            del tables.entries[id]
        there = {id for other in tables.shelves.values() for id in other.commits}
        for kind, id in list(tables.tombstones):
            if kind == "commit" and id not in there:
                del tables.tombstones[(kind, id)]
        return Dropped(len(commits), len(gone), cut)

    def drop_thread(self, thread: str) -> None:
        del self._tables.shelves[thread]

    def mend(self) -> list[str]:
        return []

    def scrub(self) -> None:
        """What was overwritten is gone already."""

    def size(self) -> int:
        return 0
