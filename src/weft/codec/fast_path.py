"""The fast path of `write_request`: simple conversations, translated without the model's values.

A conversation is simple if it contains only text, tool calls and tool results, with no members
beyond the required ones, and the results of a call directly follow it. Three things that agents
often send are simple too: signed thinking and cache breakpoints, which are dropped because no other
protocol has them, and later system messages, which stay if the target accepts them.

A typed decoder reads such a body and refuses everything else. The writer makes the target's
messages directly from the result. The setup (model, system, tools, parameters) is translated as
usual, as a request without messages.

The shared form of a simple conversation is a list of Chat Completions messages, because that
protocol is the flattest. A codec that can read and write this form has a `FastPath`. Anything
unusual raises `NotSimple`, and the request is decoded and encoded as usual. Both paths give the
same body and the same losses.

The reason for a second path: building the model's values for 400 plain messages costs more than
reading and writing their JSON. docs/adr/0022-typed-fast-path.md has the measurements.
"""

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Annotated, Any, Literal, TypeAlias

import msgspec
from msgspec import UNSET, Meta, Raw, Struct, UnsetType, structs

from weft import exact_json
from weft.model import JsonObject, Request

from .base import Codec, Encoded, Losses, Target, verbatim
from .tools import flat_name


class NotSimple(Exception):
    """The fast path cannot translate this conversation. The codecs can."""


class Shape(Struct, gc=False, forbid_unknown_fields=True):
    """Base of the typed messages; an unknown member is refused."""


class Text(Shape):
    # A member, not a msgspec tag: where only one type is possible, msgspec accepts a missing tag.
    type: Literal["text"]
    text: str


TextContent: TypeAlias = (
    Annotated[str, Meta(min_length=1)] | Annotated[list[Text], Meta(min_length=1)]
)


class User(Shape, tag="user", tag_field="role"):
    content: TextContent


class System(Shape, tag="system", tag_field="role"):
    content: TextContent


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
    content: TextContent


class ErrorFlag(Struct):
    """The `is_error` of a tool result, for which Chat Completions has no member."""

    path: str
    is_error: bool
    content: str | list[Text]


class SimpleBody(Struct):
    """A body, split into its messages and its setup. The setup includes leading system messages.

    - `first_number`: the number of the first of `messages` in the caller's list.
    - `rest`: the paths whose form changed, as in `Request.rest`.
    - `error_flags`: the `is_error` members of tool results.
    - `dropped`: the path, loss code and detail of parts that no other protocol has.
    - `has_system`: whether system messages are among `messages`.
    """

    setup: JsonObject
    messages: list[Any]
    first_number: int = 0
    rest: dict[str, None] = {}
    error_flags: list[ErrorFlag] = []
    dropped: list[tuple[str, str, str]] = []
    has_system: bool = False


class FastPath(Struct, frozen=True):
    """Reads and writes simple bodies of one protocol.

    - `read`: the body, with its messages in the shared form. A message may keep the type of its own
      protocol if its JSON is the same.
    - `write`: the messages for the target.
    - `valid_id`: the call id that the protocol accepts; equal to the argument if it is valid.

    `read` and `write` raise `NotSimple` for anything that they cannot translate.
    """

    read: Callable[[bytes | str], SimpleBody]
    write: Callable[[SimpleBody, Target, Losses], list[Any]]
    valid_id: Callable[[str], str]


class SimpleRequest:
    """A request that the fast path has read.

    `setup` is the request without its messages. `request` is the whole request. It is decoded only
    if the fast path cannot write it.
    """

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
    """The request if the fast path can read it, else `None`.

    `decode` decodes the whole request, if it is needed later.
    """
    if reader is writer or reader.fast_path is None or writer.fast_path is None:
        return None
    try:
        simple = reader.fast_path.read(body)
        check_results(simple.messages, writer.fast_path.valid_id)
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
        exact_json.dumps(encoded.body)
    except exact_json.JSONEncodeError:  # for example, a setup that is nested too deeply for orjson
        return None
    encoded.body["messages"] = _join_lists(encoded.body["messages"], messages)
    # The encoder got a request without messages, and reported that.
    setup_losses = [loss for loss in encoded.losses if loss.code != "no_user_message"]
    return Encoded(encoded.body, setup_losses + losses.items, encoded.renamed_tools)


def _join_lists(system: list[JsonObject], messages: list[Any]) -> exact_json.Fragment:
    """The leading system messages and the conversation as one JSON list."""
    written = write_json(messages)
    if not system:
        return exact_json.Fragment(written)
    return exact_json.Fragment(exact_json.dumps(system)[:-1] + b"," + written[1:])


ABSENT = Raw(b"")

write_json = exact_json.encode


def body_type(shapes: Any, known: frozenset[str]) -> type[Struct]:
    """The type of a body. Its messages have these shapes; its other members stay JSON text."""
    members = [(name, Raw, ABSENT) for name in sorted(known - {"messages"})]
    return msgspec.defstruct(
        "Body", [("messages", list[shapes]), *members], gc=False, forbid_unknown_fields=True
    )


def read_with(decode: Callable[[bytes | str], Any], body: bytes | str) -> SimpleBody:
    """The body as this typed decoder reads it; raises `NotSimple` if it cannot."""
    try:
        typed_body = decode(body)
        setup = {
            name: exact_json.loads(memoryview(value))
            for name in typed_body.__struct_fields__
            if type(value := getattr(typed_body, name)) is Raw and value is not ABSENT
        }
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise NotSimple from error
    return SimpleBody({**setup, "messages": []}, typed_body.messages)


def check_results(messages: Sequence[Any], valid_id: Callable[[str], str]) -> None:
    """Raise `NotSimple` unless the results of each call directly follow it, and the target accepts
    all ids and names."""
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
    if list(map(valid_id, ids)) != ids or any(flat_name(name) != name for name in names):
        raise NotSimple
