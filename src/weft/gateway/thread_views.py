"""Threads as the page sees them: compiled views, kept between reads, and their rows as JSON.

A thread of many thousand messages takes a second to compile. The page reads it after every commit,
so the view is kept, and new commits only extend it. A commit never changes, so a view of a commit
never becomes stale. The least recently used threads are dropped.

The functions below the views take values, such as a walk of stored commits, and return JSON, with
text as safe HTML. The row of a summary says how many rows it replaced (`fold`). A commit that
changed earlier rows can be shown with both sides of the change.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from threading import Lock
from typing import Any

import msgspec
from msgspec import Struct

from weft import exact_json
from weft.agent import MessageCounts
from weft.history import (
    Count,
    Row,
    View,
    compile_last,
    is_visible,
    read_stop_reason,
    text_for_list,
)
from weft.ids import Id
from weft.model import (
    Audio,
    Block,
    Checkpoint,
    File,
    Image,
    JsonObject,
    Message,
    Opaque,
    Redacted,
    Refusal,
    Reminder,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    Usage,
    describe_call,
    speaker,
    texts,
    without_markers,
)
from weft.printable import without_bold, without_escape_sequences
from weft.store import Step, Store
from weft.thread import AnswerCost, Attempt, CommitInfo

from .render import render

CACHED_VIEWS = 16
TAIL_COMMITS = 200
"""How many of the last commits are read for the end of a long thread."""
CACHED_FIGURES = 1000
CACHED_COSTS = 5000
COUNTED_MODELS = 4
CACHED_GRAPHS = 8
OTHER_COMMIT = ""
"""Replaces the branch in the key of a view of a commit that is not on that branch."""
EXCERPT_LENGTH = 120
BRIEF_LENGTH = 100_000
"""How many characters of a row's text are rendered in a list: a very long one takes minutes."""
AUTOMATIC_NOTES = ("dialogue: ", "tool_io: ", "instruction: ")
"""Prefixes of the notes on an agent's own commits. Such notes only repeat the message."""
SCANNED = 50
"""How much of a long text is read for an excerpt, as a multiple of the excerpt's length."""
SUMMARY = "summary"
ANNOTATIONS = {
    "pinned": "Pinned a message",
    "important": "Marked a message as important",
    "normal": "Made a message normal again",
    "skip": "Left a message out",
}
REWRITES = frozenset({"compact", "edit", "merge", "revert", "splice"})
"""The kinds of commits that may change earlier rows."""


class Change(Struct, frozen=True):
    """What one commit of this kind changed in the rows before it."""

    before: tuple[Row, ...]
    after: tuple[Row, ...]
    kind: str = "compact"

    @property
    def removed(self) -> list[Row]:
        """Rows that the commit removed."""
        after_ids = {row.id for row in self.after}
        return [row for row in self.before if row.id not in after_ids]

    @property
    def added(self) -> list[Row]:
        """Rows that the commit added; in a preview they have no id yet."""
        before_ids = {row.id for row in self.before}
        return [row for row in self.after if row.id not in before_ids]

    @property
    def reworded(self) -> list[tuple[Row, Row]]:
        """Rows whose message changed: before and after."""
        old_rows = {row.id: row for row in self.before}
        pairs = ((old_rows[row.id], row) for row in self.after if row.id in old_rows)
        return [(old, new) for old, new in pairs if old.message != new.message]

    @property
    def pins(self) -> list[Row]:
        """Pinned rows that were kept between removed ones."""
        removed_ids = {row.id for row in self.removed}
        indexes = [index for index, row in enumerate(self.before) if row.id in removed_ids]
        if not indexes:
            return []
        span = self.before[indexes[0] : indexes[-1] + 1]
        return [row for row in span if row.priority == "pinned" and row.id not in removed_ids]


class GraphCommit(Struct, frozen=True, gc=False):
    """A commit as the graph shows it."""

    created: float
    parents: tuple[Id, ...]
    kind: str
    label: str
    reverts: str | None = None


