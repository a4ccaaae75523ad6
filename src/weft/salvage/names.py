"""Where the branches of a damaged store end, and what of its log still leads there.

No hash covers a ref, so its row is held against the log, whose lines carry checksums. An unhurt log
has the last word. Where the log is hurt and the refs are not, the refs have it. Where both are, a
row is believed that only goes on from what the log says last.

A branch whose head is not whole ends earlier: at the deepest whole commit of the lines that lead
to its head, or where the log had it before. What is whole behind the damage gets a branch of its
own, so that it can be read, and is never taken for what the branch was. The log is cut behind the
last line that is gone or names what is gone, as undo cannot step over it.
"""

from collections.abc import Iterable
from typing import cast

from msgspec import Struct, field

from weft.store.landing import checksum

from .graph import Graph, Whole
from .recovered_rows import PLACES, REF_NAMES, THREAD_NAMES, RecoveredRows, Row

AFTER = "-after-damage"
TAG = "tag:"
"""Before the name of a ref that is not a branch."""

Logged = tuple[int, int, str, int, int | None, int | None, str | None, float | None, int | None]
Ref = tuple[int, str, int | None]
"""Thread, name and target."""


class End(Struct, frozen=True):
    """A branch that ends earlier than it did; `head` is `None` where not even its start is left.

    `rest` is the branch that has what came behind the commits that are lost.
    """

    thread: str
    branch: str
    head: str | None
    lines: int
    rest: str | None = None

    def __str__(self) -> str:
        kind = "tag" if self.branch.startswith(TAG) else "branch"
        place = f"{kind} {self.branch.removeprefix(TAG)!r} of thread {self.thread!r}"
        rest = "" if self.rest is None else f"; what came after the damage is on {self.rest!r}"
        if self.head is None:
            return f"{place} points nowhere: its beginning is lost{rest}"
        behind = "" if not self.lines else f", {self.lines} commits earlier"
        return f"{place} ends at {self.head}{behind}{rest}"


class Names(Struct):
    """Threads by key, refs by key, the log; and what could not be kept of them."""

    threads: dict[int, Row] = field(default_factory=dict[int, Row])
    refs: dict[int, Ref] = field(default_factory=dict[int, Ref])
    log: list[Logged] = field(default_factory=list[Logged])
    ends: list[End] = field(default_factory=list[End])
    nameless: list[str] = field(default_factory=list[str])
    rests: list[tuple[int, str, int]] = field(default_factory=list[tuple[int, str, int]])
    cut: int = 0


def plan_names(recovered: RecoveredRows, graph: Graph) -> Names:
    """Threads, refs and log of what is whole."""
    names = Names()
    good = _good_lines(recovered)
    names.threads = _threads(recovered, graph, names.nameless)
    depths = Depths(recovered, graph)
    by_ref: dict[int, list[Logged]] = {}
    for line in good:
        by_ref.setdefault(line[3], []).append(line)
    known = _known_refs(recovered)
    taken = {(thread, name) for thread, name, _, _ in known.values()}
    for key, (thread, name, row_target, is_row) in known.items():
        if thread not in names.threads:
            continue
        lines = [line for line in by_ref.get(key, ()) if line[0] == thread]
        wanted = _wanted(recovered, graph, row_target, is_row, lines)
        target = graph.find(wanted)
        if target is not None and target.thread != thread:
            target = None
        if target is None and wanted is not None:
            target = depths.before(wanted, thread) or _logged_before(graph, lines, thread)
            title = cast(str, names.threads[thread][1])
            head = None if target is None else target.id.hex()
            fewer = 0 if target is None else depths.between(wanted, target)
            rest = _rest(names, graph, (thread, name), wanted, taken)
            names.ends.append(End(title, name, head, fewer, rest))
        names.refs[key] = (thread, name, None if target is None else target.key)
    _keep_log(names, good, recovered, graph)
    _stand(names)
    _keep_rests(names, graph)
    return names


