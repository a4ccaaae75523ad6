"""Requirements W1-W10: system messages in every protocol."""

import copy
import json

import pytest

import weft
from servers import post, weft_serve

PNG = "data:image/png;base64,iVBORw0KGgo="


def chat(*messages, **members):
    return {"model": "some-model", "messages": list(messages), **members}


def system(content, role="system"):
    return {"role": role, "content": content}


def user(content="hi"):
    return {"role": "user", "content": content}


def assistant(content="ok", **members):
    return {"role": "assistant", "content": content, **members}


def part(text):
    return {"type": "text", "text": text}


CALL = {"id": "t1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
RESULT = {"role": "tool", "tool_call_id": "t1", "content": "done"}


def to_anthropic(body, **options):
    return weft.translate(body, "openai-chat", "anthropic", **options)


def losses_of_meaning(done):
    return [loss for loss in done.losses if loss.level != "form"]


# W1 -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("role", ["system", "developer"])
@pytest.mark.parametrize("place", [0, 1, 2, 3])
def test_W1_AC2_1_a_system_message_may_stand_anywhere(role, place):
    messages = [user(), assistant(), user("again")]
    messages.insert(place, system("rule", role))
    decoded = weft.decode(chat(*messages), "openai-chat")
    assert [message.role for message in decoded.messages] == [m["role"] for m in messages]


# W2, W3 ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("leading", "blocks"),
    [
        ([system("A")], ["A"]),
        ([system("A", "developer")], ["A"]),  # both roles count
        ([system("A"), system("B", "developer"), system("C")], ["A", "B", "C"]),
        ([system("A"), system([part("B1"), part("B2")])], ["A", "B1", "B2"]),  # W3: never joined
        ([system(""), system("B")], ["B"]),  # W3: an empty one adds nothing, ends nothing
        ([system("A"), system(""), system("C")], ["A", "C"]),
        ([system([]), system("B", "developer")], ["B"]),
    ],
)
def test_W2_W3_the_leading_run_becomes_the_top_level_system(leading, blocks):
    done = to_anthropic(chat(*leading, user()))
    assert done.body["system"] == [part(text) for text in blocks]
    assert done.body["messages"] == [user()]


@pytest.mark.parametrize(
    ("source", "body"),
    [
        ("openai-chat", chat(system("A"))),
        ("openai-responses", {"model": "m", "input": [system("A")]}),
    ],
)
def test_W2_the_leading_run_may_be_all_there_is(source, body):
    """A vendor that wants somebody else to speak says so itself."""
    done = weft.translate(body, source, "anthropic")
    assert done.body["system"] == [part("A")]
    assert done.body["messages"] == []


@pytest.mark.parametrize("leading", [[], [system("")], [system([])]])
def test_W2_nothing_leaves_no_system_key(leading):
    assert "system" not in to_anthropic(chat(*leading, user())).body


# W4 -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("role", ["system", "developer"])
@pytest.mark.parametrize(
    ("content", "inline"),
    [
        ("R", [part("R")]),  # blocks even from a string
        ([part("R1"), part("R2")], [part("R1"), part("R2")]),
        ("", ""),
    ],
)
def test_W4_a_later_system_message_keeps_its_place(role, content, inline):
    done = to_anthropic(chat(user(), system(content, role), assistant(), user("b")))
    assert done.body["messages"] == [
        user(),
        {"role": "system", "content": inline},
        assistant(),
        user("b"),
    ]
    assert not losses_of_meaning(done)


