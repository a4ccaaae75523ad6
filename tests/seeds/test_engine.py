"""Requirements P1-P4: compaction by the engine, offline and with a model over a real socket."""

import asyncio
from collections.abc import Iterator
from typing import Any

import orjson
import pytest

import weft
from servers import Scripted, post, scripted_upstream, weft_serve
from summarisers import (
    CUT,
    DOWN,
    ONCE,
    TOO_LONG,
    asker,
    bodies,
    catalogue,
    refuses,
    role_texts,
    says,
    state_of,
    talk,
    tool_calls,
    tool_round,
    watch,
    writer,
)
from weft.agent import Agent, Compaction, Failure, MessageComplete
from weft.catalog import load_catalog
from weft.client import ModelClient, make_provider
from weft.compact import (
    PROMPT,
    Batch,
    Breaker,
    Clip,
    Gauge,
    Importance,
    SystemMessage,
    choose_verbatim,
    cut_chunks,
    find_pairs,
    limits_of,
    merge_request,
    plain_turn,
    read_batches,
    read_importance,
    summary_request,
    write_batches,
)
from weft.errors import BudgetExceeded, CompactRefused, ConfigError, ThreadError, UpstreamFailed
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
from weft.thread import forget

Thread = Any

TURNS = [
    Message("user", (Text("Why does it fail?"),)),
    Message("assistant", (Text("Because nobody checks."),)),
]
MODEL = load_catalog().find("gpt-4.1")
MODELS = {
    "anthropic": "claude-sonnet-4-5",
    "openai-chat": "gpt-5",
    "openai-responses": "gpt-5",
    "gemini": "gemini-2.5-pro",
}


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
    ("value", "sent"),
    [
        (None, PROMPT),  # AC1.1, AC4.4
        ("Fais-en un résumé.\n\n  Vite. ", "Fais-en un résumé.\n\n  Vite. "),  # AC4.3
        ("", ""),
    ],
)
def test_P1_AC1_1_AC4_3_the_prompt_is_the_configured_one_byte_by_byte_or_ours(
    value: str | None, sent: str
) -> None:
    assert words(summary_request(MODEL, TURNS, prompt=value, limit=500).messages[0]) == sent


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
    summaries = [words(message) for message in request.messages[1:] if message.role == "system"]
    assert summaries == systems


@pytest.mark.parametrize(
    ("message", "expected"),
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
    message: Message, expected: tuple[str, str] | None
) -> None:
    turn = plain_turn(Row(None, message))
    assert (None if turn is None else (turn.role, turn.text)) == expected


@pytest.mark.parametrize("verb", ["preserve", "condense", "prioritise", "remove"])
def test_P1_AC1_4_the_last_message_is_the_users_directive(verb: str) -> None:
    for request in (
        summary_request(MODEL, TURNS, limit=500),
        merge_request(MODEL, ["a", "b"], limit=500),
    ):
        assert request.messages[-1].role == "user"
        assert verb.upper() in words(request.messages[-1])


def test_P1_AC1_6_several_summaries_are_a_system_message_each_and_one_directive() -> None:
    request = merge_request(MODEL, ["one", "two", "three"], limit=500)
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
    sent = role_texts(body)
    assert sent[0] == ("system", "Sum up.")
    assert [role for role, _ in sent] == ["system", *("user", "assistant") * 2, "user"]
    assert sent[2][1] == '[Tool call read]: {"path": "src/file_1.py"}'
    assert sent[3][1].startswith("[Tool result]: line 1 of the file")
    # The last exchange stays, word for word; the closing message says what it is.
    assert [number for number, (_, text) in enumerate(sent) if "And now?" in text] == [5]
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
        [request] = upstream.requests
    assert path in request["path"]
    assert orjson.loads(request["body"])[turns]
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


@pytest.mark.parametrize("options", [{"summary": "S"}, {"replacements": [{"summary": "S"}]}])
def test_P1_words_of_ones_own_and_a_model_are_refused_together(t: Thread, options: Any) -> None:
    talk(t, 3)
    with pytest.raises(CompactRefused, match="cannot be combined with a model"):
        t.compact(model="weft-offline", **options)


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
        preview = t.compact(model=model, preview=True)
        assert (upstream.requests, state_of(t)) == ([], before)
        done = t.compact(model=model)
    assert preview.preview
    assert "at most" in str(preview)
    assert (preview.requests, preview.messages) == (done.requests, done.messages)
    with weft.open() as other:
        talk(other, 40)
        preview = other.compact(model="weft-offline", preview=True)
        assert other.compact(model="weft-offline").tokens_after <= preview.tokens_after


# P1: nothing is taken blindly


def test_P1_names_that_a_summary_lacks_are_put_back(t: Thread) -> None:
    talk(t, 5)
    with writer(says("They looked at some modules and found that nobody checks.")) as (_, model):
        done = t.compact(model=model)
    text = t.compile().messages[1].text
    for n in range(4):
        assert f"src/module_{n}.py" in text
        assert str(4000 + n) in text
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
    text = t.compile().messages[1].text
    assert left in text
    assert len(done.dropped) == dropped
    assert not any(sentence in text for sentence in done.dropped)
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
        assert upstream.requests == []


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
        (says("It is all in src/nowhere.py."), "the conversation does not contain"),
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
    events: list[SystemMessage] = []
    t.listen(events.append)
    with writer(answer) as (_, model), pytest.raises(UpstreamFailed, match=why):
        t.compact(model=model)
    assert state_of(t) == before
    assert events[-1].data["compact_result"] == "failed"


