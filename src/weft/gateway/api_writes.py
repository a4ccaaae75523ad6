"""The writes of the page's API. Each calls one method of `Thread` and returns a message."""

import asyncio
from collections.abc import Callable
from typing import Any, cast

from msgspec import to_builtins
from starlette.concurrency import run_in_threadpool

from weft.agent import display_system_message, to_json
from weft.client import ModelClient, find_route
from weft.compact import CompactResult, SystemMessage, validate_compact_input
from weft.errors import Refused, WeftError
from weft.history import PRIORITIES
from weft.model import JsonObject
from weft.store import descendants
from weft.thread import (
    REF_OPERATIONS,
    Thread,
    Undone,
    threads,
    undelete as undelete_thread,
)
from weft.tokens import counter_for

from .api_call import ApiCall, AsyncHandler, Handler
from .api_reads import TOKENIZER, read_steps
from .auth import name_in_scope
from .render import render
from .run_planning import read_agent
from .runs import RETRY, is_transient
from .thread_views import Change, change_json, count_once, read_changes

EXCERPT_LENGTH = 60
"""How many characters of an undone message are shown."""


def render_text(call: ApiCall) -> JsonObject:
    """Markdown as safe HTML."""
    return {"html": render(call.text("text"))}


async def compact(call: ApiCall) -> JsonObject:
    """Compact old rows: to a budget (default: half of the tokens), or with a summary by a `model`.

    `summary` is the caller's own summary. With `first` and `last`, the ids of two messages, only
    the range between them is replaced. A `preview` changes nothing. While a model writes, the
    watchers of the branch get its progress, and its error if it fails.
    """
    loop, runs = asyncio.get_running_loop(), call.state.runs
    name, branch = await run_in_threadpool(call.thread_and_branch)
    events: list[JsonObject] = []
    is_reported = call.text_or_none("model") is not None and not call.flag("preview")

    def publish(event: SystemMessage) -> None:
        frame = to_json(event)
        if not display_system_message(frame):
            return
        events.append(frame)
        if is_reported:
            loop.call_soon_threadsafe(runs.send, name, branch, {"type": "report", "event": frame})

    try:
        answer = await run_in_threadpool(_compact, call, publish)
    except WeftError:
        row = await run_in_threadpool(_last_row, call)
        failures = [event for event in events if not is_transient(event)]
        if failures and row is not None:
            runs.add_remark(name, branch, row, failures)
            call.state.live_feed.changed(name, call.scope)
        raise
    return {**answer, "events": events}


def _compact(call: ApiCall, publish: Callable[[SystemMessage], None]) -> JsonObject:
    thread = call.thread()
    thread.listen(publish)
    options: JsonObject = {
        "keep": call.number("keep"),
        "preview": call.flag("preview"),
        "first": call.text_or_none("first"),
        "last": call.text_or_none("last"),
        "summary": call.text_or_none("summary"),
        "budget": call.number("budget"),
    }
    if call.fields.get("replacements") is not None:
        fields = {"replacements": call.fields["replacements"]}
        options["replacements"] = validate_compact_input(fields)
        options["budget"] = None
    if call.text_or_none("model") is not None:
        client = find_model_client(call)
        options["model"] = client.with_on_retry(
            lambda retry: publish(SystemMessage(RETRY, retry.data()))
        )
    old_rows = read_changes(read_steps(call, thread))[0].rows
    result = thread.compact(**options)
    count = count_once(counter_for(TOKENIZER).message)
    change = Change(tuple(old_rows), result.rows or tuple(old_rows))
    return {
        **change_json(change, count),
        "commit": result.commit,
        "budget": result.budget or options["budget"],
        "changes": [to_builtins(change) for change in result.changes],
        "requests": result.requests,
        "message": _describe_compaction(result),
    }


def _describe_compaction(result: CompactResult) -> str:
    """What a compaction did, in one line for a person."""
    if result.commit is None:
        return str(result)
    requests = "1 request" if result.requests == 1 else f"{result.requests} requests"
    model = f" with {requests} to {result.model}" if result.requests else ""
    return (
        f"Compacted: {result.tokens_before:,} → {result.tokens_after:,} tokens{model}. "
        "Undo or revert brings the messages back."
    )


def _last_row(call: ApiCall) -> str | None:
    """The id of the branch's last row."""
    ids = call.thread().compile().ids
    return ids[-1] if ids else None


