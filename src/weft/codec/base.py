"""The `Codec` record: functions and facts of one protocol.

Each protocol has a decoder to the model and an encoder from it. Decoders take plain dicts and keep
unknown members. Encoders return the body and its losses. Streams are state machines without I/O: a
decoder is fed frames and returns events, an encoder takes events and returns frames.

Nothing here compares a vendor's name. Differences between vendors, models and deployments are in
`Target`: the model's row in the catalogue, and the caller's policies.

`made_by` says which protocol made a message: thinking and stored files go back to their own vendor
only.

`CODECS` has the protocols that Weft speaks. A codec is imported when it is first asked for. To add
a protocol, add its package to `PACKAGES`: `docs/architecture.md`, "Add a protocol".
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal, Protocol, cast

from msgspec import Struct

from weft import exact_json
from weft.catalog import Model
from weft.model import (
    LOSS_CODES,
    ApiError,
    ErrorKind,
    Event,
    JsonObject,
    Level,
    Loss,
    Message,
    Opaque,
    Position,
    Request,
    Response,
    Thinking,
    is_system,
    make_loss,
)

if TYPE_CHECKING:
    from .fast_path import FastPath
    from .fields import FieldTable

SystemPolicy = Literal["auto", "inline", "demote", "merge"]
CachePolicy = Literal["keep", "auto"]
ThinkingMember = Literal["reasoning_content", "reasoning", "reasoning_text", "hidden"]
"""The member that shows another vendor's thinking to clients of Chat Completions. There is no
official one: most clients read `reasoning_content`, those of OpenRouter `reasoning`."""

INLINE = "@inline"
"""A key of `Request.raw`: how many system messages were at the start of `messages`, in a protocol
that also has a separate `system` member. It is never sent."""


class Frame(Struct, frozen=True, gc=False):
    """One server-sent event: the text of its data lines, and its name if it has one."""

    data: str
    event: str | None = None


def parsed(text: str) -> Any:
    """The value of a JSON text, for a body that is a dict.

    Raises `ValueError` if the text is not JSON, and `RoundedNumber` if it has a number with more
    digits than a float.
    """
    value, rounded = exact_json.as_floats(exact_json.loads(text))
    if rounded:
        raise RoundedNumber(value, [str(number) for _, number in rounded])
    return value


def as_dict(body: JsonObject) -> tuple[JsonObject, list[Loss]]:
    """A body for a caller who gets a dict: with plain floats only, and the numbers that this
    rounds as losses."""
    plain, rounded = exact_json.as_floats(body)
    return plain, [make_loss("number_rounded", path, number) for path, number in rounded]


class RoundedNumber(ValueError):
    """A JSON text has numbers with more digits than a float; `value` has them rounded."""

    def __init__(self, value: Any, texts: list[str]) -> None:
        super().__init__(", ".join(texts))
        self.value = value


def verbatim(text: str) -> Any:
    """The JSON text itself, to be sent unchanged; raises `ValueError` if it is not JSON."""
    exact_json.loads(text)
    return exact_json.Fragment(text)


class Target(Struct, frozen=True):
    """The model that a request is written for, and the policies to use.

    - `system`, `cache`: what to do with system messages and cache breakpoints.
    - `embed`: the function that makes a member of the body from a JSON text, such as tool
      arguments. The default parses the text, for a body that is a dict. A body that is written as
      bytes keeps the text verbatim instead.
    - `enforce`: apply all rules of the target to a body of its own protocol too. Otherwise such a
      body is written back unchanged, except where a policy applies.
    - `provider`: the name of the upstream, if it is known. Thinking, signatures and ids of stored
      files in answers of other upstreams are dropped: only those upstreams can read them.
    """

    model: Model
    system: SystemPolicy = "auto"
    cache: CachePolicy = "keep"
    embed: Callable[[str], Any] = parsed
    enforce: bool = False
    provider: str | None = None


Locate = Callable[[Position], str]
"""Turns a position in the model into a path in the source's body."""


