"""What the page and other tools ask about threads: plain JSON over HTTP.

Every question is a function of the open store and what was asked; one table says which path it
stands under. Reading never makes anything: a thread that does not exist yet reads as an empty
one, so that a page can open a name before its first message. Writing goes through the verbs of
`Thread` and answers with one sentence for people.

    GET  /api/threads?q=                      the list; with words, only threads that have them
    GET  /api/thread?thread=&branch=&last=    rows with ids, priorities, kinds, tokens; branches
    GET  /api/log?thread=&branch=&limit=      commits, newest first
    GET  /api/commit?thread=&branch=&id=      what one commit took out, put in, and what pins kept
    GET  /api/diff?thread=&a=&b=              two branches or commits against each other
    GET  /api/search?thread=&q=               messages with those words, folded ones too
    GET  /api/checkpoints?thread=&branch=     addresses that a model can name
    GET  /api/models, /api/system-table
    POST /api/compact {thread, branch, budget | replacements, keep, preview}
    POST /api/revert {id}, /api/annotate {id, priority}, /api/edit {id, text}
    POST /api/branch {name}, /api/merge {branch, name}, /api/undo, /api/redo, /api/render {text}

An error is `{"error": {"message", "place"}}`; `place` names the field at fault.
"""

import logging
from collections.abc import Callable, Mapping
from typing import Any, cast

import orjson
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from weft.agent import present, table_json, to_json
from weft.client import OFFLINE_MODEL
from weft.compact import SystemMessage, validate_compact_input
from weft.errors import (
    Ambiguous,
    BudgetExceeded,
    CompactRefused,
    NotFound,
    Refused,
    StoreError,
    ThreadError,
    WeftError,
)
from weft.history import PRIORITIES
from weft.model import JsonObject
from weft.store import Step, Store, ThreadRecord
from weft.thread import Thread
from weft.thread import open as open_thread
from weft.tokens import counter_for

from .fields import Ask
from .page import HEADERS, page_routes
from .render import render
from .sample import SAMPLE, ensure_sample
from .socket import socket_route
from .state import State
from .views import (
    Change,
    change_json,
    commit_json,
    read_annotation,
    read_changes,
    thread_json,
)

LOG_LIMIT = 500
ROW_LIMIT = 400
THREAD_LIMIT = 500
HIT_LIMIT = 20
HITS_SHOWN = 3
HIT_LENGTH = 160
BODY_LIMIT = 4 * 1024 * 1024
MAIN = "main"
TOKENIZER = "o200k"
STATUS: dict[type[WeftError], int] = {
    NotFound: 404,
    Ambiguous: 409,
    BudgetExceeded: 422,
    CompactRefused: 422,
    ThreadError: 422,
    StoreError: 500,
}

_log = logging.getLogger(__name__)


Answer = Callable[[Ask], JsonObject]


def list_threads(ask: Ask) -> JsonObject:
    """The newest first; with words, those whose name or messages have them."""
    words = ask.text_or_none("q")
    newest = ask.store.threads()[-THREAD_LIMIT:]
    rows = [_thread_line(ask.store, record) for record in newest]
    if words:
        rows = [row for row in (_with_hits(ask.store, row, words) for row in rows) if row]
    return {"threads": sorted(rows, key=lambda row: row["updated"], reverse=True)}


def _thread_line(store: Store, record: ThreadRecord) -> JsonObject:
    refs = store.refs(record.name)
    last = store.operations(record.name, limit=1)
    return {
        "name": record.name,
        "branches": max(1, len(refs)),
        "updated": last[0].created if last else record.created,
        "sample": record.name == SAMPLE,
    }


def _with_hits(store: Store, row: JsonObject, words: str) -> JsonObject | None:
    hits = open_thread(store, row["name"]).search(words)[:HITS_SHOWN]
    named = words.lower() in row["name"].lower()
    return {**row, "hits": [_hit_json(hit) for hit in hits]} if hits or named else None


def _hit_json(hit: Any) -> JsonObject:
    return {"id": hit.id, "text": " ".join(hit.text.split())[:HIT_LENGTH], "live": hit.live}