def test_P1_a_turn_said_while_the_model_writes_is_kept(t: Thread) -> None:
    talk(t, 6)
    with scripted_upstream() as upstream:

        def rule(_: bytes) -> Any:
            t.user("One more thing: mind the gap.")
            return says("They read modules.")

        upstream.rule = rule
        t.compact(model=asker(upstream.url), keep=1)
    texts = [message.text for message in t.compile().messages]
    assert texts[-1] == "One more thing: mind the gap."
    assert texts[-3].startswith("Step 5")
    assert "They read modules." in texts[1]


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


# P3: the trigger


@pytest.mark.parametrize(
    ("window", "output", "reserve", "overhead", "limit"),
    [
        (200_000, 64_000, None, 0, 160_000),  # at most a fifth is held back
        (200_000, 8_192, None, 0, 191_808),
        (200_000, 8_192, None, 20_000, 171_808),  # under without the tools, over with them
        (16_000, 8_192, None, 0, 12_800),  # a small window is not compacted at a tenth of it
        (16_000, 8_192, 1_000, 500, 14_500),
        (4_000, 8_192, None, 9_000, 0),  # the tools alone are too much
    ],
)
def test_P3_the_limit_is_the_window_less_reserve_and_overhead(
    window: int, output: int, reserve: int | None, overhead: int, limit: int
) -> None:
    model = catalogue(window=window, output=output).find("m")
    limits = limits_of(model, overhead=overhead, reserve=reserve)
    assert limits.max_tokens == limit
    assert limits.is_over(limit + 1)
    assert not limits.is_over(limit)
    assert limits.target_tokens == limit // 2  # not again at the next turn


@pytest.mark.parametrize("target", [0, 1, -0.5, 1.5])
def test_P3_a_target_that_is_no_part_of_the_room_is_refused(target: float) -> None:
    with pytest.raises(ConfigError, match=str(target)):
        limits_of(MODEL, target=target)


@pytest.mark.parametrize(
    ("reports", "least", "most"),
    [
        ([], 1000, 1000),
        ([1000] * 5, 1000, 1000),
        ([1500] * 9, 1400, 1500),  # it learns
        ([500_000], 1000, 1000),  # more than the window: no report
        ([1000, 1000, 2000], 1000, 1500),  # one strange report changes little
        ([1000, 1000, 2000, 2000], 2000, 2000),  # a second one confirms it
        ([9000], 9000, 9000),  # a hidden prompt of the vendor: what is reported wins
        ([0, None], 1000, 1000),
    ],
)
def test_P3_a_gauge_learns_from_what_is_reported_within_bounds(
    reports: list[int | None], least: int, most: int
) -> None:
    gauge = Gauge()
    for reported in reports:
        gauge = gauge.learn(1000, reported, 100_000)
    assert least <= gauge.measure(1000) <= most


def test_P3_a_breaker_opens_after_failures_pauses_and_lets_one_through() -> None:
    breaker = Breaker(limit=2, pause=3).fail()
    assert not breaker.is_open
    breaker = breaker.fail()
    assert breaker.skip().skip().is_open
    breaker = breaker.skip().skip().skip()
    assert not breaker.is_open
    assert breaker.fail().is_open  # the one attempt failed: another pause
    assert breaker.succeed() == Breaker(limit=2, pause=3)


# P3: chunks


def rows_of(thread: Thread) -> list[Row]:
    return list(thread.compile().rows)


def test_P3_chunks_are_cut_by_tokens_at_message_borders() -> None:
    rows = [Row(None, Message("user", (Text("word " * 96),))) for _ in range(8)]
    sizes = {100}
    assert {counter(row.message) for row in rows} == sizes
    assert [len(chunk) for chunk in cut_chunks(rows, 250, counter)] == [2, 2, 2, 2]
    assert [len(chunk) for chunk in cut_chunks(rows, 99, counter)] == [1] * 8
    assert [len(chunk) for chunk in cut_chunks(rows, 800, counter)] == [8]
    assert cut_chunks([], 250, counter) == []


def counter(message: Message) -> int:
    return 4 + sum(len(text.split()) for text in [message.text])


@pytest.mark.parametrize("chunk_tokens", [1, 10, 40, 100, 1000])
def test_P3_no_chunk_parts_a_call_from_its_results(t: Thread, chunk_tokens: int) -> None:
    calls = tuple(ToolCall(f"c{n}", "read", "{}") for n in range(3))
    t.user("go")
    t.commit_message(Message("assistant", (Text("I look."), *calls)))
    for n in (2, 0, 1):
        t.tool_result(f"c{n}", f"result {n} " * 20)
    tool_round(t, 9)
    t.assistant("done")
    rows = rows_of(t)
    chunks = cut_chunks(rows, chunk_tokens, counter)
    assert [row for chunk in chunks for row in chunk] == rows
    for chunk in chunks:
        assert all(pair.call and pair.results for pair in find_pairs(chunk))
    assert [len(unit) for unit in cut_chunks(rows, 5, counter)] == [1, 1, 4, 2, 1]


def test_P3_every_chunk_is_asked_for_with_what_is_known_so_far(t: Thread) -> None:
    talk(t, 12)
    answers = [says(f"Chapter {word}.") for word in ("one", "two", "three")]
    with writer(*answers, says("The rest."), window=1500, output=400) as (upstream, model):
        done = t.compact(model=model, keep=1)
        sent = [role_texts(body) for body in bodies(upstream)]
    assert done.requests == len(sent) > 1
    assert [role for role, _ in sent[0]][:2] == ["system", "user"]
    assert sent[1][1] == ("system", "Previous summary of conversation:\n" + sent_text(t, 0))
    steps = [text for body in sent for role, text in body if role == "user"][:-1]
    step_names = [text.split(":")[0] for text in steps if text.startswith("Step")]
    assert step_names == [f"Step {n}" for n in range(11)]  # each once, in order


def sent_text(thread: Thread, number: int) -> str:
    return thread.head.metadata["batches"][number]["text"]


