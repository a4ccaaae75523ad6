"""The fast path of Anthropic Messages: simple bodies are translated without the full model.

`read` converts the messages to the form of Chat Completions, which all fast paths share
(`codec.fast_path`), and `write` converts them back. In Anthropic's form, calls and results are
blocks of alternating turns. `NotSimple` means that only the codec can translate the body.
"""

from typing import Annotated, Any

import msgspec
from msgspec import UNSET, Meta, Raw, UnsetType
from orjson import JSONEncodeError, dumps, loads

from weft.codec.base import MAKER_ONLY, Losses, Target
from weft.codec.fast_path import (
    Assistant,
    Call,
    ErrorFlag,
    FastPath,
    Function,
    NotSimple,
    Result,
    Shape,
    SimpleBody,
    System,
    Text,
    User,
    Words,
    body_of,
    read_with,
)
from weft.model import JsonObject

from .blocks import legal_id
from .fields import FIELDS

CacheControl = JsonObject | UnsetType | None
"""A cache breakpoint. Its content is not used, but parsed, so that invalid JSON is refused."""


class TextBlock(Shape, tag="text"):
    text: str
    cache_control: CacheControl = UNSET


class ThinkingBlock(Shape, tag="thinking"):
    thinking: str
    signature: str


class ToolUse(Shape, tag="tool_use"):
    id: str
    name: str
    input: JsonObject
    cache_control: CacheControl = UNSET


class WrittenToolUse(Shape, tag="tool_use"):
    """A `ToolUse` to write; its input is the JSON text of the arguments, unchanged."""

    id: str
    name: str
    input: Raw


class ToolResult(Shape, tag="tool_result"):
    tool_use_id: str
    content: Words
    is_error: bool | UnsetType = UNSET
    cache_control: CacheControl = UNSET


Content = Annotated[str, Meta(min_length=1)]


class UserTurn(Shape, tag="user", tag_field="role"):
    content: Content | Annotated[list[TextBlock | ToolResult], Meta(min_length=1)]


class AssistantTurn(Shape, tag="assistant", tag_field="role"):
    content: Content | Annotated[list[TextBlock | ThinkingBlock | ToolUse], Meta(min_length=1)]


class SystemTurn(Shape, tag="system", tag_field="role"):
    content: Content | Annotated[list[TextBlock], Meta(min_length=1)]


OTHER_MEMBERS = frozenset({"container", "context_management", "inference_geo", "mcp_servers"})
"""Members of requests that have no parameter of their own; the setup keeps them."""

decode = msgspec.json.Decoder(
    body_of(UserTurn | AssistantTurn | SystemTurn, FIELDS.known | OTHER_MEMBERS)
).decode


def read(body: bytes | str) -> SimpleBody:
    """The conversation; the `system` beside it is part of the setup."""
    simple = read_with(decode, body)
    messages: list[Any] = []
    append = messages.append
    # The shapes that agents send most are read here; a call for each message would cost more than
    # the work itself.
    try:
        for number, message in enumerate(simple.messages):
            blocks = message.content
            if type(message) is SystemTurn:
                if not number:
                    raise NotSimple  # the beginning of the list is part of the setup
                simple.has_system = True
            if type(blocks) is str:
                append(message)
            elif type(message) is AssistantTurn:
                if len(blocks) == 2:  # most answers: a text and a call
                    text, use = blocks
                    if (
                        type(use) is ToolUse
                        and type(text) is TextBlock
                        and text.cache_control is UNSET
                        and use.cache_control is UNSET
                    ):
                        function = Function(use.name, dumps(use.input).decode())
                        append(Assistant(text.text, [Call(use.id, "function", function)]))
                        continue
                append(_read_answer(message, blocks, number, simple))
            elif type(block := blocks[0]) is not ToolResult:
                _check_texts(blocks, number, simple)
                append(message)
            elif len(blocks) == 1 and block.is_error is UNSET and block.cache_control is UNSET:
                append(Result(block.tool_use_id, block.content))
            else:
                messages += _read_results(blocks, number, simple)
    except JSONEncodeError:  # an integer beyond 64 bits, in the input of a call
        raise NotSimple from None
    simple.messages = messages
    return simple


def _check_texts(blocks: list[Any], number: int, simple: SimpleBody) -> None:
    for index, block in enumerate(blocks):
        if type(block) is not TextBlock:
            raise NotSimple
        if block.cache_control is not UNSET:
            _drop_cache_control(block, number, index, simple)


