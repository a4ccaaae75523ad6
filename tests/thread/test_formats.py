"""Every vendor accepts the formats of a compiled thread.

The types of the official SDKs check the formats, except for names and unusual roles, which the
plain formats keep. Rules that no type expresses are checked by hand.
"""

from collections.abc import Callable, Sequence
from typing import Any

import pytest

import weft
from sdk_types import REQUESTS, faults
from thread.test_pairing import THREADS, check_anthropic, check_openai
from weft.model import (
    Audio,
    File,
    Image,
    Inline,
    Message,
    Origin,
    Redacted,
    Refusal,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
)
from weft.thread import (
    ArtifactContent,
    FreeformContent,
    OutputContent,
    ReasoningContent,
    SessionContent,
    Thread,
    ToolIOContent,
)

Build = Callable[[Thread], Any]
PIXEL = Image(Inline("iVBORw0KGgo=", "image/png"))


def say(t: Thread, role: str, *blocks: Any) -> str:
    return t.commit_message(Message(role, blocks)).id


def orphan_result(t: Thread) -> None:
    t.user("go")
    t.tool_result("nobody", "1")
    t.user("and?")


def orphan_result_first(t: Thread) -> None:
    t.tool_result("nobody", "1")


def result_before_its_call(t: Thread) -> None:
    t.user("go")
    t.tool_result("a", "1")
    say(t, "assistant", ToolCall("a", "f", "{}"))
    t.user("next")


def call_among_words(t: Thread) -> None:
    t.user("go")
    say(t, "assistant", Text("I look."), ToolCall("a", "f", "{}"), Text("Wait."))
    t.assistant("Well.")
    t.tool_result("a", "1")


def two_results_for_one_call(t: Thread) -> None:
    t.user("go")
    say(t, "assistant", ToolCall("a", "f", "{}"))
    t.tool_result("a", "1")
    t.tool_result("a", "2")


def one_id_twice(t: Thread) -> None:
    for answer in "12":
        t.user("go")
        say(t, "assistant", ToolCall("a", "f", "{}"))
        t.tool_result("a", answer)


def one_id_twice_at_once(t: Thread) -> None:
    t.user("go")
    say(t, "assistant", ToolCall("a", "f", "{}"))
    say(t, "assistant", ToolCall("a", "f", '{"b": 1}'))
    t.tool_result("a", "1")


def tool_io_without_id(t: Thread) -> None:
    t.user("go")
    t.commit(ToolIOContent("search", {"q": 1}, direction="call"))
    t.commit(ToolIOContent("search", "found it"))
    t.assistant("so")


def tool_io_with_id(t: Thread) -> None:
    t.user("go")
    t.commit(ToolIOContent("search", {"q": 1}, direction="call", call_id="a"))
    t.commit(ToolIOContent("search", "found it", call_id="a", status="error"))


def eight_types(t: Thread) -> None:
    t.system("be brief")
    t.user("go")
    t.commit(ReasoningContent("hm"))
    t.commit(ArtifactContent("file", "x = 1"))
    t.commit(OutputContent("done"))
    t.commit(FreeformContent({"a": 1}))
    t.commit(SessionContent("half way", decisions=("A",)))


def edited_call_and_result(t: Thread) -> None:
    t.user("go")
    asked = say(t, "assistant", Text("I look."), ToolCall("a", "f", "{}"))
    answer = t.tool_result("a", "1").id
    t.edit(asked, "I look again.")
    t.edit(answer, "2")


def edited_to_nothing(t: Thread) -> None:
    first = t.user("go").id
    asked = say(t, "assistant", Text("I look."), ToolCall("a", "f", "{}"))
    answer = t.tool_result("a", "1").id
    for id in (first, asked, answer):
        t.edit(id, "")
    assert "I look." not in "".join(message.text for message in t.compile().messages)
    t.user("next")


def empty_texts(t: Thread) -> None:
    t.system("")
    t.user("")
    t.assistant("")
    t.user("x")
    t.assistant(" ")
    say(t, "assistant", Text(""), Text("a"), Text(""))
    t.user("")


def no_blocks(t: Thread) -> None:
    for role in ("user", "assistant", "tool", "user"):
        say(t, role)