# P3: too long, and other failures


def refuse_beyond(characters: int, text: str = "They read on.") -> Any:
    def rule(body: bytes) -> Any:
        turns = [texts for role, texts in role_texts(orjson.loads(body))[1:-1] if role != "system"]
        return TOO_LONG if len("".join(turns)) > characters else says(text)

    return rule


@pytest.mark.parametrize("characters", [9_000, 6_000, 2_500])
def test_P3_a_request_that_is_too_long_is_halved_until_it_fits(t: Thread, characters: int) -> None:
    talk(t, 60)
    with scripted_upstream() as upstream:
        upstream.rule = refuse_beyond(characters)
        done = t.compact(model=asker(upstream.url), keep=1)
        sizes = [len(request["body"]) for request in upstream.requests]
    assert sizes[1] < sizes[0]
    assert done.requests == len(sizes) <= 40
    text = t.compile().messages[1].text
    assert "118 messages" in text  # nothing was left out on the way


def test_P3_a_single_huge_result_is_cut_in_its_middle_and_says_so(t: Thread) -> None:
    t.user("Read the log.")
    tool_round(t, 1, size=20_000)
    t.assistant("I have read it.")
    t.user("Thanks.")
    with scripted_upstream() as upstream:
        upstream.rule = refuse_beyond(60_000, "They read the log.")
        t.compact(model=asker(upstream.url, window=100_000))
        last = role_texts(orjson.loads(upstream.requests[-1]["body"]))
    assert "characters left out" in str(last)
    assert t.search("line 1 of the file")  # all of it is in the history


def test_P3_there_is_an_end_to_halving(t: Thread) -> None:
    talk(t, 60)
    before = state_of(t)
    with writer(TOO_LONG) as (upstream, model):
        with pytest.raises(UpstreamFailed, match="too long"):
            t.compact(model=model)
        assert 2 <= len(upstream.requests) <= 6
    assert state_of(t) == before


@pytest.mark.parametrize("failure", [DOWN, CUT, says(""), refuses(401, "no")])
@pytest.mark.parametrize("step", [0, 1, 2])
def test_P3_a_failure_at_any_chunk_leaves_everything_as_it_was(
    t: Thread, failure: Any, step: int
) -> None:
    talk(t, 20)
    before = state_of(t)
    script = [*[says("They read on.")] * step, failure]
    with writer(*script, window=1500, output=400) as (upstream, model):
        with pytest.raises(UpstreamFailed):
            t.compact(model=model)
        assert len(upstream.requests) == step + 1  # asking again is not for these
    assert state_of(t) == before


def test_P3_a_refused_commit_leaves_everything_as_it_was(t: Thread) -> None:
    talk(t, 6)
    before = state_of(t)
    events: list[SystemMessage] = []
    t.listen(events.append)

    def never(draft: Any) -> None:
        raise ThreadError(f"no {draft.kind} today")

    t.before(never)
    with pytest.raises(ThreadError, match="no compact today"):
        t.compact(model="weft-offline")
    assert state_of(t) == before
    assert [event.data.get("compact_result") for event in events] == [None, "failed"]


# P3: between the rounds of an agent


def reads(number: int) -> str:
    """Reads a part of the file."""
    return f"part {number} says value_{number}, and goes on. " * 60


def rounds_then_done(many: int) -> Any:
    """A model that reads so many parts, then says so; asked for a summary, it writes one."""
    numbers = iter(range(many))

    def rule(body: bytes) -> Any:
        wire = orjson.loads(body)
        if "tools" not in wire:
            return says("They read some parts.")
        number = next(numbers, None)
        if number is None:
            return says("I have read it all.")
        return tool_calls([(f"call_{number}", "reads", {"number": number})])

    return rule


def small(url: str, **compaction: Any) -> dict[str, Any]:
    return {
        "model": "m",
        "provider": make_provider("u", "openai-chat", url),
        "tools": [reads],
        "catalog": catalogue(window=9000, output=1000),
        "policy": ONCE,
        "compaction": Compaction(**compaction),
    }


def assert_pairs_are_whole(body: dict[str, Any]) -> None:
    waiting: list[str] = []
    for message in body["messages"]:
        if message["role"] == "tool":
            waiting.remove(message["tool_call_id"])
            continue
        assert not waiting
        waiting = [call["id"] for call in message.get("tool_calls", [])]
    assert not waiting


def test_P3_the_window_is_checked_between_the_rounds_of_tools() -> None:
    with weft.open() as thread, scripted_upstream() as upstream:
        upstream.rule = rounds_then_done(20)
        events = watch(Agent(thread, **small(upstream.url)), "Read the file, part by part.")
        sent = bodies(upstream)
        folds = [info for info in thread.log() if info.kind == "compact"]
        assert isinstance(events[-1], MessageComplete)
        assert folds
        assert {fold.metadata["made"]["model"] for fold in folds} == {"m"}
        messages = thread.compile().messages
    asked = [body for body in sent if "tools" in body]
    assert len(asked) == 21  # every round took place
    for body in asked:
        assert_pairs_are_whole(body)
        assert "Read the file, part by part." in str(body)  # the request stays verbatim
        assert len(str(body["messages"])) < 9000 * 4.5
    assert messages[0].text.startswith("Read the file, part by part.")
    assert messages[1].text.startswith("[Summary of earlier messages")
    kinds = [event.subtype for event in events if isinstance(event, SystemMessage)]
    assert kinds.count("compact_boundary") == len(folds)
    last = [event for event in events if isinstance(event, SystemMessage)][-1]
    assert last.data["compact_metadata"]["trigger"] == "auto"