@pytest.mark.parametrize(
    ("model", "upstream", "policy", "role"),
    [
        ("unheard-of", "", "auto", "system"),  # the default, also for an unknown model
        ("claude-opus-4-6", "", "auto", "user"),
        ("claude-opus-4-7", "", "auto", "user"),
        ("claude-opus-4-7-20260101", "", "auto", "user"),
        ("claude-opus-4-8", "", "auto", "system"),
        ("claude-opus-4-8", "vertex", "auto", "user"),  # Vertex: always
        ("claude-opus-4-8", "", "demote", "user"),  # the switch
        ("claude-opus-4-6", "", "inline", "system"),  # the caller knows better
    ],
)
def test_W4_the_catalogue_and_the_switch_decide(model, upstream, policy, role):
    body = chat(user(), system("R"), assistant(), user("b")) | {"model": model}
    done = to_anthropic(body, upstream=upstream, system=policy)
    assert [message["role"] for message in done.body["messages"]][1] == role
    assert bool(losses_of_meaning(done)) == (role == "user")  # each move is a loss
    if role == "user":
        assert done.body["messages"][1]["content"] == "R"  # content untouched
        assert done.losses[0].path == "messages[1]"


@pytest.mark.parametrize(
    ("messages", "roles"),
    [
        ([user(), system("R")], ["user", "system"]),  # last is fine
        ([user(), assistant(), system("R"), user()], ["user", "assistant", "user", "user"]),
        (
            [user(), assistant(), system("R"), assistant()],
            ["user", "assistant", "user", "assistant"],
        ),
        ([user(), system("R"), user("b")], ["user", "user", "user"]),  # not before a user message
        (
            [user(), system("R"), system("S"), assistant()],
            ["user", "system", "system", "assistant"],
        ),
    ],
)
def test_W4_the_vendors_placement_law(messages, roles):
    done = to_anthropic(chat(*messages))
    assert [message["role"] for message in done.body["messages"]] == roles


def test_W4_never_between_a_call_and_its_result():
    done = to_anthropic(chat(user(), assistant(None, tool_calls=[CALL]), system("R"), RESULT))
    assert [message["role"] for message in done.body["messages"]] == [
        "user",
        "assistant",
        "user",
        "system",
    ]
    assert done.body["messages"][2]["content"][0]["type"] == "tool_result"
    assert "messages[2]" in [loss.path for loss in done.losses]


# W5 -------------------------------------------------------------------------------------------

IMAGE_URL = {"type": "image_url", "image_url": {"url": PNG}}
INPUT_IMAGE = {"type": "input_image", "image_url": PNG, "detail": "auto"}


@pytest.mark.parametrize("target", ["anthropic", "openai-responses"])
@pytest.mark.parametrize("policy", ["auto", "inline", "demote", "merge"])
@pytest.mark.parametrize("before", [[], [user(), assistant(), user("b")]])  # hoisted and inline
@pytest.mark.parametrize(
    ("content", "position", "name"),
    [
        ([part("a"), IMAGE_URL], 1, "image_url"),
        ([IMAGE_URL], 0, "image_url"),
        ([part("a"), {"type": "file", "file": {"file_id": "f"}}], 1, "file"),
        ([part("a"), part("b"), {"type": "hologram", "x": 1}], 2, "hologram"),
    ],
)
def test_W5_non_text_in_system_content_is_refused(target, policy, before, content, position, name):
    body = chat(*before, system(content), user())
    with pytest.raises(weft.Refused) as refused:
        weft.translate(body, "openai-chat", target, system=policy)
    assert refused.value.status == 400
    assert refused.value.param == f"messages[{len(before)}].content[{position}]"
    assert name in refused.value.message


@pytest.mark.parametrize("role", ["system", "developer"])
def test_W5_a_responses_caller_reads_its_own_words(role):
    body = {
        "model": "m",
        "input": [
            {"role": role, "content": [{"type": "input_text", "text": "a"}, INPUT_IMAGE]},
            {"role": "user", "content": "hi"},
        ],
    }
    with pytest.raises(weft.Refused) as refused:
        weft.translate(body, "openai-responses", "anthropic")
    assert refused.value.param == "input[0].content[1]"
    assert "input_image" in refused.value.message
    assert role in refused.value.message


