"""The page's wishes: each is one verb of `Thread`, answered with one sentence for people."""

from typing import Any, cast

from weft.agent import present, to_json
from weft.client import Asker, find_route
from weft.compact import SystemMessage, validate_compact_input
from weft.errors import Refused
from weft.history import PRIORITIES
from weft.model import JsonObject
from weft.thread import Undone
from weft.thread.moving import NAMED
from weft.tokens import counter_for

from .fields import Answer, Ask
from .reads import TOKENIZER, read_steps
from .render import render
from .views import Change, change_json, count_once, read_changes

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
    "/api/render": render_text,
}