def test_P3_the_words_of_a_summary_are_not_told_as_an_answer() -> None:
    with weft.open() as thread, scripted_upstream() as upstream:
        upstream.rule = rounds_then_done(12)
        events = watch(Agent(thread, **small(upstream.url)), "Read it.")
    assert "They read some parts." not in "".join(getattr(event, "text", "") for event in events)


def test_P3_recent_rounds_stay_word_for_word() -> None:
    with weft.open() as thread, scripted_upstream() as upstream:
        upstream.rule = rounds_then_done(14)
        watch(Agent(thread, **small(upstream.url)), "Read it.")
        texts = [message.text for message in thread.compile().messages]
    assert any(text.startswith("part 13 says") for text in texts)
    assert any(text.startswith("part 12 says") for text in texts)


def test_P3_a_failing_summary_ends_no_run_and_a_breaker_stops_the_attempts() -> None:
    with weft.open() as thread, scripted_upstream() as upstream:
        answers = rounds_then_done(40)

        def rule(body: bytes) -> Any:
            return answers(body) if "tools" in orjson.loads(body) else DOWN

        upstream.rule = rule
        agent = Agent(thread, **small(upstream.url, failures=3, pause=100))
        events = watch(agent, "Read it.")
        summaries = [body for body in bodies(upstream) if "tools" not in body]
        assert len(summaries) == 3
        assert isinstance(events[-1], MessageComplete)
        folds = [info for info in thread.log() if info.kind == "compact"]
    assert len(folds) > 3  # nobody is asked any more, and room is made all the same
    assert {fold.metadata["method"] for fold in folds} == {"extract"}
    messages = [event for event in events if isinstance(event, SystemMessage)]
    fell = [event for event in messages if event.subtype == "compact_fallback"]
    assert len(fell) == 3
    assert "on fire" in fell[0].data["compact_error"]
    ends = [event for event in messages if event.subtype == "compact_boundary"]
    assert len(ends) == len(folds)
    assert "on fire" in ends[0].data["compact_metadata"]["reason"]
    assert "reason" not in ends[-1].data["compact_metadata"]
    assert [event for event in messages if "compact_result" in event.data] == []  # none has failed


def test_P3_what_must_stay_is_more_than_the_window_and_nobody_is_asked_in_vain() -> None:
    with weft.open() as thread, scripted_upstream() as upstream:
        for n in range(4):
            thread.pin(thread.user(f"Rule {n} " + "of many words " * 700))
            thread.assistant("Yes.")
        before = thread.compile().rows
        upstream.rule = rounds_then_done(0)
        events = watch(Agent(thread, **small(upstream.url)), "Go.")
        assert len(upstream.requests) == 1
        assert thread.compile().rows[: len(before)] == before
    [message] = [e for e in events if isinstance(e, SystemMessage)]
    assert "must stay" in message.data["compact_error"]


def test_P3_a_model_that_says_its_window_is_full_gets_a_shorter_thread_once() -> None:
    with weft.open() as thread, scripted_upstream() as upstream:
        talk(thread, 60)

        def rule(body: bytes) -> Any:
            if "tools" not in orjson.loads(body):
                return says("They read modules.")
            return TOO_LONG if len(body) > 16_000 else says("Here I am.")

        upstream.rule = rule
        settings = {**small(upstream.url), "catalog": catalogue(window=100_000, output=1000)}
        events = watch(Agent(thread, **settings), "Are you there?")
        assert isinstance(events[-1], MessageComplete), events[-1]
        assert thread.compile().messages[-1].text == "Here I am."
        assert len([info for info in thread.log() if info.kind == "compact"]) == 1


def test_P3_without_room_to_make_the_failure_is_told() -> None:
    with weft.open() as thread, scripted_upstream() as upstream:
        upstream.then(TOO_LONG)
        events = watch(Agent(thread, **small(upstream.url)), "Hello.")
        assert isinstance(events[-1], Failure)
        assert len(thread.compile()) == 1


def test_P3_another_model_may_write_the_summaries() -> None:
    with weft.open() as thread, scripted_upstream() as upstream, scripted_upstream() as cheap:
        upstream.rule = rounds_then_done(12)
        cheap.then(says("They read some parts, cheaply."))
        by = asker(cheap.url, window=50_000)
        watch(Agent(thread, **small(upstream.url, by=by, prompt="Sum up.")), "Read it.")
        assert [body for body in bodies(upstream) if "tools" not in body] == []
        assert role_texts(bodies(cheap)[0])[0] == ("system", "Sum up.")
        assert "cheaply" in thread.compile().messages[1].text


def test_P3_an_agent_without_compaction_folds_nothing() -> None:
    with weft.open() as thread, scripted_upstream() as upstream:
        upstream.rule = rounds_then_done(12)
        watch(Agent(thread, **{**small(upstream.url), "compaction": None}), "Read it.")
        kinds = [info.kind for info in thread.log()]
        assert kinds.count("append") == 2 * 12 + 2  # the question, twelve rounds, the answer
        assert "compact" not in kinds


def test_P3_the_offline_model_keeps_its_own_window() -> None:
    with weft.open() as thread:
        agent = Agent(thread, catalog=load_catalog())
        for n in range(40):
            agent.send(f"Remember number {7000 + n}: " + f"item_{n} is kept in drawer {n}. " * 60)
        assert [info for info in thread.log() if info.kind == "compact"]
        assert thread.compile().tokens < 32_000
        text = thread.compile().messages[0].text
        assert "7000" in text


# P2: what matters


def row(role: str, text: str, *calls: str, priority: Any = "normal") -> Row:
    tool_calls = tuple(ToolCall(id, "read", "{}") for id in calls)
    return Row(None, Message(role, (Text(text), *tool_calls)), priority)


