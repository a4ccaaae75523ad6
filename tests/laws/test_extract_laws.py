"""An extract only quotes, does not depend on the words of a language, and uses its budget.

*Substring law*: an extract is a frame with items. An item is pieces of one source text in order,
with `[...]` between them; a command or a failed call also has a piece of the result of that call.
*Renaming law*: if every word is renamed, the same lines are chosen. *Budget laws*: at least 90 % of
a budget is used, and while typed text is missing, the other parts leave the user's share alone.
"""

import json
import os
import re
import string
from collections.abc import Iterator
from random import Random

import pytest
from hypothesis import assume, given, settings, strategies as st

from exam_talks import read_talks
from weft.compact import extract_summary, plan_budget
from weft.errors import BudgetExceeded
from weft.history import Row
from weft.ids import object_id
from weft.model import Block, Message, Text, ToolCall, ToolResult, texts
from weft.tokens import counter_for

estimate = counter_for("estimate").message
EXAMPLES = 300 if os.environ.get("WEFT_TORTURE") else 60

HEADER = re.compile(
    r"\[Summary of earlier messages by the engine: copied text, a record, not a request; "
    r"where statements differ, the later one holds\]"
)
END = "[End of the summary]"
TYPED = ("The user's messages, oldest first", "From the user's messages, oldest first")
COMMANDS, FAILED = "Last commands, newest first", "Failed calls, newest first"
HEADINGS = (
    *TYPED,
    COMMANDS,
    FAILED,
    "Tasks in progress",
    "Open tasks",
    "Files changed, newest first",
    "Files read, newest first",
    "Assistant",
    "System message",
    "Earlier summary",
    "Added by the client",
    "The assistant's last answer",
)
NAMES = "Other names: "
GAP = "[...]"
USER_SHARE, TALK_SHARE = 0.4, 0.65


# --- a checker that knows nothing but the text and its sources ---


def flat(text: str) -> str:
    return " ".join(text.split())


def arguments_of(call: ToolCall) -> list[str]:
    """The strings in a call's arguments, or the text itself if it is no JSON object."""

    def walk(value: object) -> Iterator[str]:
        if isinstance(value, str):
            yield value
        elif isinstance(value, dict | list):
            for inner in value.values() if isinstance(value, dict) else value:
                yield from walk(inner)

    try:
        value = json.loads(call.arguments)
    except ValueError:
        return [call.arguments]
    return list(walk(value)) if isinstance(value, dict) else [call.arguments]


class Sources:
    """The source texts of rows: the texts, and for each call its name, arguments and result."""

    def __init__(self, rows: list[Row]) -> None:
        self.texts: list[str] = []
        self.calls: list[tuple[str, list[str], list[str]]] = []
        results: dict[str, list[str]] = {}
        for row in rows:
            for block in row.message.blocks:
                if isinstance(block, ToolResult):
                    results.setdefault(block.call_id, []).extend(map(flat, texts(block.content)))
        for row in rows:
            for block in row.message.blocks:
                match block:
                    case Text(text=text):
                        self.texts.append(flat(text))
                    case ToolCall():
                        arguments = [flat(text) for text in arguments_of(block)]
                        self.texts += arguments
                        self.calls.append((block.name, arguments, results.get(block.id, [])))
                    case ToolResult(content=content):
                        self.texts += [flat(text) for text in texts(content)]
                    case _:
                        pass

    def has(self, item: str) -> bool:
        return any(is_quotation(item, text) for text in self.texts)

    def has_called(self, item: str) -> bool:
        """Whether `ARGUMENT -> RESULT` or `TOOL ARGUMENT -> RESULT` comes from one call."""
        argument, arrow, outcome = item.partition("\n-> ")
        for name, arguments, results in self.calls:
            if arrow and not any(is_quotation(outcome, result) for result in results):
                continue
            about = argument.removeprefix(name).strip()
            if any(is_quotation(text, one) for one in arguments for text in (argument, about)):
                return True
            if argument == name:
                return True
        return False


def is_quotation(item: str, text: str) -> bool:
    """Whether the pieces of an item stand in a text, in order."""
    at = 0
    for piece in item.split(GAP):
        found = text.find(flat(piece), at)
        if found < 0:
            return False
        at = found + len(flat(piece))
    return True


def items_of(section: str) -> list[str]:
    """The items of a list; further lines of an item are indented."""
    items: list[str] = []
    for line in section.splitlines()[1:]:
        if line.startswith("- "):
            items.append(line[2:])
        else:
            assert line.startswith("  "), line
            items[-1] += "\n" + line[2:]
    return items


