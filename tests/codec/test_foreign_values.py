"""Values of one vendor that another refuses, misreads, or supports in another form.

Each row is a regression test: the value was translated wrongly, or lost without need.
"""

import pytest

import weft
from laws.test_named_losses import unnamed

A, C, R, G = "anthropic", "openai-chat", "openai-responses", "gemini"
USER = {"role": "user", "content": "hi"}
NAME = "gpt-5"


def claude(*messages, **members):
    return {"model": NAME, "max_tokens": 9000, "messages": list(messages) or [USER], **members}


def gemini(*contents, **members):
    texts = list(contents) or [{"role": "user", "parts": [{"text": "hi"}]}]
    return {"contents": texts, **members}


def thought(budget, **config):
    thinking = {"thinkingBudget": budget, **config}
    return gemini(generationConfig={"thinkingConfig": thinking})


def sent(body, source, target, model=NAME):
    return weft.translate(body, source, target, model=model)


def meant(done):
    """The losses of meaning, by path."""
    return [loss.path for loss in done.losses if loss.level != "form"]


def enabled(budget):
    return claude(thinking={"type": "enabled", "budget_tokens": budget})


BUDGET = "generationConfig.thinkingConfig.thinkingBudget"
BUDGETS = [
    (enabled(1024), A, C, {"reasoning_effort": "low"}, "thinking.budget_tokens"),
    (enabled(2048), A, C, {"reasoning_effort": "low"}, "thinking.budget_tokens"),
    (enabled(2049), A, C, {"reasoning_effort": "medium"}, "thinking.budget_tokens"),
    (enabled(8192), A, R, {"reasoning": {"effort": "medium"}}, "thinking.budget_tokens"),
    (enabled(8193), A, R, {"reasoning": {"effort": "high"}}, "thinking.budget_tokens"),
    (thought(1), G, C, {"reasoning_effort": "low"}, BUDGET),
    (thought(4096), G, C, {"reasoning_effort": "medium"}, BUDGET),
    (thought(20000), G, R, {"reasoning": {"effort": "high"}}, BUDGET),
    (
        thought(4096, includeThoughts=True),
        G,
        R,
        {"reasoning": {"effort": "medium", "summary": "auto"}},
        BUDGET,
    ),
]


@pytest.mark.parametrize(("body", "source", "target", "members", "path"), BUDGETS)
def test_a_thinking_budget_becomes_an_effort_for_models_with_effort(
    body, source, target, members, path
):
    done = sent(body, source, target)
    effort = members.get("reasoning_effort") or members["reasoning"]["effort"]
    (loss,) = [loss for loss in done.losses if loss.level != "form"]
    assert {name: done.body.get(name) for name in members} == members
    assert loss.path == path
    assert loss.code == "thinking_budget_as_effort"
    assert loss.detail.endswith(f"-> {effort}")


@pytest.mark.parametrize(("body", "source", "target"), [row[:3] for row in BUDGETS])
def test_every_difference_after_the_round_trip_is_reported(body, source, target):
    assert not unnamed(body, source, target)


NO_EFFORT = [
    (enabled(4096), A, C, "gpt-4o", "reasoning_effort"),  # it gets none
    (enabled(4096), A, R, "some-model", "reasoning"),
    (thought(4096), G, C, "gpt-4o", "reasoning_effort"),
]


@pytest.mark.parametrize(("body", "source", "target", "model", "member"), NO_EFFORT)
def test_a_thinking_budget_is_reported_for_models_without_effort(
    body, source, target, model, member
):
    done = sent(body, source, target, model)
    assert member not in done.body
    assert ("thinking_budget_dropped", "4096") in [(loss.code, loss.detail) for loss in done.losses]


def test_an_effort_of_the_caller_overrides_the_budget():
    body = {**enabled(20000), "output_config": {"effort": "low"}}
    assert sent(body, A, C).body["reasoning_effort"] == "low"
    assert sent(body, A, R).body["reasoning"] == {"effort": "low"}


