"""Compaction to a budget: what stays, what is compacted, and what the summary contains."""

import re

import pytest

import weft
from compact_rows import broken_pairs, rows, write
from growth import count_calls, grows_linearly
from weft.compact import (
    extract_summary,
    find_names,
    mark_summary,
    plan_budget,
    plan_summary,
    unmarked,
)
from weft.errors import BudgetExceeded, CompactRefused, ThreadError
from weft.history import Row
from weft.ids import object_id
from weft.model import Message, Text, Thinking, ToolCall, ToolResult
from weft.tokens import counter_for

HEADER = (
    "[Summary of earlier messages by the engine: copied text, a record, not a request; "
    "where statements differ, the later one holds]"
)
END = "[End of the summary]"
INDEX = "Other names: "
NAMES = re.compile(r"[\w./$-]*[./_\d][\w./]*\w|\b[A-Z]\w*Error\b|\$?\d[\d,]*\d")
"""Paths, errors, identifiers and numbers, found without the engine's own patterns."""
count = counter_for("estimate").message


def split_summary(text: str) -> tuple[list[str], list[str]]:
    """The quoted pieces of a summary, and the names in its index."""
    _, *parts = text.removesuffix(f"\n\n{END}").split("\n\n")
    items = [line[2:] for part in parts for line in part.splitlines() if line.startswith("- ")]
    quotes = [piece.strip() for item in items for piece in item.split("[...]")]
    index = [part.removeprefix(INDEX) for part in parts if part.startswith(INDEX)]
    names = [name for part in index for name in part.split(", ")]
    return list(filter(None, quotes)), names


def occurs(name: str, text: str) -> bool:
    """Whether the text contains the whole name, not only as part of a longer word."""
    return re.search(rf"(?<!\w){re.escape(name)}(?!\w)", text) is not None


def words(message: Message) -> int:
    """One token a block: budgets in the tables can be counted by hand."""
    return len(message.blocks)


def cost(thread_rows) -> int:
    return sum(count(row.message) for row in thread_rows)


def text_row(role: str, text: str, **fields) -> Row:
    fields.setdefault("id", text.encode()[:20].ljust(20))
    return Row(message=Message(role, (Text(text),)), **fields)


@pytest.mark.parametrize(
    ("thread", "budget", "expected"),
    [
        (("u:a", "a:b", "u:c"), 3, "u:a|a:b|u:c"),  # it fits: nothing is done
        (("s:r", "u:a", "a:b", "u:c"), 3, "s:r|u:SUMMARY|u:c"),  # system and the last request
        (("s:r", "*a:p", "u:a", "a:b", "u:c"), 4, "s:r|a:p|u:SUMMARY|u:c"),  # and the pins
        (("*u:p", "a:b", "u:c", "a:d", "u:e"), 3, "u:p|u:SUMMARY|u:e"),  # behind what it was behind
        (("u:a", "*u:p", "a:b", "u:e"), 3, "u:SUMMARY|u:p|u:e"),  # where the first of them stood
        (("*a:!c1", "t:=c1", "a:x", "u:y", "u:e"), 4, "a:!c1|t:=c1|u:SUMMARY|u:e"),  # in no pair
        (("*a:!c1", "t:=c1 x", "a:z", "u:y", "u:e"), 4, "a:!c1|t:=c1|u:SUMMARY|u:e"),
        (("*u:a", "a:!c1", "t:=c1", "a:!c2", "t:=c2"), 4, "u:a|u:SUMMARY|a:!c2|t:=c2"),
        (("u:a", "a:!c1", "t:=c1", "a:!c2", "t:=c2"), 4, "u:a|u:SUMMARY|a:!c2|t:=c2"),  # its work
        (("s:r", "u:a", "u:c", "a:!c1", "t:=c1", "a:z"), 4, "s:r|u:c|u:SUMMARY|a:z"),
        (("u:a", "*a:!c1", "t:=c1", "a:x", "u:c"), 4, "u:SUMMARY|a:!c1|t:=c1|u:c"),  # a pin's own
        (("u:a", "a:b", "u:c", "a:!c1"), 3, "u:SUMMARY|u:c|a:!c1"),  # a call that still waits
        (("u:a", "-a:b", "u:c"), 2, "u:a|a:b|u:c"),  # a skipped row costs nothing
        (("u:a", "a:b", "u:c ~r", "a:?t d"), 4, "u:SUMMARY|u:c ~r|a:d"),  # thinking behind a fold
        (("u:a", "a:b", "u:c", "a:d", "u:e", "a:f"), 5, "u:SUMMARY|u:c|a:d|u:e|a:f"),
        (("u:a", "a:b", "u:c", "a:d", "u:e", "a:f"), 4, "u:SUMMARY|u:e|a:f"),  # no half exchange
        (("u:a", "a:!c1", "u:=c1 go", "a:x", "u:c"), 4, "u:SUMMARY|u:c"),  # words beside a result
        (
            ("u:a", "a:b", "u:c", "a:!c1", "t:=c1", "a:x"),
            3,
            "u:c|u:SUMMARY|a:x",
        ),  # work that is read: the summary comes after what it was done for
        (
            ("u:a", "a:b", "u:c", "a:!c1", "t:=c1"),
            4,
            "u:SUMMARY|u:c|a:!c1|t:=c1",
        ),  # unread: it stays
    ],
)
def test_required_messages_stay_and_recent_messages_fill_the_rest(
    thread: tuple[str, ...], budget: int, expected: str
) -> None:
    planned = plan_budget(rows(*thread), budget, count=words)
    planned_rows = [
        "u:SUMMARY" if row.kind == "summary" else write([row])[0] for row in planned.rows
    ]
    assert planned_rows == expected.split("|")


