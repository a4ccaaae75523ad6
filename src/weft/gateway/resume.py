"""Conversations that a client leaves with the server, and continues by the id of an answer.

OpenAI's `previous_response_id` and Anthropic's `thread` send only what is new; the rest is context
that is not in the body. An upstream of the same protocol that gave the id out knows it. Where the
answer came from here, or goes somewhere else now, the store gives the conversation back: the
client may even have changed its model in between.

https://platform.openai.com/docs/guides/conversation-state
"""

from msgspec import Struct, structs

from weft.codec import CODECS
from weft.errors import Refused
from weft.ids import Id
from weft.model import JsonObject, Message, Request, Tool, is_system

from .identity import Continuation


class StoredConversation(Struct, frozen=True):
    """The conversation up to an answer: its messages, the tools that were offered, and where the
    answer is stored, if it is not still in the journal."""

    messages: tuple[Message, ...]
    tools: tuple[Tool, ...]
    stored: tuple[str, Id] | None = None


def read_previous_id(protocol: str, body: JsonObject) -> str | None:
    """The id of the answer that this body continues, if it names one."""
    link = CODECS[protocol].http.previous
    return None if link is None else link.read(body.get(link.member))


def without_previous_id(protocol: str, body: JsonObject) -> JsonObject:
    """The body as if it were whole."""
    link = CODECS[protocol].http.previous
    if link is None or link.member not in body:
        return body
    return {name: value for name, value in body.items() if name != link.member}


def join(
    protocol: str, before: StoredConversation, request: Request
) -> tuple[Request, Continuation | None]:
    """The whole conversation that a continuing request means, and the place that it continues."""
    link = CODECS[protocol].http.previous
    keeps_setup = link is not None and link.keeps_setup
    run = _leading(request.messages)
    said = before.messages
    if run or not keeps_setup:  # the request's own system run stands for the earlier one
        said = said[len(_leading(said)) :]
    tools = request.tools if request.tools or not keeps_setup else before.tools
    messages = (*run, *said, *request.messages[len(run) :])
    whole = structs.replace(request, messages=messages, tools=tools)
    if before.stored is None:
        return whole, None
    return whole, Continuation(*before.stored, len(run) + len(said), is_token=True)


def read_states(protocol: str, body: JsonObject) -> list[tuple[str, str]]:
    """What a body uses that its vendor keeps, by the path and id: conversations, items, caches.

    Everybody who is let in here reaches the vendor with one and the same key, so the vendor cannot
    tell whose it is.
    """
    return CODECS[protocol].http.stored_ids(body)


def unknown_state(path: str, id: str) -> Refused:
    """The caller has not received this id from here."""
    return Refused(f"{id!r} is not known here", param=path, status=404, type="not_found_error")


def unknown_previous_id(protocol: str, id: str) -> Refused:
    """Nothing here answered with that id."""
    link = CODECS[protocol].http.previous
    return Refused(f"no answer {id!r} is known here", param=link.member if link else None)


def _leading(messages: tuple[Message, ...]) -> tuple[Message, ...]:
    count = next((i for i, m in enumerate(messages) if not is_system(m)), len(messages))
    return messages[:count]