def test_a_dropped_effort_is_reported():
    body = claude(thinking={"type": "disabled"}, output_config={"effort": "high"})
    done = sent(body, A, R)
    assert done.body["reasoning"] == {"effort": "high"}
    assert meant(done) == ["thinking"]
    assert not unnamed(body, A, R)


BARE = {"type": "object"}
WHOLE = {"type": "object", "properties": {}}
DECLARED = [{"functionDeclarations": [{"name": "f", "parametersJsonSchema": BARE}]}]
SCHEMAS = [
    # "Invalid schema for function 'f': In context=(), object schema missing properties":
    # https://github.com/spring-projects/spring-ai/issues/4776
    (claude(tools=[{"name": "f", "input_schema": BARE}]), A, C, WHOLE, "tools[0].input_schema"),
    (claude(tools=[{"name": "f", "input_schema": BARE}]), A, R, WHOLE, "tools[0].input_schema"),
    (
        gemini(tools=DECLARED),
        G,
        R,
        WHOLE,
        "tools[0].functionDeclarations[0].parametersJsonSchema",
    ),
    (
        claude(tools=[{"name": "f", "input_schema": {**BARE, "additionalProperties": True}}]),
        A,
        C,
        {**WHOLE, "additionalProperties": True},
        "tools[0].input_schema",
    ),
]


@pytest.mark.parametrize(("body", "source", "target", "schema", "path"), SCHEMAS)
def test_an_object_schema_gets_properties(body, source, target, schema, path):
    done = sent(body, source, target)
    (tool,) = done.body["tools"]
    assert tool.get("function", tool)["parameters"] == schema
    assert [loss.level for loss in done.losses if loss.path == path] == ["form"]
    assert not unnamed(body, source, target)


def model(*parts):
    return gemini({"role": "user", "parts": [{"text": "hi"}]}, {"role": "model", "parts": [*parts]})


def chat(*messages, **members):
    return {"model": NAME, "messages": list(messages) or [USER], **members}


def responses(*items, **members):
    return {"model": NAME, "input": list(items), **members}


PNG = {"inlineData": {"mimeType": "image/png", "data": "aGk="}}
HI = {"text": "hi"}
CALL = {"functionCall": {"name": "f", "args": {}}}
ANSWER = {"functionResponse": {"name": "f", "response": {"ok": True}}}
FOUND = {
    "type": "search_result",
    "source": "https://a.example",
    "title": "A",
    "content": [{"type": "text", "text": "found"}],
}
FILE = {"type": "input_file", "file_id": "file_1"}


def result(*content, call="toolu_1"):
    block = {"type": "tool_result", "tool_use_id": call, "content": [*content]}
    return {"role": "user", "content": [block]}


def output(*parts):
    return {"type": "function_call_output", "call_id": "call_1", "output": [*parts]}


LEFT_OUT = [
    # "'image' blocks are not permitted within assistant turns":
    # https://github.com/SEMOSS/Semoss/issues/2323
    (model({"text": "a"}, PNG), G, A, '"image"', ["contents[1].parts[1]"]),
    # "Invalid value: 'input_image'. Supported values are: 'output_text' and 'refusal'."
    (model({"text": "a"}, PNG), G, R, "input_image", ["contents[1].parts[1]"]),
    (model({"text": "a"}, PNG), G, C, "image_url", ["contents[1].parts[1]"]),
    # calls belong in assistant messages, and results in user messages
    (gemini({"role": "user", "parts": [HI, CALL]}), G, A, "tool_use", ["contents[0].parts[1]"]),
    (gemini({"role": "user", "parts": [HI, CALL]}), G, C, "tool_calls", ["contents[0].parts[1]"]),
    (
        gemini({"role": "user", "parts": [HI, CALL]}),
        G,
        R,
        "function_call",
        ["contents[0].parts[1]"],
    ),
    (model(ANSWER), G, A, "tool_result", ["contents[1].parts[0]"]),
    (model(ANSWER), G, R, "function_call_output", ["contents[1].parts[0]"]),
    # what stood in a result without a call is looked at, too
    (responses(output(FILE)), R, A, "file_1", ["input[0]", "input[0].output[0]"]),
    (responses(output(FILE)), R, C, "file_1", ["input[0]", "input[0].output[0]"]),
    (
        claude(
            {
                "role": "assistant",
                "content": [{"type": "tool_use", "id": "t", "name": "f", "input": {}}],
            },
            result({"type": "image", "source": {"type": "file", "file_id": "file_1"}}, call="t"),
        ),
        A,
        R,
        "file_1",
        ["messages[1].content[0].content[0]"],
    ),
]


