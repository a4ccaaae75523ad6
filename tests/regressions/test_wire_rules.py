"""The rules of a target apply with every client and every spelling of a model name.

Each row or test is a regression test; its id names the rule.
"""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest

import weft
from servers import (
    REQUEST_PATHS,
    Gateway,
    Scripted,
    Upstream,
    post,
    scripted_upstream,
    weft_serve,
)
from weft.catalog import load_catalog
from weft.errors import ConfigError

LAUNCH = "from weft.cli import entry; entry()"


def user(content: Any = "u") -> dict[str, Any]:
    return {"role": "user", "content": content}


def assistant(content: Any = "a") -> dict[str, Any]:
    return {"role": "assistant", "content": content}


def system(content: Any = "MID", role: str = "system") -> dict[str, Any]:
    return {"role": role, "content": content}


def role_of_later_system(model: str, **options: Any) -> str:
    """The role that a later system message gets on its way from Chat to Anthropic."""
    body = {"model": model, "messages": [user(), system(), assistant(), user("v")]}
    done = weft.translate(body, "openai-chat", "anthropic", **options)
    return done.body["messages"][1]["role"]


# W-F2: every spelling of a model ---------------------------------------------------------------

BELOW_4_8 = [
    "claude-opus-4-6",
    "claude-opus-4-6-20260101",
    "claude-opus-4.6",
    "claude-opus-4.7",
    "claude-opus-4-6-fast",
    "Claude-Opus-4.6",
    "claude-opus-4-5",
    "claude-opus-4-5-20251101",
    "claude-opus-4-1",
    "claude-opus-4-20250514",
    "claude-opus-4",
    "claude-4-opus",
    "claude-4.5-sonnet",
    "claude-sonnet-4-5",
    "claude-sonnet-4.5",
    "claude-sonnet-4-20250514",
    "claude-sonnet-4",
    "claude-haiku-4.5",
    "claude-3-7-sonnet-latest",
    "claude-3.7-sonnet",
    "claude-3-opus-20240229",
    "claude-2.1",
    "claude-2",
    "claude-instant-1.2",
    "anthropic.claude-opus-4-6-v1:0",
    "us.anthropic.claude-opus-4-7-v1:0",
    "global.anthropic.claude-sonnet-4-5-20250929-v1:0",
    "us-gov.anthropic.claude-3-5-sonnet-20240620-v1:0",
    "bedrock/us.anthropic.claude-opus-4-6-v1:0",
    "arn:aws:bedrock:us-east-1::foundation-model/anthropic.claude-opus-4-6-v1:0",
    "anthropic.claude-v2:1",
    "anthropic.claude-instant-v1",
    "claude-opus-4-6@20250805",
    "claude-sonnet-4@20250514",
    "claude-opus-4-6@default",
    "publishers/anthropic/models/claude-opus-4-6",
    "vertex_ai/claude-opus-4-6@20260101",
    "anthropic/claude-opus-4.6",
    "anthropic/claude-opus-4-6",
    "anthropic/claude-3.7-sonnet:thinking",
    "openrouter/anthropic/claude-sonnet-4.5:beta",
]
FROM_4_8 = [
    "claude-opus-4-8",
    "claude-opus-4.8",
    "claude-opus-4-8-20260301",
    "claude-sonnet-4-10",
    "anthropic/claude-opus-4.8",
    "us.anthropic.claude-opus-4-8-v1:0",
    "claude-opus-4-8@20260301",
    "claude-opus-5",
    "claude-haiku-5",
    "claude-5-sonnet",
    "anthropic.claude-opus-5-v1:0",
]
UNREADABLE = ["claude-mythos-1", "claude-next", "claude", "my-claude", "some-model", "gpt-5"]


@pytest.mark.parametrize("model", BELOW_4_8)
def test_WF2_every_claude_below_4_8_gets_later_system_messages_as_user(model: str) -> None:
    assert role_of_later_system(model) == "user"


@pytest.mark.parametrize("model", [*FROM_4_8, *UNREADABLE])
def test_WF2_newer_and_unreadable_ids_keep_the_inline_message(model: str) -> None:
    assert role_of_later_system(model) == "system"