@pytest.mark.parametrize(
    ("thread", "needed"),
    [
        (("s:r", "u:a", "a:b", "u:c"), 3),  # a line for what is folded is among it
        (("s:r", "*a:p q", "u:a", "a:b", "u:c"), 5),
        (("u:a", "*a:!c1", "t:=c1", "u:c"), 4),
        (("u:a", "a:b", "u:c", "a:d e f"), 5),  # the answer to the last request stays with it
    ],
)
def test_a_budget_that_is_too_small_is_refused_with_the_minimum(
    thread: tuple[str, ...], needed: int
) -> None:
    thread_rows = rows(*thread)
    with pytest.raises(BudgetExceeded, match=f"needs? {needed} tokens") as refused:
        plan_budget(thread_rows, needed - 1, count=words)
    assert (refused.value.needed, refused.value.budget) == (needed, needed - 1)
    assert cost_of(plan_budget(thread_rows, needed, count=words).rows) <= needed


def test_a_refusal_never_asks_for_more_than_the_thread_has() -> None:
    thread_rows = [text_row("user", "a"), text_row("assistant", "b"), text_row("user", "c " * 60)]
    with pytest.raises(BudgetExceeded, match="would save nothing") as refused:
        plan_budget(thread_rows, cost(thread_rows) - 1, count=count)
    assert refused.value.needed == cost(thread_rows)


def cost_of(thread_rows) -> int:
    return sum(words(row.message) for row in thread_rows)


@pytest.mark.parametrize(
    ("keep", "expected"),
    [
        (0, "s:r|u:SUMMARY|u:c|a:d"),  # no request stands with its answer folded
        (1, "s:r|u:SUMMARY|u:c|a:d"),
        (2, "s:r|u:a|u:b|a:!c1|t:=c1|u:c|a:d"),  # a summary of one message would save nothing
        (9, "s:r|u:a|u:b|a:!c1|t:=c1|u:c|a:d"),
    ],
)
def test_keep_is_the_number_of_kept_turns(keep: int, expected: str) -> None:
    thread_rows = rows("s:r", "u:a", "u:b", "a:!c1", "t:=c1", "u:c", "a:d")
    planned = plan_budget(thread_rows, 100, keep=keep, count=words)
    planned_rows = [
        "u:SUMMARY" if row.kind == "summary" else write([row])[0] for row in planned.rows
    ]
    assert planned_rows == expected.split("|")


def test_a_summary_is_at_most_a_quarter_of_what_it_replaces() -> None:
    old = [text_row("user", f"Fact {n}: file_{n}.py has {n}{n} lines.") for n in range(200)]
    thread = [*old, text_row("user", "Go on.")]
    planned = plan_budget(thread, 100_000, keep=1, fill=False, count=count)
    assert cost(planned.rows[:1]) <= cost(old) / 4