def find_model_client(call: ApiCall) -> ModelClient:
    """A client for the model of the call, with the configured keys; raises `Refused`."""
    state = call.state
    route = find_route(
        call.text("model"), "", state.settings.providers, state.catalog, has_credentials=False
    )
    return ModelClient(route.provider, route.model, state.catalog)


def revert(call: ApiCall) -> JsonObject:
    info = call.thread().revert(call.text("id"))
    return {"commit": info.id, "message": "Reverted; later messages stay."}


def annotate(call: ApiCall) -> JsonObject:
    """Set the priority of a row: pin it, skip it, or make it normal again."""
    priority = call.text("priority")
    if priority not in PRIORITIES:
        choices = ", ".join(PRIORITIES)
        raise Refused(f"{priority!r} is not a priority; use one of {choices}", param="priority")
    info = call.thread().annotate(call.text("id"), cast(Any, priority))
    messages = {"pinned": "Pinned.", "skip": "Left out.", "normal": "Back to normal."}
    return {"commit": info.id, "message": messages.get(priority, f"Now {priority}.")}


def edit(call: ApiCall) -> JsonObject:
    info = call.thread().edit(call.text("id"), call.text("text"))
    return {"commit": info.id, "message": "Edited."}


def undo(call: ApiCall) -> JsonObject:
    call.state.runs.refuse_if_running(*call.thread_and_branch())
    undone = call.thread().undo(turn=call.flag("turn"))
    return {"undone": undone.to_dict(), "message": f"Undone: {_describe(undone)}."}


def redo(call: ApiCall) -> JsonObject:
    call.state.runs.refuse_if_running(*call.thread_and_branch())
    redone = call.thread().redo(turn=call.flag("turn"))
    return {"redone": redone.to_dict(), "message": f"Redone: {_describe(redone)}."}


def rename(call: ApiCall) -> JsonObject:
    """Give a thread another name, in the caller's own namespace."""
    thread = _idle_thread(call)
    name = name_in_scope(call.caller, call.text("name"))
    thread.rename(name)
    return {"thread": name, "message": f"Renamed to {call.text('name')}."}


def choose_agent(call: ApiCall) -> JsonObject:
    """Store which agent answers in a thread in the page."""
    thread, agent = call.thread(), read_agent(call)
    call.store.describe_thread(thread.name, agent=agent)
    return {"agent": agent, "message": "Chosen."}


def delete(call: ApiCall) -> JsonObject:
    """Delete a thread and its children."""
    thread = _idle_thread(call)
    children = len(descendants(call.store.threads(), thread.name))
    thread.delete()
    and_children = f" and {children} under it" if children else ""
    message = f"Deleted {call.text('thread')}{and_children}."
    return {"thread": thread.name, "children": children, "message": message}


def undelete(call: ApiCall) -> JsonObject:
    """Restore the deleted thread of that name, if the caller may see it."""
    name = call.text("thread")
    deleted = [record for record in threads(call.store, deleted=True) if call.sees(record)]
    names = [record.name for record in deleted if record.name in (name, call.scoped_name)]
    if not names:
        raise Refused(f"no deleted thread {name!r}", param="thread", status=404)
    record = undelete_thread(call.store, names[-1])
    return {"thread": record.name, "message": f"Restored {name}."}


def _idle_thread(call: ApiCall) -> Thread:
    """The thread of the call; raises `Refused` while a run writes to it."""
    thread = call.thread()
    for run in call.state.runs:
        if run.spec.thread == thread.name:
            call.state.runs.refuse_if_running(*run.key)
    return thread


def _describe(undone: Undone) -> str:
    """What was undone, in one line for a person."""
    if undone.commit is None or undone.verb in REF_OPERATIONS:
        return str(undone)
    text = " ".join((undone.commit.text or undone.commit.message or "").split())
    short = text if len(text) <= EXCERPT_LENGTH else text[: EXCERPT_LENGTH - 1] + "…"
    return f"{undone.title} “{short}”" if short else undone.verb


WRITES: dict[str, Handler | AsyncHandler] = {
    "/api/compact": compact,
    "/api/revert": revert,
    "/api/annotate": annotate,
    "/api/edit": edit,
    "/api/undo": undo,
    "/api/redo": redo,
    "/api/rename": rename,
    "/api/agent": choose_agent,
    "/api/delete": delete,
    "/api/undelete": undelete,
    "/api/render": render_text,
}