class Losses:
    """Collects what an encoder drops, changes, adds or moves.

    Paths refer to the source: the caller's body for a request, the upstream's body for an answer
    (`locate`).
    """

    def __init__(self, request: Request | None = None, locate: Locate | None = None) -> None:
        self.items: list[Loss] = []
        wire = request.wire if request is not None else None
        self.locate: Locate = wire.locate if wire is not None else locate or thread_path

    def add(
        self, at: Position | str, code: str, detail: object = "", level: Level | None = None
    ) -> None:
        """Report one loss; `at` is a position in the model, or a finished path."""
        # `make_loss` written out: a long conversation reports hundreds of losses.
        path = self.locate(at) if isinstance(at, tuple) else at
        entry = LOSS_CODES[code]
        text = detail if isinstance(detail, str) else str(detail)
        self.items.append(Loss(code, entry.kind, path, text, level or entry.level))

    def param(self, name: str, code: str, detail: object = "", level: Level | None = None) -> None:
        """Report a loss about a parameter, by its name in the model (`reasoning.effort`)."""
        self.add(("params", name), code, detail, level)

    def path(self, position: Position) -> str:
        """The path of a position in the model, as the caller would write it."""
        return self.locate(position)


def report_rounded(rounded: RoundedNumber, position: Position, losses: Losses) -> Any:
    """The value with the rounded numbers, which are reported."""
    losses.add(position, "number_rounded", str(rounded))
    return rounded.value


def thread_path(position: Position) -> str:
    """The path of a position in a request without a body: a compiled thread."""
    match position:
        case ():
            return ""
        case ("tools", number):
            return f"tools[{number}]"
        case ("params" | "member", name):
            return str(name)
        case ("stop", *_):
            return "stop"
        case (message, block, "arguments"):
            return f"messages[{message}].content[{block}].arguments"
        case (message,):
            return f"messages[{message}]"
        case (message, block):
            return f"messages[{message}].content[{block}]"
        case _:
            return f"messages[{position[0]}].content[{position[1]}].content[{position[2]}]"


class OriginalTool(Struct, frozen=True, gc=False, omit_defaults=True):
    """A tool as the caller named it; `custom` is whether it takes free text instead of JSON.

    Without `namespace`, the caller's tool has none, or the target supports namespaces.
    """

    name: str
    namespace: str | None = None
    custom: bool = False


RenamedTools = dict[str, OriginalTool]
"""The tools that were changed for the target, by their names there."""


class Encoded(Struct, frozen=True):
    """A body, its losses, and the tools that had to be renamed."""

    body: JsonObject
    losses: list[Loss]
    renamed_tools: RenamedTools = {}


class StreamDecoder(Protocol):
    """Turns the frames of one protocol into events. An unknown frame becomes `Other`, never an
    error.

    - `repairs` has the values that the upstream left out and the decoder filled in.
    - `is_complete` is whether the stream may end here: the answer is whole, or it has failed. More
      frames may still follow, with token counts or as an end marker.
    """

    repairs: Losses

    @property
    def is_complete(self) -> bool: ...

    def feed(self, frame: Frame) -> list[Event]:
        """The events of this frame."""
        ...

    def close(self) -> list[Event]:
        """The last events, at the end of the bytes: `Fail` if the terminal event never came.

        If an undecodable frame has already failed the stream, there is no second `Fail`.
        """
        ...


class StreamEncoder(Protocol):
    """Turns events into the frames of one protocol."""

    losses: Losses

    def send(self, event: Event) -> list[Frame]:
        """The frames of this event."""
        ...


class ResponseEncoder(Protocol):
    """Writes a whole answer; `locate` gives the paths of the answer that it was read from."""

    def __call__(
        self, response: Response, created: int, locate: Locate | None = None, /
    ) -> Encoded: ...


class Auth(Struct, frozen=True, gc=False):
    """The request header that carries an API key, and the prefix of its value.

    `accepted` are all headers in which a client may send its own credentials to this vendor.
    """

    header: str
    prefix: str = ""
    accepted: tuple[str, ...] = ()


class Vendor(Struct, frozen=True, gc=False):
    """The vendor's own server, which needs no configuration but a key.

    `upstream_name` is the name of this server in Weft (`openai-chat`), `catalog_name` the vendor's
    name in the catalogue (`openai`). The two variables are those of the vendor's SDK.
    """

    upstream_name: str
    url: str
    catalog_name: str
    key_variable: str
    url_variable: str


class ModelPaths(Struct, frozen=True, kw_only=True):
    """The addresses of a cloud that names the model in the path, not in the body.

    - `url_end`: how the URL of such a server ends.
    - `answer`, `stream`: where it takes requests; `{model}` is the model's name.
    - `count`: where it counts tokens. The body of such a request names the model.
    - `members`: members that it requires in a body.
    """

    url_end: str
    answer: str
    stream: str
    count: str
    members: JsonObject


