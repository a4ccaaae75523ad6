"""How much of what a question needs is on one page of `recall`; a part of `make eval`.

    python bench/memory_recall.py

Every set is asked within 500 and 1,000 tokens, in four ways:

- `page`: what `recall_page` returns
- `hits`: the messages that `recall` returns, whole and in order, each with 12 tokens for its label
- `BM25`: plain BM25 over parts of 100 tokens
- `lines`: the same with parts of one line

The sets are the generated chats and coding sessions (`memory_questions`), talks in six languages
(`memory_languages`), the talks of `conversations` (for tuning), and the exam talks. In a talk,
every later message of the user is asked for each needed item that was stated earlier in a message
that has a word of it (a pair of characters in scripts without spaces). In the English exam talks,
the descriptions of the items are asked as well. An item is found if all its texts are there, or all
its patterns in one line.
"""

import re
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from tomllib import loads

import memory_questions as generated
from memory_languages import LANGUAGES, make_talk
from memory_measures import Bm25, count, source_texts
from msgspec import Struct

import weft
from weft.history import Row
from weft.model import Message, Text, ToolCall, ToolResult

EXAM = Path(__file__).parent / "exam"
TALKS = Path(__file__).parent / "conversations"
SIZES = (500, 1000)
LABEL_TOKENS = 12
PART_TOKENS = 100
WAYS = ("page", "hits", "BM25", "lines")

_SPEAKER = re.compile(r"^(system|user|assistant|call ([^:\n]+)|result): ", re.MULTILINE)
_WORD = re.compile(r"[^\W\d_]{5,}")
_UNSPACED = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]+")
_UNSPACED_PAIR = re.compile(r"(?=([\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]{2}))")


class Item(Struct, frozen=True):
    """What must be found: all of these texts, or a line with all of these patterns."""

    texts: Sequence[str] = ()
    patterns: Sequence[str] = ()

    def is_in(self, text: str) -> bool:
        one_line = " ".join(text.split())
        return all(" ".join(each.split()) in one_line for each in self.texts) and (
            not self.patterns or bool(self.lines(text))
        )

    def lines(self, text: str) -> list[str]:
        """The lines with all texts of the item, or at least one of them, or all patterns."""
        return [
            line
            for line in text.splitlines()
            if any(each in line for each in self.texts)
            or (
                self.patterns
                and all(re.search(each, line, re.IGNORECASE) for each in self.patterns)
            )
        ]


class Case(Struct, frozen=True):
    """Messages, and questions about them with what each needs."""

    messages: Sequence[Message]
    questions: Sequence[tuple[str, Item]]


def read_talk(path: Path) -> list[Message]:
    """The messages of an exam talk; calls and results get ids in their order."""
    text = path.read_text("utf-8")
    marks = list(_SPEAKER.finditer(text))
    messages: list[Message] = []
    open_calls: list[str] = []
    for mark, following in zip(marks, [*marks[1:], None], strict=True):
        body = text[mark.end() : following.start() if following else len(text)].strip()
        if mark[2]:
            open_calls.append(f"c{len(messages)}")
            messages.append(Message("assistant", (ToolCall(open_calls[-1], mark[2], body),)))
        elif mark[1] == "result":
            id = open_calls.pop(0)
            messages.append(Message("user", (ToolResult(id, (Text(body),)),)))
        else:
            messages.append(Message(mark[1], (Text(body),)))
    return messages


def talk_cases(messages: Sequence[Message], items: Sequence[Item]) -> Iterator[Case]:
    """One case for each later message of the user: the talk before it, and what it asks for."""
    texts = ["\n".join(source_texts(Row(None, message))) for message in messages]
    for at, message in enumerate(messages):
        if message.role != "user" or not message.text.strip():
            continue
        asked, whole = _words(message.text), "\n".join(texts[:at])
        questions = [
            (message.text, item)
            for item in items
            if item.is_in(whole)
            and any(asked & _words(text) for text in texts[:at] if item.lines(text))
        ]
        if questions:
            yield Case(messages[:at], questions)


def talk_sets() -> Iterator[tuple[str, Case]]:
    """The talks in files, by name."""
    patterns = loads((TALKS / "needed.toml").read_text("utf-8"))
    for path in sorted(TALKS.glob("*.txt")):
        needed = [Item(patterns=each["patterns"]) for each in patterns.get(path.stem, ())]
        for case in talk_cases(read_talk(path), needed):
            yield "talks, tuned", case
    for path in sorted(EXAM.glob("*.toml")):
        about = loads(path.read_text("utf-8"))
        needed = [Item(each["texts"]) for each in about["needed"]]
        messages = read_talk(path.with_suffix(".txt"))
        for case in talk_cases(messages, needed):
            yield f"exam, {path.stem}", case
        if about["language"] == "en":
            questions = [(each["what"], Item(each["texts"])) for each in about["needed"]]
            yield "exam, descriptions", Case(messages, questions)


