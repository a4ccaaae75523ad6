"""Conversations that a client continues by the id of an answer, without sending them again.

With OpenAI's `previous_response_id` and Anthropic's `thread`, a client sends only its new messages.
The upstream that gave out the id has the earlier ones. If the answer came from Weft, or the request
now goes to another upstream, Weft adds them from the store. So a client can even change the model
in between.

https://platform.openai.com/docs/guides/conversation-state
"""

from msgspec import Struct, structs

from weft.codec import Codec
from weft.errors import Refused
from weft.ids import Id
from weft.model import JsonObject, Message, Request, Tool, is_system

from .identity import Continuation


class StoredConversation(Struct, frozen=True):
    """A conversation up to one of its answers.

    `tools` are the tools of the last request. `stored` is the thread and the commit of the answer;
    None while the answer is only in the journal.
    """

    messages: tuple[Message, ...]
    tools: tuple[Tool, ...]
    stored: tuple[str, Id] | None = None


def read_previous_id(codec: Codec, body: JsonObject) -> str | None:
    """The id of the answer that this body continues, if it names one."""
    previous = codec.http.previous
    return None if previous is None else previous.read(body.get(previous.member))


def without_previous_id(codec: Codec, body: JsonObject) -> JsonObject:
    """The body without the member that names the earlier answer."""
    previous = codec.http.previous
    if previous is None or previous.member not in body:
        return body
    return {name: value for name, value in body.items() if name != previous.member}


def join(
    codec: Codec, conversation: StoredConversation, request: Request
) -> tuple[Request, Continuation | None]:
    """The request with the stored conversation before it, and where that conversation is stored."""
    previous = codec.http.previous
    keeps_setup = previous is not None and previous.keeps_setup
    system = _leading_system(request.messages)
    earlier_messages = conversation.messages
    if system or not keeps_setup:  # the system messages of the request replace the earlier ones
        earlier_messages = earlier_messages[len(_leading_system(earlier_messages)) :]
    tools = request.tools if request.tools or not keeps_setup else conversation.tools
    messages = (*system, *earlier_messages, *request.messages[len(system) :])
    joined = structs.replace(request, messages=messages, tools=tools)
    if conversation.stored is None:
        return joined, None
    return joined, Continuation(
        *conversation.stored, len(system) + len(earlier_messages), is_token=True
    )


def unknown_stored_id(path: str, id: str) -> Refused:
    """The error for an id of a vendor object that this gateway did not give to the caller.

    All callers share one account at the vendor, so the vendor cannot tell whose object it is.
    """
    return Refused(f"{id!r} is not known here", param=path, status=404, type="not_found_error")


def unknown_previous_id(codec: Codec, id: str) -> Refused:
    """The error for an unknown id of an earlier answer."""
    previous = codec.http.previous
    param = None if previous is None else previous.member
    return Refused(f"no answer {id!r} is known here", param=param)


def _leading_system(messages: tuple[Message, ...]) -> tuple[Message, ...]:
    count = next((i for i, m in enumerate(messages) if not is_system(m)), len(messages))
    return messages[:count]