class ModelList(Struct, frozen=True, gc=False):
    """Where a server of this protocol lists its models.

    `list_member` is the member with the list, and `name_member` the member of an entry with the
    model's name. `query` asks for the whole list; without it some vendors send only the first page.
    """

    path: str = "/v1/models"
    list_member: str = "data"
    name_member: str = "id"
    query: str = ""


class PreviousAnswer(Struct, frozen=True, gc=False):
    """How a request names the stored answer that it continues, instead of sending the conversation.

    `read` takes the value of `member` and returns the answer's id. `keeps_setup` tells whether the
    system messages and tools of the earlier request still apply. `unknown` is the vendor's message
    for an id that it does not know, and `code` the code of that error.
    """

    member: str
    read: Callable[[Any], str | None]
    keeps_setup: bool = False
    unknown: str = "no answer '{id}' is known here"
    code: str | None = None


def has_inline_system(request: Request, protocol: str) -> bool:
    """Whether the caller put a system message into the list of messages, although the protocol has
    a separate member for it."""
    if any(map(is_system, request.messages[1:])):  # the first may be from that member
        return True
    return bool(request.raw.get(protocol, {}).get(INLINE))


def has_refused_developer(request: Request, target: Target) -> bool:
    """Whether a message has the role `developer`, which the target's model does not support."""
    roles = {message.role for message in request.messages if is_system(message)}
    return "developer" in roles and not target.model.developer


KEEP_ALIVE = b": keep-alive\n"
"""A comment line without a blank line after it: a comment and a blank line would be an empty event,
which some clients cannot read (https://github.com/openai/openai-python/issues/2722)."""


def always(_body: JsonObject) -> bool:
    return True


class Http(Struct, frozen=True, kw_only=True):
    """The HTTP side of a protocol: vendor, paths, headers, keep-alive, ids.

    - `vendor`: the protocol's own vendor, if it has one.
    - `headers`: headers that every request needs beside the key.
    - `paths`: paths under which a server takes requests whose body names the model.
    - `version`: the version that these paths begin with.
    - `versions_paths`: whether the vendor's SDK adds the version to a base URL that has a path. If
      not, it adds the version only to a base URL that is nothing but a host.
    - `hosts_without_version`: hosts (or `.domains`) whose addresses have no version.
    - `unversioned_ends`: ends of URLs that no version follows.
    - `model_paths`: the addresses of a cloud that names the model in the path.
    - `count_path`, `count_member`: where a server counts tokens, and the member with the count.
    - `keep_alive`: bytes that may be sent between two events of a stream.
    - `id_prefix`: how ids of answers begin, because clients of some protocols check it.
    - `stream_members`: request members that make a stream report its usage.
    - `thinking_members`: request members that make a reasoning model return its thinking encrypted,
      so that it can be sent back. Models without reasoning refuse them.
    - `wants_usage`: whether a streamed request asks for its usage.
    - `previous`: how a request continues a stored answer, if the protocol has that.
    - `store_member`: the member that is false if the vendor must not store the answer.
    - `stored_ids`: the ids in a body of objects that the vendor stores (conversations, items,
      caches), each with its path.
    """

    vendor: Vendor | None = None
    auth: Auth
    headers: tuple[tuple[str, str], ...] = ()
    paths: tuple[str, ...] = ()
    version: str = "/v1"
    versions_paths: bool = False
    hosts_without_version: tuple[str, ...] = ()
    unversioned_ends: tuple[str, ...] = ()
    model_paths: ModelPaths | None = None
    count_path: str | None = None
    count_member: str = ""
    models: ModelList = ModelList()
    keep_alive: bytes = KEEP_ALIVE
    id_prefix: str = ""
    stream_members: JsonObject = {}
    thinking_members: JsonObject = {}
    wants_usage: Callable[[JsonObject], bool] = always
    previous: PreviousAnswer | None = None
    store_member: str | None = None
    stored_ids: Callable[[JsonObject], list[tuple[str, str]]] = lambda _body: []


