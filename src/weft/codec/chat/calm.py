"""Calm conversations of this wire: its own messages, as they are."""

from typing import Any

import msgspec

from weft.catalog import Model
from weft.codec.base import Losses
from weft.codec.calm import (
    Assistant,
    Calm,
    Lane,
    Result,
    Shape,
    Text,
    Unusual,
    User,
    Words,
    body_of,
    read_with,
)
from weft.codec.repair import NO_RESULT

from .fields import READ
from .messages import report_outcome
from .plain import legal_id


class System(Shape, tag="system", tag_field="role"):
    content: Words


class Developer(Shape, tag="developer", tag_field="role"):
    content: Words


LEADING = frozenset({System, Developer})

decode = msgspec.json.Decoder(body_of(User | Assistant | Result | System | Developer, READ)).decode


def read(body: bytes | str) -> Calm:
    """The conversation behind the leading system run, which is part of the setup."""
    calm = read_with(decode, body)
    lead = calm.setup["messages"]
    for one in calm.said:
        if type(one) not in LEADING:
            break
        lead.append(msgspec.to_builtins(one))
    calm.first = len(lead)
    del calm.said[: calm.first]
    for number, one in enumerate(calm.said, calm.first):
        if type(one) is Assistant:
            if type(one.content) is not str or not one.content:
                _settle_form(one, number, calm.rest)
        elif type(one) in LEADING:
            raise Unusual
    return calm


def _settle_form(one: Assistant, number: int, rest: dict[str, None]) -> None:
    """Say in the usual form that there are no words beside calls, or that there is one text."""
    content = one.content
    if not one.tool_calls:
        if not content:
            raise Unusual
        return
    if type(content) is list and len(content) == 1:
        one.content = content[0].text
        if not one.content:
            raise Unusual
    elif content is not None and not content:
        one.content = None
    else:
        return
    rest[f"messages[{number}].content"] = None


def write(calm: Calm, _model: Model, losses: Losses) -> list[Any]:
    """The messages, which have this wire's form already."""
    for outcome in calm.outcomes:
        said_so = outcome.content in (NO_RESULT, [Text("text", NO_RESULT)])
        report_outcome(outcome.path, outcome.failed, said_so, losses)
    return calm.said


LANE = Lane(read, write, legal_id)