def show_thread(ask: Ask) -> JsonObject:
    """One thread, compiled."""
    record = ask.record()
    model = ask.text_or_none("model") or OFFLINE_MODEL
    window = ask.state.catalog.find(model).window
    if record is None:
        name = ask.text("thread")
        empty = {
            "rows": [],
            "earlier": 0,
            "tokens": 0,
            "branch": MAIN,
            "branches": [MAIN],
            "head": None,
        }
        return {"name": name, "sample": False, "window": window, **empty}
    thread = ask.thread()
    view, changes = read_changes(_steps(ask, thread))
    count = counter_for(TOKENIZER).message
    return {
        "name": record.name,
        "branch": thread.current,
        "branches": sorted({thread.current, *ask.store.refs(record.name)}),
        "head": None if view.head is None else view.head.hex(),
        "sample": record.name == SAMPLE,
        "window": window,
        **thread_json(view, changes, count, ask.number("last") or ROW_LIMIT),
    }


def show_log(ask: Ask) -> JsonObject:
    """The commits of a branch."""
    if ask.record() is None:
        return {"commits": []}
    thread = ask.thread()
    steps = _steps(ask, thread)
    changes = read_changes(steps)[1]
    notes = {step.commit.id.hex(): read_annotation(step) for step in steps}
    count = counter_for(TOKENIZER).message
    infos = thread.log(limit=ask.number("limit") or LOG_LIMIT)
    lines = [
        commit_json(info, changes.get(bytes.fromhex(info.id)), count, notes.get(info.id))
        for info in infos
    ]
    return {"commits": lines}


def show_commit(ask: Ask) -> JsonObject:
    """What one commit did to the rows before it; nothing taken out where it only added."""
    thread = ask.thread()
    info = thread.show(ask.text("id"))
    change = read_changes(_steps(ask, thread))[1].get(bytes.fromhex(info.id))
    count = counter_for(TOKENIZER).message
    shown = commit_json(info, change, count)
    return {"commit": shown, **change_json(change or Change((), ()), count)}


def _steps(ask: Ask, thread: Thread) -> list[Step]:
    """The commits of the branch, oldest first."""
    head = ask.store.read_ref(thread.name, thread.current)
    return [] if head is None else ask.store.walk(thread.name, head)


def show_diff(ask: Ask) -> JsonObject:
    """Two branches or commits against each other, as text for people."""
    return {"text": str(ask.thread().diff(ask.text("a"), ask.text("b")))}


def search_thread(ask: Ask) -> JsonObject:
    return {"hits": [_hit_json(hit) for hit in ask.thread().search(ask.text("q"))[:HIT_LIMIT]]}


def list_checkpoints(ask: Ask) -> JsonObject:
    return {"checkpoints": [str(checkpoint) for checkpoint in ask.thread().checkpoints()]}


def list_models(ask: Ask) -> JsonObject:
    """The models that can be named without asking anybody: the one inside, and configured ones."""
    named = [
        model
        for provider in ask.state.providers
        for model in getattr(provider, "models", ())
        if not set("*?[") & set(model)
    ]
    return {"models": [OFFLINE_MODEL, *dict.fromkeys(named)]}


def show_system_table(_: Ask) -> JsonObject:
    return table_json()


def render_text(ask: Ask) -> JsonObject:
    """Markdown as safe HTML: for words that did not come with theirs."""
    return {"html": render(ask.text("text"))}


