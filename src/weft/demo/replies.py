"""The offline model's words: sentences about a conversation, and values that fill a schema.

Everything is taken from what was said. A question is answered with the earlier sentence that
shares the most of its rarer words; where none does, the answer says so.

Who said a thing is never guessed. The notes that stand for a compacted conversation name the
speaker of every line and are read back by them; words that came under the model's own name from
elsewhere are quoted without one.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any, cast

import orjson
from msgspec import Struct

from weft.model import JsonObject

from .tool_choice import wishes

LINE = 160
NOTE = 400
NOTES = "Notes on the conversation so far:"
ECHO = "I am Weft's offline model"
SPEAKERS = {"user": "The user said", "assistant": "The assistant answered"}

_NOTE = re.compile(rf"- ({'|'.join(SPEAKERS.values())}): (.*)")
_ROLES = {name: role for role, name in SPEAKERS.items()}
_EXTRACT = re.compile(r"\[Summary of earlier messages[^\]\n]*\]")
_ASIDE = re.compile(
    rf"{ECHO}|This is turn \d+ of|My tools are `|given no tools|no tools here but"
    r"|^I go on from here|^So far:|earlier: “|compacted the thread"
)

_WORD = re.compile(r"[\w'-]{4,}")
_QUOTED = re.compile(r"[\"“'`]([^\"”'`]+)[\"”'`]")
_NUMBER = re.compile(r"-?\d+(?:\.\d+)?")
_AFTER = re.compile(r"\b(?:in|for|of|about|named)\s+(?:the\s+)?([\w.-]*\w)", re.IGNORECASE)
_SENTENCE = re.compile(r"[^.!?\n]+[.!?]?")
_EXPRESSION = re.compile(r"[(\d][\d\s.()+*/%-]*[-+*/%][\d\s.()+*/%-]*[)\d]")


class Said(Struct, frozen=True, gc=False):
    """One earlier turn: who spoke, and the words."""

    role: str
    words: str


def answer_question(words: str, before: Sequence[Said]) -> str:
    """A reply to `words` from what was said before."""
    for pattern, reply in REPLIES:
        if pattern.search(words):
            return reply(before)
    found = _closest(words, before) if "?" in words else None
    if found is not None:
        who = "You said earlier" if found[0].role == "user" else "From earlier"
        return f"{who}: “{found[1]}”"
    turn = sum(said.role == "user" for said in before) + 1
    return (
        f"You said: “{clip(words)}” This is turn {turn} of our conversation. {ECHO}: I can tell "
        "you what was said here, call a tool you name, and compact the thread."
    )


def summarise(before: Sequence[Said]) -> str:
    """The gist of earlier turns, for the one who spoke them: the first sentence of each."""
    lines = [f"- {_speaker(said)}: {clip(_first(said.words))}" for said in _facts(before)]
    return "\n".join(("So far:", *lines)) if lines else "Nothing was said before."


def note_facts(before: Sequence[Said]) -> str:
    """What a compaction keeps: everything said but talk about the talk, each with its speaker."""
    lines = [f"- {SPEAKERS[said.role]}: {clip(said.words, NOTE)}" for said in _facts(before)]
    return "\n".join((NOTES, *lines)) if lines else f"{NOTES} nothing was said."


def read_notes(role: str, words: str) -> list[Said]:
    """A turn as it was said; one that is a summary, as the turns that its lines stand for."""
    if words.startswith(NOTES):
        found = (_NOTE.fullmatch(line) for line in words.splitlines()[1:])
        return [Said(_ROLES[note[1]], note[2]) for note in found if note]
    return _read_extract(words) if _EXTRACT.match(words) else [Said(role, words)]


def _read_extract(words: str) -> list[Said]:
    """The engine's own summary: sentences under the name of who said them."""
    said: list[Said] = []
    speaker = ""
    for line in words.splitlines()[1:]:
        if line.startswith("- "):
            said.append(Said("user" if speaker == "user" else "assistant", line[2:]))
        elif line.endswith(":"):
            speaker = line[:-1]
    return said


def _facts(before: Sequence[Said]) -> list[Said]:
    """What is worth keeping, once: no wish to compact, none of the model's words about itself."""
    return [said for said in dict.fromkeys(before) if not _is_aside(said)]


def _is_aside(said: Said) -> bool:
    if said.role == "assistant":
        return _ASIDE.search(said.words) is not None
    return wishes("compact", said.words)


