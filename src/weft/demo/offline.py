"""The offline model: deterministic, without network or key.

It understands no language; it follows a short table of rules. That is enough to try every feature
without a key: it streams, reads tool results, calls a tool that the user names, fills a JSON
schema, and calls `compact` with a range and a summary when asked to. The same request always gives
the same bytes, so tests and examples can rely on the answer.

The rules are tried in order; the first that returns blocks gives the answer.
"""

import re
from collections.abc import Callable, Iterator

import msgspec
import orjson
from msgspec import Struct

from weft.compact import extract_summary, is_summary_request, summarised, summary_size
from weft.ids import object_id
from weft.model import (
    Block,
    Checkpoint,
    Close,
    Delta,
    End,
    Event,
    Finish,
    Message,
    Open,
    Params,
    Request,
    Start,
    Stop,
    Text,
    Thinking,
    Tool,
    ToolCall,
    ToolResult,
    Usage,
)
from weft.tokens import counter_for

from . import OFFLINE_MODEL
from .replies import (
    EarlierTurn,
    answer_question,
    clip,
    fill_schema,
    note_facts,
    read_notes,
    summarise,
)
from .tool_choice import (
    asks_for,
    asks_which,
    list_tools,
    matching_tool,
    named_tools,
    other_tools,
    wants_some_tool,
)

CHUNK_CHARACTERS = 24
SUMMARY_TOKENS = 1000

_CHECKPOINT = re.compile(r"<checkpoint:([a-z0-9]{6})>")
_REMINDER = re.compile(r"<system-reminder>.*</system-reminder>", re.DOTALL)


class OfflineBody(Struct, frozen=True, omit_defaults=True):
    """The request body of this model: the values of the model package as JSON."""

    model: str
    messages: tuple[Message, ...]
    tools: tuple[Tool, ...] = ()
    params: Params = Params()


class OpenTurn(Struct, frozen=True):
    """The input of the rules: the turn to answer, and the turns before it."""

    request: Request
    text: str
    results: tuple[tuple[str, ToolResult], ...]
    before: tuple[EarlierTurn, ...]
    checkpoints: tuple[str, ...]
    tools: dict[str, Tool]


def write_offline(request: Request) -> bytes:
    """The request body for this model."""
    return msgspec.json.encode(
        OfflineBody(request.model, request.messages, request.tools, request.params)
    )


def read_offline(body: bytes) -> Request:
    """The request of a body."""
    value = msgspec.json.decode(body, type=OfflineBody)
    return Request(value.model, value.messages, value.tools, value.params)


def answer_offline(request: Request) -> Iterator[Event]:
    """The events of the answer to this request."""
    turn = read_turn(request)
    blocks = next(filter(None, (rule(turn) for rule in RULES)))
    if request.params.reasoning is not None and request.params.reasoning.mode in ("on", "adaptive"):
        thought = f"The user's turn has {len(turn.text.split())} words. A rule answers it."
        blocks = (Thinking(thought, signature=OFFLINE_MODEL), *blocks)
    blocks, stop = _limit(blocks, request)
    count = counter_for("estimate").message
    input_tokens = sum(count(message) for message in request.messages)
    yield Start(
        id="weft_" + _derived_id(request, "answer"),
        model=request.model,
        usage=Usage(input=input_tokens),
    )
    for index, block in enumerate(blocks):
        yield from _block_events(index, block)
    output_tokens = count(Message("assistant", blocks))
    yield Finish(stop=stop, usage=Usage(input=input_tokens, output=output_tokens))
    yield End()


def read_turn(request: Request) -> OpenTurn:
    """Split the request after the last assistant turn: what follows is the turn to answer."""
    messages = request.messages
    last = max((i for i, m in enumerate(messages) if m.role == "assistant"), default=-1)
    names = {
        block.id: block.name
        for message in messages
        for block in message.blocks
        if isinstance(block, ToolCall)
    }
    tail = [message for message in messages[last + 1 :] if message.role in ("user", "tool")]
    results = tuple(
        (names.get(block.call_id, "the tool"), block)
        for message in tail
        for block in message.blocks
        if isinstance(block, ToolResult)
    )
    before = tuple(
        earlier
        for message in messages[: last + 1]
        if message.role in ("user", "assistant") and (text := _typed_text(message))
        for earlier in read_notes(message.role, text)
    )
    return OpenTurn(
        request,
        "\n".join(filter(None, map(_typed_text, tail))),
        results,
        before,
        tuple(_checkpoints(messages)),
        {tool.name: tool for tool in request.tools if tool.kind == "function"},
    )


def _typed_text(message: Message) -> str:
    """The text that was typed, without reminders and checkpoints."""
    texts = [block.text for block in message.blocks if isinstance(block, Text)]
    typed = (text for text in texts if not _CHECKPOINT.fullmatch(text.strip()))
    return "\n".join(_REMINDER.sub("", text).strip() for text in typed).strip()


def _checkpoints(messages: tuple[Message, ...]) -> Iterator[str]:
    for message in messages:
        for block in message.blocks:
            if isinstance(block, Checkpoint):
                yield block.id
            elif isinstance(block, Text) and (match := _CHECKPOINT.fullmatch(block.text.strip())):
                yield match[1]


def _report_results(turn: OpenTurn) -> tuple[Block, ...] | None:
    if not turn.results:
        return None
    lines = [
        f"`{name}` {'failed' if result.is_error else 'answered'}: {_result_text(result)}"
        for name, result in turn.results
    ]
    return (Text("\n\n".join(lines)),)


def _result_text(result: ToolResult) -> str:
    return Message("tool", result.content).text.strip() or "(nothing)"