def compact(ask: Ask) -> JsonObject:
    """Fold old rows, to half of now where no budget is given; a `preview` changes nothing."""
    thread = ask.thread()
    heard: list[SystemMessage] = []
    thread.listen(heard.append)
    preview = ask.flag("preview")
    before = thread.compile()
    wish: JsonObject = {"keep": ask.number("keep"), "preview": preview}
    if ask.fields.get("replacements") is not None:
        given = {"replacements": ask.fields["replacements"]}
        wish["replacements"] = validate_compact_input(given)
    else:
        wish["budget"] = ask.number("budget") or max(1, before.tokens // 2)
    old = read_changes(_steps(ask, thread))[0].rows
    result = thread.compact(**wish)
    count = counter_for(TOKENIZER).message
    change = Change(tuple(old), result.rows or tuple(old))
    events = [to_json(event) for event in heard]
    return {
        **change_json(change, count),
        "commit": result.commit,
        "events": [event for event in events if present(event)],
        "message": str(result),
    }


def revert(ask: Ask) -> JsonObject:
    info = ask.thread().revert(ask.text("id"))
    return {"commit": info.id, "message": "Taken back; what came after stays."}


def annotate(ask: Ask) -> JsonObject:
    """Pin a row, leave it out, or make it ordinary again."""
    priority = ask.text("priority")
    if priority not in PRIORITIES:
        known = ", ".join(PRIORITIES)
        raise Refused(f"{priority!r} is no priority: {known}", param="priority")
    info = ask.thread().annotate(ask.text("id"), cast(Any, priority))
    said = {"pinned": "Pinned.", "skip": "Left out.", "normal": "Back to normal."}
    return {"commit": info.id, "message": said.get(priority, f"Now {priority}.")}


def edit(ask: Ask) -> JsonObject:
    info = ask.thread().edit(ask.text("id"), ask.text("text"))
    return {"commit": info.id, "message": "Edited."}


def branch(ask: Ask) -> JsonObject:
    name = ask.text("name")
    ask.thread().branch(name)
    return {"branch": name, "message": f"Branch {name} starts here."}


def merge(ask: Ask) -> JsonObject:
    info = ask.thread().merge(ask.text("name"))
    return {"commit": getattr(info, "id", None), "message": f"Merged {ask.text('name')}."}


def undo(ask: Ask) -> JsonObject:
    ask.thread().undo()
    return {"message": "Undone."}


def redo(ask: Ask) -> JsonObject:
    ask.thread().redo()
    return {"message": "Done again."}


GET: dict[str, Answer] = {
    "/api/threads": list_threads,
    "/api/thread": show_thread,
    "/api/log": show_log,
    "/api/commit": show_commit,
    "/api/diff": show_diff,
    "/api/search": search_thread,
    "/api/checkpoints": list_checkpoints,
    "/api/models": list_models,
    "/api/system-table": show_system_table,
}
POST: dict[str, Answer] = {
    "/api/compact": compact,
    "/api/revert": revert,
    "/api/annotate": annotate,
    "/api/edit": edit,
    "/api/branch": branch,
    "/api/merge": merge,
    "/api/undo": undo,
    "/api/redo": redo,
    "/api/render": render_text,
}


def routes(state: State) -> list[BaseRoute]:
    """The page, its questions and its socket; an empty store gets the sample thread first."""
    ensure_sample(state.store)
    asked = [Route(path, _endpoint(state, answer), methods=["GET"]) for path, answer in GET.items()]
    told = [
        Route(path, _endpoint(state, answer), methods=["POST"]) for path, answer in POST.items()
    ]
    return [*page_routes(), *asked, *told, socket_route(state)]


def _endpoint(state: State, answer: Answer) -> Callable[[Request], Any]:
    async def endpoint(request: Request) -> Response:
        try:
            fields = await _fields(request)
            return _json(await run_in_threadpool(answer, Ask(state, fields)))
        except Refused as error:
            return _error(error.message, error.param, error.status)
        except WeftError as error:
            status = next(code for kind, code in STATUS.items() if isinstance(error, kind))
            return _error(str(error), getattr(error, "field", None), status)
        except Exception:  # the gateway's outermost: the caller gets one line, the log the rest
            _log.exception("%s failed", request.url.path)
            return _error("the gateway failed; its log says why", None, 500)

    return endpoint


async def _fields(request: Request) -> Mapping[str, Any]:
    """The query of a GET, the JSON object of a POST."""
    if request.method != "POST":
        return dict(request.query_params)
    if request.headers.get("content-type", "").partition(";")[0].strip() != "application/json":
        raise Refused("the body must be application/json", param="content-type", status=415)
    body = b""
    async for piece in request.stream():
        body += piece
        if len(body) > BODY_LIMIT:
            raise Refused(f"the body is larger than {BODY_LIMIT} bytes", param="body", status=413)
    try:
        fields: Any = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise Refused(f"the body is not JSON: {error}", param="body") from None
    if not isinstance(fields, dict):
        raise Refused("the body is not a JSON object", param="body")
    return cast(JsonObject, fields)


def _json(body: JsonObject, status: int = 200) -> Response:
    return Response(orjson.dumps(body), status, HEADERS, "application/json")


def _error(message: str, place: str | None, status: int) -> Response:
    return _json({"error": {"message": message, "place": place}}, status)
