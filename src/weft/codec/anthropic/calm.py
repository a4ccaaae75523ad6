"""Calm conversations of this wire: calls and results are blocks of messages that take turns."""

from typing import Annotated, Any

import msgspec
import orjson
from msgspec import UNSET, Meta, Raw, UnsetType

from weft.catalog import Model
from weft.codec.base import Losses
from weft.codec.calm import (
    Assistant,
    Call,
    Calm,
    Function,
    Lane,
    Outcome,
    Result,
    Shape,
    Unusual,
    User,
    Words,
    body_of,
    read_with,
)
from weft.codec.repair import report_trailing_space
from weft.model import JsonObject

from .blocks import legal_id
from .fields import READ


class TextBlock(Shape, tag="text"):
    text: str


class ToolUse(Shape, tag="tool_use"):
    id: str
    name: str
    input: JsonObject


class WrittenToolUse(Shape, tag="tool_use"):
    id: str
    name: str
    input: Raw


class ToolResult(Shape, tag="tool_result"):
    tool_use_id: str
    content: Words
    is_error: bool | UnsetType = UNSET


Said = Annotated[str, Meta(min_length=1)]


class UserTurn(Shape, tag="user", tag_field="role"):
    content: Said | Annotated[list[TextBlock | ToolResult], Meta(min_length=1)]


class AssistantTurn(Shape, tag="assistant", tag_field="role"):
    content: Said | Annotated[list[TextBlock | ToolUse], Meta(min_length=1)]


decode = msgspec.json.Decoder(body_of(UserTurn | AssistantTurn, READ)).decode


def read(body: bytes | str) -> Calm:
    """The conversation; the `system` beside it is part of the setup."""
    calm = read_with(decode, body)
    said: list[Any] = []
    for number, message in enumerate(calm.said):
        blocks = message.content
        if type(blocks) is str:
            said.append(message)
        elif type(message) is AssistantTurn:
            said.append(_read_calling(blocks) or message)
        elif type(blocks[0]) is ToolResult:
            for at, block in enumerate(blocks):
                if type(block) is not ToolResult:
                    raise Unusual
                said.append(Result(block.tool_use_id, block.content))
                if block.is_error is not UNSET:
                    path = f"messages[{number}].content[{at}]"
                    calm.outcomes.append(Outcome(path, block.is_error, block.content))
        elif all(type(block) is TextBlock for block in blocks):
            said.append(message)
        else:
            raise Unusual
    calm.said = said
    return calm


def _read_calling(blocks: list[Any]) -> Assistant | None:
    """The words and the calls behind them; `None` where there are only words."""
    words: list[Any] = []
    calls: list[Call] = []
    try:
        for block in blocks:
            if type(block) is ToolUse:
                function = Function(block.name, orjson.dumps(block.input).decode())
                calls.append(Call(block.id, "function", function))
            elif calls:
                raise Unusual
            else:
                words.append(block)
    except orjson.JSONEncodeError:  # a number of more digits than it writes
        raise Unusual from None
    if not calls:
        return None
    if len(words) == 1:
        return Assistant(words[0].text, calls)
    return Assistant(words or None, calls)


def write(calm: Calm, model: Model, losses: Losses) -> list[Any]:
    """The messages: results that stand together in one, words as they are."""
    said = calm.said
    if type(said[0]) is Assistant:
        raise Unusual  # a user speaks first
    if type(said[-1]) is Assistant:
        if not model.prefill:
            raise Unusual
        _strip_trailing_space(said[-1], f"messages[{calm.first + len(said) - 1}].content", losses)
    messages: list[Any] = []
    results: list[Any] = []
    for one in said:
        if type(one) is Result:
            if not results:
                messages.append(UserTurn(results))
            results.append(ToolResult(one.tool_call_id, one.content))
        else:
            results = []
            messages.append(_write_turn(one))
    return messages


def _strip_trailing_space(last: Assistant, path: str, losses: Losses) -> None:
    """What the assistant has begun, without blanks at its end."""
    content = last.content
    if not isinstance(content, str):
        if content and content[-1].text != content[-1].text.rstrip():
            raise Unusual
    elif content != content.rstrip():
        report_trailing_space(path, losses)
        last.content = content.rstrip()
        if not last.content:
            raise Unusual


def _write_turn(one: User | Assistant) -> Any:
    content = one.content
    if isinstance(content, str):
        if content.isspace():
            raise Unusual
    elif content and any(not text.text or text.text.isspace() for text in content):
        raise Unusual
    if type(one) is not Assistant or not one.tool_calls:
        return one
    blocks: list[Any] = [TextBlock(content)] if isinstance(content, str) else list(content or ())
    for call in one.tool_calls:
        arguments = call.function.arguments
        _check_object(arguments)
        blocks.append(WrittenToolUse(call.id, call.function.name, Raw(arguments)))
    return AssistantTurn(blocks)


def _check_object(text: str) -> None:
    try:
        given = orjson.loads(text)
    except ValueError:
        raise Unusual from None
    if type(given) is not dict:
        raise Unusual


LANE = Lane(read, write, legal_id)
