"""Recorded answers by their id, in the form of OpenAI's Responses API.

    GET    /v1/responses/ID               the answer; with ?stream=true as a stream of events
    GET    /v1/responses/ID/input_items   the messages that it answers
    DELETE /v1/responses/ID               forget the id; the thread keeps the answer

A caller only finds answers to its own requests. An answer to a request with `store: false` cannot
be found, and no conversation continues it, as at the vendor.

https://platform.openai.com/docs/api-reference/responses/get
https://platform.openai.com/docs/api-reference/responses/delete
https://platform.openai.com/docs/api-reference/responses/input-items
"""

import re
from hashlib import sha256
from typing import cast
from urllib.parse import parse_qs, unquote

import msgspec
from msgspec import Struct, structs

from weft import exact_json
from weft.catalog import Model
from weft.client import STREAM_TYPE
from weft.codec import CODECS, AnswerOptions, AnswerWriter, Target, unfold, write_request
from weft.errors import Refused, StoreError
from weft.history import View, read_stop_reason, visible_rows
from weft.model import JsonObject, Params, Request, Response, Stop, StopKind, Usage
from weft.store import Store

from .asgi import Inbound, Outbound
from .auth import admit_program
from .errors import failure
from .identity import response_key
from .state import State

PROTOCOL = "openai-responses"
PREFIX = "/v1/responses/"
ITEMS = "/input_items"
ITEMS_LIMIT = 100
DEFAULT_ITEMS = 20

_PATH = re.compile(rf"{PREFIX}([^/]+)({ITEMS})?")

STOP_KINDS: dict[str, StopKind] = {
    **dict.fromkeys(("length", "max_tokens", "max_output_tokens", "MAX_TOKENS"), "length"),
    **dict.fromkeys(("filter", "content_filter", "SAFETY", "PROHIBITED_CONTENT"), "filter"),
}
"""The kinds of stop reasons that make a response `incomplete`, by the vendors' names and ours."""


class StoredAnswer(Struct, frozen=True):
    """An answer with the request that it belongs to, and its time in seconds."""

    response: Response
    request: Request
    created: int


def read_path(path: str) -> tuple[str, bool] | None:
    """The id in a path, and whether its input items are asked for; None for other paths."""
    match = _PATH.fullmatch(path)
    return None if match is None else (unquote(match[1]), match[2] is not None)


async def stored_response(state: State, inbound: Inbound, outbound: Outbound) -> None:
    """Answer one of the three calls."""
    try:
        caller = admit_program(inbound, state.settings)
        address = read_path(inbound.path)
        assert address is not None
        id, wants_items = address
        if inbound.method == "DELETE":
            known = state.recorder is not None and await state.recorder.forget_response(
                caller.scope, id
            )
            if not known:
                raise _unknown(id)
            await outbound.send(
                200, exact_json.dumps({"id": id, "object": "response", "deleted": True})
            )
            return
        answer = None
        if state.recorder is not None:
            answer = await state.recorder.read_response(caller.scope, id, read_answer)
        if answer is None:
            raise _unknown(id)
        query = {name: values[-1] for name, values in parse_qs(inbound.query).items()}
        if wants_items:
            await outbound.send(200, exact_json.dumps(list_items(answer, query)))
        elif query.get("stream") == "true":
            options = AnswerOptions(created=answer.created)
            piece = AnswerWriter(CODECS[PROTOCOL], options).write(unfold(answer.response))
            headers = [("content-type", STREAM_TYPE), ("cache-control", "no-cache")]
            await outbound.send(200, piece.now + piece.last, headers)
        else:
            await outbound.send(200, exact_json.dumps(write_answer(answer)))
    except (Refused, StoreError) as error:
        status, body = CODECS[PROTOCOL].encode_error(failure(error))
        await outbound.send(status, exact_json.dumps(body))


def _unknown(id: str) -> Refused:
    """The vendor's error for an unknown id."""
    message = f"Response with id '{id}' not found."
    return Refused(message, status=404, type="not_found_error")


