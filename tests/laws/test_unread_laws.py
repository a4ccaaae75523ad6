"""Laws 6, 8 and 11 for results that the model has not read, with any summariser.

Histories, result sizes, windows and budgets are random. An unread result is in the next request,
complete or thinned with a handle that recalls the original. The request stays within every accepted
budget. No pair is split, no pin is lost, and nothing else changes. A summariser may raise, hang,
answer nothing, decline, write too much, be truncated or write nonsense.
"""

import re
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

import weft
from compact_rows import broken_pairs
from summarisers import catalogue
from weft.agent import (
    Answered,
    Ask,
    AskSummary,
    AutoCompactor,
    Compaction,
    Emit,
    Failure,
    MessageComplete,
    Outcome,
    Run,
    RunState,
    converse,
)
from weft.compact import Stopped, SystemMessage, plan_budget, unread_rows
from weft.errors import BudgetExceeded, UpstreamFailed
from weft.history import Row
from weft.ids import object_id
from weft.model import (
    ApiError,
    Checkpoint,
    Image,
    Inline,
    Message,
    Request,
    Response,
    Stop,
    Text,
    ToolCall,
    ToolResult,
    texts,
)
from weft.thread import CompactOptions, SentRequest
from weft.tokens import counter_for

count = counter_for("estimate").message
HANDLE = re.compile(r'recall\("([0-9a-f]+/\d+)"\) has the whole\.\]\Z')
MODEL = catalogue(window=20_000, output=2000).find("m")


def told(text: str, stop: Any = "end") -> Response:
    return Response(Message("assistant", (Text(text),)), stop=Stop(stop))


WAYS: dict[str, Any] = {
    "good": told("They went on."),
    "empty": told(""),
    "declines": told("No.", "refusal"),
    "cut off": told("They", "length"),
    "cut off late": told("They went on. " * 300 + "And th", "length"),
    "too long": told("They went on and on. " * 3000),
    "one endless sentence": told("and on " * 3000),
    "invents": told("All is in src/invented.py."),
    "garbage": told('{"a": [1,2,'),
    "calls a tool": Response(Message("assistant", (ToolCall("x", "read", "{}"),))),
    "down": ApiError("server", "down", 500),
    "no key": ApiError("authentication", "who?", 401),
    "window": ApiError("context_length", "too long", 400),
    "slow": ApiError("timeout", "too slow", 504),
    "hangs": Stopped("no answer within 1 seconds"),
}
SUMMARISER = st.lists(st.sampled_from(sorted(WAYS)), min_size=1, max_size=4)

LINES = st.lists(
    st.sampled_from(
        [
            "a line of the file\n",
            "error 4711 in pay.py\n",
            "x",
            "\n",
            "日本語の行。\n",
            "word " * 40,
        ]
    ),
    min_size=0,
    max_size=6,
)


@st.composite
def results(draw: st.DrawFn) -> str:
    """A result of any size and shape: empty, one long line, many lines, no spaces."""
    return "".join(draw(LINES)) * draw(st.sampled_from([0, 1, 3, 30, 400]))


@st.composite
def histories(draw: st.DrawFn) -> list[Row]:
    """A thread that ends with results which no answer has read."""
    messages = [Message("system", (Text("Rules."),))] * draw(st.integers(0, 1))
    for turn in range(draw(st.integers(0, 4))):
        messages.append(Message("user", (Text(f"ask{turn} about pay.py " * draw(SIZES)),)))
        messages.append(Message("assistant", (ToolCall(f"o{turn}", "read", "{}"),)))
        messages.append(Message("tool", (ToolResult(f"o{turn}", (Text(draw(results())),)),)))
        messages.append(Message("assistant", (Text(f"say{turn} " * draw(SIZES)),)))
    messages.append(Message("user", (Text("now find error 4711"), Checkpoint("aaaaaa"))))
    ids = [f"c{n}" for n in range(draw(st.integers(1, 3)))]
    calls = tuple(ToolCall(id, "read", '{"path": "pay.py"}') for id in ids)
    messages.append(Message("assistant", (Text("I look."), *calls)))
    image = Image(Inline("image/png", "AAAA"))
    made = [
        ToolResult(id, (Text(draw(results())), *([image] if draw(RARELY) else []))) for id in ids
    ]
    if draw(st.booleans()):
        messages.append(Message("user", tuple(made)))
    else:
        messages.extend(Message("tool", (result,)) for result in made)
    pins = draw(st.lists(st.integers(0, len(messages) - 1), max_size=2))
    return [
        Row(object_id("slot", b"%d" % n), message, "pinned" if n in pins else "normal")
        for n, message in enumerate(messages)
    ]


SIZES = st.sampled_from([1, 5, 60])
RARELY = st.integers(0, 7).map(lambda n: n == 0)


