"""Conversations with nothing unusual about them, carried over whole.

Most conversations of agents are calm: words, calls and results, in just the members that these
need, every call answered right behind it. Such a one is read by a typed decoder that refuses
whatever it does not know, and is written again from what was read; the model's values are never
made. The setup around it takes the usual way.

The calm form of a conversation is a list in the words of Chat Completions, the flattest of the
wires: a message for each turn and each result. A codec that can read it or write it says so with a
`Lane`. Whatever is in any way different is `Unusual`, and left to the codecs' tables; what is
carried, they would write the same.
"""

from collections.abc import Callable, Sequence
from typing import Annotated, Any, Literal, TypeAlias

import msgspec
import orjson
from msgspec import UNSET, Meta, Raw, Struct, UnsetType, structs

from weft.catalog import Model
from weft.model import JsonObject, Loss, Request

from .base import Codec, Losses, Target
from .tools import flat_name


class Unusual(Exception):
    """There is more to a conversation than can be carried."""


class Shape(Struct, gc=False, forbid_unknown_fields=True):
    """What a calm message is made of; a member that is not known here is refused."""


class Text(Shape):
    """One of a list of texts; its type is a member, since a tag may be missing where there is one
    shape only."""

    type: Literal["text"]
    text: str


Words: TypeAlias = Annotated[str, Meta(min_length=1)] | Annotated[list[Text], Meta(min_length=1)]


class User(Shape, tag="user", tag_field="role"):
    content: Words


class Function(Shape):
    name: str
    arguments: str


class Call(Shape):
    id: str
    type: Literal["function"]
    function: Function


class Assistant(Shape, tag="assistant", tag_field="role"):
    content: str | list[Text] | UnsetType | None = UNSET
    tool_calls: Annotated[list[Call], Meta(min_length=1)] | UnsetType = UNSET


class Result(Shape, tag="tool", tag_field="role"):
    tool_call_id: str
    content: Words


class Outcome(Struct):
    """That a tool failed, or did not, where Chat's form has no place for it: told by this path."""

    path: str
    failed: bool
    content: str | list[Text]


class Calm(Struct):
    """A body taken apart: the conversation, and the setup with all that stood before it.

    `first` is the number of its first message in the caller's list, `rest` the members that say in
    their own form what Chat's form says otherwise.
    """

    setup: JsonObject
    said: list[Any]
    first: int = 0
    rest: dict[str, None] = {}
    outcomes: list[Outcome] = []


class Carried(Struct):
    """A body on another wire, what it could not say, and the request that its setup is."""

    body: bytes
    losses: list[Loss]
    request: Request


class Lane(Struct, frozen=True):
    """A wire's two halves, and what it makes of a call's id.

    `said` may hold the source's own shapes where their JSON is Chat's. Both halves raise `Unusual`,
    `write` also where this model would not take the list; it gives the messages.
    """

    read: Callable[[bytes | str], Calm]
    write: Callable[[Calm, Model, Losses], list[Any]]
    legal_id: Callable[[str], str]


ABSENT = Raw(b"")

write_json = msgspec.json.Encoder().encode


def body_of(shapes: Any, known: frozenset[str]) -> type[Struct]:
    """The shape of a body whose messages have these shapes, beside members left as they are."""
    members = [(name, Raw, ABSENT) for name in sorted(known - {"messages"})]
    return msgspec.defstruct(
        "Body", [("messages", list[shapes]), *members], gc=False, forbid_unknown_fields=True
    )


def read_with(decode: Callable[[bytes | str], Any], body: bytes | str) -> Calm:
    """A body as its decoder reads it, the messages as they are."""
    try:
        read = decode(body)
        setup = {
            name: orjson.loads(memoryview(value))
            for name in read.__struct_fields__
            if type(value := getattr(read, name)) is Raw and value is not ABSENT
        }
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise Unusual from error
    return Calm({**setup, "messages": []}, read.messages)


def carry(
    body: bytes | str,
    reader: Codec,
    writer: Codec,
    model: str | None,
    aim: Callable[[Request], Target],
) -> Carried | None:
    """A calm conversation on another wire; `None` where it is not calm."""
    if reader is writer or reader.calm is None or writer.calm is None:
        return None
    try:
        calm = reader.calm.read(body)
        check_settled(calm.said, writer.calm.legal_id)
        request = reader.decode_request(calm.setup, model)
        if calm.rest:
            request = structs.replace(request, rest={**request.rest, **calm.rest})
        target, losses = aim(request), Losses(request)
        said = writer.calm.write(calm, target.model, losses)
    except Unusual:
        return None
    encoded = writer.encode_request(request, target)
    try:
        orjson.dumps(encoded.body)
    except orjson.JSONEncodeError:  # a setup of more depth than the tables write
        return None
    encoded.body["messages"] += said
    # The conversation was written beside the encoder, which saw none and reported that.
    setup_losses = [loss for loss in encoded.losses if loss.code != "no_user_message"]
    return Carried(write_json(encoded.body), setup_losses + losses.items, request)


def check_settled(said: Sequence[Any], legal_id: Callable[[str], str]) -> None:
    """Raise `Unusual` unless each call has its result right behind it, and a name and an id that
    can be kept."""
    waiting: set[str] = set()
    ids: list[str] = []
    names: set[str] = set()
    for one in said:
        if type(one) is Result:
            if one.tool_call_id not in waiting:
                raise Unusual
            waiting.remove(one.tool_call_id)
        elif waiting:
            raise Unusual
        elif type(one) is Assistant and one.tool_calls:
            for call in one.tool_calls:
                ids.append(call.id)
                waiting.add(call.id)
                names.add(call.function.name)
    if waiting or not said or len(set(ids)) < len(ids):
        raise Unusual
    if list(map(legal_id, ids)) != ids or any(flat_name(name) != name for name in names):
        raise Unusual