def _forced(turn: OpenTurn) -> tuple[Block, ...] | None:
    choice = turn.request.params.tool_choice
    if choice is None or choice.kind not in ("any", "tool") or not turn.tools:
        return None
    if choice.name in turn.tools:
        return _calls(turn, [turn.tools[choice.name]])
    named = named_tools(turn.tools, turn.text)
    first = next(iter(other_tools(turn.tools) or turn.tools))
    return _calls(
        turn,
        named or [matching_tool(turn.tools, turn.text) or turn.tools[first]],
    )


def _compact(turn: OpenTurn) -> tuple[Block, ...] | None:
    if "compact" not in turn.tools or not asks_for("compact", turn.text) or _refused(turn):
        return None
    replacement = {"summary": note_facts(turn.before)}
    if len(turn.checkpoints) > 1:
        replacement["to"] = turn.checkpoints[-2]
    arguments = orjson.dumps({"replacements": [replacement]}).decode()
    return (ToolCall("call_" + _derived_id(turn.request, "compact"), "compact", arguments),)


def _recall(turn: OpenTurn) -> tuple[Block, ...] | None:
    if "recall" not in turn.tools or not asks_for("recall", turn.text) or _refused(turn):
        return None
    return _calls(turn, [turn.tools["recall"]])


def _named(turn: OpenTurn) -> tuple[Block, ...] | None:
    if _refused(turn):
        return None
    if tools := named_tools(turn.tools, turn.text):
        return _calls(turn, tools)
    if wants_some_tool(turn.text):
        tool = matching_tool(turn.tools, turn.text)
        return _calls(turn, [tool]) if tool else (Text(list_tools(turn.tools, turn.text)),)
    return (Text(list_tools(turn.tools, turn.text)),) if asks_which(turn.text) else None


def _refused(turn: OpenTurn) -> bool:
    choice = turn.request.params.tool_choice
    return choice is not None and choice.kind == "none"


def _calls(turn: OpenTurn, tools: list[Tool]) -> tuple[Block, ...]:
    return tuple(
        ToolCall(
            "call_" + _derived_id(turn.request, f"{number}:{tool.name}"),
            tool.name,
            orjson.dumps(fill_schema(tool.parameters or {}, turn.text)).decode(),
        )
        for number, tool in enumerate(tools)
    )


def _fill_format(turn: OpenTurn) -> tuple[Block, ...] | None:
    shape = turn.request.params.format
    if shape is None or shape.kind == "text":
        return None
    return (Text(orjson.dumps(fill_schema(shape.schema or {}, turn.text)).decode()),)


def _continue(turn: OpenTurn) -> tuple[Block, ...] | None:
    """A turn without text, such as the one after a compaction: continue."""
    if turn.text:
        return None
    return (Text("I go on from here. " + summarise(turn.before)),)


def _reply(turn: OpenTurn) -> tuple[Block, ...]:
    return (Text(answer_question(turn.text, turn.before)),)


def _summarise(turn: OpenTurn) -> tuple[Block, ...] | None:
    """A summary request: an extract that fits the requested size."""
    request = turn.request
    if not is_summary_request(request):
        return None
    rows = summarised(request)
    limit = request.params.max_tokens or SUMMARY_TOKENS
    size = min(limit, summary_size(request) or limit)
    extract = extract_summary(rows, size, counter_for("estimate").message) if rows else None
    if extract is None:
        return (Text(clip(" ".join(row.message.text for row in rows)) or "Nothing was said."),)
    _, _, summary = extract.text.partition("\n\n")
    return (Text(summary),)


RULES: tuple[Callable[[OpenTurn], tuple[Block, ...] | None], ...] = (
    _summarise,
    _report_results,
    _forced,
    _compact,
    _recall,
    _named,
    _fill_format,
    _continue,
    _reply,
)


def _limit(blocks: tuple[Block, ...], request: Request) -> tuple[tuple[Block, ...], Stop]:
    """Apply the stop sequences and the output limit; also returns the reason of the end."""
    if any(isinstance(block, ToolCall) for block in blocks):
        return blocks, Stop("tool")
    *head, last = blocks
    text = last.text if isinstance(last, Text) else ""
    stop = Stop("end")
    for sequence in request.params.stop or ():
        if sequence and sequence in text:
            text, stop = text.partition(sequence)[0], Stop("sequence", sequence=sequence)
    limit = request.params.max_tokens
    count = counter_for("estimate").text
    if limit is not None and count(text) > limit:
        words = text.split(" ")
        while words and count(" ".join(words)) > limit:
            words.pop()
        text, stop = " ".join(words), Stop("length")
    return (*head, Text(text)), stop


def _block_events(index: int, block: Block) -> Iterator[Event]:
    """The events of one block: opened empty, filled in chunks, closed."""
    match block:
        case Text(text=text):
            yield Open(index, Text(""))
            for piece in re.findall(r"\S*\s*", text):
                if piece:
                    yield Delta(index, "text", piece)
        case Thinking(text=text, signature=signature):
            yield Open(index, Thinking(""))
            yield Delta(index, "thinking", text)
            yield Delta(index, "signature", signature or "")
        case ToolCall(arguments=arguments):
            yield Open(index, msgspec.structs.replace(block, arguments=""))
            for start in range(0, len(arguments), CHUNK_CHARACTERS):
                yield Delta(index, "arguments", arguments[start : start + CHUNK_CHARACTERS])
        case _:
            yield Open(index, block)
    yield Close(index)


def _derived_id(request: Request, part: str) -> str:
    """An id for a part of the answer, derived from the request: the same request, the same id."""
    data = msgspec.json.encode((request.model, request.messages, part))
    return object_id("offline", data)[:12].hex()
