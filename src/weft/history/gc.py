"""Gc: what no branch leads to any more, and nobody can undo back to, goes.

Everything that a branch comes from stays, and so do the originals behind every compaction: they
are its parents. What the log has named within the time of retention stays as well, so that undo
and redo reach as far back as before. A deleted thread goes as a whole when it was deleted before
that time.
"""

from collections.abc import Iterable

from msgspec import Struct

from weft.ids import Id
from weft.store import Dropped, Store, read_deleted_name

from .search import commit_text


class Swept(Struct, frozen=True):
    """What went, over all threads; `threads` are those that were deleted, and are gone now."""

    commits: int
    entries: int
    operations: int
    threads: int = 0

    def to_dict(self) -> dict[str, int]:
        return {name: getattr(self, name) for name in self.__struct_fields__}


def sweep(store: Store, since: float, *, preview: bool = False) -> Swept:
    """Drop what is unreachable and was last named before `since`."""
    maintenance = store.maintenance()
    total = [0, 0, 0]
    with store.transaction():
        parents: dict[str, dict[Id, tuple[Id, ...]]] = {}
        texts: dict[str, dict[Id, str]] = {}
        for thread, step in maintenance.commits():
            parents.setdefault(thread, {})[step.commit.id] = step.commit.parents
            texts.setdefault(thread, {})[step.commit.id] = commit_text(step.contents)
        finished = [record.name for record in store.threads(deleted=True)]
        finished = [name for name in finished if _is_before(name, since)]
        for thread, graph in parents.items():
            named = (
                set[Id]() if thread in finished else maintenance.referenced_commits(thread, since)
            )
            kept = reach(named, graph)
            gone = {id: texts[thread][id] for id in graph if id not in kept}
            done = Dropped(len(gone), 0, 0) if preview else maintenance.drop(thread, gone)
            for place, count in enumerate((done.commits, done.entries, done.operations)):
                total[place] += count
        for thread in () if preview else finished:
            maintenance.drop_thread(thread)
    if not preview and total[0]:
        maintenance.scrub()
    return Swept(total[0], total[1], total[2], len(finished))


def _is_before(name: str, since: float) -> bool:
    """Whether the thread of this name was deleted before that time."""
    found = read_deleted_name(name)
    return found is not None and found[1] < since


def reach(starts: Iterable[Id], parents: dict[Id, tuple[Id, ...]]) -> set[Id]:
    """All commits that these come from, themselves included."""
    seen: set[Id] = set()
    waiting = list(starts)
    while waiting:
        id = waiting.pop()
        if id not in seen:
            seen.add(id)
            waiting.extend(parents.get(id, ()))
    return seen
