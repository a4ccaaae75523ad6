"""Restores threads, refs and the operation log of a damaged store.

No hash covers a ref, so its row is compared with the log, whose lines have checksums:

- If the log is intact, the log decides.
- If only the log is damaged, the refs decide.
- If both are damaged, a ref's row is used if its commit descends from the log's last one.

A branch whose head is lost ends earlier: at the deepest whole ancestor, or where the log had it
before. Intact commits after the damage get a separate branch. The log is cut after the last line
that is lost or names a lost commit, because undo cannot go past it.
"""

from collections.abc import Iterable
from typing import cast

from msgspec import Struct, field

from weft.store import checksum

from .graph import Graph, IntactCommit
from .recovered_rows import PLACES, REF_NAMES, THREAD_NAMES, RecoveredRows, Row

AFTER = "-after-damage"
TAG = "tag:"
"""Before the name of a ref that is not a branch."""

Logged = tuple[int, int, str, int, int | None, int | None, str | None, float | None, int | None]
Ref = tuple[int, str, int | None]
"""Thread, name and target."""


class End(Struct, frozen=True):
    """A branch that ends earlier than before; `head` is `None` if nothing of it is left.

    `rest` is the new branch with the commits after the lost ones. If the ref's row and a part of
    the log are lost, the real end of the branch is unknown (`is_sure` is false).
    """

    thread: str
    branch: str
    head: str | None
    lines: int
    rest: str | None = None
    is_sure: bool = True

    def __str__(self) -> str:
        kind = "tag" if self.branch.startswith(TAG) else "branch"
        place = f"{kind} {self.branch.removeprefix(TAG)!r} of thread {self.thread!r}"
        rest = "" if self.rest is None else f"; what came after the damage is on {self.rest!r}"
        if self.head is None:
            return f"{place} points nowhere: its beginning is lost{rest}"
        if not self.is_sure:
            return f"{place} is at {self.head}, the last commit that its damaged log has{rest}"
        distance = "" if not self.lines else f", {self.lines} commits earlier"
        return f"{place} ends at {self.head}{distance}{rest}"


class Names(Struct):
    """Threads by key, refs by key, the log; and what of them is lost."""

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
    used_names = {(thread, name) for thread, name, _, _ in known.values()}
    unsure: list[tuple[int, str, IntactCommit]] = []
    for key, (thread, name, row_target, is_row) in known.items():
        if thread not in names.threads:
            continue
        lines = [line for line in by_ref.get(key, ()) if line[0] == thread]
        target_key = _likely_target(recovered, graph, row_target, is_row, lines)
        target = graph.find(target_key)
        if target is not None and target.thread != thread:
            target = None
        if target is None and target_key is not None:
            target = depths.before(target_key, thread) or _logged_before(graph, lines, thread)
            title = cast(str, names.threads[thread][1])
            head = None if target is None else target.id.hex()
            fewer = 0 if target is None else depths.between(target_key, target)
            rest = _rest(names, graph, (thread, name), target_key, used_names)
            names.ends.append(End(title, name, head, fewer, rest))
        elif target is not None and _is_unsure(recovered, target_key, row_target, lines):
            unsure.append((thread, name, target))
        names.refs[key] = (thread, name, None if target is None else target.key)
    _end_unsure(names, graph, unsure, used_names)
    _keep_log(names, good, recovered, graph)
    _keep_nameless_refs(names, graph, by_ref, used_names)
    _set_current_branches(names)
    _keep_rests(names, graph)
    return names


def _rest(
    names: Names,
    graph: Graph,
    of: tuple[int, str],
    target_key: int,
    used_names: set[tuple[int, str]],
) -> str | None:
    """The name of a new branch for intact commits after the damage, or `None` without any."""
    tip = graph.find_after_hole(target_key)
    if tip is None or tip.thread != of[0] or of[1].startswith(TAG):
        return None
    return _add_rest(names, of, target_key, used_names)


def _end_unsure(
    names: Names,
    graph: Graph,
    unsure: list[tuple[int, str, IntactCommit]],
    used_names: set[tuple[int, str]],
) -> None:
    """Report the branches that may have gone further; commits after them get a new branch."""
    reached = _reachable(graph, [target for _, _, target in names.refs.values()])
    for thread, name, target in unsure:
        after = {target.key}
        tip = None
        for commit in graph.commits.values():  # by key, so a parent comes before its children
            if commit.thread == thread and commit.parents and commit.parents[0] in after:
                after.add(commit.key)
                tip = tip if commit.key in reached else commit.key
        rest = None
        if tip is not None and not name.startswith(TAG):
            rest = _add_rest(names, (thread, name), tip, used_names)
        title = cast(str, names.threads[thread][1])
        names.ends.append(End(title, name, target.id.hex(), 0, rest, is_sure=False))


