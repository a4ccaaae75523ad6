"""Previews, thinking bound to its prefix, sent requests, and Gemini's formats."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pytest

import weft
from fresh import fresh
from weft.errors import ThreadError
from weft.model import Message, Origin, Params, Text, Thinking, ToolCall
from weft.thread import Preview, Thread, forget, gc

ANTHROPIC = Origin("anthropic")


def think(t: Thread, words: str) -> str:
    """An answer with signed thinking."""
    blocks = (Thinking(f"about {words}", f"sig-{words}"), Text(words))
    return t.commit_message(Message("assistant", blocks, origin=ANTHROPIC)).id


def thoughts(t: Thread) -> list[str]:
    """The signatures that Anthropic would be sent."""
    turns = t.compile().to_anthropic_params("claude-sonnet-4-5")["messages"]
    return [
        block["signature"]
        for turn in turns
        if not isinstance(turn["content"], str)
        for block in turn["content"]
        if block["type"] == "thinking"
    ]


def thinking_thread() -> tuple[Thread, dict[str, str]]:
    """user one, answer two, user three, answer four; both answers with signed thinking."""
    t = weft.open(checkpoints=True)
    ids = {"one": t.user("one").id, "two": think(t, "two")}
    ids |= {"three": t.user("three").id, "four": think(t, "four")}
    return t, ids


def test_thinking_goes_back_to_its_vendor_while_its_prefix_is_unchanged() -> None:
    t, ids = thinking_thread()
    assert thoughts(t) == ["sig-two", "sig-four"]
    t.pin(ids["one"])
    t.note(ids["one"], "kept")
    t.user("five")
    t.setup(params=Params(max_tokens=100))
    assert thoughts(t) == ["sig-two", "sig-four"]


CHANGES: dict[str, tuple[Callable[[Thread, dict[str, str]], Any], list[str]]] = {
    "an edit before both": (lambda t, ids: t.edit(ids["one"], "1"), []),
    "an edit between": (lambda t, ids: t.edit(ids["three"], "3"), ["sig-two"]),
    "a line hidden between": (lambda t, ids: t.skip(ids["three"]), ["sig-two"]),
    "an answer edited": (lambda t, ids: t.edit(ids["two"], "2"), []),
    "the last one hidden": (lambda t, ids: t.skip(ids["four"]), ["sig-two"]),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_signature_is_dropped_when_its_prefix_changes(name: str) -> None:
    t, ids = thinking_thread()
    change, left = CHANGES[name]
    before = t.compile()
    change(t, ids)
    assert thoughts(t) == left
    remaining = [row for row in t.compile().rows if row.id in {r.id for r in before.rows}]
    untouched = [row for row in remaining if row in before.rows]
    assert len(untouched) >= 2  # the lines themselves stay as they were
    assert thoughts(fresh(t)) == left
    t.user("more")
    think(t, "six")
    assert thoughts(t) == [*left, "sig-six"]


def test_thinking_can_be_sent_again_when_its_prefix_is_restored() -> None:
    t, ids = thinking_thread()
    edit = t.edit(ids["one"], "1")
    assert thoughts(t) == []
    t.revert(edit)
    assert thoughts(t) == ["sig-two", "sig-four"]
    t.edit(ids["one"], "1")
    t.undo()
    assert thoughts(t) == ["sig-two", "sig-four"]


def test_thinking_merged_after_another_prefix_is_not_sent() -> None:
    t, _ = thinking_thread()
    t.branch("f")
    t.user("ours")
    t.switch("f")
    t.user("theirs")
    id = think(t, "far")
    t.switch("main")
    t.branch("g")
    t.merge("f")
    assert thoughts(t) == ["sig-two", "sig-four"]
    losses = t.compile().to_anthropic_params("claude-sonnet-4-5").losses
    assert [loss.code for loss in losses if "thinking" in loss.code] == ["thinking_stale"]
    t.switch("g")
    t.cherry_pick(id)
    assert thoughts(t) == ["sig-two", "sig-four"]
    t.switch("f")
    assert thoughts(t) == ["sig-two", "sig-four", "sig-far"]
    t.rebase("main")
    assert thoughts(t) == ["sig-two", "sig-four"]


def test_no_other_message_loses_its_blocks_in_any_protocol() -> None:
    t, ids = thinking_thread()
    t.edit(ids["one"], "1")
    contents = [row["content"] for row in t.compile().to_openai()]
    assert [text if isinstance(text, str) else text[0]["text"] for text in contents][1::2] == [
        "two",
        "four",
    ]
    messages = t.compile().to_anthropic()["messages"]
    assert all("thinking" not in str(turn["content"]) for turn in messages)


def test_a_preview_reports_the_cost_of_a_change_and_changes_nothing() -> None:
    t, ids = thinking_thread()
    log = t.log()
    before = t.compile().tokens
    preview = t.edit(ids["three"], "a longer question than before", preview=True)
    assert isinstance(preview, Preview)
    assert preview.tokens_before == before
    assert preview.tokens_after > before
    assert preview.stripped == (ids["four"],)
    assert preview.cache_lost == before - t.compile(ids["two"]).tokens
    assert "cached prefix" in str(preview)
    assert t.log() == log
    t.edit(ids["three"], "a longer question than before")
    assert t.compile().tokens == preview.tokens_after
    assert t.compile().messages == preview.messages


def test_every_rewriting_operation_has_a_preview() -> None:
    t, ids = thinking_thread()
    t.branch("f")
    edit = t.edit(ids["one"], "1")
    t.switch("f")
    added = t.user("side")
    t.switch("main")
    log, refs = t.log(), t.branches()
    previews: list[tuple[Preview, Callable[[], object]]] = [
        (t.annotate(ids["two"], "skip", preview=True), lambda: t.skip(ids["two"])),
        (t.revert(edit, preview=True), lambda: t.revert(edit)),
        (t.reset(ids["two"], preview=True), lambda: t.reset(ids["two"])),
        (t.restore(ids["one"], 0, preview=True), lambda: t.restore(ids["one"], 0)),
        (t.merge("f", preview=True), lambda: t.merge("f")),
        (t.merge("f", "squash", text="S", preview=True), lambda: t.merge("f", "squash", text="S")),
        (t.rebase("f", preview=True), lambda: t.rebase("f")),
        (t.cherry_pick(added, preview=True), lambda: t.cherry_pick(added)),
    ]
    assert (t.log(), t.branches()) == (log, refs)
    for preview, land in previews:
        land()
        assert [m.text for m in t.compile().messages] == [m.text for m in preview.messages]
        assert t.compile().tokens == preview.tokens_after
        assert str(preview)
        t.undo()


def test_a_compaction_reports_the_lost_cache() -> None:
    t = weft.open(checkpoints=True)
    t.system("be brief")
    for n in range(4):
        t.user(f"question {n} " * 5)
    prefix_tokens = t.compile(t.log()[-1].id).tokens
    preview = t.compact([{"summary": "S"}], preview=True)
    assert preview.cache_lost == preview.tokens_before - prefix_tokens
    assert "cached prefix" in str(preview)


def test_the_sent_request_is_reproduced_byte_for_byte(tmp_path: Path) -> None:
    with weft.open(tmp_path / "a.db") as t:
        t.system("be brief")
        id = t.user("hello").id
        t.setup(tools=[{"name": "look", "description": "looks", "parameters": {}}])
        params = t.compile().to_anthropic_params("claude-sonnet-4-5", max_tokens=50)
        params["temperature"] = 0.5
        sent = orjson.dumps(params)
        answer = t.assistant("hi", sent=params)
        t.edit(id, "something else entirely")
        assert t.show(answer, sent=True).body == sent
        assert "hello" not in str(t.show(answer).metadata)


def test_an_unrecorded_or_changed_request_is_refused() -> None:
    t = weft.open()
    t.user("hello")
    params = t.compile().to_openai_params("gpt-5")
    params["messages"] = []  # what was sent is not what the thread says
    lied = t.assistant("hi", sent=params)
    with pytest.raises(ThreadError, match="cannot be rebuilt"):
        t.show(lied, sent=True)
    plain = t.assistant("hi")
    with pytest.raises(ThreadError, match="no request is stored"):
        t.show(plain, sent=True)


def _catalogue(t: Thread) -> None:
    """An answer whose receipt was written by another catalogue, with other caps."""
    params = t.compile().to_anthropic_params("claude-sonnet-4-5")
    receipt = t.assistant("hi", sent=params).metadata["sent"]
    t.undo()
    t.assistant("hi", metadata={"sent": {**receipt, "catalog": "other", "hash": "0" * 40}})


def _recorded(t: Thread) -> None:
    t.assistant("hi", sent=t.compile().to_openai_params("gpt-5"))


def _forgotten(t: Thread) -> None:
    _recorded(t)
    forget(t.store, "hello")


def _swept(t: Thread) -> None:
    t.branch("side")
    t.switch("side")
    t.user("aside")
    _recorded(t)
    answer = t.log()[0]
    t.switch("main")
    t.cherry_pick(answer)
    t.delete_branch("side")
    gc(t.store, days=-1)


@pytest.mark.parametrize(
    ("spoil", "why"),
    [
        (_catalogue, r"the catalogue was other, now it is [0-9a-f]{12}"),
        (_forgotten, r"entry [0-9a-f]{12}, which it refers to, was forgotten"),
        (_swept, r"its commit [0-9a-f]{12} is gone"),
    ],
)
def test_a_recipe_with_another_result_says_why(spoil: Callable[[Thread], None], why: str) -> None:
    t = weft.open()
    t.user("hello")
    spoil(t)
    again = weft.open(t.store)
    with pytest.raises(ThreadError, match=f"cannot be rebuilt: {why}"):
        again.show("main", sent=True)


def talk_with_tools() -> Thread:
    t = weft.open()
    t.system("be brief")
    t.user("what is 2+2?")
    t.commit_message(Message("assistant", (ToolCall("c1", "add", '{"a": 2, "b": 2}'),)))
    t.tool_result("c1", "4")
    t.assistant("4")
    t.user("thanks")
    schema = {"type": "object", "properties": {"a": {"type": "number"}}}
    t.setup(tools=[{"name": "add", "description": "adds", "parameters": schema}])
    return t


def test_to_gemini_has_its_own_format() -> None:
    shape = talk_with_tools().compile().to_gemini()
    assert shape["system_instruction"] == "be brief"
    assert [content["role"] for content in shape["contents"]] == [
        "user",
        "model",
        "user",
        "model",
        "user",
    ]
    assert shape["contents"][1]["parts"][0]["functionCall"]["args"] == {"a": 2, "b": 2}
    assert weft.open().compile().to_gemini() == {"system_instruction": None, "contents": []}


def test_to_gemini_params_has_the_parameters() -> None:
    types = pytest.importorskip("google.genai.types")
    params = talk_with_tools().compile().to_gemini_params("gemini-2.5-flash", max_tokens=99)
    assert sorted(params) == ["config", "contents", "model"]
    config = types.GenerateContentConfig.model_validate(params["config"])
    assert config.max_output_tokens == 99
    assert config.tools[0].function_declarations[0].name == "add"
    for content in params["contents"]:
        types.Content.model_validate(content)


def test_every_list_of_a_compiled_context_has_one_value_per_message() -> None:
    t = talk_with_tools()
    t.assistant("welcome", generation_config={"model": "m", "temperature": 0})
    compiled = t.compile()
    lists = (compiled.ids, compiled.priorities, compiled.kinds, compiled.generation_configs)
    assert {len(values) for values in lists} == {len(compiled)}
    assert compiled.generation_configs[-1] == {"model": "m", "temperature": 0}
    assert compiled.generation_configs[0] is None
    assert compiled.token_source == "o200k"


@pytest.mark.parametrize(
    ("report", "total", "source"),
    [
        ({"prompt_tokens": 100, "completion_tokens": 50, "total_tokens": 150}, 150, "api:100+50"),
        ({"input_tokens": 200, "output_tokens": 80}, 280, "api:200+80"),
        ({"input_tokens": 5, "cache_read_input_tokens": 95, "output_tokens": 1}, 101, "api:100+1"),
        ({"promptTokenCount": 7, "candidatesTokenCount": 3}, 10, "api:7+3"),
    ],
)
def test_reported_usage_corrects_the_estimate(
    report: dict[str, int], total: int, source: str
) -> None:
    t = weft.open()
    first = t.user("hello there").id
    t.assistant("hi")
    t.record_usage(report)
    compiled = t.compile()
    assert (compiled.calibrated, compiled.token_source) == (total, source)
    estimate = compiled.tokens
    t.user("and what comes after is added by estimate")
    added = t.compile().tokens - estimate
    assert (t.compile().calibrated, t.compile().token_source) == (total + added, source)
    t.skip(first)
    hidden = estimate + added - t.compile().tokens
    assert t.compile().calibrated == total + added - hidden
    assert t.notes() == []


def test_an_answer_has_its_own_usage_report() -> None:
    t = weft.open()
    t.user("hello")
    usage = {"input_tokens": 30, "output_tokens": 4}
    blocks = [{"type": "text", "text": "hi"}]
    t.assistant({"id": "m", "role": "assistant", "content": blocks, "usage": usage})
    assert t.compile().calibrated == 34
    assert t.compile().token_source == "api:30+4"


def test_a_usage_report_without_a_message_is_refused() -> None:
    t = weft.open()
    with pytest.raises(ThreadError):
        t.record_usage({"prompt_tokens": 1})
    t.user("a")
    with pytest.raises(ThreadError, match="matches no supported vendor"):
        t.record_usage({"words": 3})
    assert len(t.log()) == 1