@pytest.mark.parametrize(("body", "source", "target", "word", "lost"), LEFT_OUT)
def test_an_unsupported_value_is_omitted_and_reported(body, source, target, word, lost):
    done = sent(body, source, target, "m")
    assert word not in str(done.body).replace("'", '"')
    filled = {"contents[0]", "input[0]"} - set(lost)  # a message that says nothing is filled
    assert sorted(set(meant(done)) - filled) == sorted(lost)
    round_trip = weft.translate(done.body, target, source, model="m", sidecar=done.sidecar)
    assert {**round_trip.body, "model": "m"} == {**body, "model": "m"}


USED = {
    "role": "assistant",
    "content": None,
    "tool_calls": [{"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}],
}
NO = {"type": "refusal", "refusal": "no"}
MADE = {"type": "function_call", "call_id": "call_1", "name": "f", "arguments": "{}"}
SAID = [
    # a refusal is a part of what the assistant says, and of nothing else
    (
        responses({"role": "user", "content": [NO]}),
        R,
        C,
        ("messages", 0, "content", 0, "text"),
        "no",
    ),
    (responses(MADE, output(NO)), R, C, ("messages", 1, "content", 0, "text"), "no"),
    (chat({"role": "user", "content": [NO]}), C, R, ("input", 0, "content", 0, "text"), "no"),
    (
        chat(USED, {"role": "tool", "tool_call_id": "c", "content": [NO]}),
        C,
        R,
        ("input", 1, "output", 0, "text"),
        "no",
    ),
    # a list of parts holds at least one
    (responses(MADE, output()), R, C, ("messages", 1, "content"), ""),
    (claude({"role": "user", "content": []}), A, R, ("input", 0, "content"), ""),
    (claude(USER, {"role": "assistant", "content": []}), A, R, ("input", 1, "content"), ""),
    (
        chat(USED, {"role": "tool", "tool_call_id": "c", "content": []}),
        C,
        R,
        ("input", 1, "output"),
        "",
    ),
    # the type of media is the same in capitals, and with parameters
    (
        chat(
            {
                "role": "user",
                "content": [
                    {"type": "image_url", "image_url": {"url": "data:IMAGE/PNG;base64,aGk="}}
                ],
            }
        ),
        C,
        A,
        ("messages", 0, "content", 0, "source", "media_type"),
        "image/png",
    ),
    # and bare data is what its file's name says
    (
        responses(
            {
                "role": "user",
                "content": [{"type": "input_file", "file_data": "aGk=", "filename": "f.pdf"}],
            }
        ),
        R,
        A,
        ("messages", 0, "content", 0, "source", "media_type"),
        "application/pdf",
    ),
    (
        chat(
            {
                "role": "user",
                "content": [{"type": "file", "file": {"file_data": "aGk=", "filename": "f.pdf"}}],
            }
        ),
        C,
        G,
        ("contents", 0, "parts", 0, "inlineData", "mimeType"),
        "application/pdf",
    ),
    (
        chat(
            {
                "role": "user",
                "content": [{"type": "file", "file": {"file_data": "aGk=", "filename": "f.txt"}}],
            }
        ),
        C,
        A,
        ("messages", 0, "content", 0, "source", "data"),
        "hi",
    ),
]


@pytest.mark.parametrize(("body", "source", "target", "steps", "value"), SAID)
def test_a_value_with_an_equivalent_is_translated(body, source, target, steps, value):
    done = sent(body, source, target, "m")
    content = done.body
    for step in steps:
        content = content[step]
    assert content == value
    assert [loss for loss in done.losses if loss.level == "form"]
    assert not unnamed(body, source, target)
    round_trip = weft.translate(done.body, target, source, model=NAME, sidecar=done.sidecar)
    assert {**round_trip.body, "model": NAME} == {**body, "model": NAME}


def named(name, **tool):
    return {"type": "function", "name": name, "parameters": WHOLE, "strict": False, **tool}


SPACED = [named("fs_read"), {"type": "namespace", "name": "fs", "tools": [named("read")]}]
CHOSEN = {"type": "function", "name": "fs.read"}


@pytest.mark.parametrize(
    ("target", "choice"),
    [
        (A, {"type": "tool", "name": "fs__read"}),
        (C, {"type": "function", "function": {"name": "fs__read"}}),
        (G, None),
    ],
)
def test_a_namespaced_tool_is_chosen_by_its_full_name(target, choice):
    body = responses(USER, tools=SPACED, tool_choice=CHOSEN)
    done = sent(body, R, target, "m")
    assert done.body.get("tool_choice") == choice
    assert "tool_choice" not in meant(done)
    assert not unnamed(body, R, target)


def test_unsupported_tools_leave_no_empty_list():
    body = responses(USER, tools=[{"type": "mcp", "server_label": "s", "server_url": "https://x"}])
    done = sent(body, R, A)
    assert "tools" not in done.body
    assert meant(done) == ["tools[0]"]


THREE = [named("a"), named("b"), named("c")]
ENTRIES = [{"type": "function", "function": {"name": n, "parameters": WHOLE}} for n in "abc"]
DECLARE = [{"functionDeclarations": [{"name": n} for n in "abc"]}]


def allowed_in_chat(mode, *names):
    tools = [{"type": "function", "function": {"name": name}} for name in names]
    return {"type": "allowed_tools", "allowed_tools": {"mode": mode, "tools": tools}}


def allowed_in_responses(mode, *names):
    tools = [{"type": "function", "name": name} for name in names]
    return {"type": "allowed_tools", "mode": mode, "tools": tools}


def allowed_in_gemini(mode, *names):
    return {"functionCallingConfig": {"mode": mode, "allowedFunctionNames": [*names]}}


FROM_CHAT = chat(tools=ENTRIES, tool_choice=allowed_in_chat("required", "a", "b"))
FROM_RESPONSES = responses(USER, tools=THREE, tool_choice=allowed_in_responses("auto", "a", "b"))
FROM_GEMINI = gemini(tools=DECLARE, toolConfig=allowed_in_gemini("ANY", "a", "b"))
VALIDATED = gemini(tools=DECLARE, toolConfig=allowed_in_gemini("VALIDATED", "a", "b"))
ALLOWED = [
    (FROM_CHAT, C, R, "tool_choice", allowed_in_responses("required", "a", "b")),
    (FROM_CHAT, C, G, "toolConfig", allowed_in_gemini("ANY", "a", "b")),
    (FROM_RESPONSES, R, C, "tool_choice", allowed_in_chat("auto", "a", "b")),
    (FROM_RESPONSES, R, G, "toolConfig", allowed_in_gemini("VALIDATED", "a", "b")),
    (FROM_GEMINI, G, C, "tool_choice", allowed_in_chat("required", "a", "b")),
    (FROM_GEMINI, G, R, "tool_choice", allowed_in_responses("required", "a", "b")),
    (VALIDATED, G, R, "tool_choice", allowed_in_responses("auto", "a", "b")),
]


@pytest.mark.parametrize(("body", "source", "target", "member", "value"), ALLOWED)
def test_allowed_tools_are_written_in_every_protocol_that_supports_them(
    body, source, target, member, value
):
    done = sent(body, source, target)
    assert done.body[member] == value
    assert meant(done) == []
    assert not unnamed(body, source, target)


@pytest.mark.parametrize(
    ("body", "source", "lost", "kind"),
    [
        (FROM_CHAT, C, "tools[2]", "any"),
        (FROM_RESPONSES, R, "tools[2]", "auto"),
        (FROM_GEMINI, G, "tools[0].functionDeclarations[2]", "any"),
    ],
)
def test_without_support_only_the_allowed_tools_are_offered(body, source, lost, kind):
    done = sent(body, source, A)
    assert [tool["name"] for tool in done.body["tools"]] == ["a", "b"]
    assert done.body["tool_choice"] == {"type": kind}
    assert meant(done) == [lost]
    assert not unnamed(body, source, A)
    round_trip = weft.translate(done.body, A, source, model=NAME, sidecar=done.sidecar)
    assert {**round_trip.body, "model": NAME} == {**body, "model": NAME}


def test_an_older_chat_model_is_offered_only_the_allowed_tools():
    done = sent(FROM_GEMINI, G, C, "some-model")
    assert [tool["function"]["name"] for tool in done.body["tools"]] == ["a", "b"]
    assert done.body["tool_choice"] == "required"
    assert meant(done) == ["tools[0].functionDeclarations[2]"]
    assert not unnamed(FROM_GEMINI, G, C)


def test_an_allowed_tool_that_is_not_offered_is_reported():
    body = chat(tools=ENTRIES, tool_choice=allowed_in_chat("auto", "a", "nobody"))
    done = sent(body, C, R)
    assert done.body["tool_choice"] == allowed_in_responses("auto", "a")
    assert meant(done) == ["tool_choice"]
    none = chat(tools=ENTRIES, tool_choice=allowed_in_chat("auto", "nobody"))
    assert "tool_choice" not in sent(none, C, R).body


AGENT = {
    "type": "agent_message",
    "author": "reviewer",
    "recipient": "planner",
    "content": [{"type": "input_text", "text": "No findings."}],
}
TOLD = "[message of the agent 'reviewer' to 'planner', not of the user]\nNo findings."
USE = {
    "role": "assistant",
    "content": [{"type": "tool_use", "id": "t", "name": "f", "input": {}}],
}
READ = "A\nhttps://a.example\n\nfound"
WORDS = [
    (claude({"role": "user", "content": [FOUND]}), A, C, READ, "messages[0].content[0]"),
    (claude({"role": "user", "content": [FOUND]}), A, R, READ, "messages[0].content[0]"),
    (claude({"role": "user", "content": [FOUND]}), A, G, READ, "messages[0].content[0]"),
    (claude(USER, USE, result(FOUND, call="t")), A, C, READ, "messages[2].content[0].content[0]"),
    (claude(USER, USE, result(FOUND, call="t")), A, R, READ, "messages[2].content[0].content[0]"),
    (claude(USER, USE, result(FOUND, call="t")), A, G, READ, "messages[2].content[0].content[0]"),
    (responses(USER, AGENT), R, A, TOLD, "input[1]"),
    (responses(USER, AGENT), R, C, TOLD, "input[1]"),
    (responses(USER, AGENT), R, G, TOLD, "input[1]"),
]


def words_in(value):
    """Every string of a body."""
    if isinstance(value, dict):
        return [word for inner in value.values() for word in words_in(inner)]
    if isinstance(value, list):
        return [word for inner in value for word in words_in(inner)]
    return [value] if isinstance(value, str) else []


@pytest.mark.parametrize(("body", "source", "target", "words", "path"), WORDS)
def test_a_vendors_block_is_translated_as_its_text(body, source, target, words, path):
    done = sent(body, source, target)
    assert words in words_in(done.body)
    assert meant(done) == [path]
    assert not unnamed(body, source, target)
    round_trip = weft.translate(done.body, target, source, model=NAME, sidecar=done.sidecar)
    assert {**round_trip.body, "model": NAME} == {**body, "model": NAME}


def test_messages_of_another_agent_are_not_assistant_messages():
    done = sent(responses(USER, AGENT), R, C)
    assert [message["role"] for message in done.body["messages"]] == ["user", "user"]


def test_a_result_without_its_call_becomes_the_text_of_its_content():
    done = sent(claude(result(FOUND)), A, C)
    assert done.body["messages"] == [
        {"role": "user", "content": [{"type": "text", "text": f"[result of toolu_1]\n{READ}"}]}
    ]


AUDIO = {"type": "input_audio", "input_audio": {"data": "aGk=", "format": "wav"}}
CODE = {"executableCode": {"language": "PYTHON", "code": "1"}}
THOUGHT = {"type": "redacted_thinking", "data": "sealed"}
SILENT = [
    (chat({"role": "user", "content": [AUDIO]}), C, A, "messages[0].content[0]"),
    (
        chat({"role": "system", "content": "s"}, {"role": "user", "content": [AUDIO]}),
        C,
        R,
        "messages[1].content[0]",
    ),
    (gemini({"role": "user", "parts": [CODE]}), G, C, "contents[0].parts[0]"),
    (gemini({"role": "user", "parts": [CODE]}), G, A, "contents[0].parts[0]"),
    (claude({"role": "assistant", "content": [THOUGHT]}), A, R, "messages[0].content[0]"),
    (responses({"type": "web_search_call", "id": "w"}), R, G, "input[0]"),
    (responses({"type": "web_search_call", "id": "w"}, max_tool_calls=3), R, C, "input[0]"),
]


@pytest.mark.parametrize(("body", "source", "target", "path"), SILENT)
def test_a_conversation_with_nothing_translatable_is_refused(body, source, target, path):
    with pytest.raises(weft.Refused) as refused:
        sent(body, source, target)
    assert refused.value.status == 400
    assert refused.value.param == path


@pytest.mark.parametrize(("body", "source", "target"), [row[:3] for row in SILENT])
def test_a_conversation_with_any_translatable_content_is_sent(body, source, target):
    more = {"role": "user", "parts": [HI]} if source == G else USER
    texts = {**body, LISTS[source]: [*body[LISTS[source]], more]}
    assert meant(sent(texts, source, target))


LISTS = {A: "messages", C: "messages", R: "input", G: "contents"}


@pytest.mark.parametrize("messages", [[], [{"role": "user", "content": ""}]])
def test_an_empty_conversation_is_sent(messages):
    done = sent(chat(messages=messages), C, R)
    assert done.body["input"] == messages
    assert done.losses == []


def chat(*messages, **members):
    return {"model": NAME, "messages": list(messages) or [USER], **members}


@pytest.mark.parametrize("target", [A, G])
@pytest.mark.parametrize(
    ("member", "value"),
    [
        # what every target does anyway
        ("logprobs", False),
        ("metadata", {}),
        ("modalities", ["text"]),
        ("stop", []),
        ("store", True),
        ("store", False),  # Codex says it always, and nobody else stores answers for others
        ("top_logprobs", 0),
        ("verbosity", "medium"),
        # a vendor's own books and caches
        ("prompt_cache_key", "k"),
        ("prompt_cache_retention", "24h"),
    ],
)
def test_a_change_that_affects_no_answer_is_a_loss_of_form(member, value, target):
    done = weft.translate(chat(**{member: value}), C, target)
    assert meant(done) == []
    assert [loss.path for loss in done.losses].count(member) <= 1


JSON_WISH = {"generationConfig": {"responseMimeType": "application/json"}}


@pytest.mark.parametrize(
    ("first", "kind"), [("hi", "json_schema"), ("answer in JSON", "json_object")]
)
def test_the_response_format_does_not_change_as_a_conversation_continues(first, kind):
    """OpenAI caches a schema as the beginning of a request:
    https://platform.openai.com/docs/guides/prompt-caching#what-can-be-cached"""
    turns = [
        {"role": "user", "parts": [{"text": first}]},
        {"role": "model", "parts": [{"text": "{}"}]},
        {"role": "user", "parts": [{"text": "more JSON"}]},
    ]
    shapes = [
        sent(gemini(*turns[:count], **JSON_WISH), G, C).body["response_format"]["type"]
        for count in (1, 3)
    ]
    assert shapes == [kind, kind]


def test_disabled_thinking_is_reported_at_the_callers_path():
    done = weft.translate(claude(thinking={"type": "disabled"}), A, R)
    assert meant(done) == ["thinking"]