def _rest(
    names: Names, graph: Graph, of: tuple[int, str], wanted: int, taken: set[tuple[int, str]]
) -> str | None:
    """A new branch for what is whole behind the damage, if anything is; its name is taken then."""
    found = graph.find_behind(wanted)
    thread, name = of
    if found is None or found.thread != thread or name.startswith(TAG):
        return None
    number, title = 1, f"{name}{AFTER}"
    while (thread, title) in taken:
        number += 1
        title = f"{name}{AFTER}-{number}"
    taken.add((thread, title))
    names.rests.append((thread, title, wanted))
    return title


def _keep_rests(names: Names, graph: Graph) -> None:
    """Give those branches their refs; the log knows nothing of them."""
    graph.adopt(target for _, _, target in names.rests)
    first = 1 + max([0, *names.refs, *(line[3] for line in names.log)])
    names.refs.update(enumerate(names.rests, first))


def _good_lines(recovered: RecoveredRows) -> list[Logged]:
    """The lines of the log whose checksum fits, newest last."""
    rows = cast("Iterable[Logged]", recovered.table("operation").values())
    good = [row for row in rows if row[8] is None or checksum(row[2:8]) == row[8]]
    return sorted(good, key=lambda row: row[:2])


def _threads(recovered: RecoveredRows, graph: Graph, nameless: list[str]) -> dict[int, Row]:
    """Every thread that has a row, a name or a commit; what is not known of it is the default."""
    found = dict(cast("dict[int, Row]", recovered.table("thread")))
    known = {key: cast(str, row[0]) for key, row in recovered.ids(THREAD_NAMES).items()}
    begun: dict[int, float] = {}
    for commit in graph.commits.values():
        begun[commit.thread] = min(begun.get(commit.thread, commit.created), commit.created)
    marked = {row[0] for row in recovered.table("checkpoint").values()}
    titles = {row[1] for row in found.values()}
    for key in sorted(begun.keys() | known.keys() - found.keys()):
        if key in found:
            continue
        title = known.get(key, f"recovered-{key}")
        if title in titles:
            title = f"recovered-{key}"
        nameless.append(f"thread {title!r} has lost what it was opened with")
        found[key] = (None, title, "main", int(key in marked), None, begun.get(key, 0.0))
    return found


def _known_refs(recovered: RecoveredRows) -> dict[int, tuple[int, str, int | None, bool]]:
    """Refs by key: thread, name, target, and whether the target comes from the ref's own row."""
    found: dict[int, tuple[int, str, int | None, bool]] = {}
    for key, row in cast(
        "dict[int, tuple[None, int, str, int | None]]", recovered.table("ref")
    ).items():
        found[key] = (row[1], row[2], row[3], True)
    taken = {(thread, name) for thread, name, _, _ in found.values()}
    for key, row in recovered.ids(REF_NAMES).items():
        thread, name = cast(tuple[int, str], row)
        if key not in found and (thread, name) not in taken:
            found[key] = (thread, name, None, False)
    return found


def _wanted(
    recovered: RecoveredRows,
    graph: Graph,
    row_target: int | None,
    is_row: bool,
    lines: list[Logged],
) -> int | None:
    """The key of the commit that a ref is believed to have pointed at."""
    if not lines:
        return row_target
    said = lines[-1][5]
    if not is_row or "operation" not in recovered.torn:
        return said
    if "ref" not in recovered.torn or _leads_to(graph, row_target, said):
        return row_target
    return said


def _leads_to(graph: Graph, key: int | None, before: int | None) -> bool:
    """Whether a commit goes on from another one."""
    commit = graph.find(key)
    while commit is not None and commit.key != before:
        commit = graph.find(commit.parents[0]) if commit.parents else None
    return commit is not None


def _logged_before(graph: Graph, lines: list[Logged], thread: int) -> Whole | None:
    """Where the log had a branch last among what is whole."""
    for line in reversed(lines):
        for key in (line[5], line[4]):
            found = graph.find(key)
            if found is not None and found.thread == thread:
                return found
    return None