class CommitFacts(Struct, frozen=True, gc=False):
    """When a commit was made, the usage that its model reported, and the last row at that time.

    `seconds` is the time since the commit before it. For an answer, that is how long it took: its
    request is stored when it is sent. `stop` says why an answer ended, unless it ended normally.
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
    - `edits` has the commits that edited each row, oldest first, without reverted ones
    - `notes` has the notes on each row or commit, oldest first
    - `callers` has the row of each tool call, `results` the result of each call, by call id
    """

    def __init__(self) -> None:
        self.view = View()
        self.facts: dict[Id, CommitFacts] = {}
        self.summaries: dict[Id, tuple[Id, Change]] = {}
        self.edits: dict[Id, tuple[Id, ...]] = {}
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
        after.edits = dict(self.edits)
        after.notes = dict(self.notes)
        after.add_facts(steps, self.last_row)
        pending: list[Step] = []  # commits that are not in the view yet
        for step in steps:
            if step.commit.kind not in REWRITES:
                pending.append(step)
                continue
            after.view, pending = after.view.extend(pending), []
            old_rows = tuple(after.view.rows)
            after.view = after.view.extend([step])
            change = Change(old_rows, tuple(after.view.rows), step.commit.kind)
            add_summaries(after.summaries, step.commit.id, change)
            after.add_edits(step.commit.id, change)
        after.view = after.view.extend(pending)
        only_appends = all(step.commit.kind not in REWRITES for step in steps)
        start = self.view.length if only_appends else 0
        after.callers = dict(self.callers) if only_appends else {}
        after.results = dict(self.results) if only_appends else {}
        after.index_calls(after.rows[start:])
        return after

    def add_facts(self, steps: Sequence[Step], last_row: Id | None) -> None:
        """Add the facts and notes of these commits; `last_row` is the last row before them."""
        for step in steps:
            commit = step.commit
            last_row = commit.id if commit.kind == "append" else last_row
            before = self.facts.get(commit.parents[0]) if commit.parents else None
            seconds = None if before is None else commit.created - before.created
            self.facts[commit.id] = CommitFacts(
                commit.created, commit.usage, last_row, seconds, read_stop_reason(commit)
            )
            if commit.kind == "note":
                self.add_note(step)

    def at(self, view: View) -> "ThreadView":
        """The same thread at the earlier commit of this view."""
        earlier = ThreadView()
        earlier.view = view
        earlier.facts, earlier.summaries, earlier.notes = self.facts, self.summaries, self.notes
        earlier.edits = self.edits
        earlier.index_calls(view.rows)
        return earlier

    def add_edits(self, commit: Id, change: Change) -> None:
        """Note which rows a commit edited; a revert takes the last edit back."""
        if change.kind not in ("edit", "merge", "revert"):
            return
        for row, _ in change.reworded:
            if row.id is not None:
                edits = self.edits.get(row.id, ())
                self.edits[row.id] = edits[:-1] if change.kind == "revert" else (*edits, commit)

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
        """The thread at the commit `head`, usually of this branch.

        If `head` is None, that is before the first commit.
        """
        if head is None:
            return ThreadView()
        key = (thread, branch)
        with self._lock:
            cached = self._views.get(key, ThreadView())
            other = self._views.get((thread, OTHER_COMMIT), cached)
        for candidate in (cached, other):
            view_at_head = candidate.view.at(head)
            if view_at_head is not None:
                is_current = view_at_head is candidate.view
                return candidate if is_current else candidate.at(view_at_head)
        steps = store.walk(thread, head, after=cached.view.depth)
        cached_head = () if cached.view.head is None else (cached.view.head,)
        if not steps or steps[0].commit.parents[:1] != cached_head:  # they do not extend the view
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

    def is_cached(self, thread: str, branch: str) -> bool:
        """Whether a view of this branch was read before, so that the next read is quick."""
        with self._lock:
            return (thread, branch) in self._views

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
            _clear_if_full(self._figures)
            self._figures[commit] = tokens_json(change.before, change.after, count)
        return self._figures[commit]

    def context(self, key: tuple[object, ...], measure: Callable[[], JsonObject]) -> JsonObject:
        """How full a window is; measured once for each key, which names commit and model."""
        if key not in self._contexts:
            _clear_if_full(self._contexts)
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