def _read_results(blocks: list[Any], number: int, simple: SimpleBody) -> list[Result]:
    results: list[Result] = []
    for index, block in enumerate(blocks):
        if type(block) is not ToolResult:
            raise NotSimple
        results.append(Result(block.tool_use_id, block.content))
        if block.is_error is not UNSET:
            path = f"messages[{number}].content[{index}]"
            simple.error_flags.append(ErrorFlag(path, block.is_error, block.content))
        if block.cache_control is not UNSET:
            _drop_cache_control(block, number, index, simple)
    return results


def _read_answer(
    message: AssistantTurn, blocks: list[Any], number: int, simple: SimpleBody
) -> AssistantTurn | Assistant:
    """The texts and the calls after them, or only texts; thinking is left out."""
    texts: list[Any] = []
    calls: list[Call] = []
    for index, block in enumerate(blocks):
        if type(block) is TextBlock:
            if calls:
                raise NotSimple
            texts.append(block)
        elif type(block) is ToolUse:
            function = Function(block.name, dumps(block.input).decode())
            calls.append(Call(block.id, "function", function))
        else:  # thinking goes back to its own vendor only
            path = f"messages[{number}].content[{index}]"
            simple.dropped.append((path, MAKER_ONLY, "thinking"))
            continue
        if block.cache_control is not UNSET:
            _drop_cache_control(block, number, index, simple)
    if calls:
        return Assistant(texts[0].text if len(texts) == 1 else texts or None, calls)
    if len(texts) == len(blocks):
        return message
    if not texts:
        raise NotSimple
    return AssistantTurn(texts)


def _drop_cache_control(block: Any, number: int, index: int, simple: SimpleBody) -> None:
    block.cache_control = UNSET
    path = f"messages[{number}].content[{index}]"
    simple.dropped.append((path, "cache_breakpoint_dropped", ""))


def write(simple: SimpleBody, target: Target, losses: Losses) -> list[Any]:
    """The messages; consecutive results share one user message."""
    if type(simple.messages[0]) is Assistant:
        raise NotSimple  # a user message must come first
    last = simple.messages[-1]
    if type(last) is Assistant:
        if not target.model.prefill:
            raise NotSimple
        path = f"messages[{simple.first + len(simple.messages) - 1}].content"
        _strip_trailing_space(last, path, losses)
    messages: list[Any] = []
    results: list[Any] = []
    for number, message in enumerate(simple.messages):
        if type(message) is Result:
            if not results:
                messages.append(UserTurn(results))  # filled by the results that follow
            results.append(ToolResult(message.tool_call_id, message.content))
        elif type(message) is System:
            _check_system_position(simple.messages, number, target)
            if isinstance(message.content, str):
                losses.add(f"messages[{simple.first + number}]", "string_as_list")
                message = System([Text("text", message.content)])
            messages.append(_write_turn(message))
        else:
            results = []
            messages.append(_write_turn(message))
    return messages


def _check_system_position(messages: list[Any], number: int, target: Target) -> None:
    """Raise `NotSimple` unless a system message may stay where it is; see `codec.repair`."""
    if target.system == "inline":
        return
    if target.system != "auto" or target.model.inline_system == "never":
        raise NotSimple
    is_last = number + 1 == len(messages)
    if type(messages[number - 1]) not in (User, Result):
        raise NotSimple
    if not is_last and type(messages[number + 1]) is not Assistant:
        raise NotSimple


def _strip_trailing_space(last: Assistant, path: str, losses: Losses) -> None:
    """Anthropic refuses a prefill that ends in white space."""
    content = last.content
    if not isinstance(content, str):
        if content and content[-1].text != content[-1].text.rstrip():
            raise NotSimple
    elif content != content.rstrip():
        losses.add(path, "trailing_space_dropped")
        last.content = content.rstrip()
        if not last.content:
            raise NotSimple


def _write_turn(message: User | Assistant | System) -> Any:
    """The message, or with calls a turn of blocks. Anthropic refuses blank text."""
    content = message.content
    if isinstance(content, str):
        if content.isspace():
            raise NotSimple
    elif content and any(not text.text or text.text.isspace() for text in content):
        raise NotSimple
    if type(message) is not Assistant or not message.tool_calls:
        return message
    blocks: list[Any] = [TextBlock(content)] if isinstance(content, str) else list(content or ())
    for call in message.tool_calls:
        arguments = call.function.arguments
        _check_object(arguments)
        blocks.append(WrittenToolUse(call.id, call.function.name, Raw(arguments)))
    return AssistantTurn(blocks)


def _check_object(text: str) -> None:
    try:
        value = loads(text)
    except ValueError:
        raise NotSimple from None
    if type(value) is not dict:
        raise NotSimple


FAST_PATH = FastPath(read, write, legal_id)
