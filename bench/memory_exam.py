"""What a compaction keeps of the exam talks in `bench/exam`, which nobody tunes on.

The talks were written by people who had not seen the code, and they never change. Their last
message is the request on which a model has to go on. Beside Weft, `mix` is measured: a third of the
budget for the newest texts of the user, the rest for lines with rare words, the newest first.
"""

import re
import sys
import tomllib
from collections import Counter
from collections.abc import Callable, Sequence
from math import log
from pathlib import Path

from memory_measures import compact, count, identifiers, source_texts
from msgspec import Struct

from weft.history import Row
from weft.model import Message, Text

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

FOLDER = Path(__file__).parent / "exam"


class Exam(Struct, frozen=True):
    """A talk without its last message, and what a model must know to answer that message."""

    name: str
    rows: list[Row]
    needed: list[list[str]]
    changed: list[tuple[str, str]]
    distractors: list[list[str]]


class Marks(Struct):
    """Counts over all talks: found and all, by measure."""

    found: Counter[str]
    total: Counter[str]

    def add(self, measure: str, is_found: bool, weight: float = 1) -> None:
        self.found[measure] += int(is_found * weight * 1000)
        self.total[measure] += int(weight * 1000)


def read_exams() -> list[Exam]:
    from exam_talks import read_talks

    exams: list[Exam] = []
    for name, rows in read_talks(FOLDER):
        answers = tomllib.loads(next(FOLDER.glob(f"**/{name}.toml")).read_text())
        exams.append(
            Exam(
                name,
                rows,
                [item["texts"] for item in answers.get("needed", ())],
                [(item["old"], item["new"]) for item in answers.get("changed", ())],
                [item["texts"] for item in answers.get("distractor", ())],
            )
        )
    return exams


def mix(rows: Sequence[Row], budget: int) -> str:
    """A third of the budget for the newest texts of the user, the rest for rare words."""
    typed = [row.message.text for row in rows if row.message.role == "user"]
    parts: list[str] = []
    left = budget / 3
    for text in reversed(typed):
        cost = _size(text)
        if cost <= left:
            parts.append(text)
            left -= cost
    lines = [line.strip() for row in rows for t in source_texts(row) for line in t.splitlines()]
    spread = Counter(word for line in lines for word in set(line.lower().split()))
    left += budget * 2 / 3
    ranked = sorted(
        enumerate(dict.fromkeys(filter(None, lines))),
        key=lambda item: (
            -max(log(len(lines) / spread[w]) for w in item[1].lower().split())
            - item[0] / len(lines)
        ),
    )
    chosen: list[tuple[int, str]] = []
    for number, line in ranked:
        cost = _size(line)
        if cost <= left:
            chosen.append((number, line))
            left -= cost
    return "\n".join([*parts[::-1], *(line for _, line in sorted(chosen))])


METHODS: dict[str, Callable[[Sequence[Row], int], str]] = {"Weft": compact, "mix": mix}


def measure_exam(budgets: Sequence[float]) -> None:
    """A table for each budget: the mean over all talks, and the needed items of each talk."""
    exams = read_exams()
    for share in budgets:
        for label, method in METHODS.items():
            marks = Marks(Counter(), Counter())
            lost: list[str] = []
            for exam in exams:
                tokens = sum(count(row.message) for row in exam.rows)
                context = method(exam.rows, int(tokens * share))
                before = marks.found["needed"], marks.total["needed"]
                mark(exam, context, marks)
                found = (marks.found["needed"] - before[0]) // 1000
                lost.append(f"{exam.name} {found}/{len(exam.needed)}")
            values = ", ".join(
                f"{measure} {marks.found[measure] / max(1, total):.1%}"
                for measure, total in marks.total.items()
            )
            print(f"exam, {label}, {share:.0%}, {len(exams)} talks: {values}")
            print(f"  needed items by talk: {', '.join(lost)}")


def mark(exam: Exam, context: str, marks: Marks) -> None:
    """Add the marks of one context. Whitespace does not count."""
    flat = " ".join(context.split())
    for item in exam.needed:
        marks.add("needed", all(" ".join(text.split()) in flat for text in item))
    for old, new in exam.changed:
        marks.add("changed: current value", " ".join(new.split()) in flat)
        current, stale = last_line(context, new), last_line(context, old)
        marks.add("changed: stale value without its correction later", stale > current)
    for item in exam.distractors:
        marks.add("distractor", all(" ".join(text.split()) in flat for text in item))
    typed = [row.message.text for row in exam.rows[:-1] if row.message.role == "user"]
    for number, text in enumerate(typed, 1):
        whole = " ".join(text.split()) in flat
        marks.add("user's words", whole, weight=number / len(typed))
    names = identifiers("\n".join(source_texts(exam.rows[-1]))) | {
        name for item in exam.needed for text in item for name in identifiers(text)
    }
    for name in sorted(names):
        marks.add("names", re.search(rf"(?<!\w){re.escape(name)}(?!\w)", context) is not None)


def last_line(context: str, value: str) -> int:
    """The number of the last line of a context with a value; -1 if no line has it."""
    lines = enumerate(context.splitlines())
    return max((number for number, line in lines if value in line), default=-1)


def _size(text: str) -> int:
    return count(Message("user", (Text(text),)))