def _clear_if_full(cache: dict[Any, JsonObject]) -> None:
    if len(cache) >= CACHED_FIGURES:
        cache.clear()


def count_once(count: Count) -> Count:
    """A counter that counts each message object once: both sides of a change share most of them.

    It identifies messages by their address in memory, so use it only while the rows exist.
    """
    counts: dict[int, int] = {}

    def counted(message: Message) -> int:
        key = id(message)
        if key not in counts:
            counts[key] = count(message)
        return counts[key]

    return counted


def read_changes(steps: Iterable[Step]) -> tuple[View, dict[Id, Change]]:
    """The rows after all steps, and the change of each commit that touched earlier rows."""
    view, changes, pending = View(), dict[Id, Change](), list[Step]()
    for step in steps:
        if step.commit.kind not in REWRITES:
            pending.append(step)
            continue
        view, pending = view.extend(pending), []
        before = tuple(view.rows)
        view = view.extend([step])
        changes[step.commit.id] = Change(before, tuple(view.rows), step.commit.kind)
    return view.extend(pending), changes


def add_summaries(summaries: dict[Id, tuple[Id, Change]], commit: Id, change: Change) -> None:
    """Note the commit that made each summary which a change added.

    A revert makes no summary: it brings back one of an earlier commit.
    """
    if not change.removed or change.kind == "revert":
        return
    for row in change.added:
        if row.kind != SUMMARY or row.id is None:
            continue
        if change.kind == "compact" or row.id not in summaries:
            summaries[row.id] = (commit, change)


def thread_json(view: View, changes: Mapping[Id, Change], count: Count, last: int) -> JsonObject:
    """The last rows, with hidden ones, and the number of tokens that a model would be sent."""
    summaries: dict[Id, tuple[Id, Change]] = {}
    for commit, change in changes.items():
        add_summaries(summaries, commit, change)
    rows = view.rows
    last_rows: list[JsonObject] = []
    for row in rows[-last:]:
        summary = None if row.id is None else summaries.get(row.id)
        fold = None if summary is None else fold_json(*summary, count)
        last_rows.append({**row_json(row, count), "fold": fold})
    return {"rows": last_rows, "earlier": len(rows) - len(last_rows), "tokens": view.tokens(count)}


def attempts_json(steps: Sequence[Step], attempts: Sequence[Attempt]) -> list[JsonObject]:
    """The attempts at answers that failed or were stopped, oldest first.

    `after` is the id of the row after which an attempt is shown: the last row of its commit.
    """
    commits = {attempt.commit for attempt in attempts}
    last_rows: dict[str, str] = {}
    view, start = View(), 0
    for index, step in enumerate(steps):
        commit = step.commit.id.hex()
        if commit in commits:
            view = view.extend(steps[start : index + 1])
            start = index + 1
            last_rows[commit] = _hex(view.rows[-1].id) if view.rows else ""
    return [
        attempt_json(attempt, last_rows[attempt.commit])
        for attempt in attempts
        if attempt.commit in last_rows
    ]


def attempt_json(attempt: Attempt, after: str) -> JsonObject:
    """One attempt: why it has no complete answer, and the part that arrived."""
    blocks = () if attempt.message is None else attempt.message.blocks
    reason = attempt.reason
    return {
        "after": after,
        "state": attempt.state,
        "reason": None if reason is None else reason.message,
        "status": None if reason is None else reason.status,
        "model": attempt.model,
        "created": attempt.created.timestamp(),
        "parts": [part for block in blocks for part in part_json(block)],
    }


def row_json(row: Row, count: Count) -> JsonObject:
    """One row with its blocks; its `id` is the argument of pin, skip and edit."""
    parts = [part for block in row.message.blocks for part in part_json(block)]
    return {
        "id": _hex(row.id),
        "role": row.message.role,
        "name": row.message.name,
        "kind": row.kind,
        "priority": row.priority,
        "tokens": count(row.message),
        "parts": parts,
    }