@pytest.mark.parametrize(
    ("message", "number", "total", "score"),
    [
        (row("user", "hi"), 0, 1, 5.02),
        (row("user", "Why error?"), 0, 1, 8.6),  # 5 + 2 + 1.5 + 0.1
        (row("assistant", "x" * 400, "c1"), 0, 10, 8.8907),  # 3 x 0.95^9 + 4 + 3
        (row("system", "x"), 0, 1, 10.01),
        (row("tool", "x"), 0, 1, 5.01),
        (row("developer", "x"), 0, 1, 10.01),
        (row("user", "x" * 5000), 0, 1, 8.0),  # length counts for three at most
        (row("user", "a prefix of the bugle"), 0, 1, 5.21),  # whole words
        (row("user", "Error error ERROR"), 0, 1, 6.67),  # each once
        (row("user", "error fail bug fix decision agreed constraint requirement"), 0, 1, 17.57),
    ],
)
def test_P2_AC3_1_AC3_3_the_preset_has_the_required_weights(
    message: Row, number: int, total: int, score: float
) -> None:
    assert Importance()(message, number, total) == pytest.approx(score, abs=0.0001)


def test_P2_AC3_2_what_was_said_later_scores_higher() -> None:
    scores = [Importance()(row("user", "same"), number, 9) for number in range(9)]
    assert scores == sorted(scores)
    assert len(set(scores)) == 9
    still = Importance(recency=1.0)
    assert len({still(row("user", "same"), number, 9) for number in range(9)}) == 1


def test_P2_AC3_4_the_order_of_an_example() -> None:
    texts = [
        row("user", "What should we do about this?"),
        row("assistant", "ok"),
        row("user", "There is an error in the system"),
        row("assistant", "x"),
        row("user", "plain"),
    ]
    order = sorted(range(5), key=lambda n: Importance()(texts[n], n, 5))
    assert order == [1, 3, 4, 2, 0]


def test_P2_a_reminder_or_a_checkpoint_is_nothing_that_was_said() -> None:
    bare = Row(None, Message("user", (Text("hi"),)))
    marked = Row(None, Message("user", (Text("hi"), Reminder("error?"), Checkpoint("aaaaaa"))))
    assert Importance()(bare, 0, 1) == Importance()(marked, 0, 1)


@pytest.mark.parametrize(
    ("weights", "wrong"),
    [
        ({"recency": 1.5}, "recency"),  # AC3.5
        ({"recency": -0.1}, "recency"),
        ({"user": -1}, "user"),
        ({"usr": 1}, "usr"),
        ({"user": "much"}, "user"),
    ],
)
def test_P2_AC3_5_wrong_weights_are_refused_by_name(weights: Any, wrong: str) -> None:
    with pytest.raises(ConfigError, match=wrong):
        read_importance(weights)


def test_P2_AC3_5_weights_of_ones_own_reach_the_score() -> None:
    mine = read_importance({"user": 1, "keywords": ["kraken"], "keyword": 50})
    assert mine(row("user", "a kraken, an error"), 0, 1) == pytest.approx(51.18)


@pytest.mark.parametrize(
    ("rows", "budget", "chosen"),
    [
        ([row("user", "plain"), row("user", "an error")], 6, [1]),
        ([row("user", "a bug?"), row("assistant", "ok"), row("user", "a fix?")], 12, [0, 2]),
        ([row("user", "a bug?"), row("assistant", "ok", priority="important")], 6, [1]),
        ([row("user", "a bug?")], 3, []),
        ([], 100, []),
    ],
)
def test_P2_what_matters_most_is_chosen_and_stays_in_order(
    rows: list[Row], budget: int, chosen: list[int]
) -> None:
    assert choose_verbatim(rows, Importance(), budget, counter) == chosen


def test_P2_a_call_is_chosen_with_its_results_or_not_at_all() -> None:
    result = Row(None, Message("tool", (ToolResult("c1", (Text("ten words " * 5),)),)))
    rows = [row("user", "go"), row("assistant", "I look", "c1"), result, row("user", "on")]
    assert choose_verbatim(rows, Importance(), 19, counter) == [0, 3]
    assert choose_verbatim(rows, Importance(), 20, counter) == [1, 2]


def test_P2_old_messages_that_matter_stay_verbatim_and_the_transcript_is_chronological(
    t: Thread,
) -> None:
    talk(t, 4)
    t.user("We agreed on a constraint: no fix without a decision, is that a requirement?")
    t.assistant("Yes.")
    talk(t, 6, first=4)
    before = [message.text for message in t.compile().messages]
    with writer(says("They read modules.")) as (upstream, model):
        t.compact(model=model, keep=1, verbatim=60)
        sent = [text for _, text in role_texts(bodies(upstream)[0])]
    after = [message.text for message in t.compile().messages]
    assert "They read modules." in after[1]
    kept_messages = after[2:]
    assert "We agreed on a constraint" in kept_messages[0]
    assert kept_messages == [text for text in before if text in kept_messages]  # in their order
    steps = [text for text in sent if text.startswith("Step")]
    assert steps == [text for text in before if text in steps]
    assert not any("We agreed" in text for text in sent[1:-1])  # not summarised too


def test_P2_a_scorer_is_any_function(t: Thread) -> None:
    talk(t, 8)

    def by_name(row: Row, _number: int, _total: int) -> float:
        return 1.0 if "module_2" in row.message.text else 0.0

    t.compact(model="weft-offline", keep=1, verbatim=70, scorer=by_name)
    texts = [message.text for message in t.compile().messages]
    assert texts[2].startswith("Step 2")


@pytest.mark.parametrize("options", [{"verbatim": 50}, {"prompt": "P"}])
def test_P2_wishes_that_only_a_model_can_follow_need_one(t: Thread, options: Any) -> None:
    talk(t, 3)
    with pytest.raises(CompactRefused, match="model"):
        t.compact(keep=1, **options)


