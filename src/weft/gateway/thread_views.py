"""Compiled threads, kept between the page's reads.

A thread of many thousand messages takes a second to compile. The page reads it after every commit,
so the view is kept, and new commits only extend it. A commit never changes, so a view of a commit
never becomes stale. The least recently used threads are dropped.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from threading import Lock
from typing import Any

import msgspec
from msgspec import Struct

from weft.agent import MessageCounts
from weft.history import Count, Row, View, read_stop_reason
from weft.ids import Id
from weft.model import JsonObject, ToolCall, ToolResult, Usage
from weft.store import Step, Store
from weft.thread import AnswerCost, CommitInfo

from .api_views import REWRITES, SUMMARY, Change, tokens_json

CACHED_VIEWS = 16
CACHED_FIGURES = 1000
CACHED_COSTS = 5000
COUNTED_MODELS = 4
CACHED_GRAPHS = 8
OTHER_COMMIT = ""
"""Replaces the branch in the key of a view of a commit that is not on that branch."""


class GraphCommit(Struct, frozen=True, gc=False):
    """A commit as the graph shows it."""

    created: float
    parents: tuple[Id, ...]
    kind: str
    label: str


class CommitFacts(Struct, frozen=True, gc=False):
    """When a commit was made, the usage that its model reported, and the last row at that time.

    `seconds` is the time since the commit before it. For an answer, that is how long it took: its
    request is stored when it is sent. `stop` is the special reason why an answer ended.
    """

    created: float
    usage: bytes | None = None
    last_row: Id | None = None
    seconds: float | None = None
    stop: str | None = None

    def read_usage(self) -> Usage | None:
        return None if self.usage is None else msgspec.json.decode(self.usage, type=Usage)


class ThreadView:
    """A thread as of one commit, with other data that the page shows.

    - `facts` has the facts of each commit; an appended row has the id of its commit
    - `summaries` has the compaction of each row that is a summary
    - `notes` has the notes on each row or commit, oldest first
    - `callers` has the row of each tool call, `results` the result of each call, by call id
    """

    def __init__(self) -> None:
        self.view = View()
        self.facts: dict[Id, CommitFacts] = {}
        self.summaries: dict[Id, tuple[Id, Change]] = {}
        self.notes: dict[str, tuple[JsonObject, ...]] = {}
        self.callers: dict[str, Id] = {}
        self.results: dict[str, ToolResult] = {}

    @property
    def rows(self) -> list[Row]:
        return self.view.rows

    @property
    def last_row(self) -> Id | None:
        """The row that was appended last."""
        return None if self.view.head is None else self.facts[self.view.head].last_row

    def extend(self, steps: Sequence[Step]) -> "ThreadView":
        """The thread after these commits."""
        after = ThreadView()
        after.view = self.view
        after.facts = dict(self.facts)
        after.summaries = dict(self.summaries)
        after.notes = dict(self.notes)
        appending: list[Step] = []
        last_row = self.last_row
        for step in steps:
            commit = step.commit
            last_row = commit.id if commit.kind == "append" else last_row
            before = after.facts.get(commit.parents[0]) if commit.parents else None
            seconds = None if before is None else commit.created - before.created
            after.facts[commit.id] = CommitFacts(
                commit.created, commit.usage, last_row, seconds, read_stop_reason(commit)
            )
            if commit.kind == "note":
                after.add_note(step)
            if commit.kind not in REWRITES:
                appending.append(step)
                continue
            after.view, appending = after.view.extend(appending), []
            old_rows = tuple(after.view.rows)
            after.view = after.view.extend([step])
            change = Change(old_rows, tuple(after.view.rows))
            if change.removed:
                for row in change.added:
                    if row.kind == SUMMARY and row.id is not None:
                        after.summaries[row.id] = (step.commit.id, change)
        after.view = after.view.extend(appending)
        is_longer = all(step.commit.kind not in REWRITES for step in steps)
        start = self.view.length if is_longer else 0
        after.callers = dict(self.callers) if is_longer else {}
        after.results = dict(self.results) if is_longer else {}
        after.index_calls(after.rows[start:])
        return after

    def at(self, view: View) -> "ThreadView":
        """The same thread at an earlier commit."""
        earlier = ThreadView()
        earlier.view = view
        earlier.facts, earlier.summaries, earlier.notes = self.facts, self.summaries, self.notes
        earlier.index_calls(view.rows)
        return earlier

    def add_note(self, step: Step) -> None:
        info = CommitInfo(step, lambda _: 0)
        about = str(info.metadata.get("about", ""))
        note = {"id": info.id, "text": info.message or "", "created": step.commit.created}
        self.notes[about] = (*self.notes.get(about, ()), note)

    def index_calls(self, rows: Iterable[Row]) -> None:
        for row in rows:
            for block in row.message.blocks:
                if isinstance(block, ToolCall) and row.id is not None:
                    self.callers[block.id] = row.id
                elif isinstance(block, ToolResult):
                    self.results[block.call_id] = block


class ThreadViews:
    """The views of the threads that were read last."""

    def __init__(self) -> None:
        self._views: OrderedDict[tuple[str, str], ThreadView] = OrderedDict()
        self._lock = Lock()
        self._figures: dict[Id, JsonObject] = {}
        self._contexts: dict[tuple[object, ...], JsonObject] = {}
        self._counts: OrderedDict[str, MessageCounts] = OrderedDict()
        self._costs: OrderedDict[str, tuple[object, tuple[AnswerCost, ...]]] = OrderedDict()
        self._graphs: OrderedDict[str, Mapping[Id, GraphCommit]] = OrderedDict()

    def read(self, store: Store, thread: str, branch: str, head: Id | None) -> ThreadView:
        """The thread at a commit, usually of this branch; None: before the first commit."""
        if head is None:
            return ThreadView()
        key = (thread, branch)
        with self._lock:
            cached = self._views.get(key, ThreadView())
            other = self._views.get((thread, OTHER_COMMIT), cached)
        for candidate in (cached, other):
            earlier = candidate.view.at(head)
            if earlier is not None:
                return candidate if earlier is candidate.view else candidate.at(earlier)
        steps = store.walk(thread, head, after=cached.view.depth)
        follows = bool(steps) and steps[0].commit.parents[:1] == _parents(cached.view)
        if not follows:
            if head != store.read_ref(thread, branch):  # a commit elsewhere: keep the branch's view
                key = (thread, OTHER_COMMIT)
            cached, steps = ThreadView(), store.walk(thread, head)
        view = cached.extend(steps)
        with self._lock:
            self._views[key] = view
            self._views.move_to_end(key)
            while len(self._views) > CACHED_VIEWS:
                self._views.popitem(last=False)
        return view

    def graph(self, thread: str) -> Mapping[Id, GraphCommit]:
        """The commits of a thread's graph that were read before, with all their ancestors."""
        with self._lock:
            return self._graphs.get(thread, {})

    def set_graph(self, thread: str, graph: Mapping[Id, GraphCommit]) -> None:
        """Keep a graph. A commit never changes, so the graph never becomes stale."""
        with self._lock:
            self._graphs[thread] = graph
            self._graphs.move_to_end(thread)
            while len(self._graphs) > CACHED_GRAPHS:
                self._graphs.popitem(last=False)

    def figures(self, commit: Id, change: Change, count: Count) -> JsonObject:
        """The tokens before and after a compaction.

        They are counted once: counting takes a second in a thread of many thousand messages.
        """
        if commit not in self._figures:
            _make_room(self._figures)
            self._figures[commit] = tokens_json(change.before, change.after, count)
        return self._figures[commit]

    def context(self, key: tuple[object, ...], measure: Callable[[], JsonObject]) -> JsonObject:
        """How full a window is; measured once for each key, which names commit and model."""
        if key not in self._contexts:
            _make_room(self._contexts)
            self._contexts[key] = measure()
        return self._contexts[key]

    def counts(self, model: str) -> MessageCounts:
        """The tokens of messages that were counted for this model."""
        with self._lock:
            counts = self._counts.setdefault(model, {})
            self._counts.move_to_end(model)
            while len(self._counts) > COUNTED_MODELS:
                self._counts.popitem(last=False)
        return counts

    def costs(
        self, key: tuple[str, object], read: Callable[[], tuple[AnswerCost, ...]]
    ) -> tuple[AnswerCost, ...]:
        """The costs of a thread's answers, cached under `key`: its name and its current state."""
        thread, version = key
        cached_costs = self._costs.get(thread)
        if cached_costs is None or cached_costs[0] != version:
            cached_costs = (version, read())
            with self._lock:
                self._costs[thread] = cached_costs
                while len(self._costs) > CACHED_COSTS:
                    self._costs.popitem(last=False)
        return cached_costs[1]


def _make_room(cache: dict[Any, JsonObject]) -> None:
    if len(cache) >= CACHED_FIGURES:
        cache.clear()


def _parents(view: View) -> tuple[Id, ...]:
    return () if view.head is None else (view.head,)
