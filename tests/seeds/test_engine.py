"""Rows P1-P4: compaction by the engine, with the model inside and with one behind a real socket."""

import asyncio
from collections.abc import Iterator
from typing import Any

import orjson
import pytest

import weft
from servers import scripted_upstream
from summarisers import (
    CUT,
    DOWN,
    asker,
    bodies,
    catalogue,
    refuses,
    said_to,
    says,
    state_of,
    talk,
    tool_round,
    writer,
)
from weft.catalog import load_catalog
from weft.compact import SystemMessage, folding_request, retell, summary_request
from weft.compact.prompts import PROMPT
from weft.errors import CompactRefused, ThreadError, UpstreamFailed
from weft.history import Row
from weft.model import (
    Checkpoint,
    Image,
    Inline,
    Message,
    Reminder,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
)

Thread = Any

TURNS = [
    Message("user", (Text("Why does it fail?"),)),
    Message("assistant", (Text("Because nobody checks."),)),
]
MODEL = load_catalog().find("gpt-4.1")


@pytest.fixture
def t() -> Iterator[Thread]:
    with weft.open() as thread:
        thread.system("You are Ada, a careful engineer.")
        yield thread


def words(message: Message) -> str:
    return message.text


# P1: the request


def test_P1_the_request_is_prompt_prior_turns_directive() -> None:
    request = summary_request(MODEL, TURNS, prior=["They met."], limit=500)
    assert [message.role for message in request.messages] == [
        *("system", "system", "user", "assistant", "user")
    ]
    assert request.messages[2:4] == tuple(TURNS)
    assert request.tools == ()


@pytest.mark.parametrize(
    ("given", "sent"),
    [
        (None, PROMPT),  # AC1.1, AC4.4
        ("Fais-en un résumé.\n\n  Vite. ", "Fais-en un résumé.\n\n  Vite. "),  # AC4.3
        ("", ""),
    ],
)
def test_P1_AC1_1_AC4_3_the_prompt_is_the_configured_one_byte_by_byte_or_ours(
    given: str | None, sent: str
) -> None:
    assert words(summary_request(MODEL, TURNS, prompt=given, limit=500).messages[0]) == sent


@pytest.mark.parametrize(
    ("prior", "systems"),
    [
        (["They met."], ["Previous summary of conversation:\nThey met."]),  # AC1.2
        ([], []),  # AC1.5
        ([""], []),
        ([" \n"], []),
    ],
)
def test_P1_AC1_2_AC1_5_a_prior_summary_is_a_system_message_and_a_blank_one_is_none(
    prior: list[str], systems: list[str]
) -> None:
    request = summary_request(MODEL, TURNS, prior=prior, limit=500)
    told = [words(message) for message in request.messages[1:] if message.role == "system"]
    assert told == systems


@pytest.mark.parametrize(
    ("message", "told"),
    [
        (Message("user", (Text("hi"),)), ("user", "hi")),
        (Message("assistant", (Text("hi"),)), ("assistant", "hi")),
        (Message("system", (Text("rule"),)), ("system", "rule")),  # no rule vanishes
        (Message("tool", (ToolResult("c", (Text("ok"),)),)), ("user", "[Tool result]: ok")),
        (
            Message("user", (ToolResult("c", (Text("no"),), is_error=True), Text("go on"))),
            ("user", "[Tool error]: no\ngo on"),
        ),
        (
            Message("assistant", (Thinking("hm", signature="s"), ToolCall("c", "read", '{"a":1}'))),
            ("assistant", '[Tool call read]: {"a":1}'),
        ),
        (Message("user", (Image(Inline("image/png", "AA==")),)), ("user", "[image]")),
        (Message("user", (Text("go"), Reminder("note"), Checkpoint("aaaaaa"))), ("user", "go")),
        (Message("user", (Reminder("note"), Checkpoint("aaaaaa"))), None),
        (Message("assistant", (Thinking("hm"),)), None),
    ],
)  # fmt: skip
def test_P1_AC1_3_turns_keep_their_roles_and_calls_and_results_become_text(
    message: Message, told: tuple[str, str] | None
) -> None:
    turn = retell(Row(None, message))
    assert (None if turn is None else (turn.role, turn.text)) == told