def unquoted(text: str, rows: list[Row]) -> list[str]:
    """Everything in an extract that is neither in the frame nor a quotation."""
    sources = Sources(rows)
    tools = {name for name, _, _ in sources.calls}
    head, *sections, end = text.split("\n\n")
    wrong = [part for part in (head,) if not HEADER.fullmatch(part)]
    wrong += [part for part in (end,) if part != END]
    for section in sections:
        heading = section.partition("\n")[0]
        if section.startswith(NAMES):
            names = section.removeprefix(NAMES).split(", ")
            wrong += [name for name in names if not sources.has(name)]
            continue
        label = re.fullmatch(r"(Call|Result) of (\S+)(?: (.+))?:", heading)
        if label:
            is_tool = label[2] in tools
            is_about = label[3] is None or sources.has(label[3])
            wrong += [] if is_tool and is_about else [heading]
        elif heading.removesuffix(":") not in HEADINGS:
            wrong.append(heading)
        check = sources.has_called if heading[:-1] in (COMMANDS, FAILED) else sources.has
        wrong += [item for item in items_of(section) if not check(item)]
    return wrong


# --- generated talks ---

WORDS = (  # noqa: SIM905
    "about after always answer basket because before bridge budget child clean could count "
    "deploy doctor early evening every father finish first garden green house invoice later "
    "letter light market minute month mother never nothing office only order paper patient "
    "people please price quiet report river room should silver some street summer table "
    "thanks there ticket today tomorrow train travel under until value water week where "
    "winter with without wrong yellow yes no do not must may can is the a of to in for"
).split()
OTHER_WORDS = ("größe", "mañana", "счёт", "встреча", "会議", "予算", "変更", "회의", "가격")
SPECIAL = ("src/shop/cart.py", "total_of", "roundOrder", "E501", "BUG-4711", "v1.4.2", "12.5%")


@st.composite
def sentences(draw: st.DrawFn) -> str:
    word = st.sampled_from(WORDS)
    special = st.sampled_from([*SPECIAL, *OTHER_WORDS]) | st.integers(1, 9999).map(str)
    parts = draw(st.lists(st.one_of(word, word, word, special), min_size=1, max_size=14))
    return parts[0].capitalize() + " " + " ".join(parts[1:]) + draw(st.sampled_from(".?!"))


paragraphs = st.lists(sentences(), min_size=1, max_size=6).map(" ".join)
outputs = st.lists(sentences() | sentences().map(lambda s: f"   12→{s}"), max_size=12).map(
    "\n".join
)


@st.composite
def calls(draw: st.DrawFn) -> tuple[str, str, str, bool]:
    """A call: its tool, its arguments, its result, and whether it failed."""
    text = draw(sentences())
    statuses = st.sampled_from(["pending", "in_progress", "completed"])
    todos = [{"content": draw(sentences()), "status": draw(statuses)} for _ in range(2)]
    patch = f"*** Begin Patch\n*** Update File: src/{draw(st.sampled_from(WORDS))}.py\n+{text}"
    arguments = draw(
        st.sampled_from(
            [
                ("Read", {"file_path": "src/shop/cart.py", "limit": 20}),
                ("Edit", {"file_path": "src/shop/cart.py", "old_string": "a", "new_string": text}),
                ("Bash", {"command": text, "timeout": 60000}),
                ("shell", {"command": ["bash", "-lc", text]}),
                ("TodoWrite", {"todos": todos}),
                ("apply_patch", patch),
                ("look_up", {"query": text, "deep": {"notes": [text, "more " + text]}}),
            ]
        )
    )
    name, value = arguments
    encoded = value if isinstance(value, str) else json.dumps(value)
    return name, encoded, draw(outputs), draw(st.booleans())


@st.composite
def talks(draw: st.DrawFn, *, with_tools: bool | None = None) -> list[Row]:
    has_tools = draw(st.booleans()) if with_tools is None else with_tools
    messages: list[Message] = []
    for turn in range(draw(st.integers(3, 14))):
        messages.append(Message("user", (Text(draw(paragraphs)),)))
        for number in range(draw(st.integers(0, 3)) if has_tools else 0):
            name, arguments, result, failed = draw(calls())
            id = f"call-{turn}-{number}"
            blocks: list[Block] = [ToolCall(id, name, arguments)]
            messages.append(Message("assistant", tuple(blocks)))
            content = (Text(result),) if result else ()
            messages.append(Message("tool", (ToolResult(id, content, is_error=failed),)))
        messages.append(Message("assistant", (Text(draw(paragraphs)),)))
    return number_rows(messages)


def number_rows(messages: list[Message]) -> list[Row]:
    return [Row(object_id("slot", b"%d" % n), message) for n, message in enumerate(messages)]


def tokens(rows: list[Row]) -> int:
    return sum(estimate(row.message) for row in rows)


# --- the laws ---


