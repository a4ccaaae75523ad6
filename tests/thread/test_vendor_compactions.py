"""A compaction that only its vendor can read is sent as text to every other vendor.

The text comes from the thread, which has the messages that the compaction replaced. The library,
the agent, exports and the gateway follow the same rule (`tests/gateway/test_codex_compaction.py`).
"""

import json

import pytest

import weft
from weft.store import open_store
from weft.thread import Thread, export_bytes

RULE = "Never peel the green quinces of crate QC-4711."
ITEM = {"type": "compaction", "id": "cmp_1", "encrypted_content": "gAAAAtheirs"}
LIST = [ITEM, {"role": "user", "content": "Go on."}]
OTHERS = ("anthropic", "openai-chat", "gemini")
PARAMS = {
    "anthropic": "to_anthropic_params",
    "openai-chat": "to_openai_params",
    "gemini": "to_gemini_params",
}
MESSAGES = {
    "anthropic": "to_anthropic",
    "openai-chat": "to_openai",
    "gemini": "to_gemini",
}


def fill(thread: Thread) -> Thread:
    """A thread whose client had it compacted by OpenAI."""
    thread.user(RULE)
    thread.assistant("Understood, I leave crate QC-4711 alone.")
    body = {"model": "gpt-5", "input": LIST}
    thread.adopt(weft.decode(body, "openai-responses").messages, summary=0)
    return thread


@pytest.fixture
def thread() -> Thread:
    return fill(weft.open())


@pytest.mark.parametrize("protocol", OTHERS)
def test_params_for_another_vendor_have_the_text(thread, protocol):
    params = getattr(thread.compile(), PARAMS[protocol])("some-model")
    body = json.dumps(params)
    assert RULE in body
    assert "QC-4711 alone" in body
    assert "gAAAAtheirs" not in body
    assert [loss.code for loss in params.losses if "compaction" in str(loss.detail)] == [
        "vendor_block_as_text"
    ]
    assert RULE in json.dumps(getattr(thread.compile(), MESSAGES[protocol])())


def test_its_own_vendor_gets_the_original(thread):
    params = thread.compile().to_responses_params("gpt-5")
    assert params["input"][0] == ITEM
    assert RULE not in json.dumps(params)


def test_vendor_items_are_never_parts_of_a_message(thread):
    search = {"type": "web_search_call", "id": "ws_1", "status": "completed"}
    trigger = {"type": "compaction_trigger"}
    items = [search, {"role": "assistant", "content": "It is ripe."}, trigger]
    for message in weft.decode({"model": "gpt-5", "input": items}, "openai-responses").messages:
        thread.commit_message(message)
    assert thread.compile().to_responses() == [*LIST, *items]
    assert thread.compile().to_responses_params("gpt-5")["input"] == [*LIST, *items]


def test_an_older_commit_has_no_compaction(thread):
    before = thread.log()[1].id
    assert RULE in json.dumps(thread.compile(before).to_anthropic_params("claude-x"))


@pytest.mark.parametrize("protocol", OTHERS)
def test_an_export_for_another_vendor_has_the_text(tmp_path, protocol):
    path = str(tmp_path / "store.db")
    with weft.open(path, "sealed") as thread:
        fill(thread)
    store = open_store(path)
    try:
        data, losses = export_bytes(store, "sealed", protocol)
    finally:
        store.close()
    assert RULE in data.decode()
    assert [loss.code for loss in losses].count("vendor_block_as_text") == 1


def test_without_the_originals_it_is_dropped_and_reported():
    thread = weft.open()
    for message in weft.decode({"model": "gpt-5", "input": LIST}, "openai-responses").messages:
        thread.commit_message(message)
    params = thread.compile().to_anthropic_params("claude-x")
    assert "gAAAAtheirs" not in json.dumps(params)
    assert "vendor_block_dropped" in [loss.code for loss in params.losses]
