"""`Handle`: one branch of one thread in a store, with cached views, hooks and a budget.

- `view` compiles a commit. Views are cached and extended by the commits that came since.
- `land` is the only way to commit. It drafts a change on top of the current head. If another
  writer moves the head first, it drafts again. The last try holds the store's write lock, so it
  succeeds.
- Hooks and the budget are checked before a change is written. A refused change writes nothing.

A handle may be used from any OS thread.
"""

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence, Set
from contextlib import contextmanager, suppress
from functools import partial
from threading import RLock
from time import time

from msgspec import structs

from weft.compact import SystemMessage
from weft.errors import RefMoved, ThreadError
from weft.history import (
    Append,
    Draft,
    ReplayedCommit,
    Row,
    Setup,
    State,
    View,
    chain_message,
    chain_messages,
    compile_present,
    compile_tail,
    empty_chain,
    encode_commit,
    is_visible,
    read_operations,
    run_step,
    visible_rows,
)
from weft.ids import Id
from weft.model import Checkpoint, Message, is_system
from weft.store import CommitRecord, Landing, Operation, Step, Store, ThreadRecord
from weft.tokens import Counter, counter_for

from .asker import Models
from .hooks import After, Before, Budget, run_after_hooks, run_before_hooks
from .info import CommitInfo, read_info
from .sent_body import SentBodyCache

MAX_VIEWS = 16
"""The most views that a handle caches."""

MAX_COUNTS = 100_000
"""The most token counts that a handle caches."""

NEARBY = (16, 256)
"""How many of the newest commits to search for one with a cached view."""

TRIES = 3
"""How often a commit is tried without the store's write lock."""

DEFAULT_TOKENIZER = "o200k"

MakeDraft = Callable[[Id | None], tuple[Draft, tuple[Id, ...]]]
"""Takes the current head; returns a draft and its parents besides that head."""

Entries = tuple[tuple[Id, bytes], ...]
"""The ids and contents of stored entries."""


