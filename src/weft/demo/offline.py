"""The offline model: deterministic, without network or key.

It understands no language; it follows a short table of rules. That is enough to try every feature
without a key: it streams, reads tool results, calls a tool that the user names, fills a JSON
schema, and calls `compact` with a range and a summary when asked to. The same request always gives
the same bytes, so tests and examples can rely on the answer.

The rules are tried in order; the first that returns blocks gives the answer.

A tool is chosen by its name. "Use a tool" without a name chooses the tool whose name and
description share the most words with the request. `compact` and `recall` are never guessed: a user
who asks for the time must not lose the conversation. They are called only on explicit request.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, cast

import msgspec
from msgspec import Struct

from weft import exact_json
from weft.compact import (
    extract_summary,
    is_summary_request,
    rows_to_summarise,
    summary_size,
    unmarked,
)
from weft.ids import object_id
from weft.model import (
    Block,
    Checkpoint,
    Close,
    Delta,
    End,
    Event,
    Finish,
    JsonObject,
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

# The texts of the offline model: sentences about the conversation, and values for a schema.
#
# Everything comes from the conversation. A question is answered with the earlier sentence that
# shares the most rare words with it.
#
# The speaker of a sentence is never guessed. The summary of a compacted conversation names the
# speaker of every line, and is read back with it. Text of an assistant turn is quoted without a
# speaker.

LINE_LENGTH = 160  # of a quote, in characters
NOTE_LENGTH = 400  # of a turn in the notes for `compact`
NOTES_TITLE = "Notes on the conversation so far:"
SELF_DESCRIPTION = "I am Weft's offline model"
SPEAKERS = {"user": "The user said", "assistant": "The assistant answered"}

_NOTE_LINE = re.compile(rf"- ({'|'.join(SPEAKERS.values())}): (.*)")
_SPEAKER_ROLES = {name: role for role, name in SPEAKERS.items()}
_EXTRACT = re.compile(r"\[Summary of earlier messages[^\]\n]*\]")
_SMALL_TALK = re.compile(
    rf"{SELF_DESCRIPTION}|This is turn \d+ of|My tools are `|given no tools|no tools here but"
    r"|^I go on from here|^So far:|earlier: “|compacted the thread"
)

_WORD = re.compile(r"[\w'-]{4,}")
_QUOTED = re.compile(r"[\"“'`]([^\"”'`]+)[\"”'`]")
_NUMBER = re.compile(r"-?\d+(?:\.\d+)?")
_AFTER_PREPOSITION = re.compile(
    r"\b(?:in|for|of|about|named)\s+(?:the\s+)?([\w.-]*\w)", re.IGNORECASE
)
_SENTENCE = re.compile(r"[^.!?\n]+[.!?]?")
_EXPRESSION = re.compile(r"[(\d][\d\s.()+*/%-]*[-+*/%][\d\s.()+*/%-]*[)\d]")


class EarlierTurn(Struct, frozen=True, gc=False):
    """One earlier turn: its role and text."""

    role: str
    text: str


def answer_question(text: str, earlier: Sequence[EarlierTurn]) -> str:
    """A reply to `text`, from the earlier turns."""
    for pattern, reply in REPLIES:
        if pattern.search(text):
            return reply(earlier)
    quote = _closest_sentence(text, earlier) if "?" in text else None
    if quote is not None:
        speaker = "You said earlier" if quote[0].role == "user" else "From earlier"
        return f"{speaker}: “{quote[1]}”"
    turn = sum(turn.role == "user" for turn in earlier) + 1
    return (
        f"You said: “{clip(text)}” This is turn {turn} of our conversation. {SELF_DESCRIPTION}: "
        "I can tell you what was said here, call a tool you name, and compact the thread."
    )


def summarise(earlier: Sequence[EarlierTurn]) -> str:
    """The first sentence of each earlier turn, for the user."""
    lines = [
        f"- {_speaker(turn)}: {clip(_first_sentence(turn.text))}"
        for turn in _relevant_turns(earlier)
    ]
    return "\n".join(("So far:", *lines)) if lines else "Nothing was said before."


def write_notes(earlier: Sequence[EarlierTurn]) -> str:
    """The summary for `compact`: every relevant turn with its speaker."""
    lines = [
        f"- {SPEAKERS[turn.role]}: {clip(turn.text, NOTE_LENGTH)}"
        for turn in _relevant_turns(earlier)
    ]
    return "\n".join((NOTES_TITLE, *lines)) if lines else f"{NOTES_TITLE} nothing was said."


def read_notes(role: str, text: str) -> list[EarlierTurn]:
    """The turns in a text: each line of a summary is one, and any other text is one."""
    if text.startswith(NOTES_TITLE):
        notes = (_NOTE_LINE.fullmatch(line) for line in text.splitlines()[1:])
        return [EarlierTurn(_SPEAKER_ROLES[note[1]], note[2]) for note in notes if note]
    return _read_extract(text) if _EXTRACT.match(text) else [EarlierTurn(role, text)]


def _read_extract(text: str) -> list[EarlierTurn]:
    """The turns of an extract: sentences below the name of their speaker."""
    turns: list[EarlierTurn] = []
    speaker = ""
    for line in text.splitlines()[1:]:
        if line.startswith("- "):
            is_typed = speaker == "user" or "user's messages" in speaker  # an older extract, or not
            turns.append(EarlierTurn("user" if is_typed else "assistant", line[2:]))
        elif line.endswith(":"):
            speaker = line[:-1]
    return turns


def _relevant_turns(earlier: Sequence[EarlierTurn]) -> list[EarlierTurn]:
    """The distinct turns, without requests to compact and this model's remarks about itself."""
    return [turn for turn in dict.fromkeys(earlier) if not _is_small_talk(turn)]


