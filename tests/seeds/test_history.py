"""Requirements H1-H6: committing, content types, notes, compile and formats."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import weft
from weft import (
    ArtifactContent,
    DialogueContent,
    FreeformContent,
    InstructionContent,
    OutputContent,
    ReasoningContent,
    SessionContent,
    ToolIOContent,
    extract_text_from_content,
)
from weft.model import Message, Text, Thinking, ToolCall, ToolResult

EIGHT: list[tuple[Any, str, str]] = [
    (InstructionContent("be kind"), "instruction", "be kind"),
    (DialogueContent("user", "hello"), "dialogue", "hello"),
    (ToolIOContent("search", {"q": "x"}, "call"), "tool_io", '{"q":"x"}'),
    (ReasoningContent("let me think"), "reasoning", "let me think"),
    (ArtifactContent("print(1)", "code", "python"), "artifact", "print(1)"),
    (OutputContent("42", "text"), "output", "42"),
    (FreeformContent({"k": [1, 2]}), "freeform", '{"k":[1,2]}'),
    (SessionContent("we chose A", decisions=("A",)), "session", "we chose A"),
]
KINDS = [kind for _, kind, _ in EIGHT]


@pytest.fixture
def t() -> weft.Thread:
    return weft.open()


def test_H1_CORE_01_shorthands_commit_and_return_infos(t: weft.Thread) -> None:
    infos = [t.system("s"), t.user("u", name="bob"), t.assistant("a", name="bot")]
    assert all(isinstance(info, weft.CommitInfo) for info in infos)
    assert [info.id for info in reversed(t.log())] == [info.id for info in infos]
    assert t.compile().to_dicts() == [
        {"role": "system", "content": "s"},
        {"role": "user", "content": "u", "name": "bob"},
        {"role": "assistant", "content": "a", "name": "bot"},
    ]


def test_H1_shorthands_take_message_and_metadata(t: weft.Thread) -> None:
    for verb in (t.system, t.user, t.assistant):
        info = verb("x", message="note", metadata={"k": 1})
        assert (info.message, info.metadata) == ("note", {"k": 1})
        assert t.show(info.id).metadata == {"k": 1}


def test_H1_only_assistant_takes_a_generation_config(t: weft.Thread) -> None:
    info = t.assistant("x", generation_config={"model": "m", "temperature": 0.5})
    assert t.show(info.id).generation_config == {"model": "m", "temperature": 0.5}
    for verb in (t.system, t.user):
        loose: Callable[..., Any] = verb
        with pytest.raises(TypeError):
            loose("x", generation_config={})


def test_H1_shorthands_go_through_commit_and_only_append(monkeypatch: pytest.MonkeyPatch) -> None:
    hooked: list[Any] = []
    commit = weft.Thread.commit

    def watched(self: weft.Thread, content: Any, *args: Any, **options: Any) -> Any:
        hooked.append(type(content).__name__)
        return commit(self, content, *args, **options)

    monkeypatch.setattr(weft.Thread, "commit", watched)
    t = weft.open()
    infos = [t.system("s"), t.user("u"), t.assistant("a")]
    assert hooked == ["InstructionContent", "DialogueContent", "DialogueContent"]
    assert {info.kind for info in infos} == {"append"}


@pytest.mark.parametrize(("content", "kind", "text"), EIGHT, ids=KINDS)
def test_H2_each_type_commits_and_compiles_to_its_role(content: Any, kind: str, text: str) -> None:
    roles = {
        "instruction": "system",
        "session": "system",
        "dialogue": "user",
        "tool_io": "tool",
    }
    t = weft.open()
    t.commit(content)
    (row,) = t.compile(reasoning=True).to_dicts()
    assert row["role"] == roles.get(kind, "assistant")
    assert text in row["content"]


@pytest.mark.parametrize(("content", "kind", "text"), EIGHT, ids=KINDS)
def test_H2_a_dict_is_the_same_as_the_class(content: Any, kind: str, text: str) -> None:
    typed, plain = weft.open(), weft.open()
    fields = {name: getattr(content, name) for name in content.__struct_fields__}
    as_dict = json.loads(json.dumps({"content_type": kind, **fields}))
    assert plain.commit(as_dict).id == typed.commit(content).id
    assert extract_text_from_content(as_dict) == text


def test_H2_reasoning_is_hidden_by_default(t: weft.Thread) -> None:
    t.user("q")
    t.commit(ReasoningContent("hm"))
    t.assistant("a")
    assert [row["content"] for row in t.compile().to_dicts()] == ["q", "a"]
    rows = t.compile(reasoning=True).to_dicts()
    assert [row["content"] for row in rows] == ["q", "hm", "a"]


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ({"content_type": "poem", "text": "x"}, "instruction"),  # names the types there are
        ({"text": "x"}, "instruction"),
        ({"content_type": "dialogue", "role": "user"}, "text"),  # names the field
        ({"content_type": "dialogue", "role": 1, "text": "x"}, "role"),
        ("just text", "str"),
    ],
)
def test_H2_wrong_content_is_refused_and_nothing_is_written(content: Any, text: str) -> None:
    t = weft.open()
    with pytest.raises(weft.ThreadError, match=text):
        t.commit(content)
    assert t.log() == []


@pytest.mark.parametrize(("content", "kind", "text"), EIGHT, ids=KINDS)
def test_H3_CORE_03_the_note_is_type_and_preview(content: Any, kind: str, text: str) -> None:
    t = weft.open()
    assert extract_text_from_content(content) == text
    assert t.commit(content).message == f"{kind}: {text}"


@pytest.mark.parametrize(
    ("text", "note"),
    [
        ("hello", "dialogue: hello"),
        ("one\ntwo\r\nthree", "dialogue: one two three"),
        ("", "dialogue"),  # blank text gives the bare type
        (" \n ", "dialogue"),
        ("x" * 62, "dialogue: " + "x" * 62),  # exactly 72
        ("x" * 63, "dialogue: " + "x" * 59 + "..."),
    ],
)
def test_H3_the_note_is_one_line_of_at_most_72(t: weft.Thread, text: str, note: str) -> None:
    info = t.user(text)
    assert info.message == note
    assert len(note) <= 72
    assert t.show(info.id).message == note


def test_H3_blank_text_gives_the_bare_type(t: weft.Thread) -> None:
    assert t.system("  ").message == "instruction"


def test_H3_an_empty_message_stays_empty(t: weft.Thread) -> None:
    assert t.user("hello", message="").message == ""
    assert t.commit(InstructionContent("x"), "").message == ""


def test_H3_only_commit_writes_notes(t: weft.Thread) -> None:
    assert t.commit_message(Message("user", (Text("x"),))).message is None


def test_H4_CORE_02_compile_is_frozen_and_has_messages(t: weft.Thread) -> None:
    t.user("x")
    compiled = t.compile()
    assert isinstance(compiled, weft.CompiledContext)
    assert [message.text for message in compiled.messages] == ["x"]
    with pytest.raises(AttributeError):
        compiled.messages = ()  # pyright: ignore[reportAttributeAccessIssue]


def test_H4_FMT_01_to_dicts_has_role_content_and_name_where_set(t: weft.Thread) -> None:
    t.user("a", name="bob")
    t.user("b")
    assert t.compile().to_dicts() == [
        {"role": "user", "content": "a", "name": "bob"},
        {"role": "user", "content": "b"},
    ]


def test_H4_a_thread_compiles_to_what_was_said_and_nothing_else(t: weft.Thread) -> None:
    first = t.user("a")
    t.branch("f")
    t.assistant("b")
    t.pin(first)
    t.switch("f")
    t.user("c")
    t.switch("main")
    t.merge("f")
    t.setup(tools=[{"name": "add", "description": "adds", "input_schema": {"type": "object"}}])
    t.edit(first, "A")
    assert [row["content"] for row in t.compile().to_dicts()] == ["A", "b", "c"]


def test_H4_changing_what_was_returned_changes_no_later_compile(t: weft.Thread) -> None:
    t.user("a")
    t.compile().to_dicts()[0]["content"] = "changed"
    t.compile().to_openai().clear()
    assert t.compile().to_dicts() == [{"role": "user", "content": "a"}]


def test_H5_FMT_02_to_openai_is_to_dicts_for_text(t: weft.Thread) -> None:
    t.system("s")
    t.user("u", name="bob")
    t.assistant("a")
    t.system("later")
    compiled = t.compile()
    assert compiled.to_openai() == compiled.to_dicts()


def test_H5_FMT_02_to_anthropic_has_exactly_system_and_messages(t: weft.Thread) -> None:
    t.user("u", name="bob")
    assert t.compile().to_anthropic() == {
        "system": None,
        "messages": [{"role": "user", "content": "u", "name": "bob"}],
    }
    t.system("one")
    t.commit(DialogueContent("developer", "two"))
    t.commit(DialogueContent("critic", "odd"))
    assert t.compile().to_anthropic() == {
        "system": "one\n\ntwo",
        "messages": [
            {"role": "user", "content": "u", "name": "bob"},
            {"role": "critic", "content": "odd"},
        ],
    }


def test_H5_an_unusual_role_is_never_dropped(t: weft.Thread) -> None:
    t.commit(DialogueContent("critic", "odd"))
    compiled = t.compile()
    for rows in (compiled.to_dicts(), compiled.to_openai(), compiled.to_anthropic()["messages"]):
        assert rows == [{"role": "critic", "content": "odd"}]


def with_tools() -> weft.Thread:
    t = weft.open()
    t.user("2+2?")
    call = ToolCall("call_1", "python_eval", '{"expression": "2+2"}')
    t.commit_message(Message("assistant", (Text("I compute."), call)))
    t.tool_result("call_1", "4")
    t.assistant("4")
    return t


def test_H5_tool_calls_in_the_shape_of_openai() -> None:
    assert with_tools().compile().to_openai()[1:3] == [
        {
            "role": "assistant",
            "content": "I compute.",
            "tool_calls": [
                {
                    "id": "call_1",
                    "type": "function",
                    "function": {"name": "python_eval", "arguments": '{"expression": "2+2"}'},
                }
            ],
        },
        {"role": "tool", "tool_call_id": "call_1", "content": "4"},
    ]


def test_H5_tool_calls_in_the_shape_of_anthropic() -> None:
    assert with_tools().compile().to_anthropic()["messages"][1:3] == [
        {
            "role": "assistant",
            "content": [
                {"type": "text", "text": "I compute."},
                {
                    "type": "tool_use",
                    "id": "call_1",
                    "name": "python_eval",
                    "input": {"expression": "2+2"},
                },
            ],
        },
        {
            "role": "user",
            "content": [{"type": "tool_result", "tool_use_id": "call_1", "content": "4"}],
        },
    ]


def test_H5_several_results_share_one_anthropic_message(t: weft.Thread) -> None:
    calls = (ToolCall("a", "f", "{}"), ToolCall("b", "f", "{}"))
    t.user("go")
    t.commit_message(Message("assistant", calls))
    t.tool_result("a", "1")
    t.tool_result("b", "2", is_error=True)
    content = t.compile().to_anthropic()["messages"][2]["content"]
    assert [(part["tool_use_id"], part.get("is_error")) for part in content] == [
        ("a", None),
        ("b", True),
    ]


def test_H5_tool_calls_in_the_shape_of_responses() -> None:
    assert with_tools().compile().to_responses()[1:4] == [
        {"role": "assistant", "content": "I compute."},
        {
            "type": "function_call",
            "call_id": "call_1",
            "name": "python_eval",
            "arguments": '{"expression": "2+2"}',
        },
        {"type": "function_call_output", "call_id": "call_1", "output": "4"},
    ]


PARAMS = ["to_anthropic_params", "to_openai_params", "to_responses_params"]


@pytest.mark.parametrize("verb", PARAMS)
def test_H5_params_have_tools_and_no_none_and_losses_beside(verb: str) -> None:
    t = with_tools()
    schema = {"type": "object", "properties": {"expression": {"type": "string"}}}
    t.setup(tools=[{"name": "python_eval", "description": "runs", "input_schema": schema}])
    params = getattr(t.compile(), verb)(model="some-model")
    assert params["model"] == "some-model"
    assert "python_eval" in json.dumps(params["tools"])
    assert None not in params.values()
    assert list(params.losses) == [loss for loss in params.losses if loss.level == "form"]
    assert "model" not in getattr(t.compile(), verb)()


@pytest.mark.parametrize("verb", PARAMS)
def test_H5_what_a_vendor_refuses_is_a_loss_of_params(verb: str) -> None:
    t = weft.open()
    t.user("u", name="bob")
    thought = Thinking("hm", "sig")
    t.commit_message(Message("assistant", (thought, Text("a"))))
    params = getattr(t.compile(), verb)(model="some-model")
    assert "sig" not in json.dumps(params)
    assert params.losses


def test_H6_formats_never_touch_the_store(tmp_path: Path) -> None:
    with weft.open(tmp_path / "a.db") as t:
        t.system("s")
        t.user("u")
        compiled = t.compile()
    read = [compiled.to_dicts(), compiled.to_openai(), compiled.to_anthropic()]  # store is closed
    read += [compiled.to_responses(), compiled.to_text(), compiled.ids, compiled.tokens]
    assert all(read)


def test_H6_formats_never_touch_the_cache(t: weft.Thread) -> None:
    t.user("u")
    compiled = t.compile()
    before = (compiled.to_dicts(), t.compile().ids)
    compiled.to_anthropic()
    compiled.to_openai()
    t.user("more")
    assert (compiled.to_dicts(), t.compile().ids[:1]) == before


def test_H5_result_blocks_are_never_read_as_text(t: weft.Thread) -> None:
    t.commit_message(Message("assistant", (ToolCall("c", "f", "{}"),)))
    t.commit_message(Message("user", (ToolResult("c", (Text("4"),)), Text("go on"))))
    assert t.compile().to_openai()[1:] == [
        {"role": "tool", "tool_call_id": "c", "content": "4"},
        {"role": "user", "content": "go on"},
    ]
