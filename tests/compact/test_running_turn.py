"""A compaction in the middle of a loop of tools changes nothing in the turn that is running."""

import pytest

import weft
from weft.model import Message, Origin, Reminder, Text, Thinking, ToolCall, ToolResult

LONG = "The survey covers another part of the building, and nothing in it was changed. " * 8
CLAUDE = Origin("anthropic", model="claude-sonnet-4-5")


def thought(n: int) -> Thinking:
    return Thinking(f"I think about step {n}.", signature=f"signed-{n}")


def work(t: weft.Thread, first: int, last: int, *, answered: bool = True) -> None:
    """Rounds of thinking, a call and its result; without `answered`, the last call is open."""
    for n in range(first, last + 1):
        call = ToolCall(f"c{n}", "read", f'{{"path": "src/part_{n}.py"}}')
        t.commit_message(Message("assistant", (thought(n), call), origin=CLAUDE))
        if answered or n < last:
            t.tool_result(f"c{n}", f"part {n}: " + LONG)


def old_turns(t: weft.Thread) -> None:
    for n in range(6):
        t.user(f"Look at room {n}. " + LONG)
        blocks = (thought(100 + n), Text("Done. " + LONG))
        t.commit_message(Message("assistant", blocks, origin=CLAUDE))


def sent(t: weft.Thread) -> list[Message]:
    """The messages that a vendor of signed thinking gets."""
    context = t.compile()
    body = context.to_anthropic_params(model="claude-sonnet-4-5", max_tokens=100)
    return body["messages"]


@pytest.mark.parametrize("options", [{"keep": 1}, {"budget": 900}, {"budget": 900, "keep": 1}])
@pytest.mark.parametrize("rounds", [1, 3])
def test_the_thinking_of_the_running_turn_stays_and_is_sent(options, rounds) -> None:
    with weft.open() as t:
        old_turns(t)
        t.user("Now fix the parser.")
        work(t, 1, rounds)
        before = t.compile().rows
        t.compact(**options)
        after = {row.id: row.message for row in t.compile().rows}
        running = [row for row in before[-2 * rounds :] if row.id in after]
        assert running[-2].message.blocks[0] == thought(rounds)
        assert all(after[row.id] == row.message for row in running[-2:])
        last = [message for message in sent(t) if message["role"] == "assistant"][-1]
        assert last["content"][0]["type"] == "thinking"
        assert last["content"][0]["signature"] == f"signed-{rounds}"


def test_it_is_sent_after_several_compactions_and_more_rounds() -> None:
    with weft.open() as t:
        old_turns(t)
        t.user("Now fix the parser.")
        for part in range(4):
            work(t, 5 * part, 5 * part + 4)
            t.compact(budget=1200)
            last = [message for message in sent(t) if message["role"] == "assistant"][-1]
            assert last["content"][0]["type"] == "thinking"
        with weft.open(t.store, t.name) as again:  # compiled from the start
            assert sent(again) == sent(t)


def test_finished_turns_lose_their_thinking() -> None:
    with weft.open() as t:
        old_turns(t)
        t.user("Now fix the parser.")
        work(t, 1, 2)
        answer = (thought(9), Text("It is fixed."))
        t.commit_message(Message("assistant", answer, origin=CLAUDE))
        t.user("Thanks. And the docs?")
        t.compact(keep=2)
        assert all(
            not isinstance(block, Thinking)
            for row in t.compile().rows
            for block in row.message.blocks
        )


def test_an_edit_still_makes_the_thinking_stale() -> None:
    with weft.open() as t:
        old_turns(t)
        entry = t.user("Now fix the parser.")
        work(t, 1, 2)
        t.compact(keep=1)
        t.edit(entry, "Now fix the lexer.")
        assistants = [message for message in sent(t) if message["role"] == "assistant"]
        assert all(block["type"] != "thinking" for m in assistants for block in m["content"])


def test_reminders_in_the_running_turn_stay() -> None:
    with weft.open() as t:
        old_turns(t)
        t.user("Now fix the parser.")
        work(t, 1, 2, answered=False)
        result = ToolResult("c2", (Text("part 2: " + LONG),))
        t.commit_message(Message("user", (result, Reminder("Two tasks are open."))))
        t.compact(keep=1)
        assert "Two tasks are open." in str(t.compile().messages[-1])


def test_named_ranges_keep_the_open_round_and_strip_the_rest() -> None:
    with weft.open(checkpoints=True) as t:
        old_turns(t)
        t.user("Now fix the parser.")
        work(t, 1, 3)
        first, second = [point.id for point in t.checkpoints()][:2]
        t.compact([{"from": first, "to": second, "summary": "They looked at it."}])
        messages = [m for m in t.compile().messages if m.role == "assistant"]
        kinds = [[type(block).__name__ for block in message.blocks] for message in messages]
        assert kinds[-1] == ["Thinking", "ToolCall"]
        assert all("Thinking" not in kind for kind in kinds[:-1])


def test_status_lines_of_a_client_do_not_pile_up() -> None:
    with weft.open() as t:
        t.system("You are Ada.")
        t.user("Now fix the parser.")
        for n in range(30):
            work(t, n, n)
            status = f"<total_tokens>{100_000 - n} tokens left</total_tokens>"
            t.commit_message(Message("system", (Text(status),)))
        t.compact(budget=t.compile().tokens // 3)
        rows = t.compile().rows
        kept_rounds = sum(row.message.role == "assistant" for row in rows)
        statuses = [row for row in rows if "total_tokens" in row.message.text]
        assert len(statuses) <= kept_rounds + 1
        assert "99971 tokens left" in statuses[-1].message.text