def clip(text: str, length: int = LINE) -> str:
    """The text on one line, cut to a readable length."""
    line = " ".join(text.split())
    return line if len(line) <= length else line[: length - 1].rstrip() + "…"


def fill_schema(schema: JsonObject, words: str) -> Any:
    """A value that fits the schema, made of what stands in the words."""
    for candidate in _objects(words):
        if schema.get("type", "object") == "object" and _fits(candidate, schema):
            return candidate
    return _fill(schema, schema, _Source(words))


def _count(before: Sequence[Said]) -> str:
    users = sum(said.role == "user" for said in before)
    return f"{len(before)} messages came before this one, {users} of them yours."


def _first_said(before: Sequence[Said]) -> str:
    first = next((said.words for said in before if said.role == "user"), None)
    return f"Your first message was: “{clip(first)}”" if first else "This is your first message."


def _last_said(before: Sequence[Said]) -> str:
    last = next((said.words for said in reversed(before) if said.role == "user"), None)
    return f"Before this you said: “{clip(last)}”" if last else "You said nothing before this."


REPLIES: tuple[tuple[re.Pattern[str], Callable[[Sequence[Said]], str]], ...] = tuple(
    (re.compile(pattern, re.IGNORECASE), reply)
    for pattern, reply in (
        (r"\bhow many (messages|turns)\b", _count),
        (r"\bfirst (message|thing)\b|\bsay first\b", _first_said),
        (r"\b(last|previous) (message|thing)\b", _last_said),
        (r"\bsummar(y|i[sz]e)\b|\bso far\b", summarise),
    )
)


def _closest(words: str, before: Sequence[Said]) -> tuple[Said, str] | None:
    """The earlier sentence that shares the most rare words with the question; newest wins ties."""
    asked = set(_WORD.findall(words.lower()))
    told = _facts(before)
    spoken = ((said, sentence) for said in told for sentence in _sentences(said.words))
    sentences = [(said, sentence) for said, sentence in spoken if not sentence.endswith("?")]
    spread: dict[str, int] = {}
    for _, sentence in sentences:
        for word in set(_WORD.findall(sentence.lower())):
            spread[word] = spread.get(word, 0) + 1
    best: tuple[float, Said, str] | None = None
    for said, sentence in sentences:
        shared = asked & set(_WORD.findall(sentence.lower()))
        score = sum(1 / spread[word] for word in shared)
        if score and (best is None or score >= best[0]):
            best = (score, said, sentence)
    return None if best is None else (best[1], clip(best[2]))


def _sentences(words: str) -> Iterator[str]:
    return (found.strip() for found in _SENTENCE.findall(words) if found.strip())


def _first(words: str) -> str:
    return next(_sentences(words), words)


def _speaker(said: Said) -> str:
    return "You said" if said.role == "user" else "Answer"


class _Source:
    """Hands out what the words hold, each thing once."""

    def __init__(self, words: str) -> None:
        self.words = words
        self.strings = _QUOTED.findall(words) or _AFTER.findall(words)
        self.numbers = _NUMBER.findall(words)

    def string(self, name: str = "") -> str:
        if name == "expression" and (found := _EXPRESSION.search(self.words)):
            return found[0].strip()
        return self.strings.pop(0) if self.strings else clip(self.words) or "example"

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
            wanted = schema.get("required", list(properties)[:1])
            return {key: _fill(properties.get(key, {}), root, source, key) for key in wanted}


def _kind(schema: JsonObject) -> str:
    """The type, the first where several are allowed."""
    kind = cast("str | list[str]", schema.get("type") or "object")
    return kind if isinstance(kind, str) else kind[0]


def _resolve(schema: JsonObject, root: JsonObject) -> JsonObject:
    """Follow one `$ref` into `$defs`, or take the first of several choices."""
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


def _objects(words: str) -> Iterator[JsonObject]:
    """JSON objects that stand in the words."""
    start = words.find("{")
    end = words.rfind("}")
    if 0 <= start < end:
        try:
            value = orjson.loads(words[start : end + 1])
        except orjson.JSONDecodeError:
            return
        if isinstance(value, dict):
            yield cast(JsonObject, value)


def _fits(value: JsonObject, schema: JsonObject) -> bool:
    return all(name in value for name in schema.get("required", []))