@pytest.mark.parametrize(
    "spelling",
    [
        "claude-opus-4.6",
        "us.anthropic.claude-opus-4-6-v1:0",
        "claude-opus-4-6@20250805",
        "anthropic/claude-opus-4.6",
    ],
)
def test_WF2_all_spellings_of_a_model_have_the_same_row(spelling: str) -> None:
    catalog = load_catalog()
    known, row = catalog.find("claude-opus-4-6"), catalog.find(spelling)
    # Not the price: Bedrock's regional endpoints cost a tenth more than the maker.
    for name in ("vendor", "window", "output", "prefill", "thinking", "one_sampler"):
        assert getattr(row, name) == getattr(known, name), name


@pytest.mark.parametrize(
    ("spelling", "plain"),
    [
        ("openai/gpt-5.1", "gpt-5.1"),
        ("models/gemini-2.5-pro", "gemini-2.5-pro"),
        ("google/gemini-2.5-pro", "gemini-2.5-pro"),
        ("ft:gpt-4o-2024-08-06:org::id", "gpt-4o-2024-08-06"),
    ],
)
def test_WF2_other_vendors_models_behind_an_aggregator_are_known(spelling: str, plain: str) -> None:
    catalog = load_catalog()
    assert catalog.find(spelling).window == catalog.find(plain).window
    assert catalog.find(spelling).vendor == catalog.find(plain).vendor


def test_WF2_an_aggregators_model_name_never_sends_a_vendors_key_elsewhere() -> None:
    from weft.client import find_upstream

    environ = {"ANTHROPIC_API_KEY": "sk-secret"}
    url = "https://aggregator.example/v1"
    route = find_upstream("anthropic/claude-opus-4.6", environ, load_catalog(), base_url=url)
    assert (route.provider.protocol, route.provider.key) == ("openai-chat", None)


# M8: rows of one's own --------------------------------------------------------------------------

OWN_ROWS = """
[[model]]
match = "house-model"
inline_system = "never"
window = 9_000
output = 77

[[model]]
match = "claude-opus-4.6"
inline_system = "anywhere"
"""


def write_config(folder: Path, text: str) -> str:
    path = folder / "weft.toml"
    path.write_text(text)
    return str(path)


def test_M8_a_config_file_adds_and_overrides_rows(tmp_path: Path) -> None:
    catalog = load_catalog(write_config(tmp_path, OWN_ROWS))
    assert role_of_later_system("house-model", catalog=catalog) == "user"
    assert role_of_later_system("claude-opus-4.6", catalog=catalog) == "system"
    assert role_of_later_system("claude-opus-4-7", catalog=catalog) == "user"
    assert (catalog.find("house-model").window, catalog.find("house-model").output) == (9_000, 77)


def test_M8_a_configured_row_overrides_a_longer_shipped_pattern() -> None:
    catalog = load_catalog(models=[{"match": "claude-*", "inline_system": "anywhere"}])
    assert role_of_later_system("claude-opus-4-6", catalog=catalog) == "system"
    assert catalog.find("claude-opus-4-6").output == 128_000  # what it does not say stays


def test_M8_rows_for_one_upstream() -> None:
    rows = [{"match": "*", "upstream": "strict-*", "inline_system": "never"}]
    catalog = load_catalog(models=rows)
    assert role_of_later_system("m", catalog=catalog, upstream="strict-eu") == "user"
    assert role_of_later_system("m", catalog=catalog, upstream="other") == "system"


def test_M8_the_command_uses_the_config(tmp_path: Path) -> None:
    config = write_config(tmp_path, OWN_ROWS)
    body = {"model": "house-model", "messages": [user(), system(), assistant(), user("v")]}
    command = [sys.executable, "-c", LAUNCH, "translate", "--config", config]
    command += ["--from", "openai-chat", "--to", "anthropic"]
    done = subprocess.run(command, input=orjson.dumps(body), capture_output=True, check=True)
    written = json.loads(done.stdout)
    assert (written["messages"][1]["role"], written["max_tokens"]) == ("user", 77)


