"""Values outside a vendor's limits are adjusted and reported, or refused. They are never sent
silently."""

from copy import deepcopy

import orjson
import pytest

import weft

A, C, R, G = "anthropic", "openai-chat", "openai-responses", "gemini"
USER = {"role": "user", "content": "hi"}
CONTENTS = [{"role": "user", "parts": [{"text": "hi"}]}]


def chat(**members):
    return {"model": "m", "messages": [USER], **members}


def claude(**members):
    return {"model": "m", "max_tokens": 64, "messages": [USER], **members}


def gemini(**config):
    return {"contents": CONTENTS, "generationConfig": config}


def sent(body, source, target):
    """The body and its losses of meaning, by path."""
    done = weft.translate(body, source, target, model="m")
    return done.body, [loss.path for loss in done.losses if loss.level != "form"]


SHORT_USER = "u" * 54 + "-xf20e249d"  # marked by a digest of the whole, as ids are

LIMITED = [
    # Claude's temperature ends at 1: https://platform.claude.com/docs/en/api/messages
    (chat(temperature=1.5), C, A, ("temperature",), 1, ["temperature"]),
    (chat(temperature=-0.5), C, A, ("temperature",), 0, ["temperature"]),
    (chat(temperature=1), C, A, ("temperature",), 1, []),
    (gemini(temperature=2.0), G, A, ("temperature",), 1, ["generationConfig.temperature"]),
    (gemini(temperature=2.5), G, C, ("temperature",), 2, ["generationConfig.temperature"]),
    # "each stop sequence must contain non-whitespace"
    (chat(stop=["\n", "END"]), C, A, ("stop_sequences",), ["END"], ["stop"]),
    (chat(stop="\n"), C, A, ("stop_sequences",), None, ["stop"]),
    (chat(stop=["END"]), C, A, ("stop_sequences",), ["END"], []),
    # four at most: https://help.openai.com/en/articles/5072263
    (claude(stop_sequences=list("abcde")), A, C, ("stop",), list("abcd"), ["stop_sequences"]),
    (claude(stop_sequences=list("abcd")), A, C, ("stop",), list("abcd"), []),
    # five at most: https://ai.google.dev/api/generate-content#generationconfig
    (
        claude(stop_sequences=list("abcdef")),
        A,
        G,
        ("generationConfig", "stopSequences"),
        list("abcde"),
        ["stop_sequences"],
    ),
    # "Expected a value >= 16"
    (claude(max_tokens=5), A, R, ("max_output_tokens",), 16, ["max_tokens"]),
    (claude(max_tokens=16), A, R, ("max_output_tokens",), 16, []),
    (chat(max_tokens=0), C, A, ("max_tokens",), 0, []),  # here it means to fill the cache only
    # "string too long. Expected a string with maximum length 64": Claude Code's has about 150
    (claude(metadata={"user_id": "u" * 65}), A, C, ("user",), SHORT_USER, []),
    (claude(metadata={"user_id": "u" * 65}), A, R, ("user",), SHORT_USER, []),
    (claude(metadata={"user_id": "u" * 64}), A, C, ("user",), "u" * 64, []),
]


@pytest.mark.parametrize(("body", "source", "target", "member", "value", "lost"), LIMITED)
def test_a_value_outside_the_targets_limits_is_adjusted(body, source, target, member, value, lost):
    written, losses = sent(body, source, target)
    for step in member:
        written = written.get(step) if written is not None else None
    assert (written, losses) == (value, lost)


@pytest.mark.parametrize(("body", "source", "target"), [row[:3] for row in LIMITED])
def test_an_adjusted_value_round_trips_with_the_sidecar(body, source, target):
    sent = weft.translate(body, source, target, model="m")
    round_trip = weft.translate(sent.body, target, source, model="m", sidecar=sent.sidecar)
    assert round_trip.body == body


FORCED = {"functionCallingConfig": {"mode": "ANY"}}
DECLARED = [{"functionDeclarations": [{"name": "f"}]}]
THINKING = "generationConfig.thinkingConfig.thinkingBudget"


