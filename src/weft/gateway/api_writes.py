"""The page's wishes: each is one verb of `Thread`, answered with one sentence for people."""

from typing import Any, cast

from weft.agent import present, to_json
from weft.client import Asker, find_route
from weft.compact import SystemMessage, validate_compact_input
from weft.errors import Refused
from weft.history import PRIORITIES
from weft.model import JsonObject
from weft.thread import Thread, Undone, threads
from weft.thread import undelete as bring_back
from weft.thread.refs import NAMED
from weft.tokens import counter_for

from .api_call import Answer, Ask
from .api_reads import TOKENIZER, read_steps
from .api_views import Change, change_json, count_once, read_changes
from .auth import own_name
from .render import render

WORDS = 60
"""How much of a message is shown where an undo says what it took back."""


def render_text(ask: Ask) -> JsonObject:
    """Markdown as safe HTML: for words that did not come with theirs."""
    return {"html": render(ask.text("text"))}


def compact(ask: Ask) -> JsonObject:
    """Fold old rows, to half of now where nothing else is said, or by a `model`'s summary; a
    `preview` changes nothing."""
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
        wish["budget"] = ask.number("budget")
    if ask.text_or_none("model") is not None:
        wish["model"] = find_asker(ask)
    elif "replacements" not in wish and wish["budget"] is None:
        wish["budget"] = max(1, before.tokens // 2)
    old = read_changes(read_steps(ask, thread))[0].rows
    result = thread.compact(**wish)
    count = count_once(counter_for(TOKENIZER).message)
    change = Change(tuple(old), result.rows or tuple(old))
    events = [to_json(event) for event in heard]
    return {
        **change_json(change, count),
        "commit": result.commit,
        "events": [event for event in events if present(event)],
        "message": str(result),
    }


def find_asker(ask: Ask) -> Asker:
    """Whoever answers for the model that was named, by our own keys; raises `Refused`."""
    state = ask.state
    route = find_route(ask.text("model"), "", state.settings.providers, state.catalog, pays=False)
    return Asker(route.provider, route.model, state.catalog)


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
    ask.state.runs.refuse_if_running(*ask.place())
    undone = ask.thread().undo(turn=ask.flag("turn"))
    return {"undone": undone.to_dict(), "message": f"Undone: {_describe(undone)}."}


def redo(ask: Ask) -> JsonObject:
    ask.state.runs.refuse_if_running(*ask.place())
    redone = ask.thread().redo(turn=ask.flag("turn"))
    return {"redone": redone.to_dict(), "message": f"Done again: {_describe(redone)}."}


def rename(ask: Ask) -> JsonObject:
    """Give a thread another name, in the caller's own namespace."""
    thread = _idle_thread(ask)
    name = own_name(ask.caller, ask.text("name"))
    thread.rename(name)
    return {"thread": name, "message": f"Renamed to {ask.text('name')}."}


def delete(ask: Ask) -> JsonObject:
    thread = _idle_thread(ask)
    thread.delete()
    return {"thread": thread.name, "message": f"Deleted {ask.text('thread')}."}


def undelete(ask: Ask) -> JsonObject:
    """Bring back the thread of that name, if the caller may see it."""
    wanted = (ask.text("thread"), ask.new_name)
    found = [r.name for r in threads(ask.store, deleted=True) if r.name in wanted and ask.sees(r)]
    if not found:
        raise Refused(f"no deleted thread {wanted[0]!r}", param="thread", status=404)
    record = bring_back(ask.store, found[-1])
    return {"thread": record.name, "message": f"{wanted[0]} is back."}


def _idle_thread(ask: Ask) -> Thread:
    """The thread that was named, unless somebody is being answered in it."""
    thread = ask.thread()
    for run in ask.state.runs:
        if run.start.thread == thread.name:
            ask.state.runs.refuse_if_running(thread.name, run.start.branch)
    return thread


def _describe(undone: Undone) -> str:
    """What was taken back, as a person reads it in one line."""
    if undone.commit is None or undone.verb in NAMED:
        return str(undone)
    words = " ".join((undone.commit.text or undone.commit.message or "").split())
    short = words if len(words) <= WORDS else words[: WORDS - 1] + "…"
    return f"{undone.verb} “{short}”" if short else undone.verb


WISHES: dict[str, Answer] = {
    "/api/compact": compact,
    "/api/revert": revert,
    "/api/annotate": annotate,
    "/api/edit": edit,
    "/api/branch": branch,
    "/api/merge": merge,
    "/api/undo": undo,
    "/api/redo": redo,
    "/api/rename": rename,
    "/api/delete": delete,
    "/api/undelete": undelete,
    "/api/render": render_text,
}