def empty_results(t: Thread) -> None:
    t.user("go")
    say(t, "assistant", Text(""), ToolCall("a", "f", ""), ToolCall("b", "f", "[1]"))
    t.tool_result("a", "")
    t.tool_result("b", [])


def results_with_media(t: Thread) -> None:
    t.user("go")
    say(t, "assistant", ToolCall("a", "f", "{}"))
    t.tool_results([ToolResult("a", (Text("see"), PIXEL))], text="and this", reminder="r")
    say(t, "user", Text("what is this?"), PIXEL)


def many_texts(t: Thread) -> None:
    say(t, "system", Text("a"), Text("b"))
    say(t, "user", Text("a"), Text("b"))
    say(t, "assistant", Text("a"), Text("b"))
    say(t, "assistant", Refusal("no"))
    say(t, "assistant", Text("a"), Refusal("no"))


def thinking(t: Thread) -> None:
    t.user("go")
    say(t, "assistant", Thinking("unsigned"), Text("a"))
    signed = (Thinking("hm", "sig"), Redacted("xyz"), Text("b"))
    t.commit_message(Message("assistant", signed, origin=Origin("anthropic")))
    say(t, "assistant", Thinking("alone"))
    t.user("next")


BUILDS: dict[str, Build] = THREADS | {
    build.__name__: build
    for build in (
        orphan_result,
        orphan_result_first,
        result_before_its_call,
        call_among_words,
        two_results_for_one_call,
        one_id_twice,
        one_id_twice_at_once,
        tool_io_without_id,
        tool_io_with_id,
        eight_types,
        edited_call_and_result,
        edited_to_nothing,
        empty_texts,
        no_blocks,
        empty_results,
        results_with_media,
        many_texts,
        thinking,
    )
}


def check_responses(items: Sequence[dict[str, Any]]) -> None:
    """Every output behind its call, every call with one."""
    open_calls: list[str] = []
    for item in items:
        if item.get("type") == "function_call":
            open_calls.append(item["call_id"])
        elif item.get("type") == "function_call_output":
            open_calls.remove(item["call_id"])
    assert not open_calls


def check_ids(ids: Sequence[str]) -> None:
    """Results are paired by ids: no two calls have one."""
    assert len(ids) == len(set(ids)), ids


def check_gemini(contents: Sequence[dict[str, Any]]) -> None:
    waiting: list[str] = []
    for content in contents:
        kinds = [next(iter(part)) for part in content["parts"]]
        assert kinds
        answers = [
            p["functionResponse"]["name"] for p in content["parts"] if "functionResponse" in p
        ]
        assert sorted(answers) == sorted(waiting)
        waiting = [p["functionCall"]["name"] for p in content["parts"] if "functionCall" in p]
    assert not waiting


def check_said(messages: Sequence[dict[str, Any]]) -> None:
    """Anthropic accepts no message without content, and no blank text."""
    for message in messages:
        content = message["content"]
        blocks = [{"text": content}] if isinstance(content, str) else content
        assert blocks, message
        assert all(block.get("text", "x").strip() for block in blocks), message


def openai(compiled: weft.CompiledContext) -> None:
    messages = compiled.to_openai()
    check_openai(messages)
    check_ids([call["id"] for message in messages for call in message.get("tool_calls", ())])
    assert faults(REQUESTS, "openai-chat", {"model": "m", "messages": messages}) == []


def anthropic(compiled: weft.CompiledContext) -> None:
    written = compiled.to_anthropic()
    check_anthropic(written["messages"])
    check_said(written["messages"])
    blocks = [
        b for m in written["messages"] if isinstance(m["content"], list) for b in m["content"]
    ]
    check_ids([block["id"] for block in blocks if block["type"] == "tool_use"])
    system = {} if written["system"] is None else {"system": written["system"]}
    body = {"model": "m", "max_tokens": 9, "messages": written["messages"], **system}
    assert faults(REQUESTS, "anthropic", body) == []


def responses(compiled: weft.CompiledContext) -> None:
    items = compiled.to_responses()
    check_responses(items)
    check_ids([item["call_id"] for item in items if item.get("type") == "function_call"])
    assert faults(REQUESTS, "openai-responses", {"model": "m", "input": items}) == []