def thought(budget, limit=9000, **config):
    return gemini(thinkingConfig={"thinkingBudget": budget}, maxOutputTokens=limit, **config)


BUDGET = "thinking.budget_tokens"
OFFERED = [{"type": "function", "function": {"name": "f"}}]
OUTPUT = {"generationConfig": {"maxOutputTokens": 64}}
NOTHING = {"generationConfig": None}
JSON = {"generationConfig": {"responseMimeType": "application/json"}}


def enabled(budget):
    return claude(thinking={"type": "enabled", "budget_tokens": budget})


EFFORT = "output_config.effort"


def effort(word):
    return claude(output_config={"effort": word})


def disabled():
    return claude(thinking={"type": "disabled"})


def budgeted(budget, limit=64):
    config = {"thinkingConfig": {"thinkingBudget": budget}}
    return {"generationConfig": config if limit is None else {"maxOutputTokens": limit, **config}}


def formatted(**members):
    return chat(response_format={"type": "json_object"}, **members)


def wished(words):
    contents = [{"role": "user", "parts": [{"text": words}]}]
    return {"contents": contents, "generationConfig": {"responseMimeType": "application/json"}}


ANY_OBJECT = {"name": "response", "schema": {"type": "object"}}

MODELS = [
    # "'messages' must contain the word 'json' in some form, to use 'response_format' of type
    # 'json_object'": https://platform.openai.com/docs/guides/structured-outputs#json-mode
    (wished("as Json"), G, C, "gpt-5", {"response_format": {"type": "json_object"}}, []),
    (wished("hi"), G, C, "some-model", {"response_format": {"type": "json_object"}}, []),
    (
        wished("hi"),
        G,
        C,
        "gpt-5",
        {"response_format": {"type": "json_schema", "json_schema": ANY_OBJECT}},
        [],
    ),
    (wished("json"), G, R, "gpt-4o", {"text": {"format": {"type": "json_object"}}}, []),
    (wished("hi"), G, R, "gpt-4o", {"text": {"format": {"type": "json_schema", **ANY_OBJECT}}}, []),
    # "Input should be greater than or equal to 1024"
    (thought(512), G, A, "m", {"thinking": {"type": "enabled", "budget_tokens": 1024}}, [THINKING]),
    # "`max_tokens` must be greater than `thinking.budget_tokens`"
    (
        thought(5000, 3000),
        G,
        A,
        "m",
        {"thinking": {"type": "enabled", "budget_tokens": 2999}},
        [THINKING],
    ),
    (thought(5000, 1024), G, A, "m", {"thinking": None, "max_tokens": 1024}, [THINKING]),
    (
        thought(2000),
        G,
        A,
        "m",
        {"thinking": {"type": "enabled", "budget_tokens": 2000}},
        [],
    ),
    # "`thinking.type.enabled` is not supported for this model"
    (thought(2000), G, A, "claude-opus-4-7", {"thinking": {"type": "adaptive"}}, [THINKING]),
    (thought(2000), G, A, "claude-sonnet-5", {"thinking": {"type": "adaptive"}}, [THINKING]),
    # "`temperature` may only be set to 1 when thinking is enabled"
    (
        thought(2000, temperature=0.5, topK=3, topP=0.5),
        G,
        A,
        "m",
        {"temperature": None, "top_k": None, "top_p": None},
        [f"generationConfig.{name}" for name in ("temperature", "topP", "topK")],
    ),
    (
        thought(2000, temperature=1, topP=0.95),
        G,
        A,
        "m",
        {"temperature": 1, "top_p": 0.95},
        [],
    ),
    # "Thinking may not be enabled when tool_choice forces tool use"
    (
        {**thought(2000), "tools": DECLARED, "toolConfig": FORCED},
        G,
        A,
        "m",
        {"thinking": None, "tool_choice": {"type": "any"}},
        [THINKING],
    ),
    # "`temperature` and `top_p` cannot both be specified for this model"
    (
        chat(temperature=0.2, top_p=0.9),
        C,
        A,
        "claude-sonnet-4-5",
        {"temperature": 0.2, "top_p": None},
        ["top_p"],
    ),
    (chat(temperature=0.2, top_p=1), C, A, "claude-opus-4-6", {"top_p": None}, []),
    (chat(temperature=1, top_p=0.9), C, A, "claude-opus-4-1", {"temperature": None}, []),
    (chat(temperature=0.2, top_p=0.9), C, A, "claude-sonnet-4-0", {"top_p": 0.9}, []),
    # "`temperature` is deprecated for this model"
    (
        chat(temperature=0, top_p=0.9),
        C,
        A,
        "claude-opus-4-7",
        {"temperature": None, "top_p": None},
        ["temperature", "top_p"],
    ),
    (claude(temperature=0), A, C, "gpt-5", {"temperature": None}, ["temperature"]),
    (claude(temperature=1), A, R, "o3", {"temperature": None}, []),
    (chat(temperature=0, reasoning_effort="none"), C, R, "gpt-5.1", {"temperature": 0}, []),
    # "This model does not support the effort parameter"
    (
        chat(reasoning_effort="low"),
        C,
        A,
        "claude-haiku-4-5",
        {"output_config": None},
        ["reasoning_effort"],
    ),
    (
        chat(reasoning_effort="low"),
        C,
        A,
        "claude-opus-4-5",
        {"output_config": {"effort": "low"}},
        [],
    ),
    # efforts that the vendor does not know
    (
        claude(output_config={"effort": "vast"}),
        A,
        C,
        "m",
        {"reasoning_effort": None},
        ["output_config.effort"],
    ),
    (
        claude(output_config={"effort": "vast"}),
        A,
        R,
        "m",
        {"reasoning": None},
        ["output_config.effort"],
    ),
    (claude(output_config={"effort": "max"}), A, C, "m", {"reasoning_effort": "max"}, []),
    # "Unsupported value: 'minimal' is not supported with the 'gpt-5.1' model"
    (effort("minimal"), A, C, "gpt-5.1", {"reasoning_effort": "low"}, [EFFORT]),
    (effort("low"), A, C, "gpt-5.1", {"reasoning_effort": "low"}, []),
    (effort("xhigh"), A, R, "gpt-5", {"reasoning": {"effort": "high"}}, [EFFORT]),
    (effort("xhigh"), A, R, "gpt-5.2", {"reasoning": {"effort": "xhigh"}}, []),
    (effort("minimal"), A, C, "o3", {"reasoning_effort": "low"}, [EFFORT]),
    (disabled(), A, R, "gpt-5", {"reasoning": {"effort": "minimal"}}, ["thinking"]),
    (disabled(), A, C, "gpt-5", {"reasoning_effort": "minimal"}, ["thinking"]),
    (disabled(), A, C, "gpt-5.1", {"reasoning_effort": "none"}, []),
    (disabled(), A, C, "gpt-4.1", {"reasoning_effort": None}, []),
    (disabled(), A, C, "m", {"reasoning_effort": None}, []),  # it may know no effort
    (disabled(), A, R, "gpt-5.1", {"reasoning": {"effort": "none"}}, []),
    # "Unrecognized request argument supplied: reasoning_effort"
    (effort("low"), A, C, "gpt-4o", {"reasoning_effort": None}, [EFFORT]),
    (disabled(), A, R, "gpt-4.1", {"reasoning": None}, []),
    # "Unsupported parameter: 'stop' is not supported with this model"
    (claude(stop_sequences=["END"]), A, C, "gpt-5", {"stop": None}, ["stop_sequences"]),
    (claude(stop_sequences=["END"]), A, C, "gpt-5.4", {"stop": None}, ["stop_sequences"]),
    (claude(stop_sequences=["END"]), A, C, "o3", {"stop": None}, ["stop_sequences"]),
    (claude(stop_sequences=["END"]), A, C, "gpt-5.5", {"stop": ["END"]}, []),
    (claude(stop_sequences=["END"]), A, C, "gpt-4o", {"stop": ["END"]}, []),
    # "The thinking budget 64000 is invalid. Please choose a value between 0 and 24576."
    (enabled(64000), A, G, "gemini-2.5-flash", budgeted(24576), [BUDGET]),
    (enabled(24576), A, G, "gemini-2.5-flash", budgeted(24576), []),
    (enabled(100), A, G, "gemini-2.5-flash-lite", budgeted(512), [BUDGET]),
    (enabled(64000), A, G, "gemini-2.5-pro", budgeted(32768), [BUDGET]),
    # "Budget 0 is invalid. This model only works in thinking mode."
    (disabled(), A, G, "gemini-2.5-pro", budgeted(128), ["thinking"]),
    (disabled(), A, G, "gemini-2.5-flash", budgeted(0), []),
    (
        chat(reasoning_effort="none"),
        C,
        G,
        "gemini-2.5-pro",
        budgeted(128, None),
        ["reasoning_effort"],
    ),
    # "Thinking is not supported for this model"
    (enabled(2000), A, G, "gemini-2.0-flash", OUTPUT, [BUDGET]),
    (disabled(), A, G, "gemini-2.0-flash", OUTPUT, []),
    (chat(reasoning_effort="low"), C, G, "gemini-1.5-pro", NOTHING, ["reasoning_effort"]),
    # "Function calling with a response mime type: 'application/json' is unsupported"
    (formatted(tools=OFFERED), C, G, "gemini-2.5-flash", NOTHING, ["response_format"]),
    (formatted(tools=OFFERED), C, G, "gemini-3-pro", JSON, []),
    (formatted(), C, G, "gemini-2.5-flash", JSON, []),
    (formatted(tools=OFFERED, tool_choice="none"), C, G, "gemini-2.5-flash", JSON, []),
    # a 32-bit number: https://ai.google.dev/api/generate-content#generationconfig
    (chat(seed=2**31), C, G, "m", {"generationConfig": None}, ["seed"]),
    (chat(seed=-1), C, G, "m", {"generationConfig": {"seed": -1}}, []),
]