class Codec(Struct, frozen=True):
    """The functions and facts of one protocol.

    Functions:

    - `decode_request` also takes the model's name, for protocols whose body has none.
    - `decode_with_known`: the same, but the first messages were decoded before and are passed in.
      Only for protocols where each item of the list is one message and depends on no other item.
    - `write_messages` writes messages without a request, in the vendor's shape but without its
      limits. `to_openai()` and the other formats of a compiled thread return this.
    - `stream_encoder` takes the creation time of the frames, because codecs read no clock.
    - `request_path`: the path that a request is posted to, by model and whether it streams.
    - `locate_answer`: the path of a position in an answer of this protocol.
    - `rules_apply`: whether a rule of the target could change a body of this same protocol.
    - `add_cache_marks`: a parsed body of this same protocol with the target's cache marks; `None`
      if it needs no marks, or if another rule of the target may change it.
    - `place_thinking`: notes on a thinking block in which member the client reads it, for a
      protocol with several such members.

    Facts:

    - `http`: everything about HTTP. `fields`: the table of parameters.
    - `conversation_member`: the member of a request that holds the messages.
    - `answer_member`: the member that every complete answer has.
    - `empty_request`: the smallest valid body.
    - `rewritable_members`: the members that a rule of the target may change.
    - `needs_user_message`: the vendor refuses a conversation without a user message.
    - `fast_path`: translates simple conversations without the model's values.
    - `has_stop_details`: an answer has a field for the explanation of a refusal.
    - `failed_stops`: stop reasons that mean a failure.
    - `stream_errors`: kinds of error that clients recognise only inside a stream.
    - `has_alternatives`: an answer has room for several answers to one request (`n` > 1).
    """

    protocol: str
    decode_request: Callable[[JsonObject, str | None], Request]
    encode_request: Callable[[Request, Target], Encoded]
    write_messages: Callable[[Sequence[Message]], Any]
    decode_response: Callable[[JsonObject], Response]
    encode_response: ResponseEncoder
    locate_answer: Callable[[Response, Position], str]
    stream_decoder: Callable[[], StreamDecoder]
    stream_encoder: Callable[[int], StreamEncoder]
    decode_error: Callable[[Any, int], ApiError]
    encode_error: Callable[[ApiError], tuple[int, JsonObject]]
    request_path: Callable[[str, bool], str]
    http: Http
    conversation_member: str
    answer_member: str
    empty_request: JsonObject
    rewritable_members: tuple[str, ...]
    needs_user_message: bool = False
    decode_with_known: Callable[[JsonObject, str | None, Sequence[Message]], Request] | None = None
    rules_apply: Callable[[Request, Target], bool] = lambda _request, _target: False
    add_cache_marks: Callable[[JsonObject, Request, Target], JsonObject | None] | None = None
    fields: "FieldTable | None" = None
    fast_path: "FastPath | None" = None
    has_stop_details: bool = False
    failed_stops: Mapping[str, ErrorKind] = {}
    stream_errors: frozenset[ErrorKind] = frozenset()
    has_alternatives: bool = False
    place_thinking: Callable[[Thinking, ThinkingMember], Thinking] | None = None


def as_object(value: Any) -> JsonObject | None:
    """The value if it is a JSON object, else `None`."""
    return cast(JsonObject, value) if isinstance(value, dict) else None


FOREIGN_THINKING = "thinking_of_another_model"
FOREIGN_FILE_ID = "file_id_of_another_vendor"


def made_by(protocol: str, message: Message, request: Request) -> bool:
    """Whether a message comes from this protocol: by its origin, or else by its request."""
    if message.origin is not None:
        return message.origin.protocol == protocol
    return request.wire is not None and request.wire.protocol == protocol


def check_foreign_thinking(protocol: str, message: Message, request: Request) -> str | None:
    """The loss code of thinking from another protocol, else `None`."""
    return None if made_by(protocol, message, request) else FOREIGN_THINKING


def check_opaque(protocol: str, block: Opaque, _message: Message, _request: Request) -> str | None:
    """The loss code of a block that only another protocol has, else `None`."""
    return None if block.protocol == protocol else "vendor_block_dropped"


PACKAGES = {
    "anthropic": "weft.codec.anthropic",
    "openai-chat": "weft.codec.chat",
    "openai-responses": "weft.codec.responses",
    "gemini": "weft.codec.gemini",
}
"""The package with the `CODEC` of each protocol."""


class Codecs(Mapping[str, Codec]):
    """The codecs by protocol."""

    def __getitem__(self, protocol: str) -> Codec:
        return import_module(PACKAGES[protocol]).CODEC

    def __contains__(self, protocol: object) -> bool:
        return protocol in PACKAGES

    def __iter__(self) -> Iterator[str]:
        return iter(PACKAGES)

    def __len__(self) -> int:
        return len(PACKAGES)


CODECS = Codecs()