@pytest.mark.parametrize("verbatim", [0, 50, 200, 400])
def test_P2_verbatim_messages_count_into_the_budget(t: Thread, verbatim: int) -> None:
    talk(t, 30)
    t.compact(model="weft-offline", budget=1200, verbatim=verbatim)
    assert t.compile().tokens <= 1200


# P4: batches


def folded_often(thread: Thread, times: int, model: Any = "weft-offline") -> list[Any]:
    """So many compactions, each of four new exchanges."""
    done: list[Any] = []
    for n in range(times):
        talk(thread, 4, first=4 * n)
        done.append(thread.compact(model=model, keep=1))
    return done


def chapters() -> Any:
    """A model that numbers what it writes, and says `folded` when it folds summaries."""
    numbers = iter(range(100))

    def rule(body: bytes) -> Any:
        last = role_texts(orjson.loads(body))[-1][1]
        if last.startswith("Fold the summaries"):
            return says("They folded it all.")
        return says(f"They went through it: chapter {chr(97 + next(numbers))}.")

    return rule


@pytest.fixture
def writing() -> Iterator[Any]:
    with scripted_upstream() as upstream:
        upstream.rule = chapters()
        yield asker(upstream.url)


@pytest.mark.parametrize(
    ("batches", "numbers", "omitted"),
    [
        (1, "1", None),
        (3, "1 2 3", None),
        (4, "1 2 3 4", None),
        (5, "1 2 4 5", "1 earlier summary left out"),
        (6, "1 2 5 6", "2 earlier summaries left out"),
    ],
)
def test_P4_the_first_and_the_last_are_told_and_how_many_stand_between(
    batches: int, numbers: str, omitted: str | None
) -> None:
    summaries = [Batch(f"text-{n}", 3, 0, 60.0 * n, 60.0 * n + 30) for n in range(1, batches + 1)]
    text = write_batches(summaries, Clip()).text
    assert [n for n in "123456" if f"text-{n}" in text] == numbers.split()
    assert (omitted is None) == ("left out" not in text)
    assert omitted is None or omitted in text
    assert f"{3 * batches} messages" in text
    if batches > 1:
        assert "[Part 1 of" in text
        assert "1970-01-01 00:01 to 1970-01-01 00:01" in text


@pytest.mark.parametrize("clip", [(0, 2, 2), (2, 0, 2), (2, 2, -1)])
def test_P4_a_clip_keeps_a_batch_at_both_ends(clip: tuple[int, int, int]) -> None:
    with pytest.raises(ConfigError):
        Clip(*clip)


def test_P4_a_batch_has_depth_times_and_count_in_the_commits_record(t: Thread) -> None:
    folded_often(t, 2)
    first, second = t.batches()
    assert [summary.batch.depth for summary in (first, second)] == [0, 0]
    assert [summary.batch.count for summary in (first, second)] == [6, 8]
    assert first.batch.start <= first.batch.end <= second.batch.start <= second.batch.end
    texts = [info.created.timestamp() for info in reversed(t.log()) if info.kind == "append"]
    assert first.batch.start == pytest.approx(texts[1], abs=1e-5)  # behind the setup
    assert second.batch.end == pytest.approx(texts[14], abs=1e-5)
    assert [summary.commit for summary in (first, second)] == [
        info.id for info in reversed(t.log()) if info.kind == "compact"
    ]
    assert read_batches(t.head.metadata) == (first.batch, second.batch)


def test_P4_six_batches_stay_and_the_seventh_folds_those_between(t: Thread, writing: Any) -> None:
    folded_often(t, 6, writing)
    assert [summary.batch.depth for summary in t.batches()] == [0] * 6
    before = [summary.batch for summary in t.batches()]
    folded_often(t, 1, writing)
    after = [summary.batch for summary in t.batches()]
    assert [batch.depth for batch in after] == [0, 0, 1, 0, 0]
    assert after[:2] == before[:2]  # the first account is no copy of a copy
    assert after[3] == before[5]
    folded = after[2]
    assert folded.count == sum(batch.count for batch in before[2:5])
    assert (folded.start, folded.end) == (before[2].start, before[4].end)
    assert "They folded it all." in folded.text
    for n in range(11, 15):
        assert f"src/module_{n}.py" in folded.text  # names survive a fold of folds


def test_P4_the_summary_is_one_user_entry_behind_the_setup_and_no_system_is_rewritten(
    t: Thread, writing: Any
) -> None:
    t.system("Second rule.")
    setup = t.compile().rows[:2]
    folded_often(t, 8, writing)
    rows = t.compile().rows
    assert rows[:2] == setup
    assert [(row.message.role, row.kind) for row in rows if row.kind == "summary"] == [
        ("user", "summary")
    ]
    assert rows[2].kind == "summary"
    for protocol, model in MODELS.items():
        body = weft.encode(weft.Request(model, t.compile().messages), protocol).body
        assert "Part 1 of" in str(body)


def test_P4_everything_stays_searchable_and_can_be_looked_up(t: Thread, writing: Any) -> None:
    folded_often(t, 8, writing)
    for n in (0, 9, 17, 25):
        [hit] = [hit for hit in t.search(f"{4000 + n}") if hit.text.startswith("src/module")]
        assert not hit.live
        assert t.recall(hit.id)[0].text == hit.text
    chapter = [hit for hit in t.search("chapter d") if hit.text.startswith("[Summary")]
    assert chapter  # a summary that was folded into another is found too


def test_P4_no_second_store(t: Thread, writing: Any) -> None:
    folded_often(t, 3, writing)
    batches = t.batches()
    with weft.open(t.store, t.name) as other:
        assert other.batches() == batches
        assert other.batches(batches[0].commit) == batches[:1]