def test_M8_rows_added_in_python_apply_to_later_requests() -> None:
    row = {"match": "added-in-python", "inline_system": "never", "max_tokens_field": "max_tokens"}
    weft.add_models(row)
    assert role_of_later_system("added-in-python") == "user"
    t = weft.open()
    t.user("hi")
    params = t.compile().to_openai_params(model="added-in-python", max_tokens=5)
    assert params["max_tokens"] == 5


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ('[[model]]\nmatch = "m"\nwindows = 1', "windows"),
        ('[[model]]\nmatch = "m"\nwindow = "big"', "window"),
        ('[[model]]\nmatch = "m"\nwindow = 0', "window"),
        ('[[model]]\nmatch = "m"\noutput = -3', "output"),
        ('[[model]]\nmatch = "m"\ninline_system = "sometimes"', "inline_system"),
        ("[[model]]\nwindow = 5", "match"),
        ('[[model]]\nmatch = "m"\nupstream = 3', "upstream"),
        ('[[model]]\nmatch = "m"\nbelow = "new"', "below"),
        ('[[model]]\nmatch = "m"\nprice = { input = 1.0 }', "output"),
        ('model = "m"', "model"),
        ('model = ["m"]', "model"),
    ],
)
def test_M8_an_error_names_the_wrong_key_of_a_row(tmp_path: Path, text: str, named: str) -> None:
    from weft.gateway import Flags, read_settings

    config = write_config(tmp_path, text)
    for read in (
        lambda: load_catalog(config),
        lambda: read_settings(Flags(config=config), {}),
    ):
        with pytest.raises(ConfigError) as refused:
            read()
        assert named in str(refused.value)
        assert "weft.toml" in str(refused.value)


# W-F3: ids that go with reasoning ----------------------------------------------------------------


def reasoned(number: int, *items: dict[str, Any], **members: Any) -> dict[str, Any]:
    """An answer of Responses: reasoning, then items that depend on it."""
    thought = {
        "type": "reasoning",
        "id": f"rs_{number}",
        "summary": [],
        "encrypted_content": f"ENC{number}",
    }
    return {
        "id": f"resp_{number}",
        "object": "response",
        "created_at": 1,
        "status": "completed",
        "model": "gpt-5",
        "output": [thought, *items],
        "usage": {"input_tokens": 1, "output_tokens": 1, "total_tokens": 2},
        **members,
    }


def said_item(number: int) -> dict[str, Any]:
    text = {"type": "output_text", "text": f"did {number}", "annotations": []}
    return {
        "type": "message",
        "id": f"msg_{number}",
        "role": "assistant",
        "status": "completed",
        "content": [text],
    }


def call_item(number: int, **members: Any) -> dict[str, Any]:
    return {
        "type": "function_call",
        "id": f"fc_{number}",
        "call_id": f"call_{number}",
        "name": "f",
        "arguments": "{}",
        "status": "completed",
        **members,
    }


def ids_of(params: Any) -> list[str]:
    return [item["id"] for item in params["input"] if "id" in item]


def thread_of_two_answers() -> weft.Thread:
    t = weft.open(checkpoints=True)
    t.user("go")
    t.assistant(reasoned(1, call_item(1)))
    t.tool_result("call_1", "out 1")
    t.assistant(reasoned(2, said_item(2), call_item(2)))
    t.tool_result("call_2", "out 2")
    return t


def test_WF3_ids_stay_with_their_reasoning() -> None:
    params = thread_of_two_answers().compile().to_responses_params(model="gpt-5")
    assert ids_of(params) == ["rs_1", "fc_1", "rs_2", "msg_2", "fc_2"]


def test_WF3_a_range_compaction_that_strips_reasoning_strips_the_ids() -> None:
    t = thread_of_two_answers()
    first, second, *_ = [point.id for point in t.checkpoints()]
    t.user("and now?")  # so that no tool round is open
    t.compact([{"from": first, "to": second, "summary": "S"}])
    params = t.compile().to_responses_params(model="gpt-5")
    assert ids_of(params) == []
    assert "call_2" in str(params["input"])
    assert "did 2" in str(params["input"])
    dropped = [loss for loss in params.losses if loss.code == "item_id_dropped"]
    assert [(loss.detail, loss.level) for loss in dropped] == [("msg_2", "form"), ("fc_2", "form")]


