"""Reading an answer while it grows."""

from hypothesis import given, strategies as st

from weft.model import (
    Close,
    Delta,
    Finish,
    Fold,
    Open,
    ReadPosition,
    Start,
    Text,
    Thinking,
    ToolCall,
)

EVENTS = [
    Start("id", "model"),
    Open(0, Thinking("hm")),
    Delta(0, "thinking", "m, "),
    Delta(0, "signature", "not shown"),
    Delta(0, "thinking", "well"),
    Close(0),
    Open(1, Text("")),
    Open(2, ToolCall("call", "Bash", "")),
    Delta(1, "text", "two "),
    Delta(2, "arguments", '{"command":'),
    Delta(1, "text", "words"),
    Delta(2, "arguments", ' "ls"}'),
    Close(2),
    Close(1, Text("two words")),
    Finish(),
]


@given(st.sets(st.integers(0, len(EVENTS))))
def test_the_pieces_add_up_at_any_read_interval(moments: set[int]) -> None:
    fold, position, texts = Fold(), ReadPosition(), dict[int, str]()
    opened, closed = list[int](), list[int]()
    for moment, event in enumerate([*EVENTS, None]):
        if moment in moments or event is None:
            for growth in fold.read_growth(position):
                texts[growth.index] = texts.get(growth.index, "") + growth.text
                opened += [growth.index] if growth.is_new else []
                closed += [growth.index] if growth.is_closed else []
        if event is not None:
            fold.send(event)
    assert texts == {0: "hmm, well", 1: "two words", 2: '{"command": "ls"}'}
    assert sorted(opened) == sorted(closed) == [0, 1, 2]
    assert fold.read_growth(position) == []


def test_nothing_is_read_twice() -> None:
    fold, position = Fold(), ReadPosition()
    for event in EVENTS[:3]:
        fold.send(event)
    assert [growth.text for growth in fold.read_growth(position)] == ["hmm, "]
    assert fold.read_growth(position) == []
    assert [growth.text for growth in fold.read_growth(ReadPosition())] == ["hmm, "]