def test_P4_each_compaction_is_brought_back_with_later_turns_kept(t: Thread, writing: Any) -> None:
    talk(t, 4)
    whole = t.compile().rows
    done = t.compact(model=writing, keep=1)
    t.user("One more.")
    t.revert(done.commit)
    assert t.compile().rows[:-1] == whole
    assert t.compile().messages[-1].text == "One more."
    assert t.batches() == []


def test_P4_after_a_revert_the_batches_are_those_of_before(t: Thread, writing: Any) -> None:
    first, second = folded_often(t, 2, writing)
    assert len(t.batches()) == 2
    t.revert(second.commit)
    assert [summary.commit for summary in t.batches()] == [first.commit]
    t.compact(model=writing, keep=1)
    assert len(t.batches()) == 2


@pytest.mark.parametrize(
    ("fold", "count", "words"),
    [
        (lambda t: t.compact(keep=1, summary="They met."), 6, "They met."),
        (lambda t: t.compact(keep=1), 6, "Step 0: what does src/module_0.py do"),
    ],
)
def test_P4_a_summary_from_elsewhere_is_a_batch_like_any_other(
    t: Thread, writing: Any, fold: Any, count: int, words: str
) -> None:
    talk(t, 4)
    result = fold(t)
    talk(t, 4, first=4)
    t.compact(model=writing, keep=1)
    first, second = t.batches()
    assert (first.batch.count, first.batch.depth, first.commit) == (count, 0, result.commit)
    assert words in first.text
    assert second.batch.model == "m"
    assert words in t.compile().messages[1].text


def test_P4_a_summary_that_was_edited_is_what_it_says_now(t: Thread, writing: Any) -> None:
    folded_often(t, 1, writing)
    t.edit(t.compile().ids[1], "What really happened.")
    folded_often(t, 1, writing)
    assert "What really happened." in t.compile().messages[1].text
    assert t.batches()[0].text == "What really happened."


def test_P4_the_agents_own_summaries_are_turns_to_this_engine(writing: Any) -> None:
    with weft.open(checkpoints=True) as thread:
        talk(thread, 4)
        marks = [checkpoint.id for checkpoint in thread.checkpoints()]
        thread.compact([{"from": marks[0], "to": marks[2], "summary": "I read module_1."}])
        talk(thread, 2, first=4)
        thread.compact(model=writing, keep=1)
        assert [summary.batch.depth for summary in thread.batches()] == [0]
        assert len(thread.compile().messages) == 3


def test_P4_what_must_be_retained_survives_a_fold_of_folds(t: Thread, writing: Any) -> None:
    t.user("The offer is $47,500 and not a cent more.")
    t.assistant("It stays between us.")
    talk(t, 3, first=90)
    for n in range(12):
        t.compact(model=writing, keep=1, retain=["$47,500"])
        talk(t, 3, first=3 * n)
    assert "The offer is $47,500" in t.compile().messages[1].text
    assert len(t.batches()) <= 6


def test_P4_summaries_never_crowd_out_a_small_window(t: Thread) -> None:
    t.user("Never touch the API.")
    t.assistant("Never.")
    for n in range(30):
        talk(t, 4, first=4 * n)
        t.compact(model="weft-offline", budget=1500)
        assert t.compile().tokens <= 1500
    assert max(summary.batch.depth for summary in t.batches()) > 0
    assert sum(summary.batch.count for summary in t.batches()) > 200


def test_P4_a_failing_fold_of_folds_leaves_everything_as_it_was(t: Thread) -> None:
    with scripted_upstream() as upstream:
        write_chapter = chapters()

        def rule(body: bytes) -> Any:
            return DOWN if b"Fold the summaries" in body else write_chapter(body)

        upstream.rule = rule
        model = asker(upstream.url)
        folded_often(t, 6, model)
        talk(t, 4, first=50)
        before = state_of(t)
        with pytest.raises(UpstreamFailed):
            t.compact(model=model, keep=1)
        assert state_of(t) == before


def test_P4_a_forgotten_text_is_in_no_record_either(t: Thread) -> None:
    t.user("The key is hunter2secret.")
    t.assistant("I will use hunter2secret.")
    talk(t, 4)
    t.compact(model="weft-offline", keep=1, retain=["hunter2secret"])
    assert "hunter2secret" in str(t.head.metadata)
    forget(t.store, "hunter2secret")
    with weft.open(t.store) as again:
        assert "hunter2secret" not in str(again.head.metadata) + str(again.compile().messages)
        assert "hunter2secret" not in str(again.batches())


@pytest.mark.parametrize("most", [9000, 2600, 1300])
def test_P4_very_many_chunks_are_folded_in_as_many_requests_as_it_takes(
    t: Thread, most: int
) -> None:
    talk(t, 120)
    with scripted_upstream() as upstream:
        write_chapter = chapters()

        def rule(body: bytes) -> Any:
            folds = [text for role, text in role_texts(orjson.loads(body)) if "batch:" in text]
            return TOO_LONG if len("".join(folds)) > most else write_chapter(body)

        upstream.rule = rule
        done = t.compact(model=asker(upstream.url, window=1900, output=400), keep=1)
        assert done.requests == len(upstream.requests)
    batches = [summary.batch for summary in t.batches()]
    assert len(batches) <= 6
    assert sum(batch.count for batch in batches) == 238
    assert 1 <= max(batch.depth for batch in batches) <= 6  # a tree, not a chain


def test_P1_an_index_that_says_how_much_it_leaves_out_is_no_invention(t: Thread) -> None:
    talk(t, 300)
    done = t.compact(model="weft-offline", keep=1)
    assert done.dropped == ()
    assert "more" in t.compile().messages[1].text