def _is_small_talk(turn: EarlierTurn) -> bool:
    if turn.role == "assistant":
        return _SMALL_TALK.search(turn.text) is not None
    return asks_for("compact", turn.text)


def clip(text: str, length: int = LINE_LENGTH) -> str:
    """The text on one line, cut to a readable length."""
    line = " ".join(text.split())
    return line if len(line) <= length else line[: length - 1].rstrip() + "…"


def fill_schema(schema: JsonObject, text: str) -> Any:
    """A value that fits the schema, made from the text."""
    candidate = _find_object(text) if schema.get("type", "object") == "object" else None
    if candidate is not None and _has_required(candidate, schema):
        return candidate
    return _fill_value(schema, schema, _TextValues(text))


def _count_turns(earlier: Sequence[EarlierTurn]) -> str:
    users = sum(turn.role == "user" for turn in earlier)
    return f"{len(earlier)} messages came before this one, {users} of them yours."


def _first_message(earlier: Sequence[EarlierTurn]) -> str:
    first = next((turn.text for turn in earlier if turn.role == "user"), None)
    return f"Your first message was: “{clip(first)}”" if first else "This is your first message."


def _last_message(earlier: Sequence[EarlierTurn]) -> str:
    last = next((turn.text for turn in reversed(earlier) if turn.role == "user"), None)
    return f"Before this you said: “{clip(last)}”" if last else "You said nothing before this."


REPLIES: tuple[tuple[re.Pattern[str], Callable[[Sequence[EarlierTurn]], str]], ...] = tuple(
    (re.compile(pattern, re.IGNORECASE), reply)
    for pattern, reply in (
        (r"\bhow many (messages|turns)\b", _count_turns),
        (r"\bfirst (message|thing)\b|\bsay first\b", _first_message),
        (r"\b(last|previous) (message|thing)\b", _last_message),
        (r"\bsummar(y|i[sz]e)\b|\bso far\b", summarise),
    )
)