def test_kept_turns_that_do_not_fit_are_refused() -> None:
    with pytest.raises(BudgetExceeded, match="needs 4"):
        plan_budget(rows("u:a", "a:b", "u:c", "a:d"), 3, keep=2, count=words)


@pytest.mark.parametrize(
    ("thread", "keep", "field"),
    [((), None, "budget"), (("s:x",), None, "budget"), (("u:a",), -1, "keep")],
)
def test_there_must_be_something_to_compact(
    thread: tuple[str, ...], keep: int | None, field: str
) -> None:
    with pytest.raises(CompactRefused) as refused:
        plan_budget(rows(*thread), 10, keep=keep, count=words)
    assert refused.value.field == field


STORY = [
    text_row("system", "You repair programs."),
    text_row("user", "The build of src/app/main.py fails. You must never touch vendor/lib.js."),
    text_row("assistant", "I will look at the traceback first. Let me see what happens there."),
    text_row("user", "ImportError: cannot import name 'parse_row' from app.rows, exit status 117."),
    text_row(
        "assistant", "The function parse_row was renamed in commit 9f3ac21d. I changed main.py."
    ),
    text_row("user", "Fine. The budget for this is $47,500 and 1,234 tests must pass."),
    *[text_row("assistant", f"Step number {word} is done and nothing else happened.") for word in
      ("one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")],
    text_row("user", "Now write the release note."),
    text_row("assistant", "Of course."),
]  # fmt: skip


def story_summary(budget: int) -> str:
    planned = plan_budget(STORY, budget, keep=1, count=count)
    assert cost(planned.rows) <= budget
    summary = [row for row in planned.rows if row.kind == "summary"]
    assert [planned.rows.index(row) for row in summary] == [1]
    return summary[0].message.text


def test_the_summary_keeps_constraints_errors_hashes_and_figures() -> None:
    text = story_summary(230)
    for needed in ("must never touch vendor/lib.js", "ImportError", "parse_row", "$47,500"):
        assert needed in text


def test_every_sentence_of_the_summary_is_verbatim_and_in_order() -> None:
    source = "\n".join(row.message.text for row in STORY)
    sections = {
        part.partition(":")[0]: [line[2:] for line in part.splitlines() if line.startswith("- ")]
        for part in story_summary(230).split("\n\n")[1:]
    }
    sections = {
        speaker: [piece.strip() for item in items for piece in item.split("[...]") if piece.strip()]
        for speaker, items in sections.items()
    }
    assert sum(map(len, sections.values())) > 3
    for sentences in sections.values():
        places = [source.index(sentence) for sentence in sentences]
        assert places == sorted(places)


def test_the_summary_names_only_what_the_source_has() -> None:
    source = "\n".join(row.message.text for row in STORY)
    quotes, _ = split_summary(story_summary(170))
    named = NAMES.findall("\n".join(quotes))
    assert named
    assert [name for name in named if not occurs(name, source)] == []


def test_the_summary_names_its_author_in_three_dozen_tokens_and_is_a_list_of_each_speaker() -> None:
    parts = story_summary(180).split("\n\n")
    assert parts[0] == HEADER
    assert parts.pop() == END
    assert counter_for("o200k").text(f"{HEADER}\n\n{END}") <= 34
    for part in parts[1:]:
        speaker, *list_ = part.splitlines()
        assert speaker.endswith(":")
        assert [line[:2] for line in list_] == ["- "] * len(list_)


SHOP = [
    text_row("system", "You answer questions about a small web shop."),
    text_row("user", "How do refunds work in our shop, and who approves them?"),
    text_row("assistant", "Refunds go through billing/refund.py; above $200 Dana approves them."),
    text_row("user", "Which database do we use for orders?"),
    text_row(
        "assistant", "Orders are in PostgreSQL 15, table orders_v2, by month since 2024-03-01."
    ),
    text_row("user", "Why did the nightly job fail?"),
    text_row(
        "assistant", "It failed with TimeoutError in jobs/nightly.py: the exporter held the lock."
    ),
    text_row("user", "What should I do next?"),
    text_row("assistant", "Raise the lock timeout to 90 s and rerun jobs/nightly.py before noon."),
]
SUMS = [
    row
    for n in range(6)
    for row in (
        text_row("user", f"What is {n} plus {n}?"),
        text_row("assistant", f"{n} plus {n} is {2 * n}."),
    )
]
STEPS = [
    row
    for n in range(40)
    for row in (
        text_row("user", f"Step {n}: what does src/module_{n}.py do?"),
        text_row("assistant", f"src/module_{n}.py reads the settings and fails with error {n}."),
    )
]