@pytest.mark.parametrize("kind", ["input_text", "output_text"])
def test_W5_both_text_types_of_responses_are_text(kind):
    body = {
        "model": "m",
        "input": [
            {"role": "system", "content": [{"type": kind, "text": "a"}]},
            {"role": "user", "content": "hi"},
        ],
    }
    assert weft.translate(body, "openai-responses", "anthropic").body["system"] == [part("a")]


def test_W5_tool_changes_are_legal_towards_anthropic_only():
    change = {"type": "tool_addition", "tool": {"name": "f", "input_schema": {"type": "object"}}}
    body = {
        "model": "m",
        "max_tokens": 9,
        "messages": [user(), {"role": "system", "content": [change]}],
    }
    assert weft.translate(body, "anthropic", "anthropic").body == body
    with pytest.raises(weft.Refused, match="tool_addition") as refused:
        weft.translate(body, "anthropic", "openai-chat")
    assert refused.value.param == "messages[1].content[0]"


# W6 -------------------------------------------------------------------------------------------

MARK = {"type": "ephemeral"}
TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}


def marks(body):
    """Every breakpoint's path, in the order the prompt is built."""
    paths = [
        f"tools[{n}]" for n, tool in enumerate(body.get("tools", [])) if "cache_control" in tool
    ]
    for n, block in enumerate(body.get("system", [])):
        paths += [f"system[{n}]"] if "cache_control" in block else []
    for m, message in enumerate(body["messages"]):
        for n, block in enumerate(
            message["content"] if isinstance(message["content"], list) else []
        ):
            paths += [f"messages[{m}].content[{n}]"] if "cache_control" in block else []
    return paths


def test_W6_auto_places_three_breakpoints():
    body = chat(system("A"), system("B"), user(), assistant(), user("b"), tools=[TOOL, TOOL])
    done = to_anthropic(body, cache="auto")
    assert marks(done.body) == ["tools[1]", "system[1]", "messages[2].content[0]"]


def test_W6_keep_is_the_librarys_default_and_adds_none():
    assert marks(to_anthropic(chat(system("A"), user(), tools=[TOOL])).body) == []


def test_W6_a_clients_own_marks_stay_where_they_are():
    body = {
        "model": "m",
        "max_tokens": 9,
        "system": [part("A") | {"cache_control": MARK}, part("B")],
        "messages": [user([part("x") | {"cache_control": {"type": "ephemeral", "ttl": "1h"}}])],
    }
    assert weft.translate(body, "anthropic", "anthropic", cache="auto").body == body


@pytest.mark.parametrize("top", [False, True])  # a top-level mark counts
def test_W6_never_more_than_four_the_earliest_goes(top):
    tool = {"name": "f", "input_schema": {"type": "object"}, "cache_control": MARK}
    body = {
        "model": "m",
        "max_tokens": 9,
        "tools": [tool],
        "system": [part("A") | {"cache_control": MARK}, part("B") | {"cache_control": MARK}],
        "messages": [user([part(t) | {"cache_control": MARK} for t in "xyz"])],
        **({"cache_control": MARK} if top else {}),
    }
    done = weft.translate(copy.deepcopy(body), "anthropic", "anthropic")
    expected = ["system[1]", *(f"messages[0].content[{n}]" for n in range(3))]
    assert marks(done.body) == (expected[1:] if top else expected)
    gone = [loss.path for loss in done.losses]
    assert gone == [
        f"{path}.cache_control" for path in ["tools[0]", "system[0]", *expected][: 2 + top]
    ]


@pytest.mark.parametrize(
    ("blocks", "marked"),
    [
        (None, None),
        ([], []),
        ([part("a")], [part("a") | {"cache_control": MARK}]),
        ([part("a"), part("b")], [part("a"), part("b") | {"cache_control": MARK}]),
    ],
)
def test_W6_the_system_breakpoint_marks_only_the_last_block(blocks, marked):
    weft.apply_last_system_cache_breakpoint(blocks)
    assert blocks == marked


