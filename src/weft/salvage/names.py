"""Restores threads, refs and the operation log of a damaged store.

No hash covers a ref, so its row is compared with the log, whose lines have checksums:

- If the log is intact, the log decides.
- If only the log is damaged, the refs decide.
- If both are damaged, a ref's row is used if its commit descends from the log's last one.

A branch whose head is lost gets an earlier head: its newest intact ancestor, or an earlier head of
it in the log. Intact commits after the damage get a new branch. Only the end of the log is
kept: the lines after the last one that is lost or that has a lost commit. Undo cannot go past it.
"""

from collections.abc import Iterable
from typing import Any, NamedTuple, cast

from msgspec import Struct, field

from weft.store import checksum

from .graph import Graph, IntactCommit
from .recovered_rows import COMMIT_POSITIONS, REF_NAMES, THREAD_NAMES, RecoveredRows, Row

NEW_BRANCH_SUFFIX = "-after-damage"
TAG_PREFIX = "tag:"
"""The names of tags have this prefix, the names of branches do not."""


class LogLine(NamedTuple):
    """A row of the table `operation`. `ref`, `old` and `new` are keys.

    `was` is the writer's current branch, `from_branch` in `Operation`.
    """

    thread: int
    seq: int
    verb: str
    ref: int
    old: int | None
    new: int | None
    was: str | None
    created: float | None
    checksum: int | None

    @property
    def checked_columns(self) -> tuple[Any, ...]:
        """The columns that the checksum covers."""
        return self[2:8]


class FoundRef(NamedTuple):
    """A ref of the damaged store. `has_row` is false if only the index of names still has it."""

    thread: int
    name: str
    target: int | None
    has_row: bool


class RestoredRef(NamedTuple):
    """A ref of the new store; `target` is the key of a commit."""

    thread: int
    name: str
    target: int | None


class ShortenedBranch(Struct, frozen=True):
    """A branch that has lost its newest commits; `head` is `None` if it has lost all of them.

    `new_branch` has the intact commits after the damage. If the ref's row and a part of the log are
    lost, the branch may have had more commits than is known here (`is_sure` is false).
    """

    thread: str
    branch: str
    head: str | None
    lost_commits: int
    new_branch: str | None = None
    is_sure: bool = True

    def __str__(self) -> str:
        kind = "tag" if self.branch.startswith(TAG_PREFIX) else "branch"
        ref = f"{kind} {self.branch.removeprefix(TAG_PREFIX)!r} of thread {self.thread!r}"
        after = (
            ""
            if self.new_branch is None
            else f"; what came after the damage is on {self.new_branch!r}"
        )
        if self.head is None:
            return f"{ref} points nowhere: its beginning is lost{after}"
        if not self.is_sure:
            return f"{ref} is at {self.head}, the last commit that its damaged log has{after}"
        distance = f", {self.lost_commits} commits earlier" if self.lost_commits else ""
        return f"{ref} ends at {self.head}{distance}{after}"


class Names(Struct):
    """The threads, refs and log of the new store, and what the report says about lost ones.

    - `threads` and `refs` are by key. `new_branches` are refs that still need a key.
    - `lost_names` are sentences about threads and branches that have lost their names or settings.
    - `lost_log_lines` is the number of operations that cannot be undone any more.
    """

    threads: dict[int, Row] = field(default_factory=dict[int, Row])
    refs: dict[int, RestoredRef] = field(default_factory=dict[int, RestoredRef])
    log: list[LogLine] = field(default_factory=list[LogLine])
    shortened: list[ShortenedBranch] = field(default_factory=list[ShortenedBranch])
    lost_names: list[str] = field(default_factory=list[str])
    new_branches: list[RestoredRef] = field(default_factory=list[RestoredRef])
    lost_log_lines: int = 0