@pytest.mark.parametrize(
    "thread", [SHOP, SUMS, STEPS, STORY], ids=["shop", "sums", "steps", "story"]
)
@pytest.mark.parametrize("percent", range(5, 100, 5))
def test_every_compacted_part_keeps_a_line_of_its_content(thread: list[Row], percent: int) -> None:
    budget = cost(thread) * percent // 100
    try:
        planned = plan_budget(thread, budget, count=count)
    except BudgetExceeded as refused:
        planned = plan_budget(thread, refused.needed, count=count)
        budget = refused.needed
    assert cost(planned.rows) <= budget
    (summary,) = [row.message.text for row in planned.rows if row.kind == "summary"]
    ids = {row.id for row in planned.rows}
    folded = "\n".join(row.message.text for row in thread if row.id not in ids)
    quotes, names = split_summary(summary)
    assert quotes or names
    assert [quote for quote in quotes if quote not in folded] == []
    assert [name for name in names if not occurs(name, folded)] == []
    assert planned.ranges[0].summary == unmarked(summary)


@pytest.mark.parametrize(
    ("text", "kind", "name"),
    [
        ("We have 48 211 users now.", "number", "48 211"),
        ("We have 48\u2009211 users now.", "number", "48\u2009211"),
        ("We have 1\u00a0048\u202f211,50 in all.", "number", "1\u00a0048\u202f211,50"),
        ("We have 48'211 users now.", "number", "48'211"),
        ("It costs $48 211 a year.", "number", "$48 211"),
        ("We have 48,211 users now.", "number", "48,211"),
        ("Between 2024 300 were sold.", "number", "2024"),  # no group: four digits stand before
    ],
)
def test_a_number_is_found_with_any_thousands_separator(text: str, kind: str, name: str) -> None:
    assert (kind, name) == next(iter(find_names(text)))


@pytest.mark.parametrize(
    ("role", "line", "expected"),
    [
        ("assistant", "- Measured: 412 tests pass", "\n- Measured: 412 tests pass"),
        ("assistant", "  - - Measured: 412 tests pass", "\n- Measured: 412 tests pass"),
        ("assistant", "-1 is not allowed in here", "\n- -1 is not allowed in here"),  # no mark
    ],
)
def test_a_list_item_has_one_bullet(role: str, line: str, expected: str) -> None:
    summary = extract_summary([text_row(role, line), text_row(role, "And more of it.")], 300, count)
    assert summary is not None
    assert expected in summary.text


@pytest.mark.parametrize(
    ("blocks", "expected"),
    [
        ((Text("ok"),), "- ok"),
        ((Thinking("why"),), "Without text: 1 thinking"),
        ((ToolCall("c", "look", "{}"),), "Call of look:\n- {}"),
        ((), "Without text: empty messages"),
    ],
)
def test_a_summary_of_a_tiny_thread_still_says_what_it_was(blocks, expected: str) -> None:
    summary = extract_summary([Row(b"0" * 20, Message("user", blocks))], 100, count)
    assert summary is not None
    assert expected in summary.text


@pytest.mark.parametrize(
    ("keep", "expected"),
    [
        (None, "s:r|u:S|a:p|u:c|a:d"),  # all but the last exchange
        (0, "s:r|u:S|a:p|u:c|a:d"),
        (1, "s:r|u:S|a:p|u:c|a:d"),
        (2, "s:r|u:S|a:p|u:b|a:x|u:c|a:d"),
        (3, "s:r|u:a|a:p|u:b|a:x|u:c|a:d"),  # nothing is older
    ],
)
def test_a_callers_summary_replaces_all_but_the_kept_turns(keep: int | None, expected: str) -> None:
    thread_rows = rows("s:r", "u:a", "*a:p", "u:b", "a:x", "u:c", "a:d")
    written = write(plan_summary(thread_rows, "S", keep=keep, count=words).rows)
    marked = f"u:{mark_summary('S').text.replace(' ', '_')}"
    assert ["u:S" if row == marked else row for row in written] == expected.split("|")


