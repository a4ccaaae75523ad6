"""Where lines stand, through lists that begin alike."""

from random import Random

import pytest

from weft.history import Row
from weft.history.ops import MAX_DEPTH, SlotIndex
from weft.model import Message


def line(slot):
    return Row(slot, Message("user"))


@pytest.mark.parametrize("seed", range(20))
def test_a_list_that_stands_on_others_finds_what_a_plain_count_finds(seed):
    dice = Random(seed)
    slots = iter(range(10_000))
    rows = [line(next(slots)) for _ in range(30)]
    standing = SlotIndex(rows)
    seen = set(range(30))
    for _ in range(3 * MAX_DEPTH):
        shared = dice.randrange(len(rows) + 1)
        below = rows[shared:]
        dice.shuffle(below)
        kept = below[: dice.randrange(len(below) + 1)]
        grown = [line(next(slots)) for _ in range(dice.randrange(4))]
        newer = rows[:shared] + kept + grown
        older, standing = standing, SlotIndex(newer, standing, shared)
        older.own[late := next(slots)] = len(rows)  # the list below grows on
        rows = newer
        seen |= {row.id for row in rows} | {late}
        places = {row.id: place for place, row in enumerate(rows)}
        assert {slot: standing.find(slot) for slot in seen} == {
            slot: places.get(slot) for slot in seen
        }


def test_a_slot_that_is_not_there_is_a_key_error():
    with pytest.raises(KeyError):
        SlotIndex([line(b"a")])[b"b"]
