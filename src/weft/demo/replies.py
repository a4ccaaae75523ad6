"""The texts of the offline model: sentences about the conversation, and values for a schema.

Everything comes from the conversation. A question is answered with the earlier sentence that shares
the most rare words with it.

The speaker of a sentence is never guessed. The summary of a compacted conversation names the
speaker of every line, and is read back with it. Text of an assistant turn is quoted without a
speaker.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any, cast

import orjson
from msgspec import Struct

from weft.model import JsonObject

from .tool_choice import asks_for

LINE = 160
NOTE = 400
NOTES = "Notes on the conversation so far:"
SELF_DESCRIPTION = "I am Weft's offline model"
SPEAKERS = {"user": "The user said", "assistant": "The assistant answered"}

_NOTE = re.compile(rf"- ({'|'.join(SPEAKERS.values())}): (.*)")
_ROLES = {name: role for role, name in SPEAKERS.items()}
_EXTRACT = re.compile(r"\[Summary of earlier messages[^\]\n]*\]")
_ASIDE = re.compile(
    rf"{SELF_DESCRIPTION}|This is turn \d+ of|My tools are `|given no tools|no tools here but"
    r"|^I go on from here|^So far:|earlier: “|compacted the thread"
)

_WORD = re.compile(r"[\w'-]{4,}")
_QUOTED = re.compile(r"[\"“'`]([^\"”'`]+)[\"”'`]")
_NUMBER = re.compile(r"-?\d+(?:\.\d+)?")
_AFTER = re.compile(r"\b(?:in|for|of|about|named)\s+(?:the\s+)?([\w.-]*\w)", re.IGNORECASE)
_SENTENCE = re.compile(r"[^.!?\n]+[.!?]?")
_EXPRESSION = re.compile(r"[(\d][\d\s.()+*/%-]*[-+*/%][\d\s.()+*/%-]*[)\d]")


class EarlierTurn(Struct, frozen=True, gc=False):
    """One earlier turn: its role and text."""

    role: str
    text: str


def answer_question(text: str, before: Sequence[EarlierTurn]) -> str:
    """A reply to `text`, from the earlier turns."""
    for pattern, reply in REPLIES:
        if pattern.search(text):
            return reply(before)
    quote = _closest(text, before) if "?" in text else None
    if quote is not None:
        speaker = "You said earlier" if quote[0].role == "user" else "From earlier"
        return f"{speaker}: “{quote[1]}”"
    turn = sum(turn.role == "user" for turn in before) + 1
    return (
        f"You said: “{clip(text)}” This is turn {turn} of our conversation. {SELF_DESCRIPTION}: "
        "I can tell you what was said here, call a tool you name, and compact the thread."
    )


def summarise(before: Sequence[EarlierTurn]) -> str:
    """The first sentence of each earlier turn, for the user."""
    lines = [f"- {_speaker(turn)}: {clip(_first(turn.text))}" for turn in _facts(before)]
    return "\n".join(("So far:", *lines)) if lines else "Nothing was said before."


def note_facts(before: Sequence[EarlierTurn]) -> str:
    """A summary for `compact`: every earlier turn with its speaker, without small talk."""
    lines = [f"- {SPEAKERS[turn.role]}: {clip(turn.text, NOTE)}" for turn in _facts(before)]
    return "\n".join((NOTES, *lines)) if lines else f"{NOTES} nothing was said."


def read_notes(role: str, text: str) -> list[EarlierTurn]:
    """The turn itself; a summary is read as the turns that its lines stand for."""
    if text.startswith(NOTES):
        notes = (_NOTE.fullmatch(line) for line in text.splitlines()[1:])
        return [EarlierTurn(_ROLES[note[1]], note[2]) for note in notes if note]
    return _read_extract(text) if _EXTRACT.match(text) else [EarlierTurn(role, text)]


def _read_extract(text: str) -> list[EarlierTurn]:
    """The turns of an extract: sentences below the name of their speaker."""
    turns: list[EarlierTurn] = []
    speaker = ""
    for line in text.splitlines()[1:]:
        if line.startswith("- "):
            turns.append(EarlierTurn("user" if speaker == "user" else "assistant", line[2:]))
        elif line.endswith(":"):
            speaker = line[:-1]
    return turns


def _facts(before: Sequence[EarlierTurn]) -> list[EarlierTurn]:
    """The distinct turns, without requests to compact and the model's remarks about itself."""
    return [turn for turn in dict.fromkeys(before) if not _is_aside(turn)]


