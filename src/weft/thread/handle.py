"""One place in one thread: which branch, what it compiles to, and how a change lands.

Every verb is a function of a handle. `view` is compile, kept from call to call and extended by
what came since. `land` is the only way to write: it plans against the head it sees, and where
another writer was first it plans again against the new one, the last time while holding the
store's write lock, so that it cannot lose for ever. Before it lands, a change passes the hooks
and the budget; one that they refuse leaves no trace. A handle may be used from any thread.
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
    Again,
    Append,
    Draft,
    Row,
    Setup,
    State,
    View,
    advance,
    chain_message,
    chain_messages,
    encode_commit,
    first_link,
    index_behind,
    read_tail,
    show_rows,
    shows,
)
from weft.ids import Id
from weft.model import Checkpoint, Message, is_system
from weft.store import CommitRecord, Landing, Operation, Step, Store, ThreadRecord
from weft.tokens import Counter, counter_for

from .asker import Models
from .budget import Budget
from .hooks import After, Before, run_after_hooks, run_before_hooks
from .info import CommitInfo, read_info
from .sent_body import Bodies

KEPT_VIEWS = 16
INDEX_EVERY = 150
NEARBY = (16, 256)  # how many of the newest commits to look through for a view to extend
COUNTS_KEPT = 100_000
TRIES = 3
DEFAULT_TOKENIZER = "o200k"

Plan = Callable[[Id | None], tuple[Draft, tuple[Id, ...]]]
"""From the head that a writer sees to what it wants to land: a draft, and further parents."""

Entries = tuple[tuple[Id, bytes], ...]


class Handle:
    """Where a `Thread` stands; the verbs' common ground."""

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
        self._asking = False
        self._counter = counter
        self._views: dict[Id, View] = {}
        self._counts: dict[int, tuple[Message, int]] = {}
        self._empty = View()
        self._chains: dict[Id, bytes | None] = {}
        self._landed = 0
        self._left: tuple[str, Id] | None = None
        self.batching = False
        self._follows = branch is None
        self._opened = clock()
        self._own: set[int] = set()
        self.bodies = Bodies()

    def twin(self, branch: str) -> "Handle":
        """Another handle on the same thread and store, on that branch, with the same settings."""
        record = ThreadRecord(self.name, branch, self.checkpoints, self.scope)
        made = Handle(
            self.store,
            record,
            branch=branch,
            clock=self.clock,
            counter=self._counter,
            budget=self.budget,
            models=self.models,
        )
        made.tokenizer = self.tokenizer
        made.before, made.after = list(self.before), list(self.after)
        made.listeners = list(self.listeners)
        return made

    @property
    def has_written(self) -> bool:
        """Whether anything was committed through this handle."""
        return self._landed > 0

    def is_own(self, operation: Operation) -> bool:
        """Whether a switch, or a change of another name, counts as this handle's.

        Its own do. A handle that was opened without a branch goes on where the thread stood, so it
        also inherits those from before it was opened: `weft undo` takes back the `weft switch` or
        `weft tag` of an earlier process.
        """
        return operation.seq in self._own or (self._follows and operation.created <= self._opened)

    def note_own(self) -> None:
        """Remember that the line of the log that was just written is this handle's."""
        self._own.add(self.store.operations(self.name, limit=1)[0].seq)

    @contextmanager
    def restoring_place(self) -> Generator[None]:
        """Put the handle back where it stood if what is inside fails and is rolled back."""
        branch, own = self.branch, set(self._own)
        try:
            yield
        except BaseException:
            self.branch, self._own = branch, own
            raise

    def head(self) -> Id | None:
        """The commit that the branch points at now."""
        return self.store.read_ref(self.name, self.branch)

    def view(self, head: Id | None) -> View:
        """What this commit compiles to, extended from the nearest view at hand."""
        if head is None:
            return self._empty
        with self.lock:
            found = self._views.pop(head, None)
            if found is None:
                found = self._extended(head)
            self._keep(found)
            return found

    def has_view(self, head: Id) -> bool:
        """Whether this commit's view is at hand."""
        with self.lock:
            return self._known(head) is not None

    def tail(self, head: Id | None, last: int, *, reasoning: bool) -> list[Row] | None:
        """The last lines that show, read alone; `None` where the whole view is at hand anyway."""
        if head is None or last < 0 or head in self._views:
            return None
        return read_tail(self.store, self.name, head, last, reasoning=reasoning)

    def land(self, verb: str, plan: Plan, *, anywhere: bool = False) -> CommitInfo:
        """Commit what `plan` makes of the head; plans again where another writer was first.

        A plan that would say the same `anywhere` is first tried on the head that this handle left
        behind, unread: if another writer has moved it, the store says so.
        """
        with self.lock:
            if anywhere and self._left is not None and self._left[0] == self.branch:
                try:
                    return self._land(verb, plan, self._left[1])
                except RefMoved:
                    self._left = None
            for _ in range(TRIES):
                with suppress(RefMoved):
                    return self._land(verb, plan, self.head())
            with self.store.transaction():
                return self._land(verb, plan, self.head())

    def land_series(self, verb: str, onto: Id, commits: Iterable[Again]) -> CommitInfo:
        """Move the branch to `onto` with these commits behind it, as one operation."""
        with self.lock:
            head, tip = self.head(), onto
            state, chain = self.view(onto).state, self._chain_at(onto)
            records: list[CommitRecord] = []
            entries: list[tuple[Id, bytes]] = []
            for again in commits:
                draft = self.run_before_hooks(again.draft)
                parents = (tip, *again.others)
                record, brought = encode_commit(draft, parents, created=self.clock())
                state = advance(state, _step(record, brought))
                chain = self._chain(chain, draft, state)
                records.append(structs.replace(record, chain=chain))
                entries += brought
                tip = record.id
            self.check_budget(state.rows)
            self._write(verb, head, tip, tuple(records), tuple(entries))
            return self.run_after_hooks(self.info(tip))

    def simulate(self, plan: Plan) -> State:
        """What the thread would compile to if this landed; nothing is written, no hook asked."""
        head = self.head()
        draft, others = plan(head)
        parents = (() if head is None else (head,)) + others
        record, entries = encode_commit(draft, parents, created=self.clock())
        return advance(self.view(head).state, _step(record, entries))

    def check_budget(self, rows: Sequence[Row]) -> None:
        """Refuse, or warn of, a list that is above the budget."""
        if self.budget is not None:
            now = self.view(self.head()).tokens(self.count)
            self.budget.judge(now, sum(self.count(row.message) for row in show_rows(rows)))

    def info(self, id: Id) -> CommitInfo:
        """The info of a commit that is known to exist."""
        return read_info(self.store.read_commits(self.name, [id])[0], self.count)

    def count(self, message: Message) -> int:
        """The tokens of a message; loads the vocabulary on the first call."""
        counted = self._counts.get(id(message))
        if counted is not None:
            return counted[1]
        if self._counter is None:
            self._counter = counter_for(DEFAULT_TOKENIZER)
        if len(self._counts) >= COUNTS_KEPT:
            self._counts.clear()
        tokens = self._counter.message(message)
        self._counts[id(message)] = (message, tokens)  # kept alive, so that its id stays its own
        return tokens

    def count_once(self, message: Message) -> int:
        """The same, but not kept: for a message that is tried and thrown away, as plans do."""
        counted = self._counts.get(id(message))
        if counted is not None:
            return counted[1]
        if self._counter is None:
            self._counter = counter_for(DEFAULT_TOKENIZER)
        return self._counter.message(message)

    def emit(self, events: Iterable[SystemMessage]) -> None:
        """Tell everybody who listens."""
        for event in events:
            for listener in tuple(self.listeners):
                listener(event)

    def forget_views(self) -> None:
        """After a transaction was taken back, views of it mean nothing."""
        with self.lock:
            self._views.clear()
            self._left = None

    def _keep(self, view: View) -> None:
        """Keep a view at hand; the most recently used stand last."""
        if view.head is not None:
            self._views[view.head] = view
        if len(self._views) > KEPT_VIEWS:
            del self._views[next(iter(self._views))]

    def _extended(self, head: Id) -> View:
        """The view of `head` from the nearest commit whose view is at hand, or from the start."""
        known = self._known(head)
        if known is not None:
            return known
        for limit in NEARBY if self._views else ():
            steps = self.store.walk(self.name, head, limit=limit)
            for place in range(len(steps) - 1, -1, -1):
                parents = steps[place].commit.parents
                known = self._known(parents[0]) if parents else self._empty
                if known is not None:
                    return known.extend(steps[place:])
        steps = self.store.walk(self.name, head)
        if not steps:
            raise ThreadError(f"commit {head.hex()} is not in this thread")
        return self._empty.extend(steps)

    def _known(self, head: Id) -> View | None:
        """The view of a commit that some view at hand is of, or went through."""
        for view in reversed(self._views.values()):
            found = view.at(head)
            if found is not None:
                return found
        return None

    def _chain(self, before: bytes | None, draft: Draft, after: State) -> bytes | None:
        """The chained match key of everything that shows after this commit."""
        if self.scope is None:
            return None
        match draft.op:
            case Setup():
                return before
            case Append():
                said = draft.messages[0]
                if not _is_shown(draft.op, said) or is_system(said):
                    return before
                return chain_message(before or first_link(self.scope), said)
            case _:
                rows = show_rows(after.rows)
                links = list(chain_messages(self.scope, (row.message for row in rows)))
                return links[-1] if links else None

    def _chain_at(self, head: Id | None) -> bytes | None:
        if head is None or self.scope is None:
            return None
        if head not in self._chains:
            (step,) = self.store.read_commits(self.name, [head])
            self._chains = {head: step.commit.chain}
        return self._chains[head]

    def _land(self, verb: str, plan: Plan, head: Id | None) -> CommitInfo:
        draft, others = plan(head)
        draft = self.run_before_hooks(draft)
        parents = (() if head is None else (head,)) + others
        record, entries = encode_commit(draft, parents, created=self.clock())
        if self.budget is not None or self.scope is not None:
            record = self._weighed(head, draft, record, entries)
        self._write(verb, head, record.id, (record,), entries, _checkpoints(draft.messages))
        step = _step(record, entries)
        seen = None if head is None else self._views.get(head)
        if seen is not None and not others:  # whoever compiles behind every commit reads nothing
            self._keep(seen.extend([structs.replace(step, depth=seen.depth + 1)]))
        return self.run_after_hooks(read_info(step, self.count))

    def _weighed(
        self, head: Id | None, draft: Draft, record: CommitRecord, entries: Entries
    ) -> CommitRecord:
        """The commit with its match key, if the budget lets it pass."""
        if isinstance(draft.op, Append):
            after = State()  # an append needs no list to be weighed or matched
            if self.budget is not None and _is_shown(draft.op, draft.messages[0]):
                now = self.view(head).tokens(self.count)
                self.budget.judge(now, now + self.count(draft.messages[0]))
        else:
            after = advance(self.view(head).state, _step(record, entries))
            self.check_budget(after.rows)
        chain = self._chain(self._chain_at(head), draft, after)
        if self.scope is not None:
            self._chains = {record.id: chain}
        return structs.replace(record, chain=chain)

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
        self.store.land(self.name, landing)
        self._left = (self.branch, tip)
        self._index()

    def run_before_hooks(self, draft: Draft) -> Draft:
        """The draft that the hooks let through; what a hook does itself asks no hook again."""
        if self._asking or not self.before:
            return draft
        self._asking = True
        try:
            return run_before_hooks(tuple(self.before), draft)
        finally:
            self._asking = False

    def run_after_hooks(self, info: CommitInfo) -> CommitInfo:
        """Tell the hooks of a commit that has landed."""
        if not self._asking and self.after:
            self._asking = True
            try:
                run_after_hooks(tuple(self.after), info)
            finally:
                self._asking = False
        return info

    def _index(self) -> None:
        """Full text follows behind: per commit it would halve the rate, in a batch hold a lock."""
        self._landed += 1
        if self._landed % INDEX_EVERY == 0 and not self.batching:
            index_behind(self.store, pages=1)


class TakenCheckpoints(Set[str]):
    """Every checkpoint the thread ever gave out, asked for one at a time."""

    def __init__(self, store: Store, thread: str) -> None:
        self._has = partial(store.has_checkpoint, thread)

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and self._has(name)

    def __iter__(self) -> Iterator[str]:
        raise TypeError("the checkpoints of a thread are asked for one at a time")

    def __len__(self) -> int:
        raise TypeError("the checkpoints of a thread are asked for one at a time")


def _checkpoints(messages: Iterable[Message]) -> tuple[str, ...]:
    found: list[str] = []
    for message in messages:
        for block in message.blocks:
            if type(block) is Checkpoint:
                found.append(block.id)
    return tuple(found)


def _is_shown(op: Append, said: Message) -> bool:
    return shows(Row(None, said, op.priority, op.kind))


def _step(record: CommitRecord, entries: Entries) -> Step:
    return Step(record, 0, tuple([data for _, data in entries]))
