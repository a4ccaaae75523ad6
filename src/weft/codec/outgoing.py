"""Writes requests for a target, and messages without a request.

All requests are written by `write_request`: for `weft.translate`, `to_*_params()`, the client, the
gateway and export. It uses the fast path if the fast path has read the source, and the codec's
encoder otherwise.

The functions after it are shared by the codecs' `write_messages`, which `to_openai()`,
`to_anthropic()` and `to_responses()` call. These write messages in a vendor's shape, but are less
strict than a request: names, unusual roles and call ids are not changed, even if a vendor refuses
them. Members that only one protocol has are left out.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING, TypeVar

from msgspec import Struct, structs

from weft.catalog import load_catalog
from weft.model import (
    Block,
    Checkpoint,
    JsonObject,
    Loss,
    Message,
    Opaque,
    Origin,
    Refusal,
    Reminder,
    Request,
    Text,
    ToolCall,
    by_importance,
    checkpoint_text,
    reminder_text,
)

from .base import Codec, RenamedTools, Target

if TYPE_CHECKING:
    from .fast_path import SimpleRequest


class WrittenRequest(Struct, frozen=True):
    """A request body, the path it is posted to, and the losses.

    `renamed_tools` is used to restore the tool names in the answer. If `Target.embed` is
    `verbatim`, parts of `body` are JSON text, which only `exact_json.dumps` can write.
    """

    path: str
    body: JsonObject
    losses: list[Loss]
    renamed_tools: RenamedTools


def write_request(
    source: "Request | SimpleRequest", codec: Codec, target: Target
) -> WrittenRequest:
    """The request for this target; raises `Refused` if it cannot be written."""
    encoded = None
    if isinstance(source, Request):
        request = source
    else:
        # Imported here because its typed decoders are costly to build, and most commands need none.
        from .fast_path import write_simple

        encoded = write_simple(source, codec, target)
        request = source.setup if encoded is not None else source.request
    if encoded is None:
        encoded = codec.encode_request(_mark_foreign(request, codec, target), target)
    path = codec.request_path(request.model, bool(request.params.stream))
    losses = by_importance(encoded.losses)
    return WrittenRequest(path, encoded.body, losses, encoded.renamed_tools)


def _mark_foreign(request: Request, codec: Codec, target: Target) -> Request:
    """The request, with an empty origin for messages of another provider or maker.

    The encoder then drops what only their maker can read: thinking, signatures, ids of stored
    files.
    """
    foreign = [
        number
        for number, message in enumerate(request.messages)
        if message.origin is not None and _is_foreign(message.origin, request.model, codec, target)
    ]
    if not foreign:
        return request
    messages: list[Message] = list(request.messages)
    for number in foreign:
        messages[number] = structs.replace(messages[number], origin=Origin(""))
    return structs.replace(request, messages=tuple(messages))


def _is_foreign(origin: Origin, model: str, codec: Codec, target: Target) -> bool:
    """Whether a message of this protocol comes from another provider, or another maker's model.

    Models of one maker get each other's thinking; the vendor decides which of them can use it:
    https://platform.claude.com/docs/en/build-with-claude/preserved-thinking
    """
    if origin.protocol != codec.protocol:
        return False  # the encoder compares protocols itself
    if origin.provider is not None and target.provider not in (None, origin.provider):
        return True
    if origin.model is None or origin.model == model:
        return False
    author, reader = load_catalog().find(origin.model), target.model
    makers = {author.maker or author.vendor, reader.maker or reader.vendor}
    return len(makers) > 1 and "" not in makers  # an unknown name may be a proxy's for this model


B = TypeVar("B", bound=Block)


def blocks_of(message: Message, kind: type[B]) -> list[B]:
    """The message's blocks of one type."""
    return [block for block in message.blocks if isinstance(block, kind)]


def plain_blocks(blocks: Iterable[Block]) -> list[Block]:
    """The blocks without vendor members; blocks that read as text become `Text`."""
    return [_plain_block(block) for block in blocks]


def _plain_block(block: Block) -> Block:
    match block:
        case Text() | Refusal():
            return Text(block.text)
        case Reminder():
            return Text(reminder_text(block))
        case Checkpoint():
            return Text(checkpoint_text(block))
        case Opaque():
            return block
        case ToolCall():
            return plain_call(block)
        case _:
            return structs.replace(block, ext=None)


def plain_call(call: ToolCall) -> ToolCall:
    """The call as a function call, which every vendor supports."""
    return ToolCall(call.id, call.name, call.arguments)


def without_empty_texts(blocks: list[Block]) -> list[Block]:
    """The blocks without empty texts; only the first block if all are empty."""
    return [block for block in blocks if not is_empty(block)] or blocks[:1]


def is_empty(block: Block) -> bool:
    return isinstance(block, Text) and not block.text


def plain_message(message: Message, content: object) -> JsonObject:
    """A message with its role and name. Text of the role `tool` becomes user text."""
    body = {"role": "user" if message.role == "tool" else message.role, "content": content}
    return body if message.name is None else {**body, "name": message.name}
