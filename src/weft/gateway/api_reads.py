"""The reads of the page's API; they change nothing.

A thread that does not exist yet is shown as an empty one, so that the page can open it before its
first message.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from datetime import UTC, datetime, timedelta

from starlette.concurrency import run_in_threadpool

from weft.agent import table_json
from weft.client import OFFLINE_MODEL
from weft.demo import SAMPLE
from weft.errors import Refused
from weft.history import is_visible, read_branches, threads_with
from weft.ids import Id
from weft.model import JsonObject
from weft.store import Step, Store, ThreadRecord
from weft.thread import (
    AnswerCost,
    CommitInfo,
    Hit,
    RevertedCommits,
    Thread,
    excerpt,
    named_threads,
    open as open_thread,
    read_costs,
    threads,
    total_usage,
)
from weft.tokens import counter_for

from .api_call import DEFAULT_BRANCH, ApiCall, AsyncHandler, Handler
from .run_planning import check_model, choose_model, context_json, served_names
from .runs import OWN_AGENT, is_unanswered
from .thread_views import (
    Change,
    ThreadView,
    attempts_json,
    change_json,
    commit_json,
    count_once,
    part_json,
    read_changes,
    thread_json,
    tokens_json,
)

LOG_LIMIT = 500
ROW_LIMIT = 400
THREAD_LIMIT = 500
HIT_LIMIT = 20
"""How many commits, rows, threads and search hits are sent if the call sets no limit."""
HITS_PER_THREAD = 3
"""How many messages, and other hits, are listed for each thread that contains a query."""
HIT_LENGTH = 160
TOKENIZER = "o200k"
USAGE_TURNS = 500
USAGE_THREADS = 100
MAX_UTC_OFFSET = 14 * 60
"""In minutes. No time zone is further from UTC."""


def list_threads(call: ApiCall) -> JsonObject:
    """Threads, last active first.

    With `q`, only threads whose name, title, tags, notes, metadata or messages contain it. One call
    lists at most `limit` threads, after the first `offset`; `total` is their number. For a subagent
    or a side question, `parent` is its main thread and `kind` says what it is. `running` says
    whether an agent of the page or a client of the gateway waits for an answer in the thread.
    """
    query, offset = call.text_or_none("q"), call.number("offset") or 0
    visible, active = call.visible_threads(), call.store.last_active()
    # Another process may have deleted a thread between the two reads.
    updated = {record.name: active.get(record.name, record.created) for record in visible}
    # Reversed, so that the newer of two threads with the same time comes first.
    listed = sorted(reversed(visible), key=lambda record: updated[record.name], reverse=True)
    named_matches: set[str] = set()
    if query:
        # None: the index cannot tell, so every thread is searched.
        matching = threads_with(call.store, query)
        named_matches = named_threads(call.store, query)
        listed = [
            record
            for record in listed
            if matching is None or record.name in matching or record.name in named_matches
        ]
    visible_names = {record.name for record in visible}
    child_counts = Counter(record.parent for record in visible if record.parent is not None)
    running = {run.spec.thread for run in call.state.runs}
    running |= {exchange.thread for exchange in call.state.live_feed}
    rows = [
        {
            **_thread_entry(call, record, updated[record.name], running),
            **family_json(record, visible_names),
            "children": child_counts[record.name],
        }
        for record in listed[offset : offset + (call.number("limit") or THREAD_LIMIT)]
    ]
    if query:
        rows_with_hits = [_with_hits(call.store, row, query, named_matches) for row in rows]
        rows = [row for row in rows_with_hits if row is not None]
    recorder = call.state.recorder
    return {
        "threads": rows,
        "total": len(listed),
        "recording": {"state": "off"} if recorder is None else recorder.status(),
    }


def list_deleted(call: ApiCall) -> JsonObject:
    """Deleted threads that can still be restored, newest deletion first; one row per name."""
    records = [record for record in threads(call.store, deleted=True) if call.sees(record)]
    newest = {record.name: record.deleted for record in records}  # oldest first: the last one wins
    rows = [{"name": name, "deleted": deleted} for name, deleted in newest.items()]
    return {"threads": sorted(rows, key=lambda row: row["deleted"] or 0.0, reverse=True)}


def _thread_entry(
    call: ApiCall, record: ThreadRecord, updated: float, running: Collection[str]
) -> JsonObject:
    refs = read_branches(call.store, record.name)
    return {
        "name": record.name,
        "title": call.state.titles.of(call.store, record),
        "branches": max(1, len(refs)),
        "updated": updated,
        "sample": record.name == SAMPLE,
        "running": record.name in running,
    }


def family_json(record: ThreadRecord, visible: Collection[str]) -> JsonObject:
    """The parent of a thread, if the caller may see it, and what the thread is for."""
    parent = record.parent if record.parent in visible else None
    return {"parent": parent, "kind": record.kind}


def _with_hits(
    store: Store, row: JsonObject, query: str, named_matches: Collection[str]
) -> JsonObject | None:
    """The row of a thread with its first hits; None if nothing in the thread matches."""
    hits = open_thread(store, row["name"]).search(query)
    if not hits and row["name"] not in named_matches:
        return None
    messages = [hit for hit in hits if hit.kind == "message"]
    other_hits = [hit for hit in hits if hit.kind != "message"]
    first_hits = [*messages[:HITS_PER_THREAD], *other_hits[:HITS_PER_THREAD]]
    return {**row, "hits": [_hit_json(hit, query) for hit in first_hits]}


def _hit_json(hit: Hit, query: str) -> JsonObject:
    text = excerpt(hit, query, HIT_LENGTH)
    return {
        "id": hit.id,
        "text": text,
        "live": hit.live,
        "kind": hit.kind,
        "commit": hit.commit,
    }


def show_thread(call: ApiCall) -> JsonObject:
    """One thread, compiled; with `until`, as it was at that commit."""
    record = call.thread_record()
    if record is None:
        return {**_empty_thread(call.text("thread")), **show_composer(call)}
    thread = call.thread()
    head = call.read_until(thread.name, thread.current)
    steps = [] if head is None else call.store.walk(thread.name, head)
    view, changes = read_changes(steps)
    count = count_once(counter_for(TOKENIZER).message)
    return {
        "name": record.name,
        "new": False,
        "branch": thread.current,
        "branches": sorted({thread.current, *read_branches(call.store, record.name)}),
        "head": None if view.head is None else view.head.hex(),
        "sample": record.name == SAMPLE,
        "title": call.state.titles.of(call.store, record),
        **family_json(record, {each.name for each in call.visible_threads()}),
        "children": [
            {
                "name": child.name,
                "title": call.state.titles.of(call.store, child),
                "kind": child.kind,
            }
            for child in call.visible_threads()
            if child.parent == record.name
        ],
        "running": call.state.runs.find(record.name, thread.current) is not None,
        "unanswered": is_unanswered([row.message for row in view.rows if is_visible(row)]),
        "attempts": attempts_json(steps, thread.attempts()),
        "remarks": call.state.runs.remarks(record.name, thread.current),
        **thread_json(view, changes, count, call.number("last") or ROW_LIMIT),
        **show_composer(call),
    }


def _empty_thread(name: str) -> JsonObject:
    """A thread that does not exist yet."""
    return {
        "name": name,
        "new": True,
        "sample": False,
        "rows": [],
        "earlier": 0,
        "tokens": 0,
        "branch": DEFAULT_BRANCH,
        "branches": [DEFAULT_BRANCH],
        "head": None,
        "title": None,
        "parent": None,
        "kind": None,
        "children": [],
        "running": False,
        "unanswered": False,
        "attempts": [],
        "remarks": [],
    }


def show_composer(call: ApiCall) -> JsonObject:
    """The model that continues the thread, and how full its window is.

    The field `model` asks about another model instead, and `until` about an earlier commit. `agent`
    is who answers in the page: Weft's own agent, or the one that was chosen for the thread.
    """
    record = call.thread_record()
    thread = None if record is None else call.thread()
    head = None if thread is None else call.read_until(thread.name, thread.current)
    views = call.state.views
    view = ThreadView()
    if thread is not None:
        view = views.read(call.store, thread.name, thread.current, head)
    thread_choice = choose_model(call.state, view.rows)
    chosen_model = call.text_or_none("model")
    model = chosen_model or thread_choice.name or OFFLINE_MODEL
    reason = thread_choice.reason if chosen_model is None else check_model(call.state, chosen_model)
    return {
        "model": thread_choice.name,
        "problem": reason,
        "agent": (record and record.agent) or OWN_AGENT,
        "context": views.context((head, model), lambda: context_json(call, thread, model, view)),
    }


def show_head(call: ApiCall) -> JsonObject:
    """The newest commit and the number of threads; cheap enough to poll every few seconds."""
    record = call.thread_record()
    branch = call.text_or_none("branch") or (record.head if record else DEFAULT_BRANCH)
    head = None if record is None else call.store.read_ref(record.name, branch)
    running = record is not None and call.state.runs.find(record.name, branch) is not None
    return {
        "head": None if head is None else head.hex(),
        "threads": len(call.visible_threads()),
        "running": running,
    }


def show_log(call: ApiCall) -> JsonObject:
    """The newest commits of a branch, or those up to `until`; `total` is how many there are."""
    record = call.thread_record()
    if record is None:
        return {"commits": [], "total": 0}
    thread = call.thread()
    head = call.read_until(record.name, thread.current)
    if head is None:
        return {"commits": [], "total": 0}
    limit = call.number("limit") or LOG_LIMIT
    steps = call.store.walk(record.name, head, limit=limit)
    infos = [CommitInfo(step, lambda _: 0) for step in reversed(steps)]
    has_compactions = any(info.kind == "compact" for info in infos)
    figures = _compaction_figures(call, thread, head) if has_compactions else {}
    reverted = RevertedCommits()
    return {
        "commits": [
            commit_json(
                info,
                figures.get(bytes.fromhex(info.id)),
                is_reverted=reverted.check(info.id, info.reverts),
            )
            for info in infos
        ],
        "total": call.store.read_depths(record.name, head, [head])[head],
    }


def _compaction_figures(call: ApiCall, thread: Thread, head: Id) -> dict[Id, JsonObject]:
    """The tokens before and after each compaction up to the commit `head`, by commit."""
    views = call.state.views
    count = count_once(counter_for(TOKENIZER).message)
    summaries = views.read(call.store, thread.name, thread.current, head).summaries
    return {commit: views.figures(commit, change, count) for commit, change in summaries.values()}


def show_commit(call: ApiCall) -> JsonObject:
    """One commit, and the rows that it removed, added and changed; none if it only appended.

    If the client changed the answer when it sent it back, `echo` has the parts of its version.
    """
    thread = call.thread()
    info = thread.show(call.text("id"))
    change = read_changes(read_steps(call, thread))[1].get(bytes.fromhex(info.id))
    count = count_once(counter_for(TOKENIZER).message)
    compaction = None
    if change is not None and info.kind == "compact":
        compaction = tokens_json(change.before, change.after, count)
    commit = commit_json(info, compaction)
    echo = thread.client_echo(info.id)
    parts = None if echo is None else [part for b in echo.blocks for part in part_json(b)]
    return {"commit": commit, "echo": parts, **change_json(change or Change((), ()), count)}


def read_steps(call: ApiCall, thread: Thread) -> list[Step]:
    """The commits of the branch, oldest first."""
    head = call.store.read_ref(thread.name, thread.current)
    return [] if head is None else call.store.walk(thread.name, head)


def search_thread(call: ApiCall) -> JsonObject:
    """Messages, notes, metadata and tags with the words `q`.

    At most `limit` hits are listed, after the first `offset`. `kind` says what each hit is, and
    `commit` where it is. `since`, `until` and `path` narrow the search. With `recall`, the messages
    that match best are listed, even if they have only some of the words.
    """
    query, offset = call.text("q"), call.number("offset") or 0
    limit = call.number("limit") or HIT_LIMIT
    thread = call.thread()
    find = thread.recall if call.text_or_none("recall") else thread.search
    hits = find(
        query,
        offset + limit + 1,
        since=call.text_or_none("since"),
        until=call.text_or_none("until"),
        path=call.text_or_none("path"),
    )
    page = hits[offset : offset + limit]
    more = len(hits) > offset + limit
    return {"hits": [_hit_json(hit, query) for hit in page], "more": more}


def list_checkpoints(call: ApiCall) -> JsonObject:
    return {"checkpoints": [str(checkpoint) for checkpoint in call.thread().checkpoints()]}


async def list_models(call: ApiCall) -> JsonObject:
    """The models of all upstreams and the offline model; for each upstream, why it has no list.

    Only names that would be served are listed. A model that a plain name does not reach has the
    name of its upstream before it. `agents` are the agents that the page may choose.
    """
    listings = await call.state.listings.read(call.state.http_client, call.state.providers)
    names = await run_in_threadpool(served_names, call.state, listings)
    agent = call.state.settings.agent
    return {
        "models": [*names, OFFLINE_MODEL],
        "agents": [OWN_AGENT, *([] if agent is None else [agent])],
        "upstreams": [
            {"name": listing.upstream, "models": len(listing.models), "error": listing.error}
            for listing in listings
        ],
    }


def show_system_table(_: ApiCall) -> JsonObject:
    return table_json()


def show_usage(call: ApiCall) -> JsonObject:
    """Tokens and dollars, per turn, thread, model and day.

    As in `weft stats`, the answers of all branches count, each once. `thread` selects one thread,
    with its `turns`; without it, all threads that the caller may see. `offset` is the minutes
    between the reader's clock and UTC: days begin at the reader's midnight.
    """
    offset = _read_utc_offset(call)
    if call.text_or_none("thread") is not None:
        record = call.thread_record()
        answers = () if record is None else _read_answer_costs(call, record)
        turns = _total_usage_by(_turn_of, answers)
        first_answers = {_turn_of(answer): answer for answer in reversed(answers)}
        rows = [
            {"turn": turn, "created": first_answers[turn].created, **total}
            for turn, total in turns[-USAGE_TURNS:]
        ]
        return {"turns": rows, **_totals(answers, offset)}
    by_thread = {record.name: _read_answer_costs(call, record) for record in call.visible_threads()}
    all_answers = [answer for answers in by_thread.values() for answer in answers]
    totals = [
        {"thread": name, **total_usage(answers).to_dict()}
        for name, answers in by_thread.items()
        if answers
    ]
    totals.sort(key=lambda row: (row["cost"] or 0.0, row["input"] or 0), reverse=True)
    return {"threads": totals[:USAGE_THREADS], **_totals(all_answers, offset)}


def _turn_of(answer: AnswerCost) -> str:
    return answer.turn or answer.commit


def _totals(answers: Sequence[AnswerCost], offset: timedelta) -> JsonObject:
    """The totals of all answers, of each model and of each day."""

    def day_of(answer: AnswerCost) -> str:
        return (datetime.fromtimestamp(answer.created, UTC) + offset).date().isoformat()

    models = _total_usage_by(lambda answer: answer.model, answers)
    days = _total_usage_by(day_of, sorted(answers, key=lambda answer: answer.created))
    return {
        "total": total_usage(answers).to_dict(),
        "models": [{"model": model, **total} for model, total in models],
        "days": [{"day": day, **total} for day, total in days],
    }


def _total_usage_by(
    key: Callable[[AnswerCost], str], answers: Iterable[AnswerCost]
) -> list[tuple[str, JsonObject]]:
    """The total of the answers with each key."""
    groups: dict[str, list[AnswerCost]] = {}
    for answer in answers:
        groups.setdefault(key(answer), []).append(answer)
    return [(name, total_usage(group).to_dict()) for name, group in groups.items()]


def _read_answer_costs(call: ApiCall, record: ThreadRecord) -> tuple[AnswerCost, ...]:
    """The costs of a thread's answers; read again only if one of its branches has moved."""
    heads = tuple(sorted(call.store.refs(record.name).items()))
    return call.state.views.costs(
        (record.name, heads), lambda: tuple(read_costs(call.store, record.name, call.state.catalog))
    )


def _read_utc_offset(call: ApiCall) -> timedelta:
    value = str(call.fields.get("offset") or "0")
    try:
        minutes = int(value)
    except ValueError:
        minutes = None
    if minutes is None or abs(minutes) > MAX_UTC_OFFSET:
        raise Refused(
            f"must be minutes between -{MAX_UTC_OFFSET} and {MAX_UTC_OFFSET}, not {value[:20]!r}",
            param="offset",
        )
    return timedelta(minutes=minutes)


READS: dict[str, Handler | AsyncHandler] = {
    "/api/threads": list_threads,
    "/api/deleted": list_deleted,
    "/api/thread": show_thread,
    "/api/composer": show_composer,
    "/api/head": show_head,
    "/api/log": show_log,
    "/api/commit": show_commit,
    "/api/search": search_thread,
    "/api/checkpoints": list_checkpoints,
    "/api/models": list_models,
    "/api/usage": show_usage,
    "/api/system-table": show_system_table,
}