class Handle:
    """The state behind a `Thread`; functions of this package take it as their first argument."""

    def __init__(
        self,
        store: Store,
        record: ThreadRecord,
        *,
        branch: str | None = None,
        clock: Callable[[], float] = time,
        counter: Counter | None = None,
        budget: Budget | None = None,
        models: Models | None = None,
    ) -> None:
        self.store = store
        self.name = record.name
        self.branch = branch or record.head
        self.checkpoints = record.checkpoints
        self.scope = record.scope
        self.clock = clock
        self.lock = RLock()
        self.budget = budget
        self.models = models
        self.listeners: list[Callable[[SystemMessage], None]] = []
        self.tokenizer = DEFAULT_TOKENIZER if counter is None else type(counter).__name__
        self.before: list[Before] = []
        self.after: list[After] = []
        self._in_hook = False
        self._counter = counter
        self._views: dict[Id, View] = {}
        self._counts: dict[int, tuple[Message, int]] = {}
        self._empty_view = View()
        self._chain_keys: dict[Id, bytes | None] = {}  # of the newest commit only
        self.has_written = False  # whether anything was committed through this handle
        self._last_write: tuple[str, Id] | None = None  # the branch and its new head
        self._in_one_step = False
        self._first_of_step: int | None = None  # the number of its first operation
        self._opened_without_branch = branch is None
        self._opened_at = clock()
        self._own_operations: set[int] = set()
        self.bodies = SentBodyCache()

    def on_branch(self, branch: str) -> "Handle":
        """Another handle on the same thread and store, on that branch, with the same settings."""
        record = ThreadRecord(self.name, branch, self.checkpoints, self.scope)
        other = Handle(
            self.store,
            record,
            branch=branch,
            clock=self.clock,
            counter=self._counter,
            budget=self.budget,
            models=self.models,
        )
        other.tokenizer = self.tokenizer
        other.before, other.after = list(self.before), list(self.after)
        other.listeners = list(self.listeners)
        return other

    def owns_operation(self, operation: Operation) -> bool:
        """Whether `undo` on this handle may undo a switch, or a change of another ref.

        It may undo its own operations. A handle that was opened without a branch may also undo
        operations from before it was opened: `weft undo` undoes the `weft switch` or `weft tag` of
        an earlier process.
        """
        return operation.seq in self._own_operations or (
            self._opened_without_branch and operation.created <= self._opened_at
        )

    def move_ref(self, verb: str, ref: str, old: Id | None, new: Id | None) -> None:
        """Move a branch or tag; the log also records the current branch if it is another one."""
        self.log_operation(verb, ref, old, new, None if ref == self.branch else self.branch)

    def log_operation(
        self, verb: str, ref: str, old: Id | None, new: Id | None, from_branch: str | None
    ) -> None:
        """Move a ref, and log the operation.

        `from_branch` is the handle's branch, if another ref is moved or the handle switches. Then
        this handle may undo the operation (`owns_operation`).
        """
        landing = Landing(
            verb=verb, ref=ref, old=old, new=new, created=self.clock(), from_branch=from_branch
        )
        self.write_landing(landing)
        if from_branch is not None:
            self._own_operations.add(self.store.operations(self.name, limit=1)[0].seq)

    def write_landing(self, landing: Landing) -> None:
        """Write to the thread; every write of this handle goes through here."""
        self.store.land(self.name, landing)
        if self._in_one_step and self._first_of_step is None:
            self._first_of_step = self.store.operations(self.name, limit=1)[0].seq

    @contextmanager
    def as_one_step(self) -> Generator[None]:
        """Make the operations inside one step for `undo`; must be inside a transaction.

        Nested steps belong to the outermost one.
        """
        if self._in_one_step:
            yield
            return
        self._in_one_step = True
        try:
            yield
            if self._first_of_step is not None:
                self.store.mark_batch(self.name, self._first_of_step)
        finally:
            self._in_one_step = False
            self._first_of_step = None

    @contextmanager
    def changing_refs(self) -> Generator[None]:
        """A transaction that changes refs; if it fails, the handle returns to its old branch."""
        with self.lock, self.restoring_branch(), self.store.transaction():
            yield

    @contextmanager
    def restoring_branch(self) -> Generator[None]:
        """Return to the current branch if the block fails and is rolled back."""
        branch, own_operations = self.branch, set(self._own_operations)
        try:
            yield
        except BaseException:
            self.branch, self._own_operations = branch, own_operations
            raise

    def head(self) -> Id | None:
        """The commit that the branch points at now; `None` if it has no commits.

        Raises `ThreadError` if the branch was deleted: a commit would begin a new history there.
        """
        head = self.store.read_ref(self.name, self.branch)
        if head is None and self._is_deleted():
            raise ThreadError(
                f"branch {self.branch!r} was deleted: switch to another branch, or fork it again"
            )
        return head

    def _is_deleted(self) -> bool:
        """Whether the last operation on the branch, done from another branch, removed it."""
        for operation in read_operations(self.store, self.name):
            if operation.ref == self.branch:
                return operation.new is None and None not in (operation.old, operation.from_branch)
        return False

    def view(self, head: Id | None, steps: Sequence[Step] = ()) -> View:
        """The compiled view of a commit, extended from the nearest cached view.

        `steps` is the whole history of the commit, if the caller has read it already.
        """
        if head is None:
            return self._empty_view
        with self.lock:
            view = self._views.pop(head, None)
            if view is None and steps:
                view = self._find_cached(head) or self._empty_view.extend(steps)
            elif view is None:
                view = self._build_view(head)
            self._cache_view(view)
            return view

    def has_view(self, head: Id) -> bool:
        """Whether this commit's view is cached."""
        with self.lock:
            return self._find_cached(head) is not None

    def tail(self, head: Id | None, last: int, *, reasoning: bool) -> list[Row] | None:
        """The last visible rows, without compiling the thread; `None` if its view is cached."""
        if head is None or last < 0 or head in self._views:
            return None
        return compile_tail(self.store, self.name, head, last, reasoning=reasoning)

    def land(self, verb: str, make_draft: MakeDraft, *, any_head: bool = False) -> CommitInfo:
        """Commit the draft for the head; it is made again if another writer was first.

        `any_head`: the draft fits any head. Then the first try uses the head that this handle
        wrote last, without reading it: the store notices if it has moved.
        """
        with self.lock:
            if any_head and self._last_write is not None and self._last_write[0] == self.branch:
                try:
                    return self._land(verb, make_draft, self._last_write[1])
                except RefMoved:
                    self._last_write = None
            for _ in range(TRIES):
                with suppress(RefMoved):
                    return self._land(verb, make_draft, self.head())
            with self.store.transaction():
                return self._land(verb, make_draft, self.head())

    def land_series(self, verb: str, onto: Id, commits: Iterable[ReplayedCommit]) -> CommitInfo:
        """Move the branch to `onto` with these commits on top, as one operation."""
        with self.lock:
            head, tip = self.head(), onto
            state, chain_key = self.view(onto).state, self._chain_key_of(onto)
            records: list[CommitRecord] = []
            entries: list[tuple[Id, bytes]] = []
            for replayed in commits:
                draft = self.run_before_hooks(replayed.draft)
                parents = (tip, *replayed.merged_parents)
                record, added = encode_commit(draft, parents, created=self.clock())
                state = run_step(state, _step(record, added))
                chain_key = self._next_chain_key(chain_key, draft, state)
                records.append(structs.replace(record, chain=chain_key))
                entries += added
                tip = record.id
            self.check_budget(state.rows)
            self._write(verb, head, tip, tuple(records), tuple(entries))
            return self.run_after_hooks(self.info(tip))

    def simulate(self, make_draft: MakeDraft) -> State:
        """The state of the thread after this change; writes nothing and runs no hooks."""
        head = self.head()
        draft, other_parents = make_draft(head)
        parents = (() if head is None else (head,)) + other_parents
        record, entries = encode_commit(draft, parents, created=self.clock())
        return run_step(self.view(head).state, _step(record, entries))

    def check_budget(self, rows: Sequence[Row]) -> None:
        """Refuse rows that are above the budget, or warn about them."""
        if self.budget is not None:
            current_tokens = self.view(self.head()).tokens(self.count)
            self.budget.check(
                current_tokens, sum(self.count(row.message) for row in visible_rows(rows))
            )

    def info(self, id: Id) -> CommitInfo:
        """The info of a commit that exists."""
        return read_info(self.store.read_commits(self.name, [id])[0], self.count)

    def count(self, message: Message) -> int:
        """The tokens of a message, cached; loads the vocabulary on the first call."""
        counted = self._counts.get(id(message))
        if counted is not None:
            return counted[1]
        if self._counter is None:
            self._counter = counter_for(DEFAULT_TOKENIZER)
        if len(self._counts) >= MAX_COUNTS:
            self._counts.clear()
        tokens = self._counter.message(message)
        self._counts[id(message)] = (message, tokens)  # a living object keeps its id
        return tokens

    def count_once(self, message: Message) -> int:
        """The tokens of a message, not cached: for messages that a plan only tries out."""
        counted = self._counts.get(id(message))
        if counted is not None:
            return counted[1]
        if self._counter is None:
            self._counter = counter_for(DEFAULT_TOKENIZER)
        return self._counter.message(message)

    def emit(self, events: Iterable[SystemMessage]) -> None:
        """Send events to all listeners."""
        for event in events:
            for listener in tuple(self.listeners):
                listener(event)

    def forget_views(self) -> None:
        """Drop all cached views, because a transaction was rolled back."""
        with self.lock:
            self._views.clear()
            self._last_write = None

    def _cache_view(self, view: View) -> None:
        """Cache a view; the dict is ordered by last use."""
        if view.head is not None:
            self._views[view.head] = view
        if len(self._views) > MAX_VIEWS:
            del self._views[next(iter(self._views))]

    def _build_view(self, head: Id) -> View:
        """The view of `head`, from the nearest commit with a cached view, or from the start."""
        cached = self._find_cached(head)
        if cached is not None:
            return cached
        for limit in NEARBY if self._views else ():
            steps = self.store.walk(self.name, head, limit=limit)
            for index in range(len(steps) - 1, -1, -1):
                parents = steps[index].commit.parents
                cached = self._find_cached(parents[0]) if parents else self._empty_view
                if cached is not None:
                    return cached.extend(steps[index:])
        present = compile_present(self.store, self.name, head)
        if present is not None:
            return present
        steps = self.store.walk(self.name, head)
        if not steps:
            raise ThreadError(f"commit {head.hex()[:12]} is not in this thread")
        return self._empty_view.extend(steps)

    def _find_cached(self, head: Id) -> View | None:
        """The view of a commit, if a cached view ends at it or contains it."""
        for view in reversed(self._views.values()):
            earlier = view.at(head)
            if earlier is not None:
                return earlier
        return None

    def _next_chain_key(self, before: bytes | None, draft: Draft, after: State) -> bytes | None:
        """The chain key of all messages that are visible after this commit.

        The gateway finds the thread of a conversation by it. `before` is the chain key of the
        parent. Threads without a scope have none.
        """
        if self.scope is None:
            return None
        match draft.op:
            case Setup():
                return before
            case Append():
                message = draft.messages[0]
                if not _is_visible(draft.op, message) or is_system(message):
                    return before
                return chain_message(before or empty_chain(self.scope), message)
            case _:
                rows = visible_rows(after.rows)
                links = list(chain_messages(self.scope, (row.message for row in rows)))
                return links[-1] if links else None

    def _chain_key_of(self, head: Id | None) -> bytes | None:
        if head is None or self.scope is None:
            return None
        if head not in self._chain_keys:
            (step,) = self.store.read_commits(self.name, [head])
            self._chain_keys = {head: step.commit.chain}
        return self._chain_keys[head]

    def _land(self, verb: str, make_draft: MakeDraft, head: Id | None) -> CommitInfo:
        """Commit the draft for this head; raises `RefMoved` if the branch has another head."""
        draft, other_parents = make_draft(head)
        draft = self.run_before_hooks(draft)
        parents = (() if head is None else (head,)) + other_parents
        record, entries = encode_commit(draft, parents, created=self.clock())
        if self.budget is not None or self.scope is not None:
            record = self._check_and_key(head, draft, record, entries)
        self._write(verb, head, record.id, (record,), entries, checkpoint_ids(draft.messages))
        step = _step(record, entries)
        view = None if head is None else self._views.get(head)
        if view is not None and not other_parents:
            # Extended right away, so that a compile after every commit reads nothing.
            self._cache_view(view.extend([structs.replace(step, depth=view.depth + 1)]))
        return self.run_after_hooks(read_info(step, self.count))

    def _check_and_key(
        self, head: Id | None, draft: Draft, record: CommitRecord, entries: Entries
    ) -> CommitRecord:
        """Check the budget; returns the commit with its chain key."""
        if isinstance(draft.op, Append):
            after = State()  # neither the budget nor the chain key of an append needs the rows
            if self.budget is not None and _is_visible(draft.op, draft.messages[0]):
                current_tokens = self.view(head).tokens(self.count)
                self.budget.check(current_tokens, current_tokens + self.count(draft.messages[0]))
        else:
            after = run_step(self.view(head).state, _step(record, entries))
            self.check_budget(after.rows)
        chain_key = self._next_chain_key(self._chain_key_of(head), draft, after)
        if self.scope is not None:
            self._chain_keys = {record.id: chain_key}
        return structs.replace(record, chain=chain_key)

    def _write(
        self,
        verb: str,
        head: Id | None,
        tip: Id,
        commits: tuple[CommitRecord, ...],
        entries: Entries,
        checkpoints: tuple[str, ...] = (),
    ) -> None:
        created = commits[-1].created if commits else self.clock()
        landing = Landing(verb, self.branch, head, tip, created, entries, commits, checkpoints)
        self.write_landing(landing)
        self._last_write = (self.branch, tip)
        self.has_written = True

    def run_before_hooks(self, draft: Draft) -> Draft:
        """The draft after all `before` hooks; commits made inside a hook run no hooks."""
        if self._in_hook or not self.before:
            return draft
        self._in_hook = True
        try:
            return run_before_hooks(tuple(self.before), draft)
        finally:
            self._in_hook = False

    def run_after_hooks(self, info: CommitInfo) -> CommitInfo:
        """Call the `after` hooks with a commit that was written."""
        if not self._in_hook and self.after:
            self._in_hook = True
            try:
                run_after_hooks(tuple(self.after), info)
            finally:
                self._in_hook = False
        return info


class TakenCheckpoints(Set[str]):
    """All checkpoint ids of a thread, looked up one at a time."""

    def __init__(self, store: Store, thread: str) -> None:
        self._has = partial(store.has_checkpoint, thread)

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and self._has(name)

    def __iter__(self) -> Iterator[str]:
        raise TypeError("the checkpoints of a thread can only be looked up one at a time")

    def __len__(self) -> int:
        raise TypeError("the checkpoints of a thread can only be looked up one at a time")


def checkpoint_ids(messages: Iterable[Message]) -> tuple[str, ...]:
    """The ids of the checkpoints in these messages, in order."""
    ids: list[str] = []
    for message in messages:
        for block in message.blocks:
            if type(block) is Checkpoint:
                ids.append(block.id)
    return tuple(ids)


def _is_visible(op: Append, message: Message) -> bool:
    return is_visible(Row(None, message, op.priority, op.kind))


def _step(record: CommitRecord, entries: Entries) -> Step:
    return Step(record, 0, tuple([data for _, data in entries]))
