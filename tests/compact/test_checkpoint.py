"""Checkpoint ids: how they are derived, and when a text block is a checkpoint."""

import re

import pytest

from weft.compact import create_checkpoint_content, generate_checkpoint_id, read_checkpoints
from weft.errors import ThreadError
from weft.model import Block, Checkpoint, Message, Text


def test_ids_are_stable_and_unique_per_position() -> None:
    assert generate_checkpoint_id("p", "hi", set()) == generate_checkpoint_id("p", "hi", set())
    places = [("p", "hi"), ("q", "hi"), ("p", "ho"), ("ph", "i"), ("", "phi"), ("p", "\ud800")]
    assert len({generate_checkpoint_id(parent, text, set()) for parent, text in places}) == 6


def test_an_existing_id_is_never_reused() -> None:
    taken: set[str] = set()
    for _ in range(300):
        taken.add(generate_checkpoint_id("parent", "text", taken))
    assert len(taken) == 300
    assert all(re.fullmatch(r"[a-z0-9]{6}", id) for id in taken)


@pytest.mark.parametrize("id", ["", "abc", "abcdefg", "ABCDEF", "abc de", "abcde\n", "äbcdef"])
def test_text_that_is_not_six_letters_of_the_alphabet_is_not_a_checkpoint(id: str) -> None:
    with pytest.raises(ThreadError, match="not a checkpoint id"):
        create_checkpoint_content(id)


@pytest.mark.parametrize(
    ("block", "read"),
    [
        (Text("<checkpoint:abc123>"), Checkpoint("abc123")),
        (Text("<checkpoint:abc123>\n"), None),  # not the whole block
        (Text(" <checkpoint:abc123>"), None),
        (Text("see <checkpoint:abc123>"), None),  # quoted in a sentence
        (Text("<checkpoint:zzzzzz>"), None),  # another thread's
        (Text("<checkpoint abc123>"), None),
        (Text("<checkpoint:abc123>", ext={"anthropic": {"citations": []}}), None),
    ],
)
def test_a_text_block_is_a_marker_only_if_it_is_exactly_the_threads(
    block: Text, read: Block | None
) -> None:
    message = Message("user", (Text("hi"), block))
    assert read_checkpoints(message, {"abc123"}).blocks == (Text("hi"), read or block)