def blocks_of(rows: Sequence[Row]) -> dict[tuple[bytes | None, str], ToolResult]:
    return {
        (row.id, block.call_id): block
        for row in rows
        for block in row.message.blocks
        if isinstance(block, ToolResult)
    }


def text_of(result: ToolResult) -> str:
    return "\n".join(texts(result.content))


def assert_unread_stay(before: Sequence[Row], after: Sequence[Row]) -> None:
    """Every unread result is there, complete or thinned with a handle to its own block."""
    left = blocks_of(after)
    for number in unread_rows(before):
        row = before[number]
        for place, block in enumerate(row.message.blocks):
            if not isinstance(block, ToolResult):
                continue
            now = left[row.id, block.call_id]
            if now == block:
                continue
            assert row.priority != "pinned"
            short = text_of(now)
            handle = HANDLE.search(short)
            if handle is None:  # too short to be shortened: only its media went
                assert short.startswith("[left out: ")
                assert short.endswith(text_of(block))
            else:
                assert f"{row.id.hex()[:12]}/{place}" == handle[1]


@given(
    histories(),
    st.sampled_from([0, 20, 60, 120, 300, 900, 3000, 9000]),
    st.none() | st.integers(0, 3),
    st.booleans(),
)
@settings(max_examples=120, deadline=None)
def test_law_11_unread_results_stay_in_every_budget_that_is_accepted(
    thread: list[Row], budget: int, keep: int | None, cut: bool
) -> None:
    try:
        plan = plan_budget(thread, budget, keep=keep, cut=cut, count=count)
    except BudgetExceeded as refused:
        budget = max(budget + 1, refused.needed)  # what it names is more, and is enough
        plan = plan_budget(thread, budget, keep=keep, cut=cut, count=count)
    assert sum(count(row.message) for row in plan.rows) <= budget
    assert_unread_stay(thread, plan.rows)
    assert broken_pairs(plan.rows) == []
    assert [r for r in plan.rows if r.priority == "pinned"] == [
        r for r in thread if r.priority == "pinned"
    ]
    assert "now find error 4711" in [row.message.text.split("\n")[0] for row in plan.rows]


@given(histories(), st.sampled_from([200, 900, 3000]))
@settings(max_examples=50, deadline=None)
def test_law_6_thinning_results_changes_nothing_else(thread: list[Row], budget: int) -> None:
    try:
        plan = plan_budget(thread, budget, count=count)
    except BudgetExceeded:
        return
    if plan.method != "thin":
        return
    unread = {thread[number].id for number in unread_rows(thread)}
    assert len(plan.rows) == len(thread)
    for old, new in zip(thread, plan.rows, strict=True):
        assert old == new or old.id in unread
        others = [b for b in old.message.blocks if not isinstance(b, ToolResult)]
        assert others == [b for b in new.message.blocks if not isinstance(b, ToolResult)]


@given(histories(), st.sampled_from([200, 900, 3000]), st.sampled_from([60, 200, 900]))
@settings(max_examples=50, deadline=None)
def test_law_11_a_result_that_is_thinned_twice_still_names_the_original(
    thread: list[Row], first: int, second: int
) -> None:
    try:
        once = plan_budget(thread, first, cut=True, count=count)
        rows = [row for row in once.rows if row.id is not None]
        twice = plan_budget(rows, min(first, second), cut=True, count=count)
    except BudgetExceeded:
        return
    whole = blocks_of(thread)
    for key, now in blocks_of(twice.rows).items():
        stated = re.search(r"\[Shortened: [\d,]+ of ([\d,]+) characters", text_of(now))
        if stated is not None and now != whole[key]:
            assert int(stated[1].replace(",", "")) == len(text_of(whole[key]))
            assert text_of(now).count("[Shortened:") == 1


def say(thread: Any, rows: Sequence[Row]) -> None:
    """A thread in a store with these messages."""
    for row in rows:
        message = row.message
        blocks = tuple(block for block in message.blocks if not isinstance(block, Checkpoint))
        info = thread.commit_message(Message(message.role, blocks, form=message.form))
        if row.priority == "pinned":
            thread.pin(info)


class Scripted:
    """A summariser with scripted answers; the last one is repeated."""

    def __init__(self, ways: Sequence[str]) -> None:
        self.model = MODEL
        self.ways = list(ways)

    def ask(self, _: Request) -> Response | ApiError:
        way = self.ways.pop(0) if len(self.ways) > 1 else self.ways[0]
        answer = WAYS[way]
        if isinstance(answer, Stopped):
            raise UpstreamFailed("the line is dead")
        return answer