class Depths:
    """The lines that lead to a commit, also through commits that are gone."""

    def __init__(self, recovered: RecoveredRows, graph: Graph) -> None:
        rows = cast("dict[int, Row]", recovered.table("commits"))
        self._places = {key: cast(tuple[int, int], row[3:5]) for key, row in rows.items()}
        for key, place in recovered.ids(PLACES).items():
            self._places[key] = cast(tuple[int, int], place)
        self._lines = cast(
            "dict[int, tuple[None, int | None, int | None]]", recovered.table("line")
        )
        self._graph = graph
        self._whole: dict[int, list[tuple[int, int]]] = {}
        for key in graph.commits:
            if key in self._places:
                line, depth = self._places[key]
                self._whole.setdefault(line, []).append((depth, key))

    def before(self, key: int, thread: int) -> Whole | None:
        """The deepest whole commit in the chain of first parents of one that is gone."""
        place = self._places.get(key)
        seen: set[int] = set()
        while place is not None and place[0] not in seen:
            line, limit = place
            seen.add(line)
            below = [(depth, key) for depth, key in self._whole.get(line, ()) if depth <= limit]
            if below:
                found = self._graph.commits[max(below)[1]]
                return found if found.thread == thread else None
            _, base, depth = self._lines.get(line, (None, None, None))
            place = None if base is None or depth is None else (base, depth)
        return None

    def between(self, key: int, whole: Whole) -> int:
        """How many commits a branch is shorter by; 0 where that is not known."""
        there, here = self._places.get(key), self._places.get(whole.key)
        return 0 if there is None or here is None else max(0, there[1] - here[1])


def _keep_log(names: Names, good: list[Logged], recovered: RecoveredRows, graph: Graph) -> None:
    """The newest lines of each thread's log that are whole without a gap, and lead to its refs."""
    for thread in names.threads:
        kept: list[Logged] = []
        for line in reversed([line for line in good if line[0] == thread]):
            if kept and line[1] != kept[-1][1] - 1:
                break
            if any(key is not None and graph.find(key) is None for key in line[4:6]):
                break
            kept.append(line)
        heads = {line[3]: line[5] for line in reversed(kept)}
        if all(_stands(names, graph, ref, new) for ref, new in heads.items()):
            names.log += [_renumbered(graph, line) for line in reversed(kept)]
    every = max(_written(good), len(recovered.table("operation")))
    names.cut = every - len(names.log)


def _written(good: list[Logged]) -> int:
    """How many lines the log had between those that are left of it, themselves included."""
    seqs: dict[int, list[int]] = {}
    for thread, seq, *_ in good:
        seqs.setdefault(thread, []).append(seq)
    return sum(max(found) - min(found) + 1 for found in seqs.values())


def _stands(names: Names, graph: Graph, ref: int, new: int | None) -> bool:
    if ref not in names.refs:
        return True  # one that only the log knows is found again by it
    commit = graph.find(new)
    return names.refs[ref][2] == (None if commit is None else commit.key)


def _renumbered(graph: Graph, line: Logged) -> Logged:
    """The line with the keys under which its commits stand, and a checksum over those."""
    old, new = (None if found is None else found.key for found in map(graph.find, line[4:6]))
    said = (line[2], line[3], old, new, line[6], line[7])
    return (*line[:2], *said, checksum(said))


def _stand(names: Names) -> None:
    """Let every thread stand on a branch that it has, if it has any."""
    for key, row in names.threads.items():
        own = [name for thread, name, target in names.refs.values() if thread == key and target]
        logged = {line[3] for line in names.log if line[0] == key} - names.refs.keys()
        branches = [name for name in own if not name.startswith(TAG)]
        if (
            branches
            and not logged
            and row[2] not in [ref[1] for ref in names.refs.values() if ref[0] == key]
        ):
            names.threads[key] = (*row[:2], branches[0], *row[3:])