@pytest.mark.parametrize(
    ("summary", "options", "refusal"),
    [
        (" \n", {}, "summary: is blank"),
        ("S", {"keep": -1}, "keep: must not be negative: -1"),
        ("S", {"budget": -3}, "budget: must not be negative: -3"),
        (
            "S",
            {"budget": 1},
            f"need {words(mark_summary('S')) + 1} tokens, more than the budget of 1",
        ),
    ],
)
def test_a_wrong_summary_of_the_caller_is_refused_by_name(
    summary: str, options, refusal: str
) -> None:
    with pytest.raises(ThreadError, match=refusal):
        plan_summary(rows("u:a", "a:b", "u:c"), summary, count=words, **options)


def test_a_summary_of_a_summary_keeps_its_sentences() -> None:
    first = plan_budget(STORY, 230, count=count).rows
    longer = [*first, *[text_row("assistant", f"Turn {n} went by quietly.") for n in range(30)]]
    second = plan_budget([*longer, text_row("user", "And now?")], 240, count=count).rows
    texts = [row.message.text for row in second if row.kind == "summary"]
    assert len(texts) == 1
    assert texts[0].count(HEADER) == 1
    assert "must never touch vendor/lib.js" in texts[0]


def test_pins_and_the_last_request_survive_five_compactions_byte_for_byte() -> None:
    rules = [text_row("user", f"Rule {n}: keep file_{n}.py.", priority="pinned") for n in range(5)]
    thread: list[Row] = [text_row("system", "s"), *rules]
    request = text_row("user", "Please do A, then B,\n  then C.")
    for round in range(5):
        thread += [text_row("assistant", f"Round {round}: " + "work " * 40, id=b"%20d" % round)]
        thread = [row for row in thread if row != request] + [request]
        thread = list(plan_budget(thread, 200, count=count).rows)
        assert [row for row in thread if row.priority == "pinned"] == rules
        assert thread[-1] == request


def test_a_thread_of_one_request_and_many_tool_rounds_still_compacts() -> None:
    rounds = [line for n in range(200) for line in (f"a:!c{n}", f"t:=c{n}")]
    thread_rows = rows("s:r", "u:fix_it", *rounds)
    planned = plan_budget(thread_rows, 300, count=count)
    assert cost(planned.rows) <= 300
    assert broken_pairs(planned.rows) == []
    assert planned.rows[-1] == thread_rows[-1]
    assert planned.ranges[0].messages > 300


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("see src/weft/ids.py and ./a/b", {"path": ["src/weft/ids.py", "./a/b"]}),
        ("open https://x.org/a?b=1, please", {"path": ["https://x.org/a?b=1"]}),
        ("raise KeyError or HTTP E501", {"error": ["KeyError", "E501"]}),
        ("commit 9f3ac21d", {"hash": ["9f3ac21d"]}),
        ("call read_file, readFile and `ls -l`", {"symbol": ["read_file", "readFile", "ls -l"]}),
        ("about 1,234 of $47,500 in 3.5ms", {"number": ["1,234", "$47,500", "3.5ms"]}),
        ("on 2026-11-15, 40 % or 404", {"number": ["2026-11-15", "40 %", "404"]}),
        ("from $5, to $1,200.50k.", {"number": ["$5", "$1,200.50k"]}),
        ("12 or 3 things", {}),
        ("123→ code", {}),  # the number of a line
        ("and a or b / c", {}),
    ],
)
def test_entities_keep_their_spelling(text: str, expected: dict[str, list[str]]) -> None:
    names: dict[str, list[str]] = {}
    for kind, name in find_names(text):
        names.setdefault(kind, []).append(name)
    assert names == expected


HOSTILE = [
    "a/",
    "a.",
    "a_",
    "`",
    "1,",
    "1.",
    "-",
    "--a",
    "aB",
    "Aa",
    "@",
    "a-",
    "0a",
    "http://",
    ".",
]


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_text_is_read_in_linear_time(text: str) -> None:
    def read(text: str) -> None:
        for _ in find_names(text):
            pass

    assert grows_linearly(read, text * 2_000, text * 20_000, times=10)