def _is_aside(turn: EarlierTurn) -> bool:
    if turn.role == "assistant":
        return _ASIDE.search(turn.text) is not None
    return asks_for("compact", turn.text)


def clip(text: str, length: int = LINE) -> str:
    """The text on one line, cut to a readable length."""
    line = " ".join(text.split())
    return line if len(line) <= length else line[: length - 1].rstrip() + "…"


def fill_schema(schema: JsonObject, text: str) -> Any:
    """A value that fits the schema, made from the text."""
    for candidate in _objects(text):
        if schema.get("type", "object") == "object" and _fits(candidate, schema):
            return candidate
    return _fill(schema, schema, _Source(text))


def _count(before: Sequence[EarlierTurn]) -> str:
    users = sum(turn.role == "user" for turn in before)
    return f"{len(before)} messages came before this one, {users} of them yours."


def _first_message(before: Sequence[EarlierTurn]) -> str:
    first = next((turn.text for turn in before if turn.role == "user"), None)
    return f"Your first message was: “{clip(first)}”" if first else "This is your first message."


def _last_message(before: Sequence[EarlierTurn]) -> str:
    last = next((turn.text for turn in reversed(before) if turn.role == "user"), None)
    return f"Before this you said: “{clip(last)}”" if last else "You said nothing before this."


REPLIES: tuple[tuple[re.Pattern[str], Callable[[Sequence[EarlierTurn]], str]], ...] = tuple(
    (re.compile(pattern, re.IGNORECASE), reply)
    for pattern, reply in (
        (r"\bhow many (messages|turns)\b", _count),
        (r"\bfirst (message|thing)\b|\bsay first\b", _first_message),
        (r"\b(last|previous) (message|thing)\b", _last_message),
        (r"\bsummar(y|i[sz]e)\b|\bso far\b", summarise),
    )
)


def _closest(text: str, before: Sequence[EarlierTurn]) -> tuple[EarlierTurn, str] | None:
    """The earlier sentence that shares the most rare words with the question; newest if equal."""
    question = set(_WORD.findall(text.lower()))
    sentences = [
        (turn, sentence)
        for turn in _facts(before)
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


def _first(text: str) -> str:
    return next(_sentences(text), text)


def _speaker(turn: EarlierTurn) -> str:
    return "You said" if turn.role == "user" else "Answer"


class _Source:
    """The strings and numbers of a text, each used once."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.strings = _QUOTED.findall(text) or _AFTER.findall(text)
        self.numbers = _NUMBER.findall(text)

    def string(self, name: str = "") -> str:
        if name == "expression" and (match := _EXPRESSION.search(self.text)):
            return match[0].strip()
        return self.strings.pop(0) if self.strings else clip(self.text) or "example"

    def number(self) -> float:
        return float(self.numbers.pop(0)) if self.numbers else 1.0


def _fill(schema: JsonObject, root: JsonObject, source: _Source, name: str = "") -> Any:
    schema = _resolve(schema, root)
    for constant in ("const", "default"):
        if constant in schema:
            return schema[constant]
    if schema.get("enum"):
        return schema["enum"][0]
    match _kind(schema):
        case "string":
            return source.string(name)
        case "integer":
            return int(source.number())
        case "number":
            return source.number()
        case "boolean":
            return True
        case "null":
            return None
        case "array":
            return [_fill(schema["items"], root, source)] if "items" in schema else []
        case _:
            properties: JsonObject = schema.get("properties", {})
            required = schema.get("required", list(properties)[:1])
            return {key: _fill(properties.get(key, {}), root, source, key) for key in required}


def _kind(schema: JsonObject) -> str:
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


def _objects(text: str) -> Iterator[JsonObject]:
    """The JSON object in the text, if there is one."""
    start = text.find("{")
    end = text.rfind("}")
    if 0 <= start < end:
        try:
            value = orjson.loads(text[start : end + 1])
        except orjson.JSONDecodeError:
            return
        if isinstance(value, dict):
            yield cast(JsonObject, value)


def _fits(value: JsonObject, schema: JsonObject) -> bool:
    return all(name in value for name in schema.get("required", []))