# W7 -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("top", "messages"),
    [
        ("S", [system("S")]),  # a string stays a string
        ([part("A"), part("B")], [system([part("A"), part("B")])]),
        ([part("A")], [system([part("A")])]),
        ("", []),
        ([], []),
    ],
)
def test_W7_the_way_back_keeps_boundaries(top, messages):
    body = {"model": "m", "max_tokens": 9, "system": top, "messages": [user()]}
    assert weft.translate(body, "anthropic", "openai-chat").body["messages"] == [*messages, user()]


@pytest.mark.parametrize("content", ["S", [part("A"), part("B")], [part("A")]])
def test_W7_inline_too(content):
    body = {"model": "m", "max_tokens": 9, "messages": [user(), system(content), assistant()]}
    back = weft.translate(body, "anthropic", "openai-chat").body["messages"]
    assert back == [user(), system(content), assistant()]


@pytest.mark.parametrize(
    "messages",
    [
        [system("A"), system([part("B1"), part("B2")], "developer"), user()],
        [system(""), system("A"), user()],
        [system("A"), user(), system("R", "developer"), assistant()],
        [user() | {"name": "ann"}, user([part("one part")]), assistant()],
        [user(), assistant(None, tool_calls=[CALL]), system("R"), RESULT, user("b")],
        [user(), assistant("", tool_calls=[CALL]), RESULT, assistant("fine")],
    ],
)
def test_W7_with_the_sidecar_chat_to_messages_and_back_is_the_original(messages):
    body = chat(*messages, temperature=0.5, seed=7, max_completion_tokens=99)
    there = to_anthropic(body)
    back = weft.translate(there.body, "anthropic", "openai-chat", sidecar=there.sidecar)
    assert back.body == body
    plain = weft.translate(there.body, "anthropic", "openai-chat")
    assert plain.body != body
    assert "seed" in [loss.path for loss in there.losses]  # without it, the difference is reported


@pytest.mark.parametrize("model", ["claude-opus-4-6", "claude-opus-4-8", "m"])
@pytest.mark.parametrize("target", ["openai-chat", "openai-responses"])
def test_W7_the_sidecar_restores_what_the_model_would_refuse(model, target):
    body = {
        "model": model,
        "max_tokens": 9,
        "messages": [user(), system("R"), assistant(), user("b"), system("S")],
    }
    there = weft.translate(body, "anthropic", target)
    assert weft.translate(there.body, target, "anthropic", sidecar=there.sidecar).body == body


# W8 -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("own", "messages", "merged"),
    [
        ("Base", [system("A"), user(), system("B")], "Base\n\nA\n\nB"),
        ("Base", [system("A", "developer"), user()], "Base\n\nA"),
        (None, [system([part("a"), part("b")]), user()], "a\nb"),
        (None, [system([part("a"), part("")]), system(""), user()], "a"),
    ],
)
def test_W8_AC2_2_system_messages_are_extracted_and_merged(own, messages, merged):
    assert weft.build_anthropic_system_param(own, messages) == merged
    lead = [] if own is None else [system(own)]
    done = to_anthropic(chat(*lead, *messages), system="merge")
    assert done.body["system"] == merged
    assert done.body["messages"] == [user()]


def test_W8_AC2_4_the_system_field_alone_comes_out_unchanged():
    assert weft.build_anthropic_system_param("  X \n", [user()]) == "  X \n"
    assert weft.build_anthropic_system_param(None, [user()]) is None
    assert weft.build_anthropic_system_param("", []) is None
    assert "system" not in to_anthropic(chat(user()), system="merge").body


def test_W8_AC2_5_several_are_joined_by_blank_lines():
    several = [system("A"), user(), system("B"), assistant(), system("C")]
    assert weft.build_anthropic_system_param("Base", several) == "Base\n\nA\n\nB\n\nC"


def test_W8_AC2_2_the_encoder_of_one_message_raises_on_a_system_message():
    with pytest.raises(weft.Refused, match="extracted"):
        weft.encode_message(system("A"))
    assert weft.encode_message(user()) == user()


