"""The offline model is deterministic and exercises every feature of the product."""

import orjson
import pytest

from weft.demo import answer_offline
from weft.model import (
    Checkpoint,
    Delta,
    End,
    Format,
    Message,
    Params,
    Reasoning,
    Reminder,
    Request,
    Text,
    Thinking,
    Tool,
    ToolCall,
    ToolChoice,
    ToolResult,
    fold,
)

WEATHER = Tool(
    "get_weather",
    parameters={
        "type": "object",
        "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
        "required": ["city"],
    },
)
COMPACT = Tool("compact", parameters={"type": "object"})


def user(text, *blocks):
    return Message("user", (Text(text), *blocks))


def assistant(*blocks):
    return Message("assistant", tuple(Text(b) if isinstance(b, str) else b for b in blocks))


def ask(*messages, tools=(), **params):
    return Request("weft-offline", messages, tools=tuple(tools), params=Params(**params))


def words(request):
    return fold(answer_offline(request)).message.text


def calls(request):
    blocks = fold(answer_offline(request)).message.blocks
    return [(b.name, orjson.loads(b.arguments)) for b in blocks if isinstance(b, ToolCall)]


@pytest.mark.parametrize(
    ("messages", "text"),
    [
        ([user("hello")], "You said: “hello”"),
        (
            [user("I live in Lyon."), assistant("Nice."), user("Where do I live?")],
            "I live in Lyon.",
        ),
        ([user("one"), assistant("two"), user("How many messages came before?")], "2 messages"),
        ([user("one"), assistant("two"), user("What was my first message?")], "“one”"),
        ([user("one"), assistant("two"), user("Summarise it.")], "- You said: one"),
    ],
)
def test_it_answers_about_the_conversation(messages, text):
    assert text in words(ask(*messages))


def test_the_same_request_gives_the_same_events():
    request = ask(user("hello"), tools=[WEATHER])
    assert list(answer_offline(request)) == list(answer_offline(request))


def test_it_streams_word_by_word_and_stops():
    events = list(answer_offline(ask(user("hello there"))))
    assert sum(isinstance(event, Delta) for event in events) > 10
    assert isinstance(events[-1], End)


@pytest.mark.parametrize(
    ("text", "arguments"),
    [
        ("Please use the tool to look up the weather in Paris", {"city": "Paris"}),
        ('call get_weather with {"city": "Rome", "days": 3}', {"city": "Rome", "days": 3}),
        ('use get_weather for "New York"', {"city": "New York"}),
    ],
)
def test_it_calls_a_tool_that_the_user_asks_for(text, arguments):
    request = ask(user(text), tools=[COMPACT, WEATHER] if "get_" in text else [WEATHER])
    assert calls(request) == [("get_weather", arguments)]
    assert fold(answer_offline(request)).stop.kind == "tool"


@pytest.mark.parametrize(
    ("choice", "expected"),
    [
        (ToolChoice("any"), ["get_weather"]),
        (ToolChoice("tool", "get_weather"), ["get_weather"]),
        (ToolChoice("none"), []),
        (None, []),
    ],
)
def test_tool_choice_is_respected(choice, expected):
    request = ask(user("hello in Paris"), tools=[WEATHER], tool_choice=choice)
    assert [name for name, _ in calls(request)] == expected


def test_it_reports_a_tools_result():
    turn = assistant(ToolCall("c1", "get_weather", "{}"))
    result = Message("tool", (ToolResult("c1", (Text("sunny"),)),))
    assert words(ask(user("use it"), turn, result)) == "`get_weather` answered: sunny"


def test_it_compacts_up_to_the_turn_before_the_last():
    request = ask(
        user("one", Checkpoint("aaaaaa")),
        assistant("two"),
        user("three"),
        Message("user", (Text("<checkpoint:bbbbbb>"),)),
        assistant("four"),
        user("Please compact the thread.", Checkpoint("cccccc")),
        tools=[WEATHER, COMPACT],
    )
    [(name, arguments)] = calls(request)
    [replacement] = arguments["replacements"]
    assert (name, replacement["to"]) == ("compact", "bbbbbb")
    assert "one" in replacement["summary"]


def test_a_turn_without_text_makes_it_continue():
    tail = Message("user", (Reminder("The thread was compacted."), Checkpoint("dddddd")))
    assert words(ask(user("one"), assistant("two"), tail)).startswith("I go on")


def test_a_required_schema_is_filled():
    schema = {
        "type": "object",
        "properties": {"city": {"$ref": "#/$defs/C"}, "n": {"type": "integer"}},
        "required": ["city", "n"],
        "$defs": {"C": {"type": "string", "enum": ["Paris"]}},
    }
    request = ask(user("How is it on day 7?"), format=Format("schema", schema))
    assert orjson.loads(words(request)) == {"city": "Paris", "n": 7}


@pytest.mark.parametrize(
    ("params", "kind"),
    [
        ({}, "end"),
        ({"max_tokens": 3}, "length"),
        ({"stop": ("This",)}, "sequence"),
    ],
)
def test_the_answer_has_a_stop_reason(params, kind):
    assert fold(answer_offline(ask(user("hello"), **params))).stop.kind == kind


