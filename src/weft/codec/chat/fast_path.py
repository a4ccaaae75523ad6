"""The fast path of Chat Completions, whose messages are the shared form."""

from typing import Any

import msgspec

from weft.catalog import Model
from weft.codec.base import Losses
from weft.codec.fast_path import (
    Assistant,
    FastPath,
    NotSimple,
    Result,
    Shape,
    SimpleBody,
    Text,
    User,
    Words,
    body_of,
    read_with,
)
from weft.codec.repair import NO_RESULT

from .common_shapes import legal_id, report_outcome
from .fields import FIELDS


class System(Shape, tag="system", tag_field="role"):
    content: Words


class Developer(Shape, tag="developer", tag_field="role"):
    content: Words


LEADING = frozenset({System, Developer})

decode = msgspec.json.Decoder(
    body_of(User | Assistant | Result | System | Developer, FIELDS.known)
).decode


def read(body: bytes | str) -> SimpleBody:
    """The conversation behind the leading system run, which is part of the setup."""
    if isinstance(body, bytes) and _has_inline_system(body):
        raise NotSimple
    simple = read_with(decode, body)
    lead = simple.setup["messages"]
    for message in simple.messages:
        if type(message) not in LEADING:
            break
        lead.append(msgspec.to_builtins(message))
    simple.first = len(lead)
    del simple.messages[: simple.first]
    for number, message in enumerate(simple.messages, simple.first):
        if type(message) is Assistant:
            if type(message.content) is not str or not message.content:
                _normalise(message, number, simple.rest)
        elif type(message) in LEADING:
            raise NotSimple
    return simple


def _has_inline_system(body: bytes) -> bool:
    """Whether a system message follows the first user message.

    Only saves the time to decode the body first: inside a JSON string the quotes are escaped, so
    these bytes are always members. A body with other white space is read, and refused then.
    """
    start = body.find(b'"role":"user"')
    return start >= 0 and body.rfind(b'"role":"system"', start) >= 0


def _normalise(message: Assistant, number: int, rest: dict[str, None]) -> None:
    """Write the content beside calls as a string or null, and note the path if that changed it."""
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
    rest[f"messages[{number}].content"] = None


def write(simple: SimpleBody, _model: Model, losses: Losses) -> list[Any]:
    """The messages, which have this protocol's form already."""
    for flag in simple.error_flags:
        is_ours = flag.content in (NO_RESULT, [Text("text", NO_RESULT)])
        report_outcome(flag.path, flag.is_error, is_ours, losses)
    return simple.messages


FAST_PATH = FastPath(read, write, legal_id)