def test_W8_non_text_is_refused_here_too():
    content = [part("a"), {"type": "tool_use", "id": "t", "name": "f", "input": {}}]
    with pytest.raises(weft.Refused) as refused:
        weft.build_anthropic_system_param(None, [user(), system(content)])
    assert refused.value.param == "messages[1].content[1]"


@pytest.mark.parametrize("policy", ["auto", "merge"])
def test_W8_AC2_2_the_body_is_the_same_with_stream_on_and_off(policy):
    messages = [system("A"), user(), assistant(), system("B"), user("c")]
    on = to_anthropic(chat(*messages, stream=True), system=policy).body
    off = to_anthropic(chat(*messages, stream=False), system=policy).body
    assert on.pop("stream") is True
    assert off.pop("stream") is False
    assert on == off


# W9 -------------------------------------------------------------------------------------------


def test_W9_AC2_3_each_inline_one_stays_its_own_message_in_its_place():
    body = {
        "model": "m",
        "max_tokens": 9,
        "system": "Base",
        "messages": [user(), system("A"), assistant(), user("b"), system("B")],
    }
    assert weft.translate(body, "anthropic", "openai-chat").body["messages"] == [
        system("Base"),
        user(),
        system("A"),
        assistant(),
        user("b"),
        system("B"),
    ]


def test_W9_AC2_4_the_system_field_is_the_first_message():
    body = {"model": "m", "max_tokens": 9, "system": "X", "messages": [user()]}
    assert weft.translate(body, "anthropic", "openai-chat").body["messages"][0] == system("X")
    del body["system"]
    assert weft.translate(body, "anthropic", "openai-chat").body["messages"] == [user()]


def test_W9_AC2_5_several_are_sequential():
    body = {
        "model": "m",
        "max_tokens": 9,
        "messages": [user(), system("A"), system("B"), system("C"), assistant()],
    }
    texts = [
        m["content"] for m in weft.translate(body, "anthropic", "openai-chat").body["messages"]
    ]
    assert texts == ["hi", "A", "B", "C", "ok"]


# W10 ------------------------------------------------------------------------------------------


def responses(*items, **members):
    return {"model": "m", "input": list(items), **members}


def input_message(role, *texts, kind="input_text"):
    return {"role": role, "content": [{"type": kind, "text": text} for text in texts]}


def test_W10_responses_instructions_are_the_first_block():
    body = responses(
        input_message("developer", "B1", "B2"),
        input_message("user", "hi"),
        input_message("system", "R"),
        instructions="A",
    )
    done = weft.translate(body, "openai-responses", "anthropic").body
    assert done["system"] == [part("A"), part("B1"), part("B2")]
    assert done["messages"] == [
        {"role": "user", "content": [part("hi")]},
        {"role": "system", "content": [part("R")]},
    ]


@pytest.mark.parametrize(
    ("top", "instructions", "leading"),
    [
        ("S", "S", []),
        ([part("A")], "A", []),
        ([part("A"), part("B")], None, [("system", ["A", "B"])]),
        ("", None, []),
        ([], None, []),
    ],
)
def test_W10_messages_to_responses_keeps_boundaries(top, instructions, leading):
    body = {"model": "m", "max_tokens": 9, "system": top, "messages": [user()]}
    done = weft.translate(body, "anthropic", "openai-responses").body
    assert done.get("instructions") == instructions
    *before, last = done["input"]
    assert [(item["role"], [p["text"] for p in item["content"]]) for item in before] == leading
    assert last["role"] == "user"


@pytest.mark.parametrize(
    ("top", "instructions", "leading"),
    [({"system": "top"}, "top", ["A"]), ({}, None, ["A"])],
)
def test_W10_a_message_inside_the_list_stays_inside_it(top, instructions, leading):
    body = {"model": "m", "max_tokens": 9, **top, "messages": [system("A"), user()]}
    done = weft.translate(body, "anthropic", "openai-responses").body
    assert done.get("instructions") == instructions
    assert [item["content"] for item in done["input"][:-1]] == leading