def test_it_thinks_if_thinking_is_requested():
    blocks = fold(answer_offline(ask(user("hi"), reasoning=Reasoning("on")))).message.blocks
    assert isinstance(blocks[0], Thinking)
    assert blocks[0].signature


def tool(name, about, **properties):
    schema = {"type": "object", "properties": properties, "required": list(properties)}
    return Tool(name, about, schema)


OWN = (
    tool("compact", "Replace a part of the thread with a summary, when it is long."),
    tool("recall", "Find original messages that a compaction took out.", query={"type": "string"}),
)
DESK = (
    *OWN,
    tool("calculate", "Work out an expression of numbers.", expression={"type": "string"}),
    tool("now", "The date and time here."),
    tool("search_threads", "Find messages in all threads.", words={"type": "string"}),
)


@pytest.mark.parametrize(
    ("text", "called"),
    [
        ("use a tool", ["calculate"]),
        ("What time is it? Use a tool.", ["now"]),
        ("What is (12 + 30) * 2? Use a tool.", ["calculate"]),
        ('Use a tool to search the threads for "cats".', ["search_threads"]),
        ("Please use a tool: list the files here.", []),
        ("call the tool read_file with path README.md", []),
        ("echo hello with a tool", []),
        ("use the compass tool", []),
        ("Compact the thread, please.", ["compact"]),
        ("Please compact.", ["compact"]),
        ("Use the compact tool.", ["compact"]),
        ("/compact", ["compact"]),
        ("Do not compact the thread.", []),
        ("What does compaction do?", []),
        ("I drive a compact car.", []),
        ("Recall what I said about cats.", ["recall"]),
        ("use recall for cats", ["recall"]),
        ("As I recall, use a tool to tell the time.", ["now"]),
    ],
)
def test_only_the_tool_that_is_asked_for_is_called(text, called):
    request = ask(user("one"), assistant("two"), user(text), tools=DESK)
    assert [name for name, _ in calls(request)] == called


@pytest.mark.parametrize(
    ("text", "tools", "actual_text"),
    [
        ("use a tool", OWN, "`compact` and `recall`"),
        ("Please use a tool: list the files here.", DESK, "`calculate`, `now`"),
        ("call the tool read_file with path README.md", DESK, "no tool `read_file`"),
        ("Which tools do you have?", DESK, "`search_threads`"),
        ("use a tool", (), "no tools"),
    ],
)
def test_if_no_tool_fits_it_lists_the_tools(text, tools, actual_text):
    assert actual_text in words(ask(user(text), tools=tools))


def test_a_forced_choice_is_not_a_request_to_compact():
    request = ask(user("hello"), tools=DESK, tool_choice=ToolChoice("any"))
    assert [name for name, _ in calls(request)] == ["calculate"]


def test_an_expression_is_taken_from_the_text():
    request = ask(user("What is (12 + 30) * 2? Use a tool."), tools=DESK)
    assert calls(request) == [("calculate", {"expression": "(12 + 30) * 2"})]


FACTS = ("My name is Ada.", "I keep two cats, Tom and Ulla.")


def folded():
    """A conversation after the model's own compaction of it."""
    texts = [user(FACTS[0]), assistant(words(ask(user(FACTS[0]))))]
    texts += [user(FACTS[1]), assistant("`now` answered: noon.")]
    [(_, arguments)] = calls(ask(*texts, user("Please compact the thread."), tools=OWN))
    return arguments["replacements"][0]["summary"]


def test_its_summary_contains_the_facts():
    summary = folded()
    assert all(fact in summary for fact in (*FACTS, "`now` answered: noon."))
    assert "offline model" not in summary


@pytest.mark.parametrize(
    "question", ["How many cats do I keep?", "Summarise it.", "What is my name?"]
)
def test_after_a_compaction_user_text_stays_user_text(question):
    after = words(ask(assistant(folded()), user(question)))
    assert "I said" not in after
    assert any(fact in after for fact in FACTS)


@pytest.mark.parametrize("heading", ["user", "The user's messages, oldest first"])
@pytest.mark.parametrize("role", ["user", "assistant"])
def test_facts_in_an_engine_summary_keep_their_speaker(role, heading):
    mark = "[Summary of earlier messages by the engine]"
    lines = (mark, "", f"{heading}:", "- I live in Lyon.", "")
    summary = Message(role, (Text("\n".join((*lines, "assistant:", "- Noted: Lyon in France."))),))
    after = words(ask(summary, assistant("Go on."), user("Where do I live?")))
    assert after == "You said earlier: “I live in Lyon.”"


def test_its_text_about_tools_is_not_a_fact():
    texts = [user("Use a tool: list the files."), assistant("My tools are `now`; name one.")]
    [(_, arguments)] = calls(ask(*texts, *texts, user("Please compact."), tools=OWN))
    summary = arguments["replacements"][0]["summary"]
    assert summary.count("list the files") == 1
    assert "My tools" not in summary


def test_a_second_compaction_keeps_the_facts_of_the_first():
    again = ask(
        assistant(folded()),
        user("One more thing."),
        assistant("Yes?"),
        user("Compact it."),
        tools=OWN,
    )
    [(_, arguments)] = calls(again)
    assert all(fact in arguments["replacements"][0]["summary"] for fact in FACTS)