@pytest.mark.parametrize(("body", "source", "target", "model", "members", "lost"), MODELS)
def test_parameters_that_a_model_refuses_are_omitted(body, source, target, model, members, lost):
    done = weft.translate(body, source, target, model=model)
    assert {name: done.body.get(name) for name in members} == members
    assert [loss.path for loss in done.losses if loss.level != "form"] == lost
    round_trip = weft.translate(done.body, target, source, model=model, sidecar=done.sidecar)
    assert {**round_trip.body, "model": "m"} == {**body, "model": "m"}


REFUSED = [
    (claude(stop_sequences=["a", 1]), A, C, "stop_sequences[1]"),
    (claude(max_tokens=0), A, C, "max_tokens"),  # no other wire can ask for nothing
    (claude(max_tokens=0), A, R, "max_tokens"),
    (claude(max_tokens=0), A, G, "max_tokens"),
    (chat(max_completion_tokens=-1), C, A, "max_completion_tokens"),
    (gemini(maxOutputTokens=-1), G, C, "generationConfig.maxOutputTokens"),
]


@pytest.mark.parametrize(("body", "source", "target", "param"), REFUSED)
def test_a_request_that_cannot_be_adjusted_is_refused(body, source, target, param):
    with pytest.raises(weft.Refused) as refused:
        weft.translate(body, source, target, model="m")
    assert (refused.value.status, refused.value.param) == (400, param)


