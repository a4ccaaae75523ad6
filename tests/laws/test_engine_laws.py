"""The law of compaction by a model: after any failure at any step, the thread is unchanged.

Threads (pins, tools, reminders, earlier summaries), options and answers are random. An answer may
be a summary, nonsense, empty, an error, or an exception; a hook may refuse the commit. If the
compaction succeeds, laws 8, 10 and 11 hold: no pair is split, no pin is lost, the last request
stays, the budget is met, and a revert restores everything.
"""

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

import weft
from compact_rows import broken_pairs
from summarisers import catalogue, state_of
from weft.catalog import Model
from weft.errors import ThreadError, UpstreamFailed, WeftError
from weft.model import ApiError, Message, Request, Response, Stop, Text, Thinking, ToolCall

Step = Response | ApiError | BaseException

SMALL = catalogue(window=1600, output=400).find("m")
WIDE = catalogue(window=100_000, output=2000).find("m")


class Lines:
    """A model that answers from a list of lines; the last one is repeated."""

    def __init__(self, model: Model, lines: Sequence[Step]) -> None:
        self.model = model
        self.lines = list(lines)

    def ask(self, request: Request) -> Response | ApiError:
        assert request.messages[-1].role == "user"
        line = self.lines.pop(0) if len(self.lines) > 1 else self.lines[0]
        if isinstance(line, BaseException):
            raise line
        return line


def told(text: str, stop: Any = "end") -> Response:
    return Response(Message("assistant", (Text(text),)), stop=Stop(stop))


GOOD = st.sampled_from([told("They spoke of item_0 and went on."), told("They went on.")])
BAD = st.sampled_from(
    [
        told(""),
        told("All is in src/invented.py."),
        told("They", "length"),
        told("They", "context"),
        told("No.", "refusal"),
        ApiError("context_length", "too long", 400),
        ApiError("timeout", "too slow", 504),
        ApiError("server", "down", 500),
        ApiError("authentication", "who?", 401),
        UpstreamFailed("the line is dead"),
        KeyboardInterrupt(),
    ]
)
ANSWERS = st.lists(st.one_of(GOOD, BAD), min_size=1, max_size=6)


@st.composite
def acts(draw: st.DrawFn) -> list[tuple[str, int]]:
    kinds = st.sampled_from(["say", "say", "tools", "pin", "think", "fold", "system"])
    return draw(st.lists(st.tuples(kinds, st.integers(0, 9)), min_size=2, max_size=14))


def play(thread: Any, steps: list[tuple[str, int]]) -> None:
    """A thread of such turns; every number gives a different item."""
    thread.system("Rules.")
    for number, (act, size) in enumerate(steps):
        asked = thread.user(f"Ask {number} for item_{number}. " * (size * 3 + 1), reminder="mind")
        match act:
            case "tools":
                calls = tuple(ToolCall(f"c{number}{n}", "read", "{}") for n in range(size % 3 + 1))
                thread.commit_message(Message("assistant", (Text("I look."), *calls)))
                for call in calls:
                    thread.tool_result(call.id, f"value_{number} " * (size * 10 + 1))
            case "pin":
                thread.pin(asked)
            case "think":
                thought = Thinking("hm", signature="sealed")
                thread.commit_message(Message("assistant", (thought, Text("Well."))))
            case "fold":
                thread.assistant("So far.")
                thread.compact(keep=1, summary=f"Earlier: item_{number} was asked for.")
                continue
            case "system":
                thread.system(f"Rule {number}.")
            case _:
                pass
        thread.assistant(f"Answer {number} is item_{number}. " * (size + 1))


@given(
    steps=acts(),
    answers=ANSWERS,
    wide=st.booleans(),
    keep=st.one_of(st.none(), st.integers(0, 4)),
    budget=st.one_of(st.none(), st.integers(0, 3000)),
    verbatim=st.integers(0, 400),
    refused=st.booleans(),
)
@settings(max_examples=150, deadline=None)
def test_law_any_failure_at_any_step_leaves_the_thread_unchanged(
    steps: list[tuple[str, int]],
    answers: list[Step],
    wide: bool,
    keep: int | None,
    budget: int | None,
    verbatim: int,
    refused: bool,
) -> None:
    with weft.open(checkpoints=True) as thread:
        play(thread, steps)
        before = state_of(thread)
        rows = thread.compile().rows
        if refused:
            thread.before(refuse)
        model = Lines(WIDE if wide else SMALL, answers)
        try:
            done = thread.compact(model=model, keep=keep, budget=budget, verbatim=verbatim)
        except (WeftError, KeyboardInterrupt):
            assert state_of(thread) == before
            return
        if done.commit is None:
            assert state_of(thread) == before
            return
        assert not refused
        assert_sound(thread, rows, budget)
        thread.revert(done.commit)
        assert thread.compile().rows == rows


def refuse(draft: Any) -> None:
    raise ThreadError(f"no {draft.kind} here")


def assert_sound(thread: Any, rows: Sequence[Any], budget: int | None) -> None:
    after = thread.compile().rows
    assert broken_pairs(after) == broken_pairs(rows)
    pinned = [row for row in rows if row.priority == "pinned"]
    assert [row for row in after if row.priority == "pinned"] == pinned
    asked = [row for row in rows if row.message.role == "user" and row.kind != "summary"]
    assert asked[-1] in after
    if budget is not None:
        assert thread.compile().tokens <= budget
    summaries = [place for place, row in enumerate(after) if row.kind == "summary"]
    lead = next(place for place, row in enumerate(after) if row.message.role != "system")
    ahead = after[lead : summaries[0]]  # pins that were said before all that is folded
    assert not ahead or any(row.priority == "pinned" for row in ahead)
    assert after[lead].message.role == after[summaries[0]].message.role == "user"


@pytest.mark.parametrize("step", range(3))
def test_law_an_interrupt_while_a_model_writes_changes_nothing(step: int) -> None:
    with weft.open() as thread:
        play(thread, [("say", 9)] * 12)
        before = state_of(thread)
        lines: list[Step] = [*[told("They went on.")] * step, KeyboardInterrupt()]
        with pytest.raises(KeyboardInterrupt):
            thread.compact(model=Lines(SMALL, lines))
        assert state_of(thread) == before
