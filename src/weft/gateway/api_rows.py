"""`GET /api/rows`: the rows of a thread for the page, a window at a time.

    thread, branch       which thread; without `branch`, its current one
    until                as of this commit (`start`: before the first)
    from, count          rows by position
    around               the rows around the row with this id
    since                only what has changed since this commit, which the page shows now
    quick                1: a long thread may be answered in part, see `part`

Without `from`, `around` and `since`, the last rows are sent. The answer has `first` (the position
of the first row that is sent) and `total`. With `until`, `commit` is the commit that is read. With
`since`, `appended` is true if messages were only appended since then. In that case `updated` has
the earlier rows with new data: tool calls whose results have arrived.

With `quick`, a long thread that was not read before is answered with its last rows, and `part` is
true. `first`, `total` and the tokens are estimates then; folds, the setup and earlier calls are
missing. The page shows these rows at once, and reads the thread again without `quick`.

A call and its result are shown together, so the result is sent with the call (`result`), and the
row of the result marks it as `merged`. Long results are truncated; `GET /api/result` returns the
whole result.
"""

import re
from collections import ChainMap
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from weft import exact_json
from weft.catalog import Catalog
from weft.demo import SAMPLE
from weft.errors import Refused
from weft.history import (
    CLIENT_TEXT,
    Row,
    Setup,
    is_visible,
    read_branches,
    read_stop_reason,
    read_times,
)
from weft.ids import Id
from weft.model import (
    Audio,
    File,
    Image,
    JsonObject,
    Message,
    Text,
    Thinking,
    Tool,
    ToolCall,
    ToolResult,
    Usage,
    describe_call,
)
from weft.store import ThreadRecord
from weft.thread import has_sent, price_usage, read_attempt
from weft.tokens import Tokenizer, counter_for

from .api_call import DEFAULT_BRANCH, ApiCall, Handler, read_commit_id
from .api_reads import TOKENIZER
from .render import render
from .runs import is_unanswered
from .thread_views import (
    Change,
    CommitFacts,
    ThreadView,
    ThreadViews,
    attempt_json,
    count_once,
    part_json,
    read_tail,
    result_text,
)
from .uploads import media_blocks, media_json

WINDOW = 100
"""How many rows are sent by default."""
LONGEST_WINDOW = 500
LONGEST_ANSWER = 3600.0
"""A longer time, in seconds, is not shown: it is the time since a commit that has nothing to do
with the answer."""

LONG_THREAD = 2000
"""Threads with at least so many commits may be answered in part at first."""
LAST_ROWS = 20
"""In how many of the last rows the last message is looked for: system messages may follow it."""
ALL_COMMITS = 2**31 - 1
RESULT_LENGTH = 20_000
"""How many characters of a tool result are sent with its row."""
MAIN_ARGUMENT_LENGTH = 200
RENDERED_LENGTH = 100_000
"""A longer text is shown as plain text: rendering it would take seconds."""
WHOLE_LENGTH = 400_000
"""A longer text is truncated to `RENDERED_LENGTH`: a browser needs minutes to draw 50 MB."""

_ELEMENT = re.compile(r"<([\w:-]+)")