@given(histories(), SUMMARISER, st.sampled_from([150, 400, 1500, 6000]), st.booleans())
@settings(max_examples=30, deadline=None)
def test_law_11_a_budget_is_met_and_handles_work_with_any_summariser(
    rows: list[Row], ways: list[str], budget: int, later: bool
) -> None:
    with weft.open() as thread:
        say(thread, rows)
        before = thread.compile().rows
        try:
            done = thread.compact(model=Scripted(ways), budget=budget)
        except BudgetExceeded as refused:
            done = thread.compact(model=Scripted(ways), budget=refused.needed)
            budget = refused.needed
        after = thread.compile()
        assert after.tokens <= budget
        assert broken_pairs(after.rows) == []
        assert_unread_stay(before, after.rows)
        handles = {
            handle[1]: text_of(blocks_of(before)[key])
            for key, now in blocks_of(after.rows).items()
            if (handle := HANDLE.search(text_of(now))) and now != blocks_of(before)[key]
        }
        if later:  # a handle works when its result was read and folded, too
            thread.assistant("I have read it.")
            thread.user("Go on.")
            thread.compact(keep=1)
        for handle, original in handles.items():
            assert read_all(thread, handle) == original
        if done.commit is not None and not later:
            thread.revert(done.commit)
            assert thread.compile().rows == before


def read_all(thread: Any, handle: str) -> str:
    """Everything that `recall` returns for a handle, page by page, each within its tokens."""
    text, offset = "", 0
    while True:
        page = thread.recall_page(handle, tokens=500, offset=offset)
        assert counter_for("o200k").message(Message("user", (Text(page.text),))) <= 500
        text += page.body
        if page.next is None:
            return text
        offset = page.next


@given(
    st.lists(results(), min_size=1, max_size=5),
    SUMMARISER,
    st.sampled_from([1500, 3000, 9000]),
    st.booleans(),
)
@settings(max_examples=30, deadline=None)
def test_law_11_every_request_of_an_agent_succeeds_and_has_unread_results(
    texts_read: list[str], ways: list[str], window: int, is_open: bool
) -> None:
    """The loop without a network: every request is checked."""
    model = catalogue(window=window, output=window // 8).find("m")
    keeper = AutoCompactor(model, Compaction(failures=0 if is_open else 3, pause=1000), ())
    asked: list[Request] = []
    summaries = iter(ways)
    with weft.open(checkpoints=True) as thread:
        events: list[SystemMessage] = []
        thread.listen(events.append)

        def ask() -> Ask:
            compiled = thread.compile()
            return Ask(Request("m", compiled.sendable), compiled.head)

        flow = converse(thread, "Find error 4711 in pay.py.", ask, RunState(50), events, keeper)
        ended: list[Any] = []
        answer: Any = None
        way = ways[-1]
        while True:
            try:
                step = flow.send(answer)
            except StopIteration:
                break
            answer = None
            match step:
                case Emit(event):
                    ended.append(event)
                case AskSummary():
                    assert not is_open
                    way = next(summaries, way)
                    answer = WAYS[way]
                case Run(calls):
                    answer = [Outcome(texts_read[int(call.id[1:])]) for call in calls]
                case Ask(request):
                    asked.append(request)
                    number = len(asked) - 1
                    calls = (ToolCall(f"k{number}", "read", '{"path": "pay.py"}'),)
                    done = number >= len(texts_read)
                    blocks = (Text("Done."),) if done else (Text("I look."), *calls)
                    letter = SentRequest(b"{}", "openai-chat", "m", step.head)
                    answer = Answered(Response(Message("assistant", blocks)), letter)
        assert isinstance(ended[-1], MessageComplete), ended[-1]
        assert not any(isinstance(event, Failure) for event in ended)
        assert len(asked) == len(texts_read) + 1
        for number, request in enumerate(asked[1:]):
            assert keeper.measure(request.messages) <= keeper.limits.max_tokens
            assert "Find error 4711 in pay.py." in request.messages[0].text + "".join(
                message.text for message in request.messages
            )
            [result] = [
                block
                for message in request.messages
                for block in message.blocks
                if isinstance(block, ToolResult) and block.call_id == f"k{number}"
            ]
            original = texts_read[number]
            if text_of(result) != original:
                handle = HANDLE.search(text_of(result))
                assert handle is not None
                assert read_all(thread, handle[1]) == original


def test_a_compaction_without_a_model_asks_no_model() -> None:
    with weft.open() as thread:
        for n in range(20):
            thread.user(f"Step {n}: what does src/module_{n}.py do? " * 5)
            thread.assistant(f"src/module_{n}.py reads `config_{n}`. " * 5)
        with pytest.raises(StopIteration) as end:
            next(thread.compacting(None, CompactOptions(budget=400)))
        assert end.value.value.method == "extract"
        assert thread.compile().tokens <= 400