def plan_names(recovered: RecoveredRows, graph: Graph) -> Names:
    """The threads, refs and log lines that can be restored for the intact commits."""
    names = Names()
    intact_lines = _intact_lines(recovered)
    names.threads = _threads(recovered, graph, names.lost_names)
    depths = Depths(recovered, graph)
    lines_by_ref: dict[int, list[LogLine]] = {}
    for line in intact_lines:
        lines_by_ref.setdefault(line.ref, []).append(line)
    found_refs = _find_refs(recovered)
    used_names = {(ref.thread, ref.name) for ref in found_refs.values()}
    unsure: list[tuple[FoundRef, IntactCommit]] = []
    for key, ref in found_refs.items():
        thread = ref.thread
        if thread not in names.threads:
            continue
        lines = [line for line in lines_by_ref.get(key, ()) if line.thread == thread]
        target_key = _likely_target(recovered, graph, ref, lines)
        target = graph.find(target_key)
        if target is not None and target.thread != thread:
            target = None
        if target is None and target_key is not None:
            target = depths.before(target_key, thread) or _last_in_log(graph, lines, thread)
            title = cast(str, names.threads[thread][1])
            head = None if target is None else target.id.hex()
            lost_commits = 0 if target is None else depths.between(target_key, target)
            new_branch = _branch_after_damage(names, graph, ref, target_key, used_names)
            names.shortened.append(ShortenedBranch(title, ref.name, head, lost_commits, new_branch))
        elif target is not None and _is_from_damaged_log(recovered, target_key, ref.target, lines):
            unsure.append((ref, target))
        names.refs[key] = RestoredRef(thread, ref.name, None if target is None else target.key)
    _report_unsure(names, graph, unsure, used_names)
    _keep_log(names, intact_lines, recovered, graph)
    _keep_nameless_refs(names, graph, lines_by_ref, used_names)
    _set_current_branches(names)
    _keep_new_branches(names, graph)
    return names


def _branch_after_damage(
    names: Names,
    graph: Graph,
    ref: FoundRef,
    target_key: int,
    used_names: set[tuple[int, str]],
) -> str | None:
    """Add a branch for the intact commits after the damage; `None` if there are none."""
    tip = graph.find_after_hole(target_key)
    if tip is None or tip.thread != ref.thread or ref.name.startswith(TAG_PREFIX):
        return None
    return _add_branch(names, ref, target_key, used_names)


def _report_unsure(
    names: Names,
    graph: Graph,
    unsure: list[tuple[FoundRef, IntactCommit]],
    used_names: set[tuple[int, str]],
) -> None:
    """Report the branches that may have had more commits.

    If there are commits after such a branch that no ref reaches, they get a new branch.
    """
    reached = _reachable(graph, [target for _, _, target in names.refs.values()])
    for ref, target in unsure:
        descendants = {target.key}
        tip = None
        for commit in graph.commits.values():  # by key, so a parent comes before its children
            if commit.thread == ref.thread and commit.parents and commit.parents[0] in descendants:
                descendants.add(commit.key)
                tip = tip if commit.key in reached else commit.key
        new_branch = None
        if tip is not None and not ref.name.startswith(TAG_PREFIX):
            new_branch = _add_branch(names, ref, tip, used_names)
        title = cast(str, names.threads[ref.thread][1])
        names.shortened.append(
            ShortenedBranch(title, ref.name, target.id.hex(), 0, new_branch, is_sure=False)
        )


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


def _add_branch(names: Names, ref: FoundRef, target: int, used_names: set[tuple[int, str]]) -> str:
    """Add a branch that is named after `ref` and points to `target`; returns its name."""
    number, name = 1, f"{ref.name}{NEW_BRANCH_SUFFIX}"
    while (ref.thread, name) in used_names:
        number += 1
        name = f"{ref.name}{NEW_BRANCH_SUFFIX}-{number}"
    used_names.add((ref.thread, name))
    names.new_branches.append(RestoredRef(ref.thread, name, target))
    return name


def _keep_new_branches(names: Names, graph: Graph) -> None:
    """Give keys to the new branches. They are not in the log."""
    graph.keep_after_hole(ref.target for ref in names.new_branches if ref.target is not None)
    first_key = 1 + max([0, *names.refs, *(line.ref for line in names.log)])
    names.refs.update(enumerate(names.new_branches, first_key))


def _keep_nameless_refs(
    names: Names,
    graph: Graph,
    lines_by_ref: dict[int, list[LogLine]],
    used_names: set[tuple[int, str]],
) -> None:
    """Give new names to refs that only the discarded part of the log mentions.

    Those in the kept part are restored from it when the new file is checked.
    """
    logged = {line.ref for line in names.log}
    for key, lines in lines_by_ref.items():
        thread, last_target = lines[-1].thread, lines[-1].new
        if key in names.refs or key in logged or thread not in names.threads or last_target is None:
            continue
        target = _last_in_log(graph, lines, thread)
        title = cast(str, names.threads[thread][1])
        name = f"recovered-{key}"
        if target is None or (thread, name) in used_names:
            continue
        used_names.add((thread, name))
        names.refs[key] = RestoredRef(thread, name, target.key)
        names.lost_names.append(
            f"a branch of thread {title!r} has lost its name: it is {name!r} now"
        )