@pytest.mark.parametrize("verb", ["preserve", "condense", "prioritise", "remove"])
def test_P1_AC1_4_the_last_message_is_the_users_directive(verb: str) -> None:
    for request in (
        summary_request(MODEL, TURNS, limit=500),
        folding_request(MODEL, ["a", "b"], limit=500),
    ):
        assert request.messages[-1].role == "user"
        assert verb.upper() in words(request.messages[-1])


def test_P1_AC1_6_several_summaries_are_a_system_message_each_and_one_directive() -> None:
    request = folding_request(MODEL, ["one", "two", "three"], limit=500)
    roles = [message.role for message in request.messages]
    assert roles == ["system", "system", "system", "system", "user"]
    assert [words(message) for message in request.messages[1:4]] == [
        f"Summary batch:\n{name}" for name in ("one", "two", "three")
    ]
    assert words(request.messages[0]) == PROMPT


@pytest.mark.parametrize(
    ("model", "temperature"),
    [
        ("gpt-4.1", 0.0),
        ("claude-sonnet-4-5", 0.0),
        ("gemini-2.5-pro", 0.0),
        ("weft-offline", 0.0),
        ("nobody-knows-it", 0.0),
        ("gpt-5", None),  # refuses any
        ("o3-mini", None),
        ("claude-opus-4-7", None),
        ("claude-opus-5", None),
    ],
)
def test_P1_temperature_is_0_where_the_model_takes_it(
    model: str, temperature: float | None
) -> None:
    request = summary_request(load_catalog().find(model), TURNS, limit=500)
    assert request.params.temperature == temperature


# P1: what is sent


def test_P1_AC4_1_the_threads_own_prompt_is_in_no_request(t: Thread) -> None:
    talk(t, 6)
    with writer(says("They read modules.")) as (upstream, model):
        t.compact(model=model)
        [body] = bodies(upstream)
    assert b"Ada" not in orjson.dumps(body)
    assert t.compile().messages[0].text == "You are Ada, a careful engineer."


def test_P1_the_whole_request_stands_on_the_wire(t: Thread) -> None:
    t.user("Read it.")
    tool_round(t, 1)
    t.assistant("It says value_1.")
    t.user("And now?")
    with writer(says("They read src/file_1.py.")) as (upstream, model):
        t.compact(model=model, prompt="Sum up.")
        [body] = bodies(upstream)
    sent = said_to(body)
    assert sent[0] == ("system", "Sum up.")
    assert [role for role, _ in sent] == ["system", *("user", "assistant") * 2, "user"]
    assert sent[2][1] == '[Tool call read]: {"path": "src/file_1.py"}'
    assert sent[3][1].startswith("[Tool result]: line 1 of the file")
    assert "And now?" not in str(body)  # the last exchange stays, word for word
    assert "tools" not in body
    assert body["temperature"] == 0


@pytest.mark.parametrize(
    ("protocol", "model", "path", "turns"),
    [
        ("anthropic", "claude-sonnet-4-5", "/v1/messages", "messages"),
        ("openai-chat", "gpt-4.1", "/v1/chat/completions", "messages"),
        ("openai-responses", "gpt-4.1", "/v1/responses", "input"),
        ("gemini", "gemini-2.5-pro", ":streamGenerateContent", "contents"),
    ],
)
def test_P1_every_protocol_is_asked_and_its_failure_changes_nothing(
    t: Thread, protocol: str, model: str, path: str, turns: str
) -> None:
    talk(t, 6)
    before = state_of(t)
    with scripted_upstream() as upstream:
        upstream.then(DOWN)
        with pytest.raises(UpstreamFailed, match="on fire"):
            t.compact(model=asker(upstream.url, model, protocol))
        [seen] = upstream.seen
    assert path in seen["path"]
    assert orjson.loads(seen["body"])[turns]
    assert state_of(t) == before


# P1: the verb


