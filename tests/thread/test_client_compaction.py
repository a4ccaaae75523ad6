"""A thread adopts the message list after a client's own compaction."""

import pytest

import weft
from weft.errors import WrongValue
from weft.model import Message, Text


def message_of(role: str, text: str) -> Message:
    return Message(role, (Text(text),))


def begun() -> weft.Thread:
    thread = weft.open()
    for role, text in (("user", "a"), ("assistant", "b"), ("user", "c"), ("assistant", "d")):
        thread.commit_message(message_of(role, text))
    return thread


def test_a_repeated_message_keeps_its_entry_and_a_revert_restores_the_rest() -> None:
    thread = begun()
    before = thread.compile()
    left = [message_of("user", "SUMMARY"), message_of("user", "c"), message_of("assistant", "d")]
    fold = thread.adopt(left, summary=0, message="folded elsewhere")
    after = thread.compile()
    assert [message.text for message in after.messages] == ["SUMMARY", "c", "d"]
    assert after.ids[1:] == before.ids[2:]
    assert (fold.kind, fold.message) == ("compact", "folded elsewhere")
    thread.user("e")
    thread.revert(fold)
    assert [message.text for message in thread.compile().messages] == ["a", "b", "c", "d", "e"]


def test_of_equal_messages_the_newest_are_kept_after_a_summary() -> None:
    thread = weft.open()
    for role, text in (("user", "a"), ("assistant", "ok"), ("user", "a"), ("assistant", "ok")):
        thread.commit_message(message_of(role, text))
    before = thread.compile().ids
    thread.adopt(
        [message_of("user", "S"), message_of("user", "a"), message_of("assistant", "ok")], summary=0
    )
    assert thread.compile().ids[1:] == before[2:]


def test_a_message_sent_twice_is_two_entries() -> None:
    thread = begun()
    thread.adopt(
        [message_of("user", "a"), message_of("user", "a"), message_of("user", "S")], summary=2
    )
    compiled = thread.compile()
    assert [message.text for message in compiled.messages] == ["a", "a", "S"]
    assert len(set(compiled.ids)) == 3


@pytest.mark.parametrize("summary", [-1, 1, True, "0"])
def test_the_summary_is_part_of_the_list(summary: int) -> None:
    with pytest.raises(WrongValue, match="summary"):
        begun().adopt([message_of("user", "S")], summary=summary)
