"""The measures of `bench/memory.py`: what of a conversation is left after a compaction.

All measures compare strings; no model judges anything.

*Needed names* are the identifiers in the arguments of later calls that occurred before the cut.

- `names`: the share of them that the context contains
- `line`: the share that occurs in a copied line of the context, with at least one other word
- `latest`: the share for which this line is the last line before the cut that mentions the name
- `calls`: the share of later calls for which the context contains every name in the path, command
  or pattern; calls without a needed name are not counted
- `recall`, `bm25`: the same, or the missing names are in one answer of `recall` (or of plain BM25)
  to what the agent and the user said before the call
"""

import json
import re
from bisect import insort
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from math import log

from msgspec import Struct

from weft.compact import extract_summary, plan_budget
from weft.errors import BudgetExceeded
from weft.history import Row
from weft.model import Message, Refusal, Text, ToolCall, ToolResult, texts
from weft.tokens import counter_for

count = counter_for("estimate").message

CUTS = (0.35, 0.5, 0.65, 0.8)
"""Where the conversation is cut: everything before is compacted, everything after is the future."""

ADDRESSING = frozenset({"file_path", "path", "notebook_path", "command", "cmd", "pattern", "url"})

_TOKEN = re.compile(r"[A-Za-z0-9_@~][\w@~./:+-]*[\w]|(?<!<)[/~.][\w@~./+-]+\w")
_CAMEL = re.compile(r"[a-z][A-Z]|[A-Z][a-z]+[A-Z]")
_WORD = re.compile(r"\w{2,}")
_LINE_NUMBERS = re.compile(r"^\s*\d+(?:→|\t)", re.MULTILINE)

Context = Callable[[Sequence[Row], int], str]
"""A method: the text of a context for some rows within a number of tokens."""


class Scores(Struct, frozen=True):
    """Shares between 0 and 1."""

    names: float
    line: float
    latest: float
    calls: float
    recall: float
    bm25: float


def identifiers(text: str) -> set[str]:
    """Paths, symbols, ids and figures of a text; the product's own reader is not used here."""
    return {token for token in _TOKEN.findall(text) if _is_identifier(token)}


def _is_identifier(token: str) -> bool:
    if token.isdigit():
        return len(token) >= 3
    if len(token) < 4:
        return False
    if any(mark in token for mark in "/_@") or _CAMEL.search(token):
        return True
    inner = token.strip("-.:")
    if "." in inner or ("-" in inner and any(char.isdigit() for char in inner)):
        return True
    return any(char.isdigit() for char in token) and any(char.isalpha() for char in token)


def source_texts(row: Row) -> list[str]:
    """The texts of a row; the arguments of calls are decoded."""
    collected: list[str] = []
    for block in row.message.blocks:
        match block:
            case Text(text=text) | Refusal(text=text):
                collected.append(text)
            case ToolCall(arguments=arguments):
                collected.extend(argument_texts(arguments).values())
            case ToolResult(content=content):
                collected.extend(texts(content))
            case _:
                pass
    return collected


def argument_texts(arguments: str) -> dict[str, str]:
    """The string values of a call's arguments, nested ones by their path."""
    try:
        value = json.loads(arguments)
    except ValueError:
        return {"": arguments}
    values: dict[str, str] = {}

    def collect(key: str, value: object) -> None:
        if isinstance(value, str):
            values[key] = value
        elif isinstance(value, dict):
            for name, inner in value.items():
                collect(f"{key}.{name}" if key else name, inner)
        elif isinstance(value, list):
            for number, inner in enumerate(value):
                collect(f"{key}.{number}", inner)

    collect("", value)
    return values


def row_texts(rows: Sequence[Row]) -> list[str]:
    """The text of each row."""
    return ["\n".join(source_texts(row)) for row in rows]