def called(*ids):
    calls = [
        {"id": i, "type": "function", "function": {"name": f"f{n}", "arguments": "{}"}}
        for n, i in enumerate(ids)
    ]
    return {"role": "assistant", "content": None, "tool_calls": calls}


def answered(call_id, text):
    return {"role": "tool", "tool_call_id": call_id, "content": text}


DOUBLED = [
    # Two calls of one turn: "`tool_use` ids must be unique".
    ([called("x", "x"), answered("x", "1"), answered("x", "2")], ["x", "x-2"], ["x", "x-2"]),
    # Two turns: the second call's result is its own.
    (
        [called("x"), answered("x", "1"), called("x"), answered("x", "2")],
        ["x", "x-2"],
        ["x", "x-2"],
    ),
    # The new id is nobody else's.
    (
        [called("x-2"), answered("x-2", "0"), called("x", "x"), *(answered("x", n) for n in "12")],
        ["x-2", "x", "x-3"],
        ["x-2", "x", "x-3"],
    ),
]


@pytest.mark.parametrize(("turns", "calls", "results"), DOUBLED)
@pytest.mark.parametrize("target", [A, R])
def test_two_calls_with_the_same_id_get_different_ids(turns, calls, results, target):
    done = weft.translate({"model": "m", "messages": [USER, *turns, USER]}, C, target)
    items = done.body.get("input") or [
        block
        for message in done.body["messages"]
        if isinstance(message["content"], list)
        for block in message["content"]
    ]
    kinds = ("function_call", "tool_use"), ("function_call_output", "tool_result")
    call_ids = [
        [
            item.get("call_id") or item.get("tool_use_id") or item["id"]
            for item in items
            if is_(item)
        ]
        for is_ in (lambda i: i.get("type") in kinds[0], lambda i: i.get("type") in kinds[1])
    ]
    assert call_ids == [calls, results]
    actual_texts = [item.get("output") or item.get("content") for item in items if "f" not in item]
    assert [word for word in actual_texts if word in ("0", "1", "2")] == sorted(
        word for word in actual_texts if word in ("0", "1", "2")
    )
    assert any(loss.code == "call_id_changed" for loss in done.losses)
    round_trip = weft.translate(done.body, target, C, sidecar=done.sidecar)
    assert round_trip.body["messages"] == [USER, *turns, USER]


