"""Rules of the target act on what it is sent, whoever the client is and however a model is spelt.

One row or test for each fault that was found in use; the ids say which in plain words.
"""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import orjson
import pytest

import weft
from weft.catalog import load_catalog
from weft.errors import ConfigError

LAUNCH = "from weft.cli.main import entry; entry()"


def user(content: Any = "u") -> dict[str, Any]:
    return {"role": "user", "content": content}


def assistant(content: Any = "a") -> dict[str, Any]:
    return {"role": "assistant", "content": content}


def system(content: Any = "MID", role: str = "system") -> dict[str, Any]:
    return {"role": role, "content": content}


def role_in_the_middle(model: str, **options: Any) -> str:
    """The role that a system message in the middle gets on its way from Chat to Anthropic."""
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
    assert role_in_the_middle(model) == "user"


@pytest.mark.parametrize("model", [*FROM_4_8, *UNREADABLE])
def test_WF2_newer_and_unreadable_ids_keep_the_inline_message(model: str) -> None:
    assert role_in_the_middle(model) == "system"


@pytest.mark.parametrize(
    "spelling",
    [
        "claude-opus-4.6",
        "us.anthropic.claude-opus-4-6-v1:0",
        "claude-opus-4-6@20250805",
        "anthropic/claude-opus-4.6",
    ],
)
def test_WF2_all_spellings_have_the_same_row(spelling: str) -> None:
    catalog = load_catalog()
    known, found = catalog.find("claude-opus-4-6"), catalog.find(spelling)
    for name in ("vendor", "window", "output", "prefill", "thinking", "one_sampler", "price"):
        assert getattr(found, name) == getattr(known, name), name


@pytest.mark.parametrize(
    ("spelling", "plain"),
    [
        ("openai/gpt-5.1", "gpt-5.1"),
        ("models/gemini-2.5-pro", "gemini-2.5-pro"),
        ("google/gemini-2.5-pro", "gemini-2.5-pro"),
        ("ft:gpt-4o-2024-08-06:org::id", "gpt-4o-2024-08-06"),
    ],
)
def test_WF2_other_makers_models_behind_an_aggregator_are_known_too(
    spelling: str, plain: str
) -> None:
    catalog = load_catalog()
    assert catalog.find(spelling).window == catalog.find(plain).window
    assert catalog.find(spelling).vendor == catalog.find(plain).vendor


def test_WF2_an_aggregators_spelling_never_takes_a_vendors_key_elsewhere() -> None:
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
    assert role_in_the_middle("house-model", catalog=catalog) == "user"
    assert role_in_the_middle("claude-opus-4.6", catalog=catalog) == "system"
    assert role_in_the_middle("claude-opus-4-7", catalog=catalog) == "user"
    assert (catalog.find("house-model").window, catalog.find("house-model").output) == (9_000, 77)


def test_M8_a_row_of_ones_own_wins_over_a_longer_shipped_pattern() -> None:
    catalog = load_catalog(models=[{"match": "claude-*", "inline_system": "anywhere"}])
    assert role_in_the_middle("claude-opus-4-6", catalog=catalog) == "system"
    assert catalog.find("claude-opus-4-6").output == 128_000  # what it does not say stays


def test_M8_rows_for_one_upstream() -> None:
    rows = [{"match": "*", "upstream": "strict-*", "inline_system": "never"}]
    catalog = load_catalog(models=rows)
    assert role_in_the_middle("m", catalog=catalog, upstream="strict-eu") == "user"
    assert role_in_the_middle("m", catalog=catalog, upstream="other") == "system"


def test_M8_the_command_uses_the_config(tmp_path: Path) -> None:
    config = write_config(tmp_path, OWN_ROWS)
    body = {"model": "house-model", "messages": [user(), system(), assistant(), user("v")]}
    command = [sys.executable, "-c", LAUNCH, "translate", "--config", config]
    command += ["--from", "openai-chat", "--to", "anthropic"]
    done = subprocess.run(command, input=orjson.dumps(body), capture_output=True, check=True)
    written = json.loads(done.stdout)
    assert (written["messages"][1]["role"], written["max_tokens"]) == ("user", 77)


def test_M8_rows_added_in_python_act_on_everything_that_is_written_later() -> None:
    row = {"match": "added-in-python", "inline_system": "never", "max_tokens_field": "max_tokens"}
    weft.add_models(row)
    assert role_in_the_middle("added-in-python") == "user"
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
def test_M8_a_wrong_row_is_refused_by_its_key(tmp_path: Path, text: str, named: str) -> None:
    from weft.gateway.settings import Flags, read_settings

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


def test_WF3_ids_stay_beside_their_reasoning() -> None:
    params = thread_of_two_answers().compile().to_responses_params(model="gpt-5")
    assert ids_of(params) == ["rs_1", "fc_1", "rs_2", "msg_2", "fc_2"]


def test_WF3_a_range_compaction_that_strips_reasoning_takes_the_ids_along() -> None:
    t = thread_of_two_answers()
    first, second, *_ = [point.id for point in t.checkpoints()]
    t.compact([{"from": first, "to": second, "summary": "S"}])
    params = t.compile().to_responses_params(model="gpt-5")
    assert ids_of(params) == []
    assert "call_2" in str(params["input"])
    assert "did 2" in str(params["input"])
    told = [loss for loss in params.losses if loss.what.startswith("the id")]
    assert [(loss.what, loss.level) for loss in told] == [
        ("the id 'msg_2'", "form"),
        ("the id 'fc_2'", "form"),
    ]


@pytest.mark.parametrize(
    "kept",
    [
        pytest.param({"store": False, "encrypted": None}, id="reasoning that nobody stores"),
        pytest.param({"origin": "anthropic"}, id="reasoning of another maker"),
    ],
)
def test_WF3_reasoning_that_is_left_out_on_the_way_takes_the_ids_along(
    kept: dict[str, Any],
) -> None:
    from msgspec import structs

    from weft.model import Origin

    answer = reasoned(1, said_item(1), call_item(1))
    if "encrypted" in kept:
        del answer["output"][0]["encrypted_content"]
    body = {"model": "gpt-5", "input": [{"role": "user", "content": "go"}, *answer["output"]]}
    body["input"].append({"type": "function_call_output", "call_id": "call_1", "output": "x"})
    body |= {"store": False} if "store" in kept else {}
    request = weft.decode(body, "openai-responses")
    messages = list(request.messages)
    maker = kept.get("origin", "openai-responses")
    messages[1] = structs.replace(messages[1], origin=Origin(maker, "p", "gpt-5"))
    foreign = structs.replace(request, messages=tuple(messages), raw={}, wire=None)
    done = weft.encode(foreign, "openai-responses")
    assert ids_of(done.body) == []
    assert [item.get("type") for item in done.body["input"]][-2:] == [
        "function_call",
        "function_call_output",
    ]


def test_WF3_the_second_reasoning_of_a_turn_takes_only_its_own_items_along() -> None:
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