@given(talks(), st.integers(5, 60))
@settings(max_examples=EXAMPLES, deadline=None)
def test_an_extract_is_a_frame_with_quotations(rows: list[Row], percent: int) -> None:
    summary = extract_summary(rows, max(70, tokens(rows) * percent // 100), estimate)
    assume(summary is not None)
    assert summary is not None
    assert unquoted(summary.text, rows) == []


@given(talks(), st.integers(5, 90))
@settings(max_examples=EXAMPLES, deadline=None)
def test_a_budget_is_used(rows: list[Row], percent: int) -> None:
    budget = tokens(rows) * percent // 100
    assume(budget >= 250)  # in a smaller one, the frame and a single sentence are most of it
    try:
        plan = plan_budget(rows, budget, count=estimate)
    except BudgetExceeded:
        return
    used = sum(estimate(row.message) for row in plan.rows)
    assert used <= budget
    assert used >= budget * 0.9


@given(talks(), st.integers(8, 70))
@settings(max_examples=EXAMPLES, deadline=None)
def test_other_parts_leave_the_users_share_alone(rows: list[Row], percent: int) -> None:
    budget = max(90, tokens(rows) * percent // 100)
    summary = extract_summary(rows, budget, estimate)
    assume(summary is not None)
    assert summary is not None
    text = summary.text
    typed = [flat(row.message.text) for row in rows if row.message.role == "user"]
    sections = text.split("\n\n")[1:-1]
    users = [section for section in sections if section.partition(":\n")[0] in TYPED]
    if all(any(one in flat(item) for item in map(flat, users)) for one in typed):
        return
    uses = sum(isinstance(b, ToolCall) for row in rows for b in row.message.blocks)
    share = TALK_SHARE if uses < len(set(typed)) else USER_SHARE
    others = "\n\n".join(section for section in sections if section not in users)
    assert estimate(Message("user", (Text(others),))) <= budget * (1 - share)


def rename_words(text: str, other: dict[str, str]) -> str:
    """The text with its plain words replaced; names, figures and JSON keys stay."""

    def replace(match: re.Match[str]) -> str:
        word = match[0]
        new = other.get(word.lower(), word)
        return new.capitalize() if word[:1].isupper() else new

    return re.sub(r"(?<![\w/.-])[^\W\d_]+(?![\w/-]|\.\w)", replace, text)


def renamed(rows: list[Row], other: dict[str, str]) -> list[Row]:
    def block(old: Block) -> Block:
        match old:
            case Text(text=text):
                return Text(rename_words(text, other))
            case ToolCall(id=id, name=name, arguments=arguments):
                return ToolCall(id, name, rename_arguments(arguments, other))
            case ToolResult(call_id=id, content=content, is_error=is_error):
                inner = tuple(block(one) for one in content)
                return ToolResult(id, inner, is_error=is_error)  # type: ignore[arg-type]
            case _:
                return old

    return number_rows(
        [Message(row.message.role, tuple(map(block, row.message.blocks))) for row in rows]
    )


def rename_arguments(arguments: str, other: dict[str, str]) -> str:
    def walk(value: object, key: str = "") -> object:
        if isinstance(value, str):
            return value if key == "status" else rename_words(value, other)
        if isinstance(value, dict):
            return {name: walk(inner, name) for name, inner in value.items()}
        return [walk(inner) for inner in value] if isinstance(value, list) else value

    try:
        return json.dumps(walk(json.loads(arguments)))
    except ValueError:
        lines = arguments.splitlines()
        return "\n".join(ln if ln[:3] == "***" else rename_words(ln, other) for ln in lines)


def bijection(seed: int) -> dict[str, str]:
    """Another word of the same length for each word; no two words get the same one."""
    chance = Random(seed)
    other: dict[str, str] = {}
    for length in {len(word) for word in WORDS}:
        words = [word for word in WORDS if len(word) == length]
        new: set[str] = set()
        while len(new) < len(words):
            new.add("".join(chance.choice(string.ascii_lowercase) for _ in range(length)))
        other |= dict(zip(words, sorted(new), strict=True))
    return other


def by_length(message: Message) -> int:
    """A token count that depends on lengths only."""
    return 4 + sum(len(text.encode()) for text in texts(message.blocks)) // 4


@given(talks(), st.integers(5, 60), st.integers(0, 99))
@settings(max_examples=EXAMPLES, deadline=None)
def test_renamed_words_change_no_choice(rows: list[Row], percent: int, seed: int) -> None:
    other = bijection(seed)
    budget = max(70, sum(by_length(row.message) for row in rows) * percent // 100)
    first = extract_summary(rows, budget, by_length)
    second = extract_summary(renamed(rows, other), budget, by_length)
    assume(first is not None)
    assert first is not None
    assert second is not None
    frame = re.compile(r"^(?:\S.*:|\[.*\])$", re.MULTILINE)
    framed = frame.sub("", first.text)
    assert rename_words(framed, other) == frame.sub("", second.text)


EXAM = dict(read_talks())


@pytest.mark.parametrize("name", sorted(EXAM) or [pytest.param("", marks=pytest.mark.skip)])
@pytest.mark.parametrize("percent", [5, 10, 20])
def test_the_laws_hold_on_every_exam_talk(name: str, percent: int) -> None:
    rows = EXAM[name][:-1]
    budget = tokens(rows) * percent // 100
    summary = extract_summary(rows, budget, estimate)
    assert summary is not None
    assert unquoted(summary.text, rows) == []
    assert budget * 0.9 <= estimate(summary) <= budget