LONG_ID = "x" * 80
LONG_USER = "u" * 70
SPEECH = {"inlineData": {"mimeType": "audio/mpeg", "data": "AAAA"}}

CHANGED_VALUES = [
    (chat(messages=[called("a b"), answered("a b", "1"), USER]), C, A, "call_id_changed"),
    (chat(messages=[called(LONG_ID), answered(LONG_ID, "1"), USER]), C, R, "call_id_changed"),
    (
        claude(
            messages=[
                {
                    "role": "assistant",
                    "content": [{"type": "tool_use", "id": LONG_ID, "name": "f", "input": {}}],
                },
                {
                    "role": "user",
                    "content": [{"type": "tool_result", "tool_use_id": LONG_ID, "content": "1"}],
                },
            ]
        ),
        A,
        C,
        "call_id_changed",
    ),
    (claude(metadata={"user_id": LONG_USER}), A, C, "user_shortened"),
    ({"contents": [{"role": "user", "parts": [SPEECH]}]}, G, C, "media_type_changed"),
]


@pytest.mark.parametrize(("body", "source", "target", "code"), CHANGED_VALUES)
def test_a_changed_value_is_reported_with_the_old_and_the_new_one(body, source, target, code):
    done = weft.translate(body, source, target, model="m")
    details = [loss.detail for loss in done.losses if loss.code == code]
    assert len(details) == (2 if code == "call_id_changed" else 1)  # the call and its result
    old, new = details[0].split(" -> ")
    assert set(details) == {f"{old} -> {new}"}
    assert old in orjson.dumps(body).decode()
    assert new.removeprefix("audio/") in orjson.dumps(done.body).decode()


URLS = [
    ("https://a/b/cat.JPG?w=1", "image/jpeg", []),
    ("https://a/b/cat", None, ["messages[0].content[0]"]),  # Gemini gets no type
]


@pytest.mark.parametrize(("url", "kind", "lost"), URLS)
def test_an_image_url_gets_its_media_type_for_gemini(url, kind, lost):
    part = {"type": "image_url", "image_url": {"url": url}}
    body, losses = sent(chat(messages=[{"role": "user", "content": [part]}]), C, G)
    file = body["contents"][0]["parts"][0]["fileData"]
    assert (file["fileUri"], file.get("mimeType"), losses) == (url, kind, lost)


@pytest.mark.parametrize("target", [A, G])
def test_an_earlier_refusal_becomes_plain_text(target):
    turn = {"role": "assistant", "content": None, "refusal": "I cannot."}
    done = weft.translate(chat(messages=[USER, turn, USER]), C, target, model="m")
    assert ("messages[1].refusal", "form") in [(loss.path, loss.level) for loss in done.losses]


