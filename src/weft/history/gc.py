"""Gc: deletes commits that no branch reaches and that undo no longer needs.

All ancestors of a branch stay. That includes the originals of every compaction, because they are
its ancestors. Commits that the operation log mentions within the retention time stay too, so that
undo and redo still work. A thread that was deleted before the retention time is removed completely.
"""

from collections.abc import Iterable

from msgspec import Struct

from weft.ids import Id
from weft.store import Dropped, Store, read_deleted_name


class Swept(Struct, frozen=True):
    """How much was deleted, over all threads; `threads` counts deleted threads removed for good."""

    commits: int
    entries: int
    operations: int
    threads: int = 0

    def to_dict(self) -> dict[str, int]:
        return {name: getattr(self, name) for name in self.__struct_fields__}


def sweep(store: Store, since: float, *, preview: bool = False) -> Swept:
    """Delete unreachable commits that the operation log has not mentioned since `since`."""
    maintenance = store.maintenance()
    total = [0, 0, 0]
    with store.transaction():
        parents: dict[str, dict[Id, tuple[Id, ...]]] = {}
        for thread, step in maintenance.commits():
            parents.setdefault(thread, {})[step.commit.id] = step.commit.parents
        expired = [record.name for record in store.threads(deleted=True)]
        expired = [name for name in expired if _is_before(name, since)]
        for thread, graph in parents.items():
            starts = (
                set[Id]() if thread in expired else maintenance.referenced_commits(thread, since)
            )
            reachable = reach(starts, graph)
            unreachable = [id for id in graph if id not in reachable]
            dropped = (
                Dropped(len(unreachable), 0, 0)
                if preview
                else maintenance.drop(thread, unreachable)
            )
            for position, count in enumerate(
                (dropped.commits, dropped.entries, dropped.operations)
            ):
                total[position] += count
        for thread in () if preview else expired:
            maintenance.drop_thread(thread)
    if not preview and total[0]:
        maintenance.scrub()
    return Swept(total[0], total[1], total[2], len(expired))


def _is_before(name: str, since: float) -> bool:
    """Whether the thread of this name was deleted before that time."""
    deleted = read_deleted_name(name)
    return deleted is not None and deleted[1] < since


def reach(starts: Iterable[Id], parents: dict[Id, tuple[Id, ...]]) -> set[Id]:
    """These commits and all their ancestors."""
    reached: set[Id] = set()
    waiting = list(starts)
    while waiting:
        id = waiting.pop()
        if id not in reached:
            reached.add(id)
            waiting.extend(parents.get(id, ()))
    return reached