def _intact_lines(recovered: RecoveredRows) -> list[LogLine]:
    """The lines of the log whose checksum is right, newest last."""
    rows = cast("Iterable[Iterable[Any]]", recovered.table("operation").values())
    lines = map(LogLine._make, rows)
    intact = [
        line
        for line in lines
        if line.checksum is None or checksum(line.checked_columns) == line.checksum
    ]
    return sorted(intact, key=lambda line: (line.thread, line.seq))


def _threads(recovered: RecoveredRows, graph: Graph, lost_names: list[str]) -> dict[int, Row]:
    """Every thread that has a row, a name or a commit.

    Settings that are lost get their defaults, and a sentence is added to `lost_names`.
    """
    threads = dict(cast("dict[int, Row]", recovered.table("thread")))
    indexed_names = {key: cast(str, row[0]) for key, row in recovered.index(THREAD_NAMES).items()}
    created: dict[int, float] = {}
    for commit in graph.commits.values():
        created[commit.thread] = min(created.get(commit.thread, commit.created), commit.created)
    with_checkpoints = {row[0] for row in recovered.table("checkpoint").values()}
    titles = {row[1] for row in threads.values()}
    for key in sorted(created.keys() | indexed_names.keys() - threads.keys()):
        if key in threads:
            continue
        title = indexed_names.get(key, f"recovered-{key}")
        if title in titles:
            title = f"recovered-{key}"
        lost_names.append(f"thread {title!r} has lost its settings")
        threads[key] = (
            None,
            title,
            "main",
            int(key in with_checkpoints),
            None,
            created.get(key, 0.0),
        )
    return threads


def _find_refs(recovered: RecoveredRows) -> dict[int, FoundRef]:
    """The refs by key, from their rows and from the index of names."""
    refs: dict[int, FoundRef] = {}
    for key, row in cast(
        "dict[int, tuple[None, int, str, int | None]]", recovered.table("ref")
    ).items():
        refs[key] = FoundRef(row[1], row[2], row[3], has_row=True)
    used_names = {(ref.thread, ref.name) for ref in refs.values()}
    for key, row in recovered.index(REF_NAMES).items():
        thread, name = cast(tuple[int, str], row)
        if key not in refs and (thread, name) not in used_names:
            refs[key] = FoundRef(thread, name, None, has_row=False)
    return refs


def _likely_target(
    recovered: RecoveredRows, graph: Graph, ref: FoundRef, lines: list[LogLine]
) -> int | None:
    """The key of the commit that a ref most likely pointed at; see the module's docstring."""
    if not lines:
        return ref.target
    log_target = lines[-1].new
    if not ref.has_row or "operation" not in recovered.damaged:
        return log_target
    if "ref" not in recovered.damaged or _descends_from(graph, ref.target, log_target):
        return ref.target
    return log_target


def _is_from_damaged_log(
    recovered: RecoveredRows, target_key: int | None, row_target: int | None, lines: list[LogLine]
) -> bool:
    """Whether a ref's target comes only from a log that may have lost its last lines."""
    return bool(lines) and target_key != row_target and "operation" in recovered.damaged


def _descends_from(graph: Graph, key: int | None, ancestor: int | None) -> bool:
    """Whether `ancestor` is the commit `key`, or is in its first-parent chain."""
    commit = graph.find(key)
    while commit is not None and commit.key != ancestor:
        commit = graph.find(commit.parents[0]) if commit.parents else None
    return commit is not None


def _last_in_log(graph: Graph, lines: list[LogLine], thread: int) -> IntactCommit | None:
    """The newest intact commit that these lines of the log mention."""
    for line in reversed(lines):
        for key in (line.new, line.old):
            commit = graph.find(key)
            if commit is not None and commit.thread == thread:
                return commit
    return None