@pytest.mark.parametrize(
    "expected",
    [
        pytest.param({"store": False, "encrypted": None}, id="reasoning that nobody stores"),
        pytest.param({"origin": "anthropic"}, id="reasoning of another maker"),
    ],
)
def test_WF3_omitted_reasoning_removes_its_ids(
    expected: dict[str, Any],
) -> None:
    from msgspec import structs

    from weft.model import Origin

    answer = reasoned(1, said_item(1), call_item(1))
    if "encrypted" in expected:
        del answer["output"][0]["encrypted_content"]
    body = {"model": "gpt-5", "input": [{"role": "user", "content": "go"}, *answer["output"]]}
    body["input"].append({"type": "function_call_output", "call_id": "call_1", "output": "x"})
    body |= {"store": False} if "store" in expected else {}
    request = weft.decode(body, "openai-responses")
    messages = list(request.messages)
    maker = expected.get("origin", "openai-responses")
    messages[1] = structs.replace(messages[1], origin=Origin(maker, "p", "gpt-5"))
    foreign = structs.replace(request, messages=tuple(messages), raw={}, wire=None)
    done = weft.encode(foreign, "openai-responses")
    assert ids_of(done.body) == []
    assert [item.get("type") for item in done.body["input"]][-2:] == [
        "function_call",
        "function_call_output",
    ]


def test_WF3_the_second_reasoning_of_a_turn_removes_only_its_own_items() -> None:
    from msgspec import structs

    from weft.model import Origin

    second = {"type": "reasoning", "id": "rs_2", "summary": []}
    output = [*reasoned(1, said_item(1))["output"], second, call_item(2)]
    body = {
        "model": "gpt-5",
        "store": False,
        "input": [
            {"role": "user", "content": "go"},
            *output,
            {"type": "function_call_output", "call_id": "call_2", "output": "x"},
        ],
    }
    request = weft.decode(body, "openai-responses")
    messages = list(request.messages)
    messages[1] = structs.replace(messages[1], origin=Origin("openai-responses", "p", "gpt-5"))
    stored = structs.replace(request, messages=tuple(messages), raw={}, wire=None)
    assert ids_of(weft.encode(stored, "openai-responses").body) == ["rs_1", "msg_1"]


def test_WF3_a_clients_own_body_keeps_its_ids() -> None:
    body = {
        "model": "gpt-4o",
        "input": [
            {"role": "user", "content": "go"},
            said_item(1),
            call_item(1),
            {"type": "function_call_output", "call_id": "call_1", "output": "x"},
        ],
    }
    done = weft.translate(body, "openai-responses", "openai-responses")
    assert done.body == body


# W-F1: rules of the target, also for a client of its own protocol ---------------------------------

ANSWER = orjson.dumps({"error": {"message": "no answer is needed here"}})
MARK = {"type": "ephemeral"}

UPSTREAMS = """
[[upstream]]
name = "{name}"
protocol = "{protocol}"
url = "{url}"
{options}
"""
NAMED = [
    ("plain-a", "anthropic", ""),
    ("demote-a", "anthropic", "demote-interleaved-system-to-user = true"),
    ("merge-a", "anthropic", 'system = "merge"'),
    ("inline-a", "anthropic", 'system = "inline"\ncache = "keep"'),
    ("keep-a", "anthropic", 'cache = "keep"'),
    ("vertex-eu", "anthropic", 'cache = "keep"'),
    ("plain-c", "openai-chat", ""),
    ("demote-c", "openai-chat", "demote-interleaved-system-to-user = true"),
    ("merge-c", "openai-chat", 'system = "merge"'),
    ("newer-c", "openai-chat", ""),
    ("plain-r", "openai-responses", ""),
    ("demote-r", "openai-responses", 'system = "demote"'),
    ("merge-r", "openai-responses", 'system = "merge"'),
    ("plain-g", "gemini", ""),
    ("merge-g", "gemini", 'system = "merge"'),
]
NEWER = """
[[model]]
match = "*"
upstream = "newer-c"
developer = true
system_parts = true
max_tokens_field = "max_completion_tokens"
"""


@pytest.fixture(scope="module")
def ruled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Gateway, Upstream]]:
    """A gateway before upstreams with every policy, all at one scripted address."""
    folder = tmp_path_factory.mktemp("ruled")
    with scripted_upstream() as upstream:
        upstream.then(Scripted(ANSWER, status=400, kind="application/json"))
        tables = [
            UPSTREAMS.format(name=name, protocol=protocol, url=upstream.url, options=options)
            for name, protocol, options in NAMED
        ]
        config = write_config(folder, "".join(tables) + NEWER)
        with weft_serve(folder, "--config", config) as gateway:
            yield gateway, upstream


