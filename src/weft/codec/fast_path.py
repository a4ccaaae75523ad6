"""The fast path of `write_request`: simple conversations, translated without the model's values.

A conversation is simple if it contains only text, tool calls and tool results, with no members
beyond the required ones, and each call is answered by the next message. Signed thinking, cache
breakpoints and inline system messages, which agents often send, are simple too: the first two are
dropped, because no other protocol has them, and the last stay if the target accepts them. A typed
decoder reads such a body and refuses everything else; the writer makes the target's messages
directly from the result. The setup (model, system, tools, parameters) is translated as usual, as a
request without messages.

The shared form of a simple conversation is a list of Chat Completions messages, because that
protocol is the flattest. A codec that can read and write this form has a `FastPath`. Anything
unusual raises `NotSimple`, and the request is decoded and encoded as usual. Both ways give the same
body and the same losses.

Why it exists: building the model's values for 400 plain messages costs more than reading and
writing their JSON. See docs/adr/0022-typed-fast-path.md for the measurements.
"""

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Annotated, Any, Literal, TypeAlias

import msgspec
import orjson
from msgspec import UNSET, Meta, Raw, Struct, UnsetType, structs

from weft.model import JsonObject, Request

from .base import Codec, Encoded, Losses, Target, verbatim
from .tools import flat_name


class NotSimple(Exception):
    """The conversation has something that only the codecs' tables can translate."""


class Shape(Struct, gc=False, forbid_unknown_fields=True):
    """Base of the typed messages; an unknown member is refused."""


class Text(Shape):
    # `type` is a member and no tag: msgspec accepts a missing tag if there is only one type.
    type: Literal["text"]
    text: str


Words: TypeAlias = Annotated[str, Meta(min_length=1)] | Annotated[list[Text], Meta(min_length=1)]


class User(Shape, tag="user", tag_field="role"):
    content: Words


class System(Shape, tag="system", tag_field="role"):
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


class ErrorFlag(Struct):
    """The `is_error` of a tool result, which Chat's form has no member for."""

    path: str
    is_error: bool
    content: str | list[Text]


class SimpleBody(Struct):
    """A body, split into its messages and its setup. The setup includes leading system messages.

    - `first`: the number of its first message in the caller's list.
    - `rest`: the paths of members that the shared form spells differently.
    - `dropped`: the path, loss code and detail of parts that no other protocol has.
    - `has_system`: whether system messages are among `messages`.
    """

    setup: JsonObject
    messages: list[Any]
    first: int = 0
    rest: dict[str, None] = {}
    error_flags: list[ErrorFlag] = []
    dropped: list[tuple[str, str, str]] = []
    has_system: bool = False


class FastPath(Struct, frozen=True):
    """Reads and writes simple bodies of one protocol.

    `messages` may contain the source's own shapes where their JSON is the same as Chat's. `read`
    and `write` raise `NotSimple`; `write` also if the target's model refuses such a list.
    """

    read: Callable[[bytes | str], SimpleBody]
    write: Callable[[SimpleBody, Target, Losses], list[Any]]
    legal_id: Callable[[str], str]


class SimpleRequest:
    """A request read by the fast path. `setup` is the request without its messages; `request` is
    the whole request, decoded only if the fast path cannot write it."""

    def __init__(self, body: SimpleBody, setup: Request, decode: Callable[[], Request]) -> None:
        self.body = body
        self.setup = setup
        self._decode = decode

    @cached_property
    def request(self) -> Request:
        return self._decode()


def read_simple(
    body: bytes | str,
    reader: Codec,
    writer: Codec,
    model: str | None,
    decode: Callable[[], Request],
) -> SimpleRequest | None:
    """The request if the fast path can read it for this writer, else `None`."""
    if reader is writer or reader.fast_path is None or writer.fast_path is None:
        return None
    try:
        simple = reader.fast_path.read(body)
        check_results(simple.messages, writer.fast_path.legal_id)
    except NotSimple:
        return None
    setup = reader.decode_request(simple.setup, model)
    if simple.rest:
        setup = structs.replace(setup, rest={**setup.rest, **simple.rest})
    return SimpleRequest(simple, setup, decode)


def write_simple(source: SimpleRequest, writer: Codec, target: Target) -> Encoded | None:
    """The body for the target; `None` if it must be written from the model's values."""
    if writer.fast_path is None or target.cache != "keep" or target.embed is not verbatim:
        return None
    losses = Losses(source.setup)
    try:
        messages = writer.fast_path.write(source.body, target, losses)
    except NotSimple:
        return None
    for path, code, detail in source.body.dropped:
        losses.add(path, code, detail)
    encoded = writer.encode_request(source.setup, target)
    try:
        orjson.dumps(encoded.body)
    except orjson.JSONEncodeError:  # a setup nested deeper than orjson writes
        return None
    encoded.body["messages"] = _join(encoded.body["messages"], messages)
    # The encoder saw a request without messages and reported that.
    setup_losses = [loss for loss in encoded.losses if loss.code != "no_user_message"]
    return Encoded(encoded.body, setup_losses + losses.items, encoded.calls)


def _join(lead: list[JsonObject], messages: list[Any]) -> orjson.Fragment:
    """The leading system messages and the conversation as one JSON list."""
    written = write_json(messages)
    return orjson.Fragment(orjson.dumps(lead)[:-1] + b"," + written[1:] if lead else written)


ABSENT = Raw(b"")

write_json = msgspec.json.Encoder().encode


def body_of(shapes: Any, known: frozenset[str]) -> type[Struct]:
    """The type of a body with messages of these shapes; its other members stay JSON text."""
    members = [(name, Raw, ABSENT) for name in sorted(known - {"messages"})]
    return msgspec.defstruct(
        "Body", [("messages", list[shapes]), *members], gc=False, forbid_unknown_fields=True
    )


def read_with(decode: Callable[[bytes | str], Any], body: bytes | str) -> SimpleBody:
    """The body as this typed decoder reads it."""
    try:
        read = decode(body)
        setup = {
            name: orjson.loads(memoryview(value))
            for name in read.__struct_fields__
            if type(value := getattr(read, name)) is Raw and value is not ABSENT
        }
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise NotSimple from error
    return SimpleBody({**setup, "messages": []}, read.messages)


def check_results(messages: Sequence[Any], legal_id: Callable[[str], str]) -> None:
    """Raise `NotSimple` unless every call is answered by the next messages, and the target accepts
    every id and name."""
    waiting: set[str] = set()
    ids: list[str] = []
    names: set[str] = set()
    for message in messages:
        if waiting:
            if type(message) is not Result or message.tool_call_id not in waiting:
                raise NotSimple
            waiting.remove(message.tool_call_id)
        elif type(message) is Assistant:
            if message.tool_calls:
                for call in message.tool_calls:
                    ids.append(call.id)
                    waiting.add(call.id)
                    names.add(call.function.name)
        elif type(message) is Result:
            raise NotSimple
    if waiting or not messages or len(set(ids)) < len(ids):
        raise NotSimple
    if list(map(legal_id, ids)) != ids or any(flat_name(name) != name for name in names):
        raise NotSimple