def part_json(block: Block) -> list[JsonObject]:
    """The parts that the page shows for a block."""
    match block:
        case Text(text=text) | Refusal(text=text):
            return [{"type": "text", "text": text, "html": render(text)}] if text else []
        case Thinking(text=text):
            return [{"type": "thinking", "text": text}] if text else []
        case ToolCall(id=id, name=name, arguments=arguments):
            return [{"type": "call", "id": id, "name": name, "input": read_input(arguments)}]
        case ToolResult(call_id=call_id, is_error=is_error):
            content = result_text(block)
            return [
                {
                    "type": "result",
                    "call_id": call_id,
                    "content": content,
                    "is_error": is_error is True,
                }
            ]
        case Checkpoint(id=id):
            return [{"type": "checkpoint", "id": id}]
        case Reminder(text=text):
            return [{"type": "reminder", "text": f"Reminder: {text}"}]
        case Redacted():
            return [{"type": "note", "text": "Encrypted thinking"}]
        case Image() | File() | Audio():
            return [{"type": "note", "text": f"[{block.__struct_config__.tag}]"}]
        case Opaque(raw=raw):
            return [{"type": "note", "text": f"[{raw.get('type', 'block')}]"}]


def read_input(arguments: str) -> Any:
    """The arguments of a call as an object; as text if they are not JSON."""
    try:
        return exact_json.loads(arguments or "{}")
    except exact_json.JSONDecodeError:
        return arguments


def result_text(result: ToolResult) -> str:
    """The text of a result, with placeholders for media."""
    lines = list(texts(result.content))
    lines += [
        f"[{block.__struct_config__.tag}]"
        for block in result.content
        if isinstance(block, Image | File | Audio)
    ]
    return "\n".join(lines)


def brief_json(row: Row, count: Count) -> JsonObject:
    """A row as a short excerpt, with its whole text as HTML."""
    message = row.message
    text = brief_text(message)
    if len(text) > BRIEF_LENGTH:
        text = text[:BRIEF_LENGTH] + "…"
    # Anthropic's results are in messages of the user.
    is_result = any(isinstance(block, ToolResult) for block in message.blocks)
    is_result = is_result and not any(isinstance(block, Text) for block in message.blocks)
    role = "tool" if is_result else message.role
    return {
        "id": _hex(row.id),
        "role": SUMMARY if row.kind == SUMMARY else role,
        "excerpt": excerpt(text) or preview(message),
        "html": render(text),
        "tokens": count(row.message),
    }


def excerpt(text: str, length: int = EXCERPT_LENGTH) -> str:
    """The beginning of a text, on one line, without colours and the `**` of bold text."""
    text = without_markers(without_escape_sequences(text[: SCANNED * length]))
    flat = without_bold(" ".join(text.split()))
    return flat if len(flat) <= length else flat[: length - 1] + "…"


def message_text(message: Message) -> str:
    """The readable text of a message: its texts and tool calls, without checkpoints."""
    lines = list(texts(block for block in message.blocks if not isinstance(block, Checkpoint)))
    calls = (block for block in message.blocks if isinstance(block, ToolCall))
    return "\n\n".join([*lines, *(f"`{call.name}` {call.arguments}" for call in calls)])


def brief_text(message: Message) -> str:
    """Like `message_text`, with the main argument of each call, the results, and names of media."""
    lines: list[str] = []
    for block in message.blocks:
        match block:
            case ToolCall():
                lines.append(f"`{describe_call(block)}`")
            case ToolResult():
                lines.append(result_text(block))
            case Image() | File() | Audio():
                lines.append(f"[{block.__struct_config__.tag}]")
            case Checkpoint():
                pass
            case _:
                lines += texts((block,))
    return "\n\n".join(line for line in lines if line.strip())