def prefilled(content):
    return chat(messages=[USER, {"role": "assistant", "content": content}])


def texts(*words):
    return [{"type": "text", "text": word} for word in words]


ENDS = [
    # "final assistant content cannot end with trailing whitespace"
    (prefilled("So: \n"), "So:", ["messages[1].content"]),
    (prefilled(texts("So", "far ")), texts("So", "far"), ["messages[1].content[1]"]),
    (prefilled("So:"), "So:", []),
    (chat(messages=[*prefilled("So: ")["messages"], USER]), "So: ", []),
]


@pytest.mark.parametrize("as_bytes", [True, False])
@pytest.mark.parametrize(("body", "content", "lost"), ENDS)
def test_a_prefilled_answer_does_not_end_in_white_space(body, content, lost, as_bytes):
    arguments = orjson.dumps(body) if as_bytes else body
    done = weft.translate(arguments, C, A, model="claude-opus-4-1")
    written = orjson.loads(done.body) if as_bytes else done.body
    assert written["messages"][1]["content"] == content
    assert [loss.path for loss in done.losses if loss.path.startswith("messages")] == lost
    round_trip = weft.translate(written, A, C, sidecar=done.sidecar)
    assert round_trip.body["messages"] == body["messages"]


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("https://a/b.png", True),
        ("HTTPS://a/b.png", True),
        ("http://a/b.png", False),  # "Only HTTPS URLs are supported."
        ("gs://a/b.png", False),
        ("data:image/png,x", False),
    ],
)
def test_claude_gets_only_https_urls(url, expected):
    part = {"type": "image_url", "image_url": {"url": url}}
    content = [*texts("see"), part]
    body, losses = sent(chat(messages=[{"role": "user", "content": content}]), C, A)
    assert (len(body["messages"][0]["content"]) == 2) == expected
    assert losses == ([] if expected else ["messages[0].content[1]"])


NOT_A_NUMBER = [
    (
        claude(
            messages=[
                {"role": "user", "content": "a"},
                {
                    "role": "assistant",
                    "content": [
                        {"type": "tool_use", "id": "t", "name": "f", "input": {"x": [1.5]}}
                    ],
                },
            ]
        ),
        A,
        ("messages", 1, "content", 0, "input", "x", 0),
        "messages[1].content[0].input.x[0]",
    ),
    (chat(metadata={"a": 1.0}), C, ("metadata", "a"), "metadata.a"),
]


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize(("body", "source", "place", "param"), NOT_A_NUMBER)
def test_a_number_that_json_lacks_is_refused_at_any_depth(body, source, place, param, value):
    body = deepcopy(body)
    holder = body
    for step in place[:-1]:
        holder = holder[step]
    holder[place[-1]] = value
    for target in (A, C, R, G):
        with pytest.raises(weft.Refused) as refused:
            weft.translate(body, source, target, model="m")
        assert refused.value.param == param


LEADING = [
    {"role": "system", "content": "A"},
    {"role": "system", "content": [{"type": "text", "text": "B"}]},
]


@pytest.mark.parametrize(
    "system", [{}, {"system": "S"}, {"system": [{"type": "text", "text": "S"}]}]
)
@pytest.mark.parametrize("count", [1, 2])
def test_no_message_moves_in_its_own_protocol(system, count):
    body = claude(messages=[*LEADING[:count], USER], **system)
    done = weft.translate(body, A, A)
    assert (done.body, done.losses) == (body, [])
    translated = weft.translate(body, A, C)
    round_trip = weft.translate(translated.body, C, A, sidecar=translated.sidecar)
    assert round_trip.body == body


def test_a_dropped_parameter_is_reported_once():
    body = {
        "model": "claude-sonnet-5",
        "max_tokens": 10,
        "top_k": 5,
        "messages": [{"role": "user", "content": "x"}],
    }
    for target in ("openai-chat", "openai-responses"):
        losses = weft.translate(body, "anthropic", target).losses
        assert [loss.path for loss in losses].count("top_k") == 1
