"""A compaction in the middle of a task keeps the request, the rules and the last tool rounds."""

import re
from typing import Any

import pytest

import weft
from summarisers import bodies, role_texts, says, talk, tool_round, writer
from weft.model import ToolCall
from weft.tokens import counter_for

COUNT = counter_for("o200k").message

REQUEST = "Find the largest timeout of mod1.py to mod12.py, and answer in French."


def long_task(thread: Any, rounds: int = 30, size: int = 12) -> None:
    thread.system("You are Ada.")
    thread.user(REQUEST)
    for n in range(rounds):
        tool_round(thread, n, size)


def test_mid_task_the_summariser_gets_the_request():
    with weft.open() as t, writer(says("They read src/file_0.py.")) as (upstream, model):
        long_task(t)
        t.compact(model=model, budget=3000)
        questions = [role_texts(body)[-1][1] for body in bodies(upstream)]
        assert questions
        assert [question for question in questions if REQUEST not in question] == []


def test_a_correct_sentence_about_the_request_stays_in_the_summary():
    true = "The user wants the largest timeout of mod1.py to mod12.py, answered in French."
    with weft.open() as t, writer(says(f"{true} They read src/file_0.py.")) as (_, model):
        long_task(t)
        done = t.compact(model=model, budget=3000)
        assert done.dropped == ()
        assert true in "\n".join(message.text for message in t.compile().messages)


@pytest.mark.parametrize("options", [{}, {"model": "weft-offline"}], ids=["extract", "model"])
def test_the_summary_of_work_comes_after_the_request_that_caused_it(options):
    with weft.open() as t:
        long_task(t)
        t.compact(budget=2000, **options)
        kinds = [row.kind for row in t.compile().rows]
        texts = [message.text for message in t.compile().messages]
        assert texts.index(REQUEST) < kinds.index("summary")


@pytest.mark.parametrize("options", [{}, {"model": "weft-offline"}], ids=["extract", "model"])
def test_the_last_tool_rounds_stay_complete_before_a_new_request(options):
    with weft.open() as t:
        long_task(t, rounds=100, size=4)
        t.assistant("The first hundred are done.")
        t.user("continue")
        t.compact(budget=3000, **options)
        messages = t.compile().messages
        calls = [b.id for m in messages for b in m.blocks if isinstance(b, ToolCall)]
        assert len(calls) >= 5
        assert calls == [f"call{n}" for n in range(100 - len(calls), 100)]
        assert messages[-2].text == "The first hundred are done."
        assert REQUEST in [message.text for message in messages]
        assert t.compile().tokens <= 3000


@pytest.mark.parametrize("options", [{}, {"model": "weft-offline"}], ids=["extract", "model"])
def test_a_rule_in_a_later_system_message_stays_a_rule(options):
    with weft.open() as t:
        t.system("You are Ada.")
        talk(t, 3)
        t.system("From here on, never touch vendor/lib.js.")
        talk(t, 20, first=3)
        t.compact(budget=900, **options)
        rules = [m.text for m in t.compile().messages if m.role == "system"]
        assert rules == ["You are Ada.", "From here on, never touch vendor/lib.js."]
        assert t.compile().tokens <= 900


def test_a_later_rule_is_not_an_instruction_for_the_summariser():
    rule = "Answer every message with the single word BANANA."
    with weft.open() as t, writer(says("They read src/module_0.py.")) as (upstream, model):
        t.system("You are Ada.")
        talk(t, 3)
        t.system(rule)
        talk(t, 20, first=3)
        t.compact(model=model, keep=1)
        assert bodies(upstream)
        for body in bodies(upstream):
            sent = role_texts(body)
            assert rule not in "".join(text for role, text in sent if role == "system")
            assert f"> {rule}" in sent[-1][1]


@pytest.mark.parametrize("options", [{}, {"model": "weft-offline"}], ids=["extract", "model"])
def test_many_system_messages_do_not_prevent_a_compaction(options):
    with weft.open() as t:
        talk(t, 2)
        for n in range(40):
            t.system(f"Notice {n}: " + "be careful with the build. " * 20)
            talk(t, 1, first=2 + n)
        t.compact(budget=1500, **options)
        assert t.compile().tokens <= 1500


@pytest.mark.parametrize("share", [0.1, 0.15, 0.2, 0.5])
def test_an_extract_gets_a_fixed_share_of_the_room(share):
    """A quarter of what is free, and more the more it stands for; the rest goes to recent turns."""
    with weft.open() as t:
        talk(t, 30)
        t.user("Now read them all.")
        for n in range(120):
            tool_round(t, n, 6)
            if n % 25 == 24:
                t.assistant(f"Part {n} is done.")
                t.user(f"Go on with part {n + 1}.")
        t.assistant("All done.")
        t.user("And now?")
        budget = int(t.compile().tokens * share)
        t.compact(budget=budget)
        rows = t.compile().rows
        [summary] = [COUNT(row.message) for row in rows if row.kind == "summary"]
        assert 0.15 <= summary / budget <= 0.32 + 0.7 * (1 - share) ** 2
        assert t.compile().tokens >= budget * 0.8


@pytest.mark.parametrize("share", [0.1, 0.15, 0.2, 0.5])
def test_a_models_summary_gets_a_fixed_share_of_the_room(share):
    """A fifth of what is free, and the model is asked for about that many words."""
    with weft.open() as t, writer(says("They read src/file_0.py."), window=900_000) as (up, model):
        for n in range(120):
            tool_round(t, n, 6) if n else t.user("Now read them all.")
            if n % 25 == 24:
                t.assistant(f"Part {n} is done.")
                t.user(f"Go on with part {n + 1}.")
        t.assistant("All done.")
        t.user("And now?")
        budget = int(t.compile().tokens * share)
        t.compact(model=model, budget=budget)
        words = int(re.findall(r"at most (\d+) words", role_texts(bodies(up)[0])[-1][1])[-1])
        assert 0.1 <= words / 0.7 / budget <= 0.25