class Past:
    """The part of a conversation before a cut: its lines, and the last line of each name."""

    def __init__(self, rows: Sequence[Row]) -> None:
        self.rows = rows
        self.lines = [
            line.strip() for row in rows for text in source_texts(row) for line in text.splitlines()
        ]
        self.line_set = set(self.lines)
        calls = (block for row in rows for block in row.message.blocks)
        raw = [block.arguments for block in calls if isinstance(block, ToolCall)]
        self.whole = "\n".join([*self.lines, *raw])
        self.last_line: dict[str, str] = {}
        self.names: set[str] = set()
        self.addressed = {
            name
            for row in rows
            for block in row.message.blocks
            if isinstance(block, ToolCall)
            for key, text in argument_texts(block.arguments).items()
            if key.rpartition(".")[2] in ADDRESSING
            for name in identifiers(text)
        }
        for line in self.lines:
            for name in identifiers(line):
                self.last_line[name] = line
                self.names.add(name)
        self.tokens = sum(count(row.message) for row in rows)


_PLAIN_PARTS = re.compile(r"[A-Za-z]+(?:[-/][A-Za-z]+)+")
"""Plain words that are joined: a name only if a call has used it."""


class Future:
    """The calls after a cut, and the names that they need.

    A name is needed if a text argument of a call has it, if it stood before the cut, and if no
    message of the user and no result after the cut showed it before that call. Numbers such as
    timeouts and offsets do not count.
    """

    def __init__(self, rows: Sequence[Row], past: Past) -> None:
        self.needed: dict[str, None] = {}
        self.calls: list[tuple[list[str], str]] = []
        shown: set[str] = set()
        answer_text = request = ""
        for row in rows:
            if row.message.role == "user":
                request = row.message.text or request
            answer_text = (
                "\n".join(b.text for b in row.message.blocks if isinstance(b, Text)) or answer_text
            )
            for block in row.message.blocks:
                if isinstance(block, ToolCall):
                    self._read_call(block, past, shown, f"{answer_text} {request}"[:400])
            if row.message.role != "assistant":
                for text in source_texts(row):
                    shown |= identifiers(_LINE_NUMBERS.sub("", text))

    def _read_call(self, call: ToolCall, past: Past, shown: set[str], question: str) -> None:
        addressed: dict[str, None] = {}
        for key, text in argument_texts(call.arguments).items():
            for name in sorted(identifiers(text) & past.names - shown):
                if _PLAIN_PARTS.fullmatch(name) and name not in past.addressed:
                    continue
                self.needed[name] = None
                if key.rpartition(".")[2] in ADDRESSING:
                    addressed[name] = None
        if addressed:
            self.calls.append((list(addressed), question))


Recall = Callable[[str], str]


def score(context: str, past: Past, future: Future, recall: Recall, bm25: Recall) -> Scores:
    """The measures of one context."""
    lines_of: dict[str, list[str]] = defaultdict(list)
    for raw in context.splitlines():
        stripped = raw.strip()
        for line in dict.fromkeys((stripped, stripped.removeprefix("- "), _unlabelled(stripped))):
            if line in past.line_set or (line and line in past.whole):
                for name in identifiers(line):
                    lines_of[name].append(line)
                break
    has_line = latest = 0
    retained = [name for name in future.needed if name in context]
    for name in retained:
        lines = [line for line in lines_of.get(name, ()) if len(_WORD.findall(line)) > 1]
        lines = [line for line in lines if line != name]
        last = past.last_line[name]
        has_line += bool(lines)
        latest += any(line in last or last in line for line in lines)
    direct = recalled = matched = 0
    for names, question in future.calls:
        missing = [name for name in names if name not in context]
        direct += not missing
        recalled += not missing or all(name in recall(question) for name in missing)
        matched += not missing or all(name in bm25(question) for name in missing)
    shares = [_share(found, len(future.needed)) for found in (len(retained), has_line, latest)]
    calls = [_share(found, len(future.calls)) for found in (direct, recalled, matched)]
    return Scores(*shares, *calls)


def _share(found: int, needed: int) -> float:
    """The share of what is needed; 1 if nothing is."""
    return found / needed if needed else 1.0


def _unlabelled(line: str) -> str:
    """A list item without its bullet and its label."""
    return line.removeprefix("- ").partition(": ")[2]


def recency(rows: Sequence[Row], budget: int) -> str:
    """The newest messages that fit."""
    parts: list[str] = []
    for row in reversed(rows):
        budget -= count(row.message)
        if budget < 0:
            break
        parts.append("\n".join(source_texts(row)))
    return "\n".join(reversed(parts))