def test_P3_a_thread_that_is_one_long_exchange_is_folded_inside_it(t: Thread) -> None:
    t.user("Read them all.")
    for n in range(30):
        tool_round(t, n, size=5)
    done = t.compact(model="weft-offline")
    rows = t.compile().rows
    assert done.messages > 20
    assert rows[1].message.text == "Read them all."
    assert rows[2].kind == "summary"
    assert all(pair.call and pair.results for pair in find_pairs(rows))
    assert "value_29" in rows[-1].message.text
    assert t.compact(model="weft-offline", keep=1).commit is None  # the exchange was asked for


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with weft_serve(tmp_path_factory.mktemp("gateway")) as served:
        yield served.url


@pytest.mark.parametrize("protocol", MODELS)
def test_P1_the_offline_model_writes_the_same_summaries_over_every_wire(
    gateway: str, protocol: str
) -> None:
    def summaries(model: Any) -> list[str]:
        with weft.open() as thread:
            thread.system("You are Ada.")
            thread.user("Never touch the API of release 7.31.")
            tool_round(thread, 1)
            folded_often(thread, 7, model)
            return [summary.text for summary in thread.batches()]

    far = summaries(asker(gateway, "weft-offline", protocol))
    assert far == summaries("weft-offline")
    assert "release 7.31" in far[0]
    quoted = [n for n in range(7, 19) if f"src/module_{n}.py" in far[2]]
    assert quoted  # names of summaries of summaries, still verbatim


def test_P3_AC2_1_an_answer_that_takes_too_long_is_asked_for_in_halves(t: Thread) -> None:
    talk(t, 60)
    with scripted_upstream() as upstream:

        def rule(body: bytes) -> Any:
            slow = len(body) > 9_000
            return Scripted(b": wait\n\n", b": wait\n\n", pause=1.0) if slow else says("On.")

        upstream.rule = rule
        provider = make_provider("u", "openai-chat", upstream.url)
        model = ModelClient(provider, "m", catalogue(), policy=ONCE, idle=0.25)
        done = t.compact(model=model)
        assert done.requests == len(upstream.requests) > 2
    assert sum(summary.batch.count for summary in t.batches()) == 118


def test_P1_what_it_costs_is_said_before_and_after(t: Thread) -> None:
    talk(t, 40)
    with writer(says("They read modules."), price={"input": 10.0, "output": 50.0}) as (_, model):
        preview = t.compact(model=model, preview=True)
        assert preview.cost is not None
        assert 0.01 < preview.cost < 0.1
        assert f"${preview.cost:.4f}" in str(preview)
        assert t.compact(model=model).cost is None  # this upstream reports no usage


def test_P4_the_batches_of_a_file_are_there_when_it_is_opened_again(
    tmp_path: Any, writing: Any
) -> None:
    with weft.open(tmp_path / "a.db") as thread:
        folded_often(thread, 7, writing)
        batches = thread.batches()
    with weft.open(tmp_path / "a.db") as again:
        assert again.batches() == batches
        assert again.search("chapter c")
        talk(again, 4, first=70)
        again.compact(model=writing, keep=1)
        assert again.batches()[0] == batches[0]


def test_P1_the_api_has_the_same_door(tmp_path: Any) -> None:
    with scripted_upstream() as upstream:
        flags = ("--upstream", f"u=openai-chat:{upstream.url}")
        with weft_serve(tmp_path, *flags) as served:
            with weft.open(tmp_path / "weft.db", "api") as thread:
                talk(thread, 8)
            options = {"thread": "api", "model": "m", "keep": 1}
            upstream.then(refuses(401, "no such key"))
            status, _, body = post(f"{served.url}/api/compact", options)
            assert (status, "no such key" in body.decode()) == (502, True)
            upstream.then(says("They read modules."))
            preview = orjson.loads(
                post(f"{served.url}/api/compact", {**options, "preview": True})[2]
            )
            assert (upstream.requests, preview["commit"]) == ([], None)
            done = orjson.loads(post(f"{served.url}/api/compact", options)[2])
    assert len(done["removed"]) == 14
    assert "1 request to m" in done["message"]
    with weft.open(tmp_path / "weft.db", "api") as thread:
        assert thread.head.id == done["commit"]


@pytest.mark.parametrize("times", [1, 2, 4])
def test_P4_summaries_that_are_all_that_is_too_long_are_told_anew(t: Thread, times: int) -> None:
    with scripted_upstream() as upstream:

        def rule(body: bytes) -> Any:
            return says("Short." if b"Fold the summaries" in body else "They went on and on. " * 90)

        upstream.rule = rule
        model = asker(upstream.url)
        folded_often(t, times, model)
        before = t.compile().rows
        done = t.compact(model=model, budget=480)
        assert done.commit
        assert t.compile().tokens <= 480
        assert "Short." in t.compile().messages[1].text
        assert sum(summary.batch.count for summary in t.batches()) >= 6
        t.revert(done.commit)
        assert t.compile().rows == before


def test_P4_a_budget_that_nothing_can_meet_is_refused_with_what_it_takes(t: Thread) -> None:
    talk(t, 3)
    before = state_of(t)
    with writer(says("They went on.")) as (upstream, model):
        with pytest.raises(BudgetExceeded) as refused:
            t.compact(model=model, budget=60)
        assert refused.value.needed > 60
        assert upstream.requests == []
        t.compact(model=model, budget=refused.value.needed)
    assert state_of(t) != before


def test_P4_a_text_to_retain_that_would_no_longer_be_told_is_refused(
    t: Thread, writing: Any
) -> None:
    folded_often(t, 4, writing)
    assert "chapter c" in t.compile().messages[1].text
    talk(t, 4, first=60)
    before = state_of(t)
    with pytest.raises(CompactRefused, match="chapter c"):
        t.compact(model=writing, keep=1, retain=["chapter c"])
    assert state_of(t) == before