def show_rows(call: ApiCall) -> JsonObject:
    """A window of rows, and the facts of the thread."""
    record = call.thread_record()
    if record is None:
        return _new_thread(call)
    branch = call.thread_and_branch()[1]
    until = call.text_or_none("until")
    head = call.read_until(record.name, branch)
    if head is not None and _may_send_tail(call, record.name, branch, head):
        tail = _show_tail(call, record, branch, head)
        if tail is not None:
            return tail
    commit = None
    if until is not None and head is not None:
        commit = _commit_json(call, record.name, branch, head)
    thread = call.state.views.read(call.store, record.name, branch, head)
    rows = thread.rows
    since_field = call.text_or_none("since")
    since = None if since_field is None else read_commit_id(since_field, "since")
    earlier = None if since_field is None else thread.view.at(since or b"")
    first, count = _window(call, thread, 0 if earlier is None else earlier.length)
    window = rows[first : first + count]
    updated = [] if earlier is None else _updated_rows(thread, window, since)
    facts = _read_facts(call, record.name, thread, [*window, *updated])
    sent = _find_sent(call, record.name, [*window, *updated])
    writer = _RowWriter(thread, call.state.views, call.state.catalog, facts, sent)
    return {
        "name": record.name,
        "title": call.state.titles.of(call.store, record),
        "new": False,
        "branch": branch,
        "branches": sorted({branch, *read_branches(call.store, record.name)}),
        "head": None if head is None else head.hex(),
        "commit": commit,
        "sample": record.name == SAMPLE,
        "running": call.state.runs.find(record.name, branch) is not None,
        "unanswered": is_unanswered([row.message for row in rows[-LAST_ROWS:] if is_visible(row)]),
        "total": len(rows),
        "part": False,
        "appended": earlier is not None,
        "summary": _last_summary(thread),
        "first": first,
        "rows": [writer.write(row) for row in window],
        "updated": [writer.write(row) for row in updated],
        "attempts": _attempts_json(call, record.name, thread),
        "remarks": call.state.runs.remarks(record.name, branch),
        "setup": _setup_json(thread.view.setup),
    }


def _may_send_tail(call: ApiCall, thread: str, branch: str, head: Id) -> bool:
    """Whether to send only the last rows, because compiling the whole thread would take long."""
    if call.number("quick") is None or call.state.views.is_cached(thread, branch):
        return False
    return call.store.read_depths(thread, head, [head]).get(head, 0) >= LONG_THREAD


def _show_tail(call: ApiCall, record: ThreadRecord, branch: str, head: Id) -> JsonObject | None:
    """The last rows of a long thread, with positions that are estimated from its commits.

    None if the last commits do not have enough rows.
    """
    tail, rows = read_tail(call.store, record.name, head)
    count = min(call.number("count") or WINDOW, LONGEST_WINDOW)
    if len(rows) < count:
        return None
    window = rows[-count:]
    total = call.store.read_depths(record.name, head, [head])[head]
    facts = _read_facts(call, record.name, tail, window)
    # Loading the tokenizer would take longer than everything else here.
    sent = _find_sent(call, record.name, window)
    writer = _RowWriter(tail, call.state.views, call.state.catalog, facts, sent, "estimate")
    return {
        **_new_thread(call),
        "name": record.name,
        "title": call.state.titles.of(call.store, record),
        "new": False,
        "branch": branch,
        "branches": sorted({branch, *read_branches(call.store, record.name)}),
        "head": head.hex(),
        "running": call.state.runs.find(record.name, branch) is not None,
        "unanswered": is_unanswered([row.message for row in rows[-LAST_ROWS:] if is_visible(row)]),
        "total": total,
        "part": True,
        "first": total - len(window),
        "rows": [writer.write(row) for row in window],
        "attempts": _attempts_json(call, record.name, tail),
        "remarks": call.state.runs.remarks(record.name, branch),
    }


def _new_thread(call: ApiCall) -> JsonObject:
    """A thread without commits: the page can open it before its first message."""
    return {
        "name": call.text("thread"),
        "title": None,
        "new": True,
        "branch": DEFAULT_BRANCH,
        "branches": [DEFAULT_BRANCH],
        "head": None,
        "commit": None,
        "sample": False,
        "running": False,
        "unanswered": False,
        "total": 0,
        "part": False,
        "appended": False,
        "summary": None,
        "first": 0,
        "rows": [],
        "updated": [],
        "attempts": [],
        "remarks": [],
        "setup": None,
    }