def gemini(compiled: weft.CompiledContext) -> None:
    contents = compiled.to_gemini()["contents"]
    check_gemini(contents)
    assert faults(REQUESTS, "gemini", {"contents": contents}) == []


def params(compiled: weft.CompiledContext) -> None:
    chat = compiled.to_openai_params("gpt-5")
    check_openai(chat["messages"])
    assert faults(REQUESTS, "openai-chat", dict(chat)) == []
    claude = compiled.to_anthropic_params("claude-sonnet-4-5")
    check_anthropic(claude["messages"])
    check_said(claude["messages"])
    assert faults(REQUESTS, "anthropic", dict(claude)) == []
    items = compiled.to_responses_params("gpt-5")
    check_responses(items["input"])
    assert faults(REQUESTS, "openai-responses", dict(items)) == []
    check_gemini(compiled.to_gemini_params("gemini-2.5-pro")["contents"])


@pytest.mark.parametrize("checkpoints", [False, True])
@pytest.mark.parametrize("judge", [openai, anthropic, responses, gemini, params])
@pytest.mark.parametrize("build", BUILDS.values(), ids=BUILDS)
def test_H5_every_vendor_takes_what_it_is_given(
    build: Build, judge: Callable[[weft.CompiledContext], None], checkpoints: bool
) -> None:
    t = weft.open(checkpoints=checkpoints)
    build(t)
    judge(t.compile())


@pytest.mark.parametrize("build", [empty_texts, no_blocks, edited_to_nothing, thinking])
def test_H5_what_says_nothing_is_written_as_the_codec_writes_it(build: Build) -> None:
    t = weft.open()
    build(t)
    compiled = t.compile()
    written = compiled.to_anthropic_params("claude-sonnet-4-5")["messages"]
    assert compiled.to_anthropic()["messages"] == written


def test_H5_what_a_tool_showed_is_not_lost() -> None:
    t = weft.open()
    results_with_media(t)
    compiled = t.compile()
    shown = [part["type"] for part in compiled.to_openai()[3]["content"]]
    assert shown == ["text", "text", "image_url"]
    output = [item for item in compiled.to_responses() if item.get("type", "")[-6:] == "output"]
    assert [part["type"] for part in output[0]["output"]] == ["input_text", "input_image"]


def test_H5_a_tools_words_without_a_call_are_the_users() -> None:
    t = weft.open()
    tool_io_without_id(t)
    compiled = t.compile()
    assert [row["role"] for row in compiled.to_dicts()] == ["user", "tool", "tool", "assistant"]
    roles = ["user", "user", "user", "assistant"]
    assert [row["role"] for row in compiled.to_openai()] == roles
    assert [row["role"] for row in compiled.to_responses()] == roles
    assert [row["role"] for row in compiled.to_anthropic()["messages"]] == roles
    assert compiled.to_openai()[2]["content"] == "found it"


def test_H5_a_text_document_is_written_as_the_codec_writes_it() -> None:
    """Anthropic takes base64 for a PDF only: a text document is a text."""
    t = weft.open()
    say(t, "user", File(Inline("YWJj", "text/plain"), "a.txt"))
    compiled = t.compile()
    written = compiled.to_anthropic_params("claude-sonnet-4-5")["messages"]
    assert compiled.to_anthropic()["messages"] == written
    assert written[0]["content"][0]["source"]["data"] == "abc"


def test_H5_audio_has_the_vendors_name_for_its_format() -> None:
    t = weft.open()
    say(t, "user", Audio(Inline("AAAA", "audio/mpeg")))
    assert t.compile().to_openai()[0]["content"][0]["input_audio"]["format"] == "mp3"
    openai(t.compile())


@pytest.mark.parametrize("judge", [openai, anthropic, responses])
def test_H5_reasoning_between_a_call_and_its_result_is_not_lost(
    judge: Callable[[weft.CompiledContext], None],
) -> None:
    t = weft.open()
    t.user("go")
    say(t, "assistant", ToolCall("a", "f", "{}"))
    t.commit(ReasoningContent("it takes long"))
    t.tool_result("a", "1")
    compiled = t.compile(reasoning=True)
    judge(compiled)
    assert "it takes long" in str(getattr(compiled, f"to_{judge.__name__}")())