def forwarded(
    ruled: tuple[Gateway, Upstream], protocol: str, body: dict[str, Any] | bytes, model: str = ""
) -> tuple[bytes, str]:
    """The bytes that reached the upstream, and what the caller was told of losses."""
    gateway, upstream = ruled
    upstream.requests.clear()
    path = REQUEST_PATHS[protocol].format(model=model)
    _, headers, _ = post(gateway.url + path, body, {"x-api-key": "k"})
    return upstream.requests[0]["body"], headers["x-weft-losses"]


def text(words: str, **members: Any) -> dict[str, Any]:
    return {"type": "text", "text": words, **members}


def roles(body: bytes, member: str = "messages") -> list[str]:
    return [item["role"] for item in json.loads(body)[member]]


def messages_body(model: str, *messages: dict[str, Any], **members: Any) -> dict[str, Any]:
    return {"model": model, "max_tokens": 9, **members, "messages": list(messages)}


MIDDLE = [user("q1"), system(), assistant("a1"), user("go")]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("model", "expected"),
    [
        ("demote-a/claude-opus-5", ["user", "user", "assistant", "user"]),
        ("merge-a/claude-opus-5", ["user", "assistant", "user"]),
        ("plain-a/claude-opus-4-6", ["user", "user", "assistant", "user"]),
        ("plain-a/us.anthropic.claude-opus-4-6-v1:0", ["user", "user", "assistant", "user"]),
        ("vertex-eu/claude-opus-5", ["user", "user", "assistant", "user"]),
        ("plain-a/claude-opus-5", ["user", "system", "assistant", "user"]),
        ("inline-a/claude-opus-4-6", ["user", "system", "assistant", "user"]),
        ("plain-a/some-model", ["user", "system", "assistant", "user"]),
    ],
)
def test_WF1_anthropic_to_anthropic_places_system_messages(
    ruled: tuple[Gateway, Upstream], model: str, expected: list[str], stream: bool
) -> None:
    members: dict[str, Any] = {"stream": True} if stream else {}
    sent, losses = forwarded(ruled, "anthropic", messages_body(model, *MIDDLE, **members))
    assert roles(sent) == expected
    assert json.loads(sent).get("stream", False) is stream
    changed = expected != ["user", "system", "assistant", "user"]
    assert losses == ("1; messages[1]" if changed else "0")


def test_WF1_merge_joins_the_later_message_into_the_first(ruled: tuple[Gateway, Upstream]) -> None:
    body = messages_body("merge-a/claude-opus-5", *MIDDLE, system="L")
    sent, _ = forwarded(ruled, "anthropic", body)
    blocks = json.loads(sent)["system"]
    assert blocks == [text("L\n\nMID", cache_control=MARK)]


def test_WF1_a_message_between_a_call_and_its_result_follows_the_result(
    ruled: tuple[Gateway, Upstream],
) -> None:
    call = {"type": "tool_use", "id": "t1", "name": "f", "input": {}}
    result = {"type": "tool_result", "tool_use_id": "t1", "content": "r", "cache_control": MARK}
    listed = [user(), assistant([call]), system(), user([result])]
    sent, losses = forwarded(ruled, "anthropic", messages_body("plain-a/claude-opus-5", *listed))
    assert json.loads(sent)["messages"] == [listed[0], listed[1], listed[3], listed[2]]
    assert losses == "1; messages[2]"
    sent, _ = forwarded(ruled, "anthropic", messages_body("demote-a/claude-opus-5", *listed))
    assert roles(sent) == ["user", "assistant", "user", "user"]


@pytest.mark.parametrize(
    "listed",
    [
        pytest.param([user(), assistant(), system(), user("v")], id="behind an answer"),
        pytest.param([user(), system(), user("v")], id="before a user"),
    ],
)
def test_WF1_a_position_that_the_vendor_refuses_becomes_user(
    ruled: tuple[Gateway, Upstream], listed: list[dict[str, Any]]
) -> None:
    body = messages_body("keep-a/claude-opus-4-8", *listed)
    sent, losses = forwarded(ruled, "anthropic", body)
    assert "system" not in roles(sent)
    assert losses.startswith("1; ")
    untouched, _ = forwarded(ruled, "anthropic", body | {"model": "inline-a/claude-opus-4-8"})
    assert json.loads(untouched)["messages"] == listed