def test_W10_chat_to_responses_and_back_keeps_every_message():
    messages = [
        system("A"),
        system([part("B1"), part("B2")], "developer"),
        user(),
        assistant(),
        system("R", "developer"),
        user("b"),
    ]
    there = weft.translate(chat(*messages), "openai-chat", "openai-responses")
    assert there.body["instructions"] == "A"
    assert [item["role"] for item in there.body["input"][:2]] == ["developer", "user"]
    back = weft.translate(there.body, "openai-responses", "openai-chat", sidecar=there.sidecar)
    assert back.body == chat(*messages)


@pytest.mark.parametrize("source", ["openai-chat", "anthropic", "openai-responses"])
@pytest.mark.parametrize("target", ["openai-chat", "anthropic", "openai-responses"])
def test_W10_no_pair_loses_or_joins_system_text(source, target):
    first = chat(system("A"), user(), system("R"), assistant(), user("b"))
    body = weft.translate(first, "openai-chat", source).body
    done = weft.translate(body, source, target)
    again = weft.decode(done.body, target)
    assert [(m.role.replace("developer", "system"), m.text) for m in again.messages] == [
        ("system", "A"),
        ("user", "hi"),
        ("system", "R"),
        ("assistant", "ok"),
        ("user", "b"),
    ]


@pytest.mark.parametrize(
    ("path", "body", "param", "name"),
    [
        (
            "/v1/chat/completions",
            chat(system([part("a"), IMAGE_URL]), user()),
            "messages[0].content[1]",
            "image_url",
        ),
        (
            "/v1/responses",
            {"input": [{"role": "developer", "content": [INPUT_IMAGE]}]},
            "input[0].content[0]",
            "input_image",
        ),
    ],
)
def test_W5_the_gateway_refuses_in_the_callers_dialect(tmp_path, path, body, param, name):
    with weft_serve(tmp_path) as gateway:
        status, _, answer = post(f"{gateway.url}{path}", body | {"model": "weft-offline"})
    error = json.loads(answer)["error"]
    assert (status, error["param"]) == (400, param)
    assert name in error["message"]


@pytest.mark.parametrize("content", ["", [], [part("")]])
def test_W4_an_empty_one_that_cannot_stay_says_nothing_to_anybody(content):
    done = to_anthropic(chat(user(), assistant(), system(content), user("b")))
    assert done.body["messages"] == [user(), assistant(), user("b")]
    assert [loss.path for loss in done.losses if loss.code == "empty_message_dropped"] == [
        "messages[2]"
    ]


EMPTY = {"empty_message_dropped", "empty_text_dropped"}


@pytest.mark.parametrize("content", ["", [], [part("")], [part(""), part("x")]])
def test_W3_an_empty_part_of_the_leading_run_is_told(content):
    done = to_anthropic(chat(system(content), user()))
    assert any(loss.path == "messages[0]" and loss.code in EMPTY for loss in done.losses)


def test_W8_a_merge_tells_which_messages_it_moved():
    done = to_anthropic(chat(system("A"), user(), system("B")), system="merge")
    assert [loss.path for loss in done.losses if loss.kind == "moved"] == ["messages[2]"]


@pytest.mark.parametrize("options", [{"system": "zzz"}, {"cache": "zzz"}, {"system": None}])
def test_an_unknown_policy_is_refused_by_name(options):
    with pytest.raises(weft.Refused) as refused:
        to_anthropic(chat(user()), **options)
    assert refused.value.param in options


@pytest.mark.parametrize(("detail", "levels"), [("low", ["meaning"]), ("auto", ["form"])])
def test_an_images_detail_is_told(detail, levels):
    image = {"type": "image_url", "image_url": {"url": PNG, "detail": detail}}
    done = to_anthropic(chat(user([image]), max_completion_tokens=9))
    assert [loss.level for loss in done.losses if loss.code == "image_detail_dropped"] == levels