def _commit_json(call: ApiCall, thread: str, branch: str, id: Id) -> JsonObject:
    """The commit that is read: its branch, and its number among the commits of that branch.

    If several branches contain it, the open one is preferred. Commits are counted along first
    parents, as in the log; a commit that was merged and has no branch any more has no number.
    """
    (step,) = call.store.read_commits(thread, [id])
    heads = read_branches(call.store, thread)
    names = sorted(heads, key=lambda name: (name != branch, heads[name] != id, name))
    containing = (name for name in names if call.store.read_depths(thread, heads[name], [id]))
    branch_name = next(containing, None)
    nodes = []
    if branch_name is not None:
        nodes = call.store.walk_nodes(thread, heads[branch_name], ALL_COMMITS)  # newest first
    index = next((index for index, node in enumerate(nodes) if node.id == id), None)
    return {
        "id": id.hex(),
        "created": step.commit.created,
        "branch": branch_name,
        "number": None if index is None else len(nodes) - index,
        "of": None if index is None else len(nodes),
    }


def _window(call: ApiCall, thread: ThreadView, known_count: int) -> tuple[int, int]:
    """The position and the number of the rows to send; the page has the first `known_count`."""
    count = min(call.number("count") or WINDOW, LONGEST_WINDOW)
    around, total = call.text_or_none("around"), thread.view.length
    if call.fields.get("from") not in (None, ""):
        return _read_from(call), count
    if around is not None:
        position = _find_position(thread, around)
        return max(0, min(position - count // 2, total - count)), count
    return max(known_count, total - count), count


def _read_from(call: ApiCall) -> int:
    """The position in the field `from`, which may be 0."""
    value = call.fields["from"]
    if isinstance(value, str) and value.isascii() and value.isdigit():
        return int(value)
    raise Refused(f"must be a whole number, not {value!r}", param="from")


def _find_position(thread: ThreadView, id: str) -> int:
    for position, row in enumerate(thread.rows):
        if row.id and row.id.hex() == id:
            return position
    raise Refused(
        "this message is not in the thread any more: it was compacted, undone, or is on "
        "another branch",
        param="around",
        status=404,
    )


def _last_summary(thread: ThreadView) -> str | None:
    """The row of the newest compaction."""
    for id in reversed(thread.summaries):
        if thread.view.find(id) is not None:
            return id.hex()
    return None


def _updated_rows(thread: ThreadView, window: Sequence[Row], since: Id | None) -> list[Row]:
    """Rows before the window whose calls got their results in it, or that got a note since."""
    window_ids = {row.id for row in window}
    since_facts = None if since is None else thread.facts.get(since)
    updated_ids: list[Id] = []
    if since_facts is not None:
        updated_ids += [
            bytes.fromhex(about)
            for about, notes in thread.notes.items()
            if notes[-1]["created"] >= since_facts.created
        ]
    for row in window:
        for block in row.message.blocks:
            caller = thread.callers.get(block.call_id) if isinstance(block, ToolResult) else None
            if caller is not None and caller not in window_ids:
                updated_ids.append(caller)
    rows = (thread.view.find(id) for id in dict.fromkeys(updated_ids))
    return [row for row in rows if row is not None]


def _attempts_json(call: ApiCall, name: str, thread: ThreadView) -> list[JsonObject]:
    """The failed and stopped answers, each with the row after which it is shown."""
    attempts: list[JsonObject] = []
    for record in call.store.attempts(name):
        facts = thread.facts.get(record.commit)
        if facts is not None and facts.last_row is not None:
            attempts.append(attempt_json(read_attempt(record), facts.last_row.hex()))
    return attempts


def _read_facts(
    call: ApiCall, name: str, thread: ThreadView, rows: Sequence[Row]
) -> Mapping[Id, CommitFacts]:
    """The facts of the commits that appended these rows.

    A merged row belongs to a commit of another branch. The view has only the commits along first
    parents, so the commits of merged rows are read from the store.
    """
    ids = [row.id for row in rows if row.id is not None and row.id not in thread.facts]
    if not ids:
        return thread.facts
    commits = [step.commit for step in call.store.read_commits(name, ids)]
    merged = {
        commit.id: CommitFacts(commit.created, commit.usage, stop=read_stop_reason(commit))
        for commit in commits
    }
    return ChainMap(merged, thread.facts)


def _find_sent(call: ApiCall, name: str, rows: Sequence[Row]) -> set[Id]:
    """The answers among these rows whose requests are stored."""
    ids = [row.id for row in rows if row.id is not None and row.message.role == "assistant"]
    return {step.commit.id for step in call.store.read_commits(name, ids) if has_sent(step)}


def _latency(facts: CommitFacts) -> float | None:
    """How long an answer took, in seconds; None if that is not known.

    Older answers have no measured time. For those it is the time since the commit before, which is
    too long if the answer was asked for again.
    """
    measured = read_times(facts.usage)[1]
    seconds = facts.seconds if measured is None else measured
    return None if seconds is None or not 0 < seconds < LONGEST_ANSWER else round(seconds, 1)


class _RowWriter:
    """Writes rows as JSON.

    `facts` are the facts of the commits that appended them; `sent` are the answers whose requests
    are stored.
    """

    def __init__(
        self,
        thread: ThreadView,
        views: ThreadViews,
        catalog: Catalog,
        facts: Mapping[Id, CommitFacts],
        sent: Collection[Id],
        tokenizer: Tokenizer = TOKENIZER,
    ) -> None:
        self._sent = sent
        self._catalog = catalog
        self._facts = facts
        self._thread = thread
        self._views = views
        self._count = count_once(counter_for(tokenizer).message)

    def write(self, row: Row) -> JsonObject:
        """One row; its `id` is the argument of pin, skip and edit."""
        message = row.message
        facts = None if row.id is None else self._facts.get(row.id)
        usage = None if facts is None else facts.read_usage()
        summary = None if row.id is None else self._thread.summaries.get(row.id)
        return {
            "id": "" if row.id is None else row.id.hex(),
            "role": message.role,
            "name": message.name,
            "kind": row.kind,
            "priority": row.priority,
            "tokens": self._count(message),
            "parts": [part for block in message.blocks for part in self._parts(row, block)],
            "fold": None if summary is None else self._fold(*summary),
            "created": None if facts is None else facts.created,
            "model": None if message.origin is None else message.origin.model,
            "usage": self._usage(usage, message, None if facts is None else facts.created),
            "seconds": None if usage is None or facts is None else _latency(facts),
            "first_token": None if facts is None else read_times(facts.usage)[0],
            "stop": None if facts is None else facts.stop,
            "edited": self._edited(row),
            "sent": row.id in self._sent,
            "notes": [] if row.id is None else self._thread.notes.get(row.id.hex(), ()),
        }

    def _edited(self, row: Row) -> JsonObject | None:
        """The commit that edited the message, and when."""
        edits = () if row.id is None else self._thread.edits.get(row.id, ())
        if not edits:
            return None
        return {"commit": edits[-1].hex(), "created": self._thread.facts[edits[-1]].created}

    def _usage(
        self, usage: Usage | None, message: Message, created: float | None
    ) -> JsonObject | None:
        if usage is None:
            return None
        origin = message.origin
        price = None
        if origin is not None and origin.model:
            upstream = origin.provider or ""
            price = price_usage(usage, origin.model, self._catalog, upstream=upstream, at=created)
        return {
            "input": usage.input,
            "output": usage.output,
            "cached": usage.cached,
            "cost": price,
        }

    def _fold(self, commit: Id, change: Change) -> JsonObject:
        figures = self._views.figures(commit, change, self._count)
        return {"commit": commit.hex(), "dropped": len(change.removed), **figures}

    def _parts(self, row: Row, block: Any) -> list[JsonObject]:
        """The parts that the page shows for a block of a row."""
        row_id = "" if row.id is None else row.id.hex()
        match block:
            case Text(text=text) if len(text) > WHOLE_LENGTH:
                address = {"row": row_id, "block": _index_of(block, row.message.blocks)}
                return [
                    {
                        "type": "plain",
                        "text": _truncate(text),
                        "length": len(text),
                        "address": address,
                    }
                ]
            case Text(text=text):
                return split_text(text) if row.message.role == "user" else _text_part(text)
            case Thinking(text=text) if len(text) > WHOLE_LENGTH:
                return [{"type": "thinking", "text": _truncate(text)}]
            case ToolCall(id=id):
                result = self._thread.results.get(id)
                parts = part_json(block)
                result_part = None if result is None else _result_json(result)
                if len(block.arguments) > WHOLE_LENGTH:
                    parts = [{**part, "input": _truncate(block.arguments)} for part in parts]
                return [
                    {**part, "main": _main_argument(block), "result": result_part} for part in parts
                ]
            case ToolResult(call_id=call_id):
                if call_id in self._thread.callers:
                    return [{"type": "result", "call_id": call_id, "merged": True}]
                return [{"type": "result", "call_id": call_id, **_result_json(block)}]
            case Image() | File() | Audio():
                index = _index_of(block, media_blocks(row.message.blocks))
                return [media_json(block, {"row": row_id, "index": index})]
            case _:
                return part_json(block)


def _index_of(block: object, blocks: Sequence[object]) -> int:
    """The index of this block object; an equal block may come before it."""
    return next(index for index, each in enumerate(blocks) if each is block)


def _truncate(text: str) -> str:
    return text[:RENDERED_LENGTH] + "…"


def split_text(text: str) -> list[JsonObject]:
    """The text of a user's message in parts: what the user typed, and what the client added."""
    parts: list[JsonObject] = []
    end = 0
    for match in CLIENT_TEXT.finditer(text):
        parts += _text_part(text[end : match.start()])
        element = _ELEMENT.match(match[0])
        name = "context" if element is None else element[1]
        parts.append({"type": "injected", "name": name, "text": match[0], "length": len(match[0])})
        end = match.end()
    return [*parts, *_text_part(text[end:])]


def _main_argument(call: ToolCall) -> str:
    """What a call does, without the name of its tool."""
    return describe_call(call)[len(call.name) :].removeprefix(": ")[:MAIN_ARGUMENT_LENGTH]


def _text_part(text: str) -> list[JsonObject]:
    if not text.strip():
        return []
    if len(text) > RENDERED_LENGTH:
        return [{"type": "plain", "text": text}]
    return [{"type": "text", "text": text, "html": render(text)}]


def _result_json(result: ToolResult) -> JsonObject:
    content = result_text(result)
    media = [
        media_json(block, {"call": result.call_id, "index": index})
        for index, block in enumerate(media_blocks(result.content))
    ]
    return {
        "content": content[:RESULT_LENGTH],
        "length": len(content),
        "is_error": result.is_error is True,
        **({"media": media} if media else {}),
    }


def _setup_json(setup: Setup | None) -> JsonObject | None:
    """The tools that models are sent: their names, and their size."""
    if setup is None or not setup.tools:
        return None
    tools = [{"name": tool.name, "description": tool.description or ""} for tool in setup.tools]
    characters = sum(len(exact_json.dumps(_tool_json(tool))) for tool in setup.tools)
    return {"tools": tools, "characters": characters}


def _tool_json(tool: Tool) -> JsonObject:
    return {"name": tool.name, "description": tool.description, "parameters": tool.parameters}


def show_result(call: ApiCall) -> JsonObject:
    """The whole result of one tool call."""
    result = call.read_view().results.get(call.text("call"))
    if result is None:
        raise Refused(f"no result for the call {call.text('call')!r}", param="call", status=404)
    return {"content": result_text(result)}


def locate_row(call: ApiCall) -> JsonObject:
    """The newest commit at which a message that was compacted is still in the thread (`at`).

    `at` is None if the message is in the thread now, or was removed in another way.
    """
    record = call.thread_record()
    if record is None:
        return {"at": None}
    branch = call.thread_and_branch()[1]
    head = call.store.read_ref(record.name, branch)
    thread = call.state.views.read(call.store, record.name, branch, head)
    try:
        id = bytes.fromhex(call.text("row"))
    except ValueError:
        raise Refused("is not the id of a message", param="row") from None
    for commit, change in thread.summaries.values():
        if any(row.id == id for row in change.removed):
            [step] = call.store.read_commits(record.name, [commit])
            return {"at": step.commit.parents[0].hex()}
    return {"at": None}


ROW_READS: dict[str, Handler] = {
    "/api/locate": locate_row,
    "/api/rows": show_rows,
    "/api/result": show_result,
}