def test_WF1_a_leading_system_message_of_the_list_is_hoisted(
    ruled: tuple[Gateway, Upstream],
) -> None:
    listed = [system("A"), system([text("B"), text("C")]), user()]
    body = messages_body("keep-a/claude-opus-5", *listed, system="L")
    sent, _ = forwarded(ruled, "anthropic", body)
    assert json.loads(sent)["system"] == [text("L"), text("A"), text("B"), text("C")]
    assert roles(sent) == ["user"]


def test_WF1_only_the_changed_parts_are_rewritten(ruled: tuple[Gateway, Upstream]) -> None:
    body = (
        b'{ "max_tokens" : 9 ,\n "model":"demote-a/claude-opus-5", "temperature" : 1.0,'
        b'  "system" : [ {"type":"text", "text":"caf\\u00e9", "cache_control":{"type":"ephemeral"}}'
        b' ] , "messages":[ {"role" : "user","content":"q\\/1"} ,'
        b' {"content" : "M\\u0049D" , "role":"system" } , { "role":"assistant","content":[ {"type":'
        b' "tool_use","id":"t","name":"f","input":{"n" : 1.50, "big":12345678901234567890}} ]},'
        b'{"role":"user","content":[{"type":"tool_result","tool_use_id":"t","content":"x"}]} ] }'
    )
    sent, _ = forwarded(ruled, "anthropic", body)
    wanted = body.replace(b"demote-a/", b"").replace(b'"role":"system"', b'"role":"user"')
    assert sent == wanted


def test_WF1_without_a_rule_the_bytes_are_unchanged(ruled: tuple[Gateway, Upstream]) -> None:
    for protocol, name in (("anthropic", "keep-a"), ("openai-chat", "plain-c")):
        body = (
            b'{ "max_tokens" : 9 , "model":"%b/claude-opus-5" , "messages":[ {"role" : "user",'
            b'"content":"q\\/1"} , { "role":"system" , "content":"r"} ] , "x" : 1.0 }'
        ) % name.encode()
        sent, losses = forwarded(ruled, protocol, body)
        assert (sent, losses) == (body.replace(name.encode() + b"/", b""), "0")


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("model", "expected"),
    [
        ("demote-c/gpt-5", ["system", "user", "user", "assistant", "user"]),
        ("merge-c/gpt-5", ["system", "user", "assistant", "user"]),
        ("plain-c/gpt-5", ["system", "user", "system", "assistant", "user"]),
    ],
)
def test_WF1_chat_to_chat_places_system_messages(
    ruled: tuple[Gateway, Upstream], model: str, expected: list[str], stream: bool
) -> None:
    body = {"model": model, "messages": [system("L"), *MIDDLE], "stream": stream}
    sent, _ = forwarded(ruled, "openai-chat", body)
    assert roles(sent) == expected
    if model.startswith("merge"):
        assert json.loads(sent)["messages"][0] == system("L\n\nMID")


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("model", "expected"),
    [
        ("demote-r/gpt-5", ["system", "user", "user", "assistant", "user"]),
        ("merge-r/gpt-5", ["user", "assistant", "user"]),
        ("plain-r/gpt-5", ["system", "user", "system", "assistant", "user"]),
    ],
)
def test_WF1_responses_to_responses_places_system_messages(
    ruled: tuple[Gateway, Upstream], model: str, expected: list[str], stream: bool
) -> None:
    body = {"model": model, "input": [system("L"), *MIDDLE], "stream": stream}
    sent, _ = forwarded(ruled, "openai-responses", body)
    assert roles(sent, "input") == expected
    if model.startswith("merge"):
        assert json.loads(sent)["instructions"] == "L\n\nMID"


