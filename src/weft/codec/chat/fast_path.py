"""The fast path of Chat Completions, whose messages are the shared form."""

from typing import Any

import msgspec

from weft import exact_json
from weft.codec.base import Losses, Target
from weft.codec.fast_path import (
    Assistant,
    FastPath,
    NotSimple,
    Result,
    Shape,
    SimpleBody,
    System,
    Text,
    TextContent,
    User,
    body_type,
    read_with,
)
from weft.codec.repair import NO_RESULT

from .fields import FIELDS
from .messages import add_error_flag_loss, valid_id


class Developer(Shape, tag="developer", tag_field="role"):
    content: TextContent


SYSTEM_SHAPES = frozenset({System, Developer})

decode = msgspec.json.Decoder(
    body_type(User | Assistant | Result | System | Developer, FIELDS.known)
).decode


def read(body: bytes | str) -> SimpleBody:
    """The body with its messages in the shared form. Leading system messages stay in the setup."""
    simple = read_with(decode, body)
    leading = simple.setup["messages"]
    for message in simple.messages:
        if type(message) not in SYSTEM_SHAPES:
            break
        leading.append(exact_json.to_builtins(message))
    simple.first_number = len(leading)
    del simple.messages[: simple.first_number]
    for number, message in enumerate(simple.messages, simple.first_number):
        if type(message) is Assistant:
            if type(message.content) is not str or not message.content:
                _normalise_content(message, number, simple.rest)
        elif type(message) is Developer:
            raise NotSimple
    return simple


def _normalise_content(message: Assistant, number: int, unmapped: dict[str, None]) -> None:
    """Make the content of an answer with calls a string or null; adds its path to `unmapped` if
    that changed it."""
    content = message.content
    if not message.tool_calls:
        if not content:
            raise NotSimple
        return
    if type(content) is list and len(content) == 1:
        message.content = content[0].text
        if not message.content:
            raise NotSimple
    elif content is not None and not content:
        message.content = None
    else:
        return
    unmapped[f"messages[{number}].content"] = None


def write(simple: SimpleBody, target: Target, losses: Losses) -> list[Any]:
    """The messages, which already have this protocol's form."""
    keeps_system = target.system in ("auto", "inline") and target.model.system_parts is not False
    if simple.has_system and not keeps_system:
        raise NotSimple
    for flag in simple.error_flags:
        is_added = flag.content in (NO_RESULT, [Text("text", NO_RESULT)])
        add_error_flag_loss(flag.path, flag.is_error, is_added, losses)
    return simple.messages


FAST_PATH = FastPath(read, write, valid_id)