def describe_commit(info: CommitInfo) -> tuple[str, str]:
    """The kind of a commit (for a message, its speaker), and its text on one line."""
    messages, kind = info.messages, info.kind
    if kind != "append" or not messages:
        edited = " ".join(map(preview, messages)) if kind == "edit" else ""
        return kind, describe_annotation(info) or info.message or edited or kind
    role = speaker(messages[0]).split()[0]  # without the speaker's name
    if info.automatic_type is not None:  # nearly all commits: their notes need not be written
        return role, " ".join(map(preview, messages)) or info.message or kind
    note = info.message or ""
    is_automatic = note.startswith(AUTOMATIC_NOTES)
    text = " ".join(map(preview, messages)) if is_automatic or not note else note
    return role, text or note or kind


def preview(message: Message) -> str:
    """A short text for a message: its own text, and its calls with their main arguments.

    Text that a client put into a user's message is left out. If the message has no other text, the
    names of the client's elements are shown: `[system-reminder]`.
    """
    text = " ".join(texts(block for block in message.blocks if not isinstance(block, Checkpoint)))
    text = text_for_list(message.role, text)
    calls = [describe_call(block) for block in message.blocks if isinstance(block, ToolCall)]
    return " ".join([text, f"[{', '.join(calls)}]"] if calls else [text]).strip()


def fold_json(commit: Id, change: Change, count: Count) -> JsonObject:
    """How many rows and tokens a summary replaced, and its commit."""
    return {
        "commit": commit.hex(),
        "dropped": len(change.removed),
        **tokens_json(change.before, change.after, count),
    }


def change_json(change: Change, count: Count) -> JsonObject:
    """Both sides of a change, and the pinned rows that it kept."""
    return {
        "removed": [brief_json(row, count) for row in change.removed],
        "added": [brief_json(row, count) for row in change.added],
        "pins": [brief_json(row, count) for row in change.pins],
        "reworded": [
            {"old": brief_json(old, count), "new": brief_json(new, count)}
            for old, new in change.reworded
        ],
        **tokens_json(change.before, change.after, count),
    }


def tokens_json(before: Sequence[Row], after: Sequence[Row], count: Count) -> JsonObject:
    return {"before": count_rows(before, count), "after": count_rows(after, count)}


def count_rows(rows: Iterable[Row], count: Callable[[Message], int]) -> int:
    return sum(count(row.message) for row in rows if is_visible(row))


def describe_annotation(info: CommitInfo) -> str | None:
    """A sentence that describes an `annotate` commit; None for any other commit."""
    if info.kind != "annotate" or not info.marked:
        return None
    return ANNOTATIONS.get(next(iter(info.marked.values())), "Marked a message")


def commit_json(
    info: CommitInfo, compaction: JsonObject | None = None, *, is_reverted: bool = False
) -> JsonObject:
    """One line of the log; a compaction has its tokens before and after."""
    note = describe_annotation(info)
    speaker_or_kind, label = describe_commit(info)
    calls = (block for message in info.messages for block in message.blocks)
    return {
        "id": info.id,
        "parents": list(info.parents),
        "kind": info.kind,
        "speaker": speaker_or_kind,
        "calls": sum(isinstance(block, ToolCall) for block in calls),
        "message": info.message or note or excerpt(" ".join(map(message_text, info.messages))),
        "label": excerpt(f"{speaker_or_kind}: {label}" if info.kind == "append" else label),
        "created": info.created.timestamp(),
        "rewrites": info.kind in REWRITES,
        "reverted": is_reverted,
        "compaction": compaction if info.kind == "compact" else None,
    }


def _hex(id: Id | None) -> str:
    return "" if id is None else id.hex()


def read_tail(store: Store, thread: str, head: Id) -> tuple[ThreadView, list[Row]]:
    """The facts of the last commits, and the rows at the end of the thread.

    Summaries, the setup and earlier calls are missing, because they need the whole thread.
    """
    steps, rows = compile_last(store, thread, head, TAIL_COMMITS)
    tail = ThreadView()
    tail.add_facts(steps, None)
    tail.index_calls(rows)
    return tail, rows