def test_WF1_gemini_to_gemini_places_system_messages(ruled: tuple[Gateway, Upstream]) -> None:
    def said(role: str, words: str) -> dict[str, Any]:
        return {"role": role, "parts": [{"text": words}]}

    contents = [said("user", "q"), said("system", "MID"), said("model", "a"), said("user", "go")]
    body = {"systemInstruction": {"parts": [{"text": "L"}]}, "contents": contents}
    sent, losses = forwarded(ruled, "gemini", body, "plain-g/gemini-3-pro")
    assert roles(sent, "contents") == ["user", "user", "model", "user"]
    assert losses == "1; contents[1]"
    sent, _ = forwarded(ruled, "gemini", body, "merge-g/gemini-3-pro")
    assert roles(sent, "contents") == ["user", "model", "user"]
    assert json.loads(sent)["systemInstruction"]["parts"] == [{"text": "L\n\nMID"}]


def test_WF1_a_request_without_cache_marks_gets_three_from_an_anthropic_client_too(
    ruled: tuple[Gateway, Upstream],
) -> None:
    tool = {"name": "f", "input_schema": {"type": "object", "properties": {"b": {}, "a": {}}}}
    body = messages_body("plain-a/claude-opus-5", user("hi"), system="S", tools=[tool])
    sent, losses = forwarded(ruled, "anthropic", body)
    written = json.loads(sent)
    assert written["system"] == [text("S", cache_control=MARK)]
    assert written["tools"] == [{**tool, "cache_control": MARK}]
    assert written["messages"] == [user([text("hi", cache_control=MARK)])]
    assert losses == "0"
    assert list(written["tools"][0]["input_schema"]["properties"]) == ["b", "a"]


def test_WF1_a_clients_cache_marks_are_limited_to_four(
    ruled: tuple[Gateway, Upstream],
) -> None:
    marked = [text(word, cache_control=MARK) for word in "abcde"]
    body = messages_body("plain-a/claude-opus-5", user(marked[:2]))
    sent, losses = forwarded(ruled, "anthropic", body)
    assert json.loads(sent)["messages"] == body["messages"]
    assert losses == "0"
    sent, losses = forwarded(
        ruled, "anthropic", messages_body("plain-a/claude-opus-5", user(marked))
    )
    assert json.loads(sent)["messages"] == [user([text("a"), *marked[1:]])]
    assert losses == "1; messages[0].content[0].cache_control"


def test_WF1_the_clients_original_request_is_recorded(ruled: tuple[Gateway, Upstream]) -> None:
    gateway, upstream = ruled
    answer = {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "claude-opus-5",
        "content": [text("fine")],
        "stop_reason": "end_turn",
        "stop_sequence": None,
        "usage": {"input_tokens": 1, "output_tokens": 1},
    }
    upstream.then(Scripted(orjson.dumps(answer), kind="application/json"))
    body = messages_body("demote-a/claude-opus-5", *MIDDLE)
    status, headers, _ = post(gateway.url + REQUEST_PATHS["anthropic"], body, {"x-api-key": "k"})
    upstream.then(Scripted(ANSWER, status=400, kind="application/json"))
    assert (status, headers["x-weft-recorded"]) == (200, "store")
    with weft.open(str(gateway.store), headers["x-weft-thread"]) as thread:
        texts = [(message.role, message.text) for message in thread.compile().messages]
    assert texts == [*((m["role"], m["content"]) for m in MIDDLE), ("assistant", "fine")]


def test_WF1_a_body_that_cannot_be_decoded_is_forwarded_unchanged(
    ruled: tuple[Gateway, Upstream],
) -> None:
    body = b'{"model":"claude-opus-5","messages":"?", "max_tokens" : 3}'
    gateway, upstream = ruled
    upstream.requests.clear()
    named = body.replace(b"claude", b"demote-a/claude")
    post(gateway.url + REQUEST_PATHS["anthropic"], named, {"x-api-key": "k"})
    assert upstream.requests[0]["body"] == body


# M7: servers that speak OpenAI's protocol and are not OpenAI -------------------------------------


@pytest.mark.parametrize(
    "model", ["llama-3.3-70b", "qwen3-coder", "deepseek-chat", "my-llm", "kimi-k2", "gpt-oss-20b"]
)
def test_M7_other_vendors_models_get_max_tokens(model: str) -> None:
    body = {"model": model, "max_tokens": 50, "messages": [user()]}
    done = weft.translate(body, "anthropic", "openai-chat").body
    assert (done.get("max_tokens"), "max_completion_tokens" in done) == (50, False)