def test_P1_the_offline_model_sums_up_in_the_words_that_were_said(t: Thread) -> None:
    t.user("Never touch the public API of release 7.31.")
    t.assistant("Understood: the API stays as it is.")
    talk(t, 20)
    done = t.compact(model="weft-offline", keep=2)
    context = t.compile()
    assert done.tokens_after == context.tokens < done.tokens_before
    assert (done.model, done.requests, done.commit) == ("weft-offline", 1, t.head.id)
    assert "Never touch the public API of release 7.31." in context.messages[1].text
    assert len(context.messages) == 1 + 1 + 4


def test_P1_the_same_thread_gets_the_same_summary() -> None:
    def summary() -> str:
        with weft.open() as thread:
            talk(thread, 10)
            thread.compact(model="weft-offline")
            return thread.compile().messages[0].text

    assert summary() == summary()


def test_P1_a_short_thread_is_folded_too_when_somebody_asks(t: Thread) -> None:
    talk(t, 2)
    t.compact(model="weft-offline")
    assert t.compile().kinds == ("instruction", "summary", "dialogue", "dialogue")


def test_P1_it_can_be_asked_from_inside_a_running_loop(t: Thread) -> None:
    talk(t, 6)

    async def inside() -> Any:
        return t.compact(model="weft-offline")

    assert asyncio.run(inside()).commit


@pytest.mark.parametrize("wish", [{"summary": "S"}, {"replacements": [{"summary": "S"}]}])
def test_P1_words_of_ones_own_and_a_model_are_refused_together(t: Thread, wish: Any) -> None:
    talk(t, 3)
    with pytest.raises(CompactRefused, match="model would write"):
        t.compact(model="weft-offline", **wish)


def test_P1_a_name_that_nobody_answers_for_is_refused_and_changes_nothing(
    t: Thread, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    talk(t, 3)
    before = state_of(t)
    with pytest.raises(ThreadError, match="gpt-5"):
        t.compact(model="gpt-5")
    assert state_of(t) == before


def test_P1_a_thread_opened_with_its_own_models_asks_them() -> None:
    with scripted_upstream() as upstream:
        upstream.then(says("They spoke of modules."))
        with weft.open(models=lambda name: asker(upstream.url, name)) as thread:
            talk(thread, 6)
            thread.compact(model="m")
            assert "They spoke of modules." in thread.compile().messages[0].text


def test_P1_a_preview_asks_nobody_and_never_promises_too_little(t: Thread) -> None:
    talk(t, 40)
    before = state_of(t)
    with writer(says("They read modules. " * 400)) as (upstream, model):
        seen = t.compact(model=model, preview=True)
        assert (upstream.seen, state_of(t)) == ([], before)
        done = t.compact(model=model)
    assert seen.preview
    assert "at most" in str(seen)
    assert (seen.requests, seen.messages) == (done.requests, done.messages)
    with weft.open() as other:
        talk(other, 40)
        seen = other.compact(model="weft-offline", preview=True)
        assert other.compact(model="weft-offline").tokens_after <= seen.tokens_after


# P1: nothing is taken blindly


def test_P1_names_that_a_summary_lacks_are_put_back(t: Thread) -> None:
    talk(t, 5)
    with writer(says("They looked at some modules and found that nobody checks.")) as (_, model):
        done = t.compact(model=model)
    told = t.compile().messages[1].text
    for n in range(4):
        assert f"src/module_{n}.py" in told
        assert str(4000 + n) in told
    assert done.names_added > 0


@pytest.mark.parametrize(
    ("written", "left", "dropped"),
    [
        ("They read src/module_0.py. It is 9,999 lines long.", "They read src/module_0.py.", 1),
        ("It raises ConfigError 4000. It raises KeyError too.", "It raises ConfigError 4000.", 1),
        ("They fixed src/other.py and/or the rest. They went on.", "They went on.", 1),
        ("- They read `config_1`.\n- They wrote `config_77`.", "- They read `config_1`.", 1),
        ("The error 400 was not theirs. They went on.", "They went on.", 1),  # 4000 is another
        ("They read src/module_0.py and/or a manual.", "They read src/module_0.py and/or", 0),
    ],
)
def test_P1_sentences_that_name_what_was_never_said_are_left_out_and_told(
    t: Thread, written: str, left: str, dropped: int
) -> None:
    talk(t, 3)
    with writer(says(written)) as (_, model):
        done = t.compact(model=model)
    told = t.compile().messages[1].text
    assert left in told
    assert len(done.dropped) == dropped
    assert not any(sentence in told for sentence in done.dropped)
    assert t.head.metadata["made"]["dropped"] == list(done.dropped)


def test_P1_a_required_text_that_the_model_drops_is_put_back_with_its_line(t: Thread) -> None:
    t.user("The offer is $47,500 and not a cent more.\nTell nobody.")
    t.assistant("It stays between us.")
    talk(t, 4)
    with writer(says("They spoke about an offer.")) as (_, model):
        t.compact(model=model, retain=["$47,500"])
    assert "The offer is $47,500 and not a cent more." in t.compile().messages[1].text


def test_P1_a_required_text_that_was_never_said_is_refused_before_anybody_is_asked(
    t: Thread,
) -> None:
    talk(t, 4)
    with writer(says("S")) as (upstream, model):
        with pytest.raises(CompactRefused, match="never said"):
            t.compact(model=model, retain=["never said"])
        assert upstream.seen == []


def test_P1_pins_stay_byte_by_byte_and_are_named(t: Thread) -> None:
    talk(t, 3)
    rule = t.user("Never push to main.")
    t.pin(rule)
    t.assistant("Agreed.")
    talk(t, 3, first=3)
    pinned = [row for row in t.compile().rows if row.priority == "pinned"]
    with writer(says("They agreed on nothing.")) as (upstream, model):
        done = t.compact(model=model)
        assert "Never push" not in str(bodies(upstream))
    assert [row for row in t.compile().rows if row.priority == "pinned"] == pinned
    assert done.pins_kept == (rule.id,)


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (says(""), "empty"),
        (says(" \n"), "empty"),
        (says("It is all in src/nowhere.py."), "nothing that was said"),
        (says("", stop="content_filter"), "declined"),
        (says("They read", stop="length"), "too long"),  # cut off, however short it is asked for
        (CUT, "broke off"),
        (DOWN, "on fire"),
        (refuses(401, "no such key"), "no such key"),
        (refuses(429, "slow down"), "slow down"),
    ],
)
def test_P1_what_is_no_summary_is_refused_and_changes_nothing(
    t: Thread, answer: Any, why: str
) -> None:
    talk(t, 5)
    before = state_of(t)
    heard: list[SystemMessage] = []
    t.listen(heard.append)
    with writer(answer) as (_, model), pytest.raises(UpstreamFailed, match=why):
        t.compact(model=model)
    assert state_of(t) == before
    assert heard[-1].data["compact_result"] == "failed"


