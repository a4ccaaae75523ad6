"""The model inside Weft: deterministic, without network, honest about what it is.

It understands nothing; it follows a short table of rules over the conversation it was given. That
is enough to make every road of the product real without a key: it streams, it reads tool results,
it calls a tool that the user names, it fills a demanded schema, and it calls `compact` with a
range and a summary when it is told to compact. The same request always gives the same answer, to
the byte, so tests and examples can say what to expect.

The rules are tried in order; the first that has something to say is the answer.
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
    Said,
    answer_question,
    clip,
    fill_schema,
    note_facts,
    read_notes,
    summarise,
)
from .tool_choice import (
    asks_which,
    fitting_tool,
    named_tools,
    others,
    say_tools,
    wants_some_tool,
    wishes,
)

PIECE = 24
SUMMARY = 1000

_CHECKPOINT = re.compile(r"<checkpoint:([a-z0-9]{6})>")
_REMINDER = re.compile(r"<system-reminder>.*</system-reminder>", re.DOTALL)


class Asked(Struct, frozen=True, omit_defaults=True):
    """A request in the words of this model's own wire: those of the values themselves."""

    model: str
    messages: tuple[Message, ...]
    tools: tuple[Tool, ...] = ()
    params: Params = Params()


class Scene(Struct, frozen=True):
    """What the rules look at: the turn to be answered, and all that was said before it."""

    request: Request
    words: str
    results: tuple[tuple[str, ToolResult], ...]
    before: tuple[Said, ...]
    checkpoints: tuple[str, ...]
    tools: dict[str, Tool]


def write_offline(request: Request) -> bytes:
    """The body that this model is sent."""
    return msgspec.json.encode(
        Asked(request.model, request.messages, request.tools, request.params)
    )


def read_offline(body: bytes) -> Request:
    """The request that such a body is."""
    asked = msgspec.json.decode(body, type=Asked)
    return Request(asked.model, asked.messages, asked.tools, asked.params)


def answer(request: Request) -> Iterator[Event]:
    """The events of the answer to this request."""
    scene = read_scene(request)
    blocks = next(filter(None, (rule(scene) for rule in RULES)))
    if request.params.reasoning is not None and request.params.reasoning.mode in ("on", "adaptive"):
        thought = f"The user's turn has {len(scene.words.split())} words. A rule answers it."
        blocks = (Thinking(thought, signature=OFFLINE_MODEL), *blocks)
    blocks, stop = _limit(blocks, request)
    count = counter_for("estimate").message
    spent = sum(count(message) for message in request.messages)
    yield Start(
        id="weft_" + _seal(request, "answer"), model=request.model, usage=Usage(input=spent)
    )
    for index, block in enumerate(blocks):
        yield from _play(index, block)
    written = count(Message("assistant", blocks))
    yield Finish(stop=stop, usage=Usage(input=spent, output=written))
    yield End()


def read_scene(request: Request) -> Scene:
    """The tail after the last assistant turn is what is asked; the rest is what is known."""
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
    said = tuple(
        said
        for message in messages[: last + 1]
        if message.role in ("user", "assistant") and (words := _words(message))
        for said in read_notes(message.role, words)
    )
    return Scene(
        request,
        "\n".join(filter(None, map(_words, tail))),
        results,
        said,
        tuple(_checkpoints(messages)),
        {tool.name: tool for tool in request.tools if tool.kind == "function"},
    )


def _words(message: Message) -> str:
    """What was typed: reminders and checkpoints are the loop's words, not the speaker's."""
    texts = [block.text for block in message.blocks if isinstance(block, Text)]
    spoken = (text for text in texts if not _CHECKPOINT.fullmatch(text.strip()))
    return "\n".join(_REMINDER.sub("", text).strip() for text in spoken).strip()


def _checkpoints(messages: tuple[Message, ...]) -> Iterator[str]:
    for message in messages:
        for block in message.blocks:
            if isinstance(block, Checkpoint):
                yield block.id
            elif isinstance(block, Text) and (found := _CHECKPOINT.fullmatch(block.text.strip())):
                yield found[1]


def _report_results(scene: Scene) -> tuple[Block, ...] | None:
    if not scene.results:
        return None
    lines = [
        f"`{name}` {'failed' if result.is_error else 'answered'}: {_result_text(result)}"
        for name, result in scene.results
    ]
    return (Text("\n\n".join(lines)),)


def _result_text(result: ToolResult) -> str:
    return Message("tool", result.content).text.strip() or "(nothing)"