class Depths:
    """Finds the intact ancestors of lost commits.

    The store numbers the commits of a first-parent chain (a *line*) by depth. A line that branches
    off another one starts at a base: that line and a depth in it. The indexes still have the line
    and depth of commits whose own row is lost.
    """

    def __init__(self, recovered: RecoveredRows, graph: Graph) -> None:
        rows = cast("dict[int, Row]", recovered.table("commits"))
        self._positions = {key: cast(tuple[int, int], row[3:5]) for key, row in rows.items()}
        for key, position in recovered.index(COMMIT_POSITIONS).items():
            self._positions[key] = cast(tuple[int, int], position)
        self._lines = cast(
            "dict[int, tuple[None, int | None, int | None]]", recovered.table("line")
        )
        self._graph = graph
        self._intact: dict[int, list[tuple[int, int]]] = {}
        for key in graph.commits:
            if key in self._positions:
                line, depth = self._positions[key]
                self._intact.setdefault(line, []).append((depth, key))

    def before(self, key: int, thread: int) -> IntactCommit | None:
        """The newest intact commit in the first-parent chain of a lost one."""
        position = self._positions.get(key)
        visited: set[int] = set()
        while position is not None and position[0] not in visited:
            line, limit = position
            visited.add(line)
            below = [(depth, key) for depth, key in self._intact.get(line, ()) if depth <= limit]
            if below:
                commit = self._graph.commits[max(below)[1]]
                return commit if commit.thread == thread else None
            _, base, depth = self._lines.get(line, (None, None, None))
            position = None if base is None or depth is None else (base, depth)
        return None

    def between(self, lost_head: int, new_head: IntactCommit) -> int:
        """How many commits a branch has lost if its head was `lost_head`; 0 if unknown."""
        lost, intact = self._positions.get(lost_head), self._positions.get(new_head.key)
        if lost is None or intact is None:
            return 0
        return max(0, lost[1] - intact[1])


def _keep_log(
    names: Names, intact_lines: list[LogLine], recovered: RecoveredRows, graph: Graph
) -> None:
    """Keep the end of each thread's log, up to the first gap or lost commit, if the refs match."""
    for thread in names.threads:
        newest_first: list[LogLine] = []
        for line in reversed([line for line in intact_lines if line.thread == thread]):
            if newest_first and line.seq != newest_first[-1].seq - 1:
                break
            if any(key is not None and graph.find(key) is None for key in (line.old, line.new)):
                break
            newest_first.append(line)
        oldest_first = newest_first[::-1]
        heads = {line.ref: line.new for line in oldest_first}
        if all(_matches_ref(names, graph, ref, head) for ref, head in heads.items()):
            names.log += [_renumbered(graph, line) for line in oldest_first]
    total = max(_count_lines(intact_lines), len(recovered.table("operation")))
    names.lost_log_lines = total - len(names.log)


def _count_lines(intact_lines: list[LogLine]) -> int:
    """How many lines the log had, by the numbers of the first and the last intact one."""
    numbers: dict[int, list[int]] = {}
    for line in intact_lines:
        numbers.setdefault(line.thread, []).append(line.seq)
    return sum(max(seqs) - min(seqs) + 1 for seqs in numbers.values())


def _matches_ref(names: Names, graph: Graph, ref: int, head: int | None) -> bool:
    """Whether the log's last head of a ref is the restored one."""
    if ref not in names.refs:
        return True  # it is restored from the log later
    commit = graph.find(head)
    return names.refs[ref].target == (None if commit is None else commit.key)


def _renumbered(graph: Graph, line: LogLine) -> LogLine:
    """The line with the new keys of its commits and a new checksum."""
    old, new = graph.find(line.old), graph.find(line.new)
    renumbered = line._replace(
        old=None if old is None else old.key, new=None if new is None else new.key
    )
    return renumbered._replace(checksum=checksum(renumbered.checked_columns))


def _set_current_branches(names: Names) -> None:
    """Set the current branch of every thread to an existing one, if it has any."""
    for key, row in names.threads.items():
        refs = [ref for ref in names.refs.values() if ref.thread == key]
        branches = [ref.name for ref in refs if ref.target and not ref.name.startswith(TAG_PREFIX)]
        only_in_log = {line.ref for line in names.log if line.thread == key} - names.refs.keys()
        if branches and not only_in_log and row[2] not in [ref.name for ref in refs]:
            names.threads[key] = (*row[:2], branches[0], *row[3:])