def read_answer(store: Store, scope: str, id: str) -> StoredAnswer | None:
    """The caller's answer with this id; None if there is none."""
    link = store.newest_link(response_key(scope, id))
    if link is None:
        return None
    steps = list(store.walk(link.thread, link.commit))
    view = View().extend(steps)
    messages = [row.message for row in visible_rows(view.rows)]
    commit = steps[-1].commit
    if commit.id != link.commit:
        commit = next(step.commit for step in steps if step.commit.id == link.commit)
    usage = None if commit.usage is None else msgspec.json.decode(commit.usage, type=Usage)
    reason = read_stop_reason(commit)
    stop = None if reason is None else Stop(STOP_KINDS.get(reason, "end"), reason)
    answer = messages[-1]
    model = None if answer.origin is None else answer.origin.model
    params = Params() if view.setup is None else view.setup.params
    tools = () if view.setup is None else view.setup.tools
    response = Response(answer, id, model, stop, usage)
    request = Request(model or "", tuple(messages[:-1]), tools=tools, params=params)
    return StoredAnswer(response, request, int(commit.created))


def write_answer(answer: StoredAnswer) -> JsonObject:
    """The response object. Like the vendor's, it repeats the instructions and the tools."""
    writer = AnswerWriter(CODECS[PROTOCOL], AnswerOptions(created=answer.created))
    body = writer.write_body(answer.response).body
    sent = _write_request(answer.request)
    repeated = {name: sent[name] for name in ("instructions", "tools") if name in sent}
    body = {**body, **repeated}
    origin = answer.response.message.origin
    if origin is not None and origin.protocol == PROTOCOL:
        # The items of the vendor itself, with their ids and everything that only it knows.
        own = {PROTOCOL: {"envelope": body}}
        return writer.write_body(structs.replace(answer.response, ext=own)).body
    return body


def _write_request(request: Request) -> JsonObject:
    try:
        return write_request(request, CODECS[PROTOCOL], Target(Model())).body
    except Refused:  # a message that Responses cannot express; the answer itself can be shown
        return {}


def list_items(answer: StoredAnswer, query: dict[str, str]) -> JsonObject:
    """A page of the messages before the answer; by default the newest first."""
    items = _read_items(answer)
    if query.get("order", "desc") == "desc":
        items.reverse()
    try:
        limit = int(query.get("limit", DEFAULT_ITEMS))
    except ValueError:
        limit = 0
    if not 1 <= limit <= ITEMS_LIMIT:
        raise Refused(f"must be a number from 1 to {ITEMS_LIMIT}", param="limit")
    after = query.get("after")
    if after is not None:
        ids = [item["id"] for item in items]
        if after not in ids:
            raise Refused(f"no item {after!r} is known here", param="after")
        items = items[ids.index(after) + 1 :]
    page = items[:limit]
    return {
        "object": "list",
        "data": page,
        "first_id": page[0]["id"] if page else None,
        "last_id": page[-1]["id"] if page else None,
        "has_more": len(items) > len(page),
    }


def _read_items(answer: StoredAnswer) -> list[JsonObject]:
    sent = _write_request(answer.request).get("input", [])
    if isinstance(sent, str):
        sent = [{"role": "user", "content": sent}]
    items: list[JsonObject] = []
    for number, item in enumerate(cast("list[JsonObject]", sent)):
        kind = item.get("type", "message")
        content = item.get("content")
        changes: JsonObject = {"type": kind, "status": "completed"} if kind != "reasoning" else {}
        if isinstance(content, str) and kind == "message":
            part = "output_text" if item.get("role") == "assistant" else "input_text"
            text = {"type": part, "text": content}
            changes["content"] = [text | ({"annotations": []} if part == "output_text" else {})]
        if not isinstance(item.get("id"), str):
            seed = f"{answer.response.id}/{number}".encode()
            changes["id"] = (
                f"{'msg' if kind == 'message' else 'item'}_{sha256(seed).hexdigest()[:32]}"
            )
        items.append({**item, **changes})
    return items
