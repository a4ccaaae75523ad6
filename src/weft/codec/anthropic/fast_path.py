"""The fast path of Anthropic Messages: translates simple bodies without building model values.

`read` converts the messages to the form of Chat Completions, which all fast paths share
(`codec.fast_path`), and `write` converts that form to Anthropic's, in which calls and results are
blocks of alternating turns. Both raise `NotSimple` if only the codec can translate the body.
"""

from typing import Annotated, Any

import msgspec
from msgspec import UNSET, Meta, Raw, UnsetType

from weft import exact_json
from weft.codec.base import FOREIGN_THINKING, Losses, Target
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
    TextContent,
    User,
    body_type,
    read_with,
)
from weft.exact_json import JSONEncodeError, dumps, loads
from weft.model import JsonObject

from .blocks import valid_id
from .fields import FIELDS

CacheControl = JsonObject | UnsetType | None
"""A cache breakpoint. It is dropped, but parsed, so that invalid JSON is refused."""


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


class RawToolUse(Shape, tag="tool_use"):
    """A `ToolUse` to write. Its `input` is the JSON text of the arguments, which is copied and not
    encoded again."""

    id: str
    name: str
    input: Raw


class ToolResult(Shape, tag="tool_result"):
    tool_use_id: str
    content: TextContent
    is_error: bool | UnsetType = UNSET
    cache_control: CacheControl = UNSET


NonEmptyText = Annotated[str, Meta(min_length=1)]


class UserTurn(Shape, tag="user", tag_field="role"):
    content: NonEmptyText | Annotated[list[TextBlock | ToolResult], Meta(min_length=1)]


class AssistantTurn(Shape, tag="assistant", tag_field="role"):
    content: NonEmptyText | Annotated[list[TextBlock | ThinkingBlock | ToolUse], Meta(min_length=1)]


class SystemTurn(Shape, tag="system", tag_field="role"):
    # msgspec requires `type` only of a union. `_read_texts` refuses the second kind.
    content: NonEmptyText | Annotated[list[TextBlock | ThinkingBlock], Meta(min_length=1)]


OTHER_MEMBERS = frozenset({"container", "context_management", "inference_geo", "mcp_servers"})
"""Members of a request without a parameter in `FIELDS`. They are part of the setup."""

decode = msgspec.json.Decoder(
    body_type(UserTurn | AssistantTurn | SystemTurn, FIELDS.known | OTHER_MEMBERS),
    float_hook=exact_json.read_float,
).decode


def read(body: bytes | str) -> SimpleBody:
    """The body with its messages in the shared form. The member `system` stays in the setup."""
    simple = read_with(decode, body)
    if exact_json.has_negative_zero(body):
        raise NotSimple  # the typed decoder reads it as 0
    messages: list[Any] = []
    append = messages.append
    # The shapes that agents send most are read here; a call for each message would cost more than
    # the work itself.
    try:
        for number, message in enumerate(simple.messages):
            blocks = message.content
            if type(message) is SystemTurn:
                if not number:
                    raise NotSimple  # it would have to move to the setup
                simple.has_system = True
            if type(blocks) is str:
                append(message)
            elif type(message) is AssistantTurn:
                if len(blocks) == 2:  # most answers: a text and a call
                    text, tool_use = blocks
                    if (
                        type(tool_use) is ToolUse
                        and type(text) is TextBlock
                        and text.cache_control is UNSET
                        and tool_use.cache_control is UNSET
                    ):
                        function = Function(tool_use.name, dumps(tool_use.input).decode())
                        append(Assistant(text.text, [Call(tool_use.id, "function", function)]))
                        continue
                append(_read_answer(message, blocks, number, simple))
            elif type(block := blocks[0]) is not ToolResult:
                _read_texts(blocks, number, simple)
                append(message)
            elif len(blocks) == 1 and block.is_error is UNSET and block.cache_control is UNSET:
                append(Result(block.tool_use_id, block.content))
            else:
                messages += _read_results(blocks, number, simple)
    except JSONEncodeError:  # an integer beyond 64 bits, in the input of a call
        raise NotSimple from None
    simple.messages = messages
    return simple


def _read_texts(blocks: list[Any], number: int, simple: SimpleBody) -> None:
    """Drop the cache breakpoints of texts; raises `NotSimple` for any other block."""
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
    """An answer of texts and then calls. Thinking is dropped; a text after a call is not simple."""
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
        else:  # thinking: only its own vendor can read it
            path = f"messages[{number}].content[{index}]"
            simple.dropped.append((path, FOREIGN_THINKING, "thinking"))
            continue
        if block.cache_control is not UNSET:
            _drop_cache_control(block, number, index, simple)
    if calls:
        return Assistant(texts[0].text if len(texts) == 1 else texts or None, calls)
    if len(texts) == len(blocks):
        return message
    if not texts:
        raise NotSimple  # only thinking: the message would be empty
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
    if type(last) is Assistant:  # a prefill: the model continues this answer
        if not target.model.prefill:
            raise NotSimple  # the model refuses a prefill
        path = f"messages[{simple.first_number + len(simple.messages) - 1}].content"
        _strip_trailing_space(last, path, losses)
    messages: list[Any] = []
    results: list[Any] = []
    for number, message in enumerate(simple.messages):
        if type(message) is Result:
            if not results:
                messages.append(UserTurn(results))  # the next results are added to the same list
            results.append(ToolResult(message.tool_call_id, message.content))
            continue
        results = []
        if type(message) is System:
            _check_system_position(simple.messages, number, target)
            message = _with_text_list(message, simple.first_number + number, losses)
        messages.append(_write_turn(message))
    return messages


def _with_text_list(message: System, number: int, losses: Losses) -> System:
    """A later system message whose content is a list, as the codec writes it."""
    if not isinstance(message.content, str):
        return message
    losses.add(f"messages[{number}]", "string_as_list")
    return System([Text("text", message.content)])


def _check_system_position(messages: list[Any], number: int, target: Target) -> None:
    """Raise `NotSimple` unless a later system message may stay; `codec.repair` has the rules."""
    if target.system == "inline":
        return
    if target.system != "auto" or target.model.inline_system == "never":
        raise NotSimple
    if type(messages[number - 1]) not in (User, Result):
        raise NotSimple
    is_last = number + 1 == len(messages)
    if not is_last and type(messages[number + 1]) is not Assistant:
        raise NotSimple


def _strip_trailing_space(last: Assistant, path: str, losses: Losses) -> None:
    """Remove whitespace at the end of a prefill, which Anthropic refuses.

    Raises `NotSimple` if the whitespace is in a list of texts, or if no text would remain.
    """
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
    """The message as Anthropic's turn. An answer with calls becomes a list of blocks.

    Raises `NotSimple` for blank text, which Anthropic refuses and the codec drops.
    """
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
        _check_json_object(arguments)
        blocks.append(RawToolUse(call.id, call.function.name, Raw(arguments)))
    return AssistantTurn(blocks)


def _check_json_object(text: str) -> None:
    try:
        value = loads(text)
    except ValueError:
        raise NotSimple from None
    if type(value) is not dict:
        raise NotSimple


FAST_PATH = FastPath(read, write, valid_id)