def _reachable(graph: Graph, targets: Iterable[int | None]) -> set[int]:
    """The keys of these commits and of all their ancestors."""
    keys: set[int] = set()
    waiting = [target for target in targets if target is not None]
    while waiting:
        key = waiting.pop()
        if key not in keys:
            keys.add(key)
            commit = graph.find(key)
            waiting += () if commit is None else commit.parents
    return keys


def _add_rest(
    names: Names, of: tuple[int, str], target: int, used_names: set[tuple[int, str]]
) -> str:
    """Add a new branch at a commit; returns its name."""
    thread, name = of
    number, title = 1, f"{name}{AFTER}"
    while (thread, title) in used_names:
        number += 1
        title = f"{name}{AFTER}-{number}"
    used_names.add((thread, title))
    names.rests.append((thread, title, target))
    return title


def _keep_rests(names: Names, graph: Graph) -> None:
    """Add the refs of these branches; they are not in the log."""
    graph.adopt(target for _, _, target in names.rests)
    first = 1 + max([0, *names.refs, *(line[3] for line in names.log)])
    names.refs.update(enumerate(names.rests, first))


def _keep_nameless_refs(
    names: Names, graph: Graph, by_ref: dict[int, list[Logged]], used_names: set[tuple[int, str]]
) -> None:
    """Give new names to refs that only the discarded part of the log mentions.

    Those in the kept part are restored from it when the new file is checked.
    """
    logged = {line[3] for line in names.log}
    for key, lines in by_ref.items():
        thread, last = lines[-1][0], lines[-1][5]
        if key in names.refs or key in logged or thread not in names.threads or last is None:
            continue
        target = _logged_before(graph, lines, thread)
        title = cast(str, names.threads[thread][1])
        name = f"recovered-{key}"
        if target is None or (thread, name) in used_names:
            continue
        used_names.add((thread, name))
        names.refs[key] = (thread, name, target.key)
        names.nameless.append(f"a branch of thread {title!r} has lost its name: it is {name!r} now")


def _good_lines(recovered: RecoveredRows) -> list[Logged]:
    """The lines of the log whose checksum fits, newest last."""
    rows = cast("Iterable[Logged]", recovered.table("operation").values())
    good = [row for row in rows if row[8] is None or checksum(row[2:8]) == row[8]]
    return sorted(good, key=lambda row: row[:2])


def _threads(recovered: RecoveredRows, graph: Graph, nameless: list[str]) -> dict[int, Row]:
    """Every thread that has a row, a name or a commit; unknown settings have defaults."""
    threads = dict(cast("dict[int, Row]", recovered.table("thread")))
    indexed_names = {key: cast(str, row[0]) for key, row in recovered.ids(THREAD_NAMES).items()}
    created: dict[int, float] = {}
    for commit in graph.commits.values():
        created[commit.thread] = min(created.get(commit.thread, commit.created), commit.created)
    marked = {row[0] for row in recovered.table("checkpoint").values()}
    titles = {row[1] for row in threads.values()}
    for key in sorted(created.keys() | indexed_names.keys() - threads.keys()):
        if key in threads:
            continue
        title = indexed_names.get(key, f"recovered-{key}")
        if title in titles:
            title = f"recovered-{key}"
        nameless.append(f"thread {title!r} has lost its settings")
        threads[key] = (None, title, "main", int(key in marked), None, created.get(key, 0.0))
    return threads


def _known_refs(recovered: RecoveredRows) -> dict[int, tuple[int, str, int | None, bool]]:
    """Refs by key: thread, name, target, and whether the target comes from the ref's own row."""
    refs: dict[int, tuple[int, str, int | None, bool]] = {}
    for key, row in cast(
        "dict[int, tuple[None, int, str, int | None]]", recovered.table("ref")
    ).items():
        refs[key] = (row[1], row[2], row[3], True)
    used_names = {(thread, name) for thread, name, _, _ in refs.values()}
    for key, row in recovered.ids(REF_NAMES).items():
        thread, name = cast(tuple[int, str], row)
        if key not in refs and (thread, name) not in used_names:
            refs[key] = (thread, name, None, False)
    return refs