def _forced(scene: Scene) -> tuple[Block, ...] | None:
    choice = scene.request.params.tool_choice
    if choice is None or choice.kind not in ("any", "tool") or not scene.tools:
        return None
    if choice.name in scene.tools:
        return _calls(scene, [scene.tools[choice.name]])
    named = named_tools(scene.tools, scene.words)
    first = next(iter(others(scene.tools) or scene.tools))
    return _calls(scene, named or [fitting_tool(scene.tools, scene.words) or scene.tools[first]])


def _compact(scene: Scene) -> tuple[Block, ...] | None:
    if "compact" not in scene.tools or not wishes("compact", scene.words) or _refused(scene):
        return None
    replacement = {"summary": note_facts(scene.before)}
    if len(scene.checkpoints) > 1:
        replacement["to"] = scene.checkpoints[-2]
    arguments = orjson.dumps({"replacements": [replacement]}).decode()
    return (ToolCall("call_" + _seal(scene.request, "compact"), "compact", arguments),)


def _recall(scene: Scene) -> tuple[Block, ...] | None:
    if "recall" not in scene.tools or not wishes("recall", scene.words) or _refused(scene):
        return None
    return _calls(scene, [scene.tools["recall"]])


def _named(scene: Scene) -> tuple[Block, ...] | None:
    if _refused(scene):
        return None
    if tools := named_tools(scene.tools, scene.words):
        return _calls(scene, tools)
    if wants_some_tool(scene.words):
        tool = fitting_tool(scene.tools, scene.words)
        return _calls(scene, [tool]) if tool else (Text(say_tools(scene.tools, scene.words)),)
    return (Text(say_tools(scene.tools, scene.words)),) if asks_which(scene.words) else None


def _refused(scene: Scene) -> bool:
    choice = scene.request.params.tool_choice
    return choice is not None and choice.kind == "none"


def _calls(scene: Scene, tools: list[Tool]) -> tuple[Block, ...]:
    return tuple(
        ToolCall(
            "call_" + _seal(scene.request, f"{number}:{tool.name}"),
            tool.name,
            orjson.dumps(fill_schema(tool.parameters or {}, scene.words)).decode(),
        )
        for number, tool in enumerate(tools)
    )


def _shaped(scene: Scene) -> tuple[Block, ...] | None:
    shape = scene.request.params.format
    if shape is None or shape.kind == "text":
        return None
    return (Text(orjson.dumps(fill_schema(shape.schema or {}, scene.words)).decode()),)


def _go_on(scene: Scene) -> tuple[Block, ...] | None:
    """A turn without words: the loop wants the work to continue."""
    if scene.words:
        return None
    return (Text("I go on from here. " + summarise(scene.before)),)


def _speak(scene: Scene) -> tuple[Block, ...]:
    return (Text(answer_question(scene.words, scene.before)),)


def _sum_up(scene: Scene) -> tuple[Block, ...] | None:
    """Asked for a summary: what was said in its own words, as much as there is room for."""
    request = scene.request
    if not is_summary_request(request):
        return None
    rows = summarised(request)
    most = request.params.max_tokens or SUMMARY
    room = min(most, summary_size(request) or most)
    told = extract_summary(rows, room, counter_for("estimate").message) if rows else None
    if told is None:
        return (Text(clip(" ".join(row.message.text for row in rows)) or "Nothing was said."),)
    _, _, words = told.text.partition("\n\n")
    return (Text(words),)


RULES: tuple[Callable[[Scene], tuple[Block, ...] | None], ...] = (
    _sum_up,
    _report_results,
    _forced,
    _compact,
    _recall,
    _named,
    _shaped,
    _go_on,
    _speak,
)


def _limit(blocks: tuple[Block, ...], request: Request) -> tuple[tuple[Block, ...], Stop]:
    """Keep the caller's stop sequences and output limit, and say why the answer ends."""
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


def _play(index: int, block: Block) -> Iterator[Event]:
    """One block as it would arrive: opened empty, grown in pieces, closed."""
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
            for start in range(0, len(arguments), PIECE):
                yield Delta(index, "arguments", arguments[start : start + PIECE])
        case _:
            yield Open(index, block)
    yield Close(index)


def _seal(request: Request, part: str) -> str:
    """A name for a part of the answer: other requests have other names, this one always its own."""
    data = msgspec.json.encode((request.model, request.messages, part))
    return object_id("offline", data)[:12].hex()