@pytest.mark.parametrize("model", ["gpt-5", "gpt-4o", "o3", "openai/gpt-5", "chatgpt-4o-latest"])
def test_M7_openais_models_get_max_completion_tokens(model: str) -> None:
    body = {"model": model, "max_tokens": 50, "messages": [user()]}
    done = weft.translate(body, "anthropic", "openai-chat").body
    assert (done.get("max_completion_tokens"), "max_tokens" in done) == (50, False)


@pytest.mark.parametrize("model", ["llama-3.3-70b", "meta-llama/llama-3.3-70b", "deepseek-chat"])
def test_M7_open_models_get_plain_system_messages(model: str) -> None:
    body = {"model": model, "max_tokens": 5, "system": [text("A"), text("B")], "messages": [user()]}
    done = weft.translate(body, "anthropic", "openai-chat")
    assert done.body["messages"][0] == system("A\nB")
    assert "form" in {loss.level for loss in done.losses}
    body = {"model": model, "instructions": "I", "input": [system("D", "developer"), user()]}
    done = weft.translate(body, "openai-responses", "openai-chat")
    assert [m["role"] for m in done.body["messages"]] == ["system", "system", "user"]


M7_CHAT = {
    "max_completion_tokens": 50,
    "messages": [system([text("A"), text("B")], "developer"), user([text("u")])],
}


def test_M7_a_chat_client_of_an_unknown_server_gets_max_tokens_and_system(
    ruled: tuple[Gateway, Upstream],
) -> None:
    sent, losses = forwarded(ruled, "openai-chat", {"model": "plain-c/house-llm", **M7_CHAT})
    assert json.loads(sent) == {
        "model": "house-llm",
        "max_tokens": 50,
        "messages": [system("A\nB"), user([text("u")])],
    }
    assert losses.startswith("3; ")


@pytest.mark.parametrize("model", ["newer-c/house-llm", "plain-c/gpt-5"])
def test_M7_the_config_and_the_catalogue_override_the_default(
    ruled: tuple[Gateway, Upstream], model: str
) -> None:
    sent, losses = forwarded(ruled, "openai-chat", {"model": model, **M7_CHAT})
    assert json.loads(sent) == {"model": model.partition("/")[2], **M7_CHAT}
    assert losses == "0"


def test_M7_the_rule_applies_to_clients_of_other_protocols(ruled: tuple[Gateway, Upstream]) -> None:
    body = messages_body("plain-c/house-llm", user(), system=[text("A"), text("B")])
    sent, _ = forwarded(ruled, "anthropic", body)
    assert json.loads(sent) == {
        "model": "house-llm",
        "max_tokens": 9,
        "messages": [system("A\nB"), user()],
    }


def test_M7_cache_marks_of_a_system_message_keep_its_parts(ruled: tuple[Gateway, Upstream]) -> None:
    listed = [system([text("A", cache_control=MARK)]), user()]
    sent, _ = forwarded(ruled, "openai-chat", {"model": "plain-c/house-llm", "messages": listed})
    assert json.loads(sent)["messages"] == listed


@pytest.mark.parametrize(
    ("model", "role"), [("plain-r/house-llm", "system"), ("plain-r/gpt-5", "developer")]
)
def test_M7_developer_messages_to_responses(
    ruled: tuple[Gateway, Upstream], model: str, role: str
) -> None:
    body = {"model": model, "input": [system("D", "developer"), user()]}
    sent, _ = forwarded(ruled, "openai-responses", body)
    assert roles(sent, "input") == [role, "user"]


@pytest.mark.parametrize(
    ("url", "newer"),
    [
        ("https://api.openai.com/v1", True),
        ("https://eu.api.openai.com/v1", True),
        ("https://house.openai.azure.com/openai/v1", True),
        ("https://openai.example/v1", False),
        ("https://evil-api.openai.com.example/v1", False),
        ("http://localhost:8000/v1", False),
    ],
)
def test_M7_the_host_decides_for_an_unknown_model(url: str, newer: bool) -> None:
    from weft.client import make_provider

    model = make_provider("p", "openai-chat", url).target(load_catalog(), "house-llm").model
    field = "max_completion_tokens" if newer else "max_tokens"
    assert (model.developer, model.system_parts, model.max_tokens_field) == (newer, newer, field)