def _likely_target(
    recovered: RecoveredRows,
    graph: Graph,
    row_target: int | None,
    is_row: bool,
    lines: list[Logged],
) -> int | None:
    """The key of the commit that a ref most likely pointed at."""
    if not lines:
        return row_target
    log_target = lines[-1][5]
    if not is_row or "operation" not in recovered.torn:
        return log_target
    if "ref" not in recovered.torn or _leads_to(graph, row_target, log_target):
        return row_target
    return log_target


def _is_unsure(
    recovered: RecoveredRows, target_key: int | None, row_target: int | None, lines: list[Logged]
) -> bool:
    """Whether a ref's target comes only from a log that may have lost its last lines."""
    return bool(lines) and target_key != row_target and "operation" in recovered.torn


def _leads_to(graph: Graph, key: int | None, before: int | None) -> bool:
    """Whether a commit descends from another one."""
    commit = graph.find(key)
    while commit is not None and commit.key != before:
        commit = graph.find(commit.parents[0]) if commit.parents else None
    return commit is not None


def _logged_before(graph: Graph, lines: list[Logged], thread: int) -> IntactCommit | None:
    """The last whole commit that the log has for a branch."""
    for line in reversed(lines):
        for key in (line[5], line[4]):
            commit = graph.find(key)
            if commit is not None and commit.thread == thread:
                return commit
    return None


class Depths:
    """The lines and depths of commits, lost ones included."""

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

    def before(self, key: int, thread: int) -> IntactCommit | None:
        """The deepest whole commit in the first-parent chain of a lost one."""
        place = self._places.get(key)
        visited: set[int] = set()
        while place is not None and place[0] not in visited:
            line, limit = place
            visited.add(line)
            below = [(depth, key) for depth, key in self._whole.get(line, ()) if depth <= limit]
            if below:
                commit = self._graph.commits[max(below)[1]]
                return commit if commit.thread == thread else None
            _, base, depth = self._lines.get(line, (None, None, None))
            place = None if base is None or depth is None else (base, depth)
        return None

    def between(self, key: int, whole: IntactCommit) -> int:
        """How many commits the branch has lost at its end; 0 if unknown."""
        lost_place, whole_place = self._places.get(key), self._places.get(whole.key)
        return (
            0
            if lost_place is None or whole_place is None
            else max(0, lost_place[1] - whole_place[1])
        )


def _keep_log(names: Names, good: list[Logged], recovered: RecoveredRows, graph: Graph) -> None:
    """Keep the newest gapless run of intact log lines per thread, if it matches the refs."""
    for thread in names.threads:
        run: list[Logged] = []
        for line in reversed([line for line in good if line[0] == thread]):
            if run and line[1] != run[-1][1] - 1:
                break
            if any(key is not None and graph.find(key) is None for key in line[4:6]):
                break
            run.append(line)
        heads = {line[3]: line[5] for line in reversed(run)}
        if all(_matches_ref(names, graph, ref, new) for ref, new in heads.items()):
            names.log += [_renumbered(graph, line) for line in reversed(run)]
    every = max(_written(good), len(recovered.table("operation")))
    names.cut = every - len(names.log)


def _written(good: list[Logged]) -> int:
    """How many lines the log had between the first and the last one that is left."""
    seqs: dict[int, list[int]] = {}
    for thread, seq, *_ in good:
        seqs.setdefault(thread, []).append(seq)
    return sum(max(numbers) - min(numbers) + 1 for numbers in seqs.values())


def _matches_ref(names: Names, graph: Graph, ref: int, new: int | None) -> bool:
    if ref not in names.refs:
        return True  # it is restored from the log later
    commit = graph.find(new)
    return names.refs[ref][2] == (None if commit is None else commit.key)


def _renumbered(graph: Graph, line: Logged) -> Logged:
    """The line with the new keys of its commits and a new checksum."""
    old, new = (None if commit is None else commit.key for commit in map(graph.find, line[4:6]))
    columns = (line[2], line[3], old, new, line[6], line[7])
    return (*line[:2], *columns, checksum(columns))


def _set_current_branches(names: Names) -> None:
    """Set the current branch of every thread to an existing one, if it has any."""
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