def _words(text: str) -> set[str]:
    return {word.casefold() for word in _WORD.findall(text)} | set(_UNSPACED_PAIR.findall(text))


def generated_cases() -> Iterator[tuple[str, Case]]:
    """The generated sets, by name."""
    makers = (
        ("chats, tuned", generated.make_chat, generated.DEV, range(4)),
        ("chats", generated.make_chat, generated.TEST, range(100, 105)),
        ("coding, tuned", generated.make_coding, generated.CODE_DEV, range(4)),
        ("coding", generated.make_coding, generated.CODE_TEST, range(100, 105)),
    )
    for name, make, subjects, seeds in makers:
        for seed in seeds:
            yield name, _case(make(seed, subjects))
    for name, language in LANGUAGES.items():
        for seed in range(5):
            yield f"talks, {name}", _case(make_talk(seed, language))


def _case(made: generated.Conversation) -> Case:
    questions = [(question.text, Item(question.evidence)) for question in made.questions]
    return Case([turn.message for turn in made.turns], questions)


def lookups(messages: Sequence[Message]) -> dict[str, Callable[[str, int], str]]:
    """A function for each way to look up a question in these messages, within some tokens."""
    thread = weft.open()
    for message in messages:
        thread.commit_message(message)
    texts = [_with_author(message) for message in messages]
    parts = Bm25([part for text in texts for part in split_text(text, PART_TOKENS)], words_or_pairs)
    lines = [line for text in texts for line in text.splitlines() if line.strip()]
    single = Bm25(lines, words_or_pairs)

    def page(question: str, tokens: int) -> str:
        return thread.recall_page(question, tokens=tokens).text

    def hits(question: str, tokens: int) -> str:
        found: list[str] = []
        for hit in thread.recall(question):
            text = f"{hit.text}\n{hit.calls}"
            tokens -= _count(text) + LABEL_TOKENS
            if tokens < 0:
                break
            found.append(text)
        return "\n".join(found)

    return dict(zip(WAYS, (page, hits, parts.find, single.find), strict=True))


def words_or_pairs(text: str) -> list[str]:
    """The words of a text; in scripts without spaces, the pairs of neighbouring characters."""
    words = re.findall(r"\w+", _UNSPACED.sub(" ", text.lower()))
    return words + _UNSPACED_PAIR.findall(text)


def _with_author(message: Message) -> str:
    text = "\n".join(source_texts(Row(None, message)))
    return f"{message.name}: {text}" if message.name else text


def split_text(text: str, tokens: int) -> list[str]:
    """The text in parts of about so many tokens, split after sentences and lines."""
    parts, left = [""], tokens
    for sentence in re.split(r"(?<=\n)|(?<=[.!?]\s)|(?<=[。！？])", text):
        size = _count(sentence)
        if size > left and parts[-1].strip():
            parts.append("")
            left = tokens
        parts[-1] += sentence
        left -= size
    return [part.strip() for part in parts if part.strip()]


def _count(text: str) -> int:
    return count(Message("user", (Text(text),)))


def measure_recall() -> None:
    """Print a table of the shares of questions whose texts are all found."""
    found: dict[str, dict[tuple[str, int], int]] = defaultdict(lambda: defaultdict(int))
    totals: dict[str, int] = defaultdict(int)
    for name, case in chain(generated_cases(), talk_sets()):
        ways = lookups(case.messages)
        totals[name] += len(case.questions)
        for way, look in ways.items():
            for tokens in SIZES:
                pages: dict[str, str] = {}
                for question, item in case.questions:
                    if question not in pages:
                        pages[question] = look(question, tokens)
                    found[name][way, tokens] += item.is_in(pages[question])
    columns = [(way, tokens) for tokens in SIZES for way in WAYS]
    print(
        f"{'recall, % found':24}{'asked':>7}", *(f"{way}@{size}".rjust(9) for way, size in columns)
    )
    for name, total in totals.items():
        shares = (f"{found[name][column] / total * 100:9.1f}" for column in columns)
        print(f"{name:24}{total:7}", *shares, flush=True)


if __name__ == "__main__":
    sys.exit(measure_recall())