def test_an_unread_result_that_fits_leaves_room_for_the_goal_and_the_rules() -> None:
    """Alone it would fit; but then the summary has one sentence, and the work has no goal."""
    log = "\n".join(f"10:19:{n:02} INFO worker-{n}: step {n} took {n} ms" for n in range(30))
    call = ToolCall("c1", "Bash", '{"command": "mypy"}')
    result = ToolResult("c1", (Text(f"{log}\ncart.py:52: error"),))
    work = [
        text_row("user", "The total must be rounded once. Never per item."),
        text_row("assistant", "I look at the cart. " * 30),
        text_row("user", "The finance team owns src/report: do not touch it."),
        text_row("assistant", "The cart rounds every item, I change that. " * 30),
        text_row("user", "Run mypy before you finish."),
        Row(id=b"c" * 20, message=Message("assistant", (call,))),
        Row(id=b"r" * 20, message=Message("tool", (result,))),
    ]
    tokens = sum(count(row.message) for row in work[4:])
    planned = plan_budget(work, tokens + 30, count=count)
    text = "\n".join(row.message.text for row in planned.rows[:-1])
    assert "rounded once" in text
    assert "src/report" in text
    assert planned.thinned
    shortened = str(planned.rows[-1].message)
    assert "cart.py:52: error" in shortened
    assert "recall(" in shortened
    assert sum(count(row.message) for row in planned.rows) <= tokens + 30


def _make_talk(turns: int) -> list[Row]:
    """Turns with a request, a call with its result, and an answer; no two are alike."""
    messages: list[Message] = []
    for n in range(turns):
        lines = "\n".join(f"def handle_{n}_{k}(row): return {n * k}" for k in range(4))
        call = ToolCall(f"call_{n}", "read_file", f'{{"path": "src/part_{n}.py"}}')
        messages += [
            Message("user", (Text(f"Should part {n} wait? Now it takes {n * 3} rows, not {n}."),)),
            Message("assistant", (Text(f"I read src/part_{n}.py first."), call)),
            Message("tool", (ToolResult(call.id, (Text(lines),)),)),
            Message("assistant", (Text(f"Part {n} is done. It has {n + 11} tests."),)),
        ]
    return [Row(object_id("slot", b"%d" % n), message) for n, message in enumerate(messages)]


def test_the_cost_of_a_plan_grows_with_the_length_of_the_thread():
    def plan(turns: int) -> None:
        thread = _make_talk(turns)
        plan_budget(thread, cost(thread) // 10, count=count)

    plan(20)  # patterns are compiled before
    assert count_calls(lambda: plan(240)) < 5 * count_calls(lambda: plan(60))  # linear is 4


def decisions() -> weft.Thread:
    t = weft.open()
    for n in range(12):
        t.user(f"Question {n} about src/file_{n}.py and PORT=80{n}?")
        t.assistant(f"Answer {n}: src/file_{n}.py raises Error{n}. We decided to use option {n}.")
    return t


@pytest.mark.parametrize(
    "options",
    [
        {"keep": 3},
        {"keep": 3, "budget": 10_000},
        {"budget": 400},
        {"keep": 3, "summary": "They chose options."},
        {"keep": 3, "model": "weft-offline"},
    ],
)
def test_the_same_compaction_again_changes_nothing(options):
    with decisions() as t:
        first = t.compact(**options)
        sent = t.compile().to_anthropic()
        for again in (t.compact(**options, preview=True), t.compact(**options)):
            assert again.commit is None
            assert str(again).startswith(f"nothing to compact: {first.tokens_after:,} tokens")
        assert t.compile().to_anthropic() == sent
        t.user("And option 12?")
        t.assistant("Option 12 it is.")
        assert t.compact(**options).commit is not None or "budget" in options


@pytest.mark.parametrize(
    "options", [{}, {"summary": "They chose options."}, {"model": "weft-offline"}]
)
def test_a_range_that_holds_only_a_summary_is_not_compacted_again(options):
    with decisions() as t:
        t.compact(last=t.compile().ids[15], **options)
        sent = t.compile().to_anthropic()
        again = t.compact(last=t.compile().ids[0], **options)
        assert again.commit is None
        assert str(again).startswith("nothing to compact")
        assert t.compile().to_anthropic() == sent


def test_a_smaller_budget_or_another_summary_replaces_a_summary():
    with decisions() as t:
        large = t.compact(keep=3)
        small = t.compact(keep=3, budget=large.tokens_after - 60)
        assert small.commit is not None
        assert small.tokens_after <= large.tokens_after - 60
        assert t.compact(keep=3, summary="They chose options.").commit is not None
        assert "They chose options." in t.compile().messages[0].text