def test_P1_a_turn_said_while_the_model_writes_is_kept(t: Thread) -> None:
    talk(t, 6)
    with scripted_upstream() as upstream:

        def rule(_: bytes) -> Any:
            t.user("One more thing: mind the gap.")
            return says("They read modules.")

        upstream.rule = rule
        t.compact(model=asker(upstream.url), keep=1)
    said = [message.text for message in t.compile().messages]
    assert said[-1] == "One more thing: mind the gap."
    assert said[-3].startswith("Step 5")
    assert "They read modules." in said[1]


def test_P1_a_line_edited_while_the_model_writes_stops_it(t: Thread) -> None:
    talk(t, 6)
    id = t.compile().ids[2]
    with scripted_upstream() as upstream:

        def rule(_: bytes) -> Any:
            t.edit(id, "I was wrong.")
            return says("They read modules.")

        upstream.rule = rule
        with pytest.raises(CompactRefused, match="changed"):
            t.compact(model=asker(upstream.url))
    assert t.compile().messages[2].text == "I was wrong."
    assert len(t.compile()) == 13


def test_P1_a_line_pinned_while_the_model_writes_stays(t: Thread) -> None:
    talk(t, 6)
    id = t.compile().ids[2]
    with scripted_upstream() as upstream:

        def rule(_: bytes) -> Any:
            t.pin(id)
            return says("They read modules.")

        upstream.rule = rule
        t.compact(model=asker(upstream.url))
    assert id in t.compile().ids


def test_P1_the_catalogue_of_tests_is_the_shipped_one() -> None:
    assert catalogue().find("gpt-5") == load_catalog().find("gpt-5")