def set_cover(rows: Sequence[Row], budget: int) -> str:
    """Greedy set cover of identifiers over lines, by rarity and length."""
    past = [line.strip() for row in rows for t in source_texts(row) for line in t.splitlines()]
    lines = [(line, identifiers(line)) for line in dict.fromkeys(past) if len(line) > 11]
    line_counts = Counter(name for _, names in lines for name in names)
    weights = {name: log(1 + len(lines) / many) for name, many in line_counts.items()}
    covered: set[str] = set()
    chosen: list[int] = []
    gains = sorted(
        ((sum(weights[name] for name in names) / (len(line) + 20), number))
        for number, (line, names) in enumerate(lines)
    )
    used = 0
    while gains and used < budget * 4:
        _, number = gains.pop()
        line, names = lines[number]
        fresh = sum(weights[name] for name in names - covered) / (len(line) + 20)
        if gains and fresh < gains[-1][0]:
            if fresh > 0:
                insort(gains, (fresh, number))
            continue
        covered |= names
        chosen.append(number)
        used += len(line)
    while chosen and count(_as_message([lines[n][0] for n in chosen])) > budget:
        chosen.pop()
    return "\n".join(lines[number][0] for number in sorted(chosen))


def bm25_context(rows: Sequence[Row], budget: int) -> str:
    """The messages that match the words of the last request best."""
    request = next((r.message.text for r in reversed(rows) if r.message.role == "user"), "")
    return Bm25(row_texts(rows)).find(request, budget)


def extract(rows: Sequence[Row], budget: int) -> str:
    """Weft's summary of all rows without a model."""
    summary = extract_summary(rows, budget, count)
    return "" if summary is None else summary.text


def compact(rows: Sequence[Row], budget: int) -> str:
    """The thread after `compact(budget=room)`: what stays verbatim, and the summary.

    If the last request alone is larger than the budget, a compaction is refused. Then the summary
    of everything is measured.
    """
    try:
        plan = plan_budget(rows, budget, count=count)
    except BudgetExceeded:
        return extract(rows, budget)
    return "\n".join(text for row in plan.rows for text in source_texts(row))


METHODS: dict[str, Context] = {
    "recency": recency,
    "set cover": set_cover,
    "BM25": bm25_context,
    "Weft extract": extract,
    "Weft compact": compact,
}


class Bm25:
    """Plain BM25 over texts, with a budget in tokens."""

    def __init__(
        self, texts: Sequence[str], split: Callable[[str], list[str]] | None = None
    ) -> None:
        self.texts = texts
        self.split = split or _words
        self.words = [Counter(self.split(text)) for text in self.texts]
        self.lengths = [sum(words.values()) for words in self.words]
        self.mean = sum(self.lengths) / max(1, len(self.lengths))
        self.spread = Counter(word for words in self.words for word in words)

    def find(self, question: str, budget: int) -> str:
        """The best messages for a question; long ones are cut."""
        words = set(self.split(question))
        ranked = sorted(range(len(self.texts)), key=lambda n: -self._score(n, words))
        parts: list[str] = []
        for number in ranked:
            text = self.texts[number][: budget * 2]
            size = count(_as_message([text]))
            if self._score(number, words) == 0:
                break
            if size > budget:
                continue
            budget -= size
            parts.append(text)
        return "\n".join(parts)

    def _score(self, number: int, words: Iterable[str]) -> float:
        total = 0.0
        total_documents = len(self.texts)
        for word in words:
            frequency = self.words[number].get(word, 0)
            if frequency:
                document_count = self.spread[word]
                weight = log(1 + (total_documents - document_count + 0.5) / (document_count + 0.5))
                length = 0.25 + 0.75 * self.lengths[number] / self.mean
                total += weight * frequency * 2.2 / (frequency + 1.2 * length)
        return total


def _words(text: str) -> list[str]:
    return re.findall(r"\w+", text.lower())


def _as_message(lines: Sequence[str]) -> Message:
    return Message("user", (Text("\n".join(lines)),))


def mean_scores(scores: Sequence[Scores]) -> Scores:
    """The mean of each measure."""
    fields = Scores.__struct_fields__
    return Scores(*(sum(getattr(s, f) for s in scores) / len(scores) for f in fields))