def _closest_sentence(text: str, earlier: Sequence[EarlierTurn]) -> tuple[EarlierTurn, str] | None:
    """The earlier sentence that shares the most rare words with the question; newest if equal."""
    question = set(_WORD.findall(text.lower()))
    sentences = [
        (turn, sentence)
        for turn in _relevant_turns(earlier)
        for sentence in _sentences(turn.text)
        if not sentence.endswith("?")
    ]
    frequency: dict[str, int] = {}
    for _, sentence in sentences:
        for word in set(_WORD.findall(sentence.lower())):
            frequency[word] = frequency.get(word, 0) + 1
    best: tuple[float, EarlierTurn, str] | None = None
    for turn, sentence in sentences:
        shared = question & set(_WORD.findall(sentence.lower()))
        score = sum(1 / frequency[word] for word in shared)
        if score and (best is None or score >= best[0]):
            best = (score, turn, sentence)
    return None if best is None else (best[1], clip(best[2]))


def _sentences(text: str) -> Iterator[str]:
    return (part.strip() for part in _SENTENCE.findall(text) if part.strip())


def _first_sentence(text: str) -> str:
    return next(_sentences(text), text)


def _speaker(turn: EarlierTurn) -> str:
    return "You said" if turn.role == "user" else "Answer"


class _TextValues:
    """The strings and numbers of a text, each used once, to fill a schema with."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.strings = _QUOTED.findall(text) or _AFTER_PREPOSITION.findall(text)
        self.numbers = _NUMBER.findall(text)

    def string(self, name: str = "") -> str:
        if name == "expression" and (match := _EXPRESSION.search(self.text)):
            return match[0].strip()
        return self.strings.pop(0) if self.strings else clip(self.text) or "example"

    def number(self) -> float:
        return float(self.numbers.pop(0)) if self.numbers else 1.0


def _fill_value(schema: JsonObject, root: JsonObject, values: _TextValues, name: str = "") -> Any:
    """A value for a schema; `root` has its definitions, `name` is the property that it is for."""
    schema = _resolve(schema, root)
    for constant in ("const", "default"):
        if constant in schema:
            return schema[constant]
    if schema.get("enum"):
        return schema["enum"][0]
    match _schema_type(schema):
        case "string":
            return values.string(name)
        case "integer":
            return int(values.number())
        case "number":
            return values.number()
        case "boolean":
            return True
        case "null":
            return None
        case "array":
            return [_fill_value(schema["items"], root, values)] if "items" in schema else []
        case _:
            properties: JsonObject = schema.get("properties", {})
            required = schema.get("required", list(properties)[:1])
            return {
                key: _fill_value(properties.get(key, {}), root, values, key) for key in required
            }


def _schema_type(schema: JsonObject) -> str:
    """The type, or the first of several."""
    kind = cast("str | list[str]", schema.get("type") or "object")
    return kind if isinstance(kind, str) else kind[0]


def _resolve(schema: JsonObject, root: JsonObject) -> JsonObject:
    """The target of a `$ref`, or the first of several choices."""
    reference = schema.get("$ref")
    if isinstance(reference, str):
        target: Any = root
        for step in reference.removeprefix("#/").split("/"):
            target = cast(JsonObject, target).get(step) if isinstance(target, dict) else None
        return cast(JsonObject, target) if isinstance(target, dict) else {}
    for choice in ("anyOf", "oneOf", "allOf"):
        if schema.get(choice):
            return schema[choice][0]
    return schema


def _find_object(text: str) -> JsonObject | None:
    """The JSON object in the text, if there is one."""
    start, end = text.find("{"), text.rfind("}")
    if not 0 <= start < end:
        return None
    try:
        value = exact_json.loads(text[start : end + 1])
    except exact_json.JSONDecodeError:
        return None
    return cast(JsonObject, value) if isinstance(value, dict) else None


def _has_required(value: JsonObject, schema: JsonObject) -> bool:
    return all(name in value for name in schema.get("required", []))


CHUNK_CHARACTERS = 24  # of arguments in one delta
SUMMARY_TOKENS = 1000  # of a summary, if the request has no limit

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
    earlier: tuple[EarlierTurn, ...]
    checkpoints: tuple[str, ...]
    tools: dict[str, Tool]


_decode_body: Callable[[bytes], OfflineBody] = exact_json.decoder(OfflineBody)


def write_offline(request: Request) -> bytes:
    """The request body for this model."""
    return exact_json.encode(
        OfflineBody(request.model, request.messages, request.tools, request.params)
    )


def read_offline(body: bytes) -> Request:
    """The request of a body."""
    value = _decode_body(body)
    return Request(value.model, value.messages, value.tools, value.params)


def answer_offline(request: Request) -> Iterator[Event]:
    """The events of the answer to this request."""
    turn = read_turn(request)
    blocks = next(filter(None, (rule(turn) for rule in RULES)))
    if request.params.reasoning is not None and request.params.reasoning.mode in ("on", "adaptive"):
        thought = f"The user's turn has {len(turn.text.split())} words. A rule answers it."
        blocks = (Thinking(thought, signature=OFFLINE_MODEL), *blocks)
    blocks, stop = _apply_limits(blocks, request)
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
    answers = [n for n, message in enumerate(messages) if message.role == "assistant"]
    last = max(answers, default=-1)
    call_names = {
        block.id: block.name
        for message in messages
        for block in message.blocks
        if isinstance(block, ToolCall)
    }
    open_messages = [
        message for message in messages[last + 1 :] if message.role in ("user", "tool")
    ]
    results = tuple(
        (call_names.get(block.call_id, "the tool"), block)
        for message in open_messages
        for block in message.blocks
        if isinstance(block, ToolResult)
    )
    earlier = tuple(
        turn
        for message in messages[: last + 1]
        if message.role in ("user", "assistant") and (text := _typed_text(message))
        for turn in read_notes(message.role, text)
    )
    return OpenTurn(
        request,
        "\n".join(filter(None, map(_typed_text, open_messages))),
        results,
        earlier,
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


def _call_forced_tool(turn: OpenTurn) -> tuple[Block, ...] | None:
    """The call that `tool_choice` requires."""
    choice = turn.request.params.tool_choice
    if choice is None or choice.kind not in ("any", "tool") or not turn.tools:
        return None
    if choice.name in turn.tools:
        return _call_tools(turn, [turn.tools[choice.name]])
    chosen_tools = named_tools(turn.tools, turn.text)
    if not chosen_tools:
        first = next(iter(other_tools(turn.tools) or turn.tools))
        chosen_tools = [matching_tool(turn.tools, turn.text) or turn.tools[first]]
    return _call_tools(turn, chosen_tools)


def _compact(turn: OpenTurn) -> tuple[Block, ...] | None:
    if "compact" not in turn.tools or not asks_for("compact", turn.text) or _may_not_call(turn):
        return None
    replacement = {"summary": write_notes(turn.earlier)}
    if len(turn.checkpoints) > 1:
        replacement["to"] = turn.checkpoints[-2]
    arguments = exact_json.dumps({"replacements": [replacement]}).decode()
    return (ToolCall("call_" + _derived_id(turn.request, "compact"), "compact", arguments),)


def _recall(turn: OpenTurn) -> tuple[Block, ...] | None:
    if "recall" not in turn.tools or not asks_for("recall", turn.text) or _may_not_call(turn):
        return None
    return _call_tools(turn, [turn.tools["recall"]])


def _call_named_tool(turn: OpenTurn) -> tuple[Block, ...] | None:
    if _may_not_call(turn):
        return None
    if tools := named_tools(turn.tools, turn.text):
        return _call_tools(turn, tools)
    if wants_some_tool(turn.text):
        tool = matching_tool(turn.tools, turn.text)
        return _call_tools(turn, [tool]) if tool else (Text(list_tools(turn.tools, turn.text)),)
    return (Text(list_tools(turn.tools, turn.text)),) if asks_for_list(turn.text) else None


def _may_not_call(turn: OpenTurn) -> bool:
    """Whether the request forbids tool calls."""
    choice = turn.request.params.tool_choice
    return choice is not None and choice.kind == "none"


def _call_tools(turn: OpenTurn, tools: list[Tool]) -> tuple[Block, ...]:
    return tuple(
        ToolCall(
            "call_" + _derived_id(turn.request, f"{number}:{tool.name}"),
            tool.name,
            exact_json.dumps(fill_schema(tool.parameters or {}, turn.text)).decode(),
        )
        for number, tool in enumerate(tools)
    )


def _fill_format(turn: OpenTurn) -> tuple[Block, ...] | None:
    answer_format = turn.request.params.format
    if answer_format is None or answer_format.kind == "text":
        return None
    return (Text(exact_json.dumps(fill_schema(answer_format.schema or {}, turn.text)).decode()),)


def _continue(turn: OpenTurn) -> tuple[Block, ...] | None:
    """The answer to a turn without text, such as the one after a compaction."""
    if turn.text:
        return None
    return (Text("I go on from here. " + summarise(turn.earlier)),)


def _reply(turn: OpenTurn) -> tuple[Block, ...]:
    return (Text(answer_question(turn.text, turn.earlier)),)


def _summarise(turn: OpenTurn) -> tuple[Block, ...] | None:
    """The answer to a summary request: an extract of the requested size."""
    request = turn.request
    if not is_summary_request(request):
        return None
    rows = rows_to_summarise(request)
    limit = request.params.max_tokens or SUMMARY_TOKENS
    size = min(limit, summary_size(request) or limit)
    extract = extract_summary(rows, size, counter_for("estimate").message) if rows else None
    if extract is None:
        return (Text(clip(" ".join(row.message.text for row in rows)) or "Nothing was said."),)
    return (Text(unmarked(extract.text)),)


RULES: tuple[Callable[[OpenTurn], tuple[Block, ...] | None], ...] = (
    _summarise,
    _report_results,
    _call_forced_tool,
    _compact,
    _recall,
    _call_named_tool,
    _fill_format,
    _continue,
    _reply,
)


def _apply_limits(blocks: tuple[Block, ...], request: Request) -> tuple[tuple[Block, ...], Stop]:
    """The blocks cut at a stop sequence or at the output limit, and the stop reason."""
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
    data = exact_json.encode((request.model, request.messages, part))
    return object_id("offline", data)[:12].hex()


THREAD_TOOLS = ("compact", "recall")

_LETTERS = re.compile(r"[a-z]+", re.IGNORECASE)
_REQUEST_VERB = re.compile(r"\b(use|call|run|try|invoke|ask|with)\b", re.IGNORECASE)
_ANY_TOOL = re.compile(
    r"\b(the|a|an|your|any|some|this|that)\s+([\w-]+\s+)?tools?\b", re.IGNORECASE
)
_LIST_REQUEST = re.compile(r"\b(what|which)\s+tools\b", re.IGNORECASE)
_TOOL_NAME = re.compile(r"`([\w.-]+)`|\b([A-Za-z]\w*_\w+)\b")
_ARITHMETIC = re.compile(r"\d\s*[-+*/%]\s*[\d(]|\)\s*[-+*/%]")

_NEGATED = re.compile(
    r"\b(do not|don't|never|without|not to|no need to)\s+(\w+\s+)?(compact|recall)", re.IGNORECASE
)
_IMPERATIVE = (
    r"(?:^|[.!?;:,\n]\s*|\b(?:please|now|then|and|you|to)\s+|/){name}\b(?!\s+\w+\s+(?:is|are)\b)"
)
_BY_NAME = r"\b(?:use|call|run|try|invoke)\s+(?:the\s+)?(?:tool\s+)?[`\"']?{name}\b"
_THREAD = r"the\s+(?:thread|conversation|history|context|chat)"
_ON_THREAD = rf"\b{{name}}\s+(?:it|this|our|everything|all|{_THREAD})\b"

STOP_WORDS = frozenset(
    re.findall(
        r"\w+",
        "a an and any are as at be by call can could do for from here i in invoke is it its me my "
        "of on one or our please run some that the then there this to tool tools try us use what "
        "which will with would you your",
    )
)
"""Words that do not help to choose a tool."""

ARITHMETIC_WORDS = frozenset({"expression", "calculate", "calculator", "arithmetic", "math"})
"""Words in the name or description of a tool that can calculate."""


def asks_for(name: str, text: str) -> bool:
    """Whether the text asks explicitly for `compact` or `recall`."""
    if _NEGATED.search(text):
        return False
    forms = (_IMPERATIVE, _BY_NAME, _ON_THREAD)
    return any(re.search(form.format(name=name), text, re.IGNORECASE) for form in forms)


def named_tools(tools: Mapping[str, Tool], text: str) -> list[Tool]:
    """Tools that the text names together with a verb such as "use", in the order named."""
    if not _REQUEST_VERB.search(text):
        return []
    positions = {
        name: match.start()
        for name in other_tools(tools)
        if (match := re.search(rf"(?<![\w-]){re.escape(name)}(?![\w-])", text))
    }
    return [tools[name] for name in sorted(positions, key=positions.__getitem__)]


def wants_some_tool(text: str) -> bool:
    """Whether the text asks for some tool."""
    return bool(_REQUEST_VERB.search(text) and (_ANY_TOOL.search(text) or _find_tool_name(text)))


def asks_for_list(text: str) -> bool:
    """Whether the text asks which tools there are."""
    return bool(_LIST_REQUEST.search(text))


def matching_tool(tools: Mapping[str, Tool], text: str) -> Tool | None:
    """The best matching tool; the first one if the text names no task; `None` if none matches."""
    candidates = [tools[name] for name in other_tools(tools)]
    if not candidates or _find_tool_name(text):
        return None
    stems = _stems(text)
    if not stems and not _ARITHMETIC.search(text):
        return candidates[0]
    best = max(candidates, key=lambda tool: _score(tool, stems, text))
    return best if _score(best, stems, text) else None


def list_tools(tools: Mapping[str, Tool], text: str) -> str:
    """A reply that lists the available tools."""
    missing = _find_tool_name(text)
    lead = f"There is no tool `{missing}` here. " if missing and missing not in tools else ""
    if not tools:
        return lead + "I was given no tools here."
    thread_tools = [name for name in THREAD_TOOLS if name in tools]
    others = other_tools(tools)
    if not others:
        return (
            lead
            + f"I have no tools here but {_join_names(thread_tools)}, which I call when you say so."
        )
    also = f" Besides, {_join_names(thread_tools)}, when you say so." if thread_tools else ""
    return lead + f"My tools are {_join_names(others)}; name one, and I call it.{also}"


def other_tools(tools: Mapping[str, Tool]) -> list[str]:
    """The tools other than `compact` and `recall`."""
    return [name for name in tools if name not in THREAD_TOOLS]


def _find_tool_name(text: str) -> str | None:
    """A word that looks like a tool's name."""
    match = _TOOL_NAME.search(text)
    return None if match is None else match[1] or match[2]


def _score(tool: Tool, stems: frozenset[str], text: str) -> int:
    """How well a tool matches; a word in its name counts three times, and so does arithmetic."""
    parameters = " ".join((tool.parameters or {}).get("properties", {}))
    description_stems = _stems(f"{tool.description or ''} {parameters}")
    tool_words = set(_LETTERS.findall(f"{tool.name} {' '.join(description_stems)}"))
    can_calculate = bool(_ARITHMETIC.search(text)) and bool(ARITHMETIC_WORDS & tool_words)
    name_score = 3 * len(stems & _stems(tool.name))
    return name_score + len(stems & description_stems) + 3 * can_calculate


def _stems(text: str) -> frozenset[str]:
    """The significant words of a text, without grammatical endings."""
    lower = (word.lower() for word in _LETTERS.findall(text))
    return frozenset(
        re.sub(r"(?<=\w{3})(s|es|ing|ed)$", "", word) for word in lower if word not in STOP_WORDS
    )


def _join_names(names: Iterable[str]) -> str:
    *head, last = [f"`{name}`" for name in names]
    return f"{', '.join(head)} and {last}" if head else last
