"""The check of a model's summary: what is removed, marked and kept."""

import pytest

from weft.compact import check_summary, read_ground_truth
from weft.history import Row
from weft.model import Message, Text, ToolCall

SOURCE = [
    Message("user", (Text("Fix BILL-4412. Don't change round_amount() in billing/money.py."),)),
    Message(
        "assistant",
        (
            Text("It is called in billing/importer.py:118 and billing/api.py:57."),
            ToolCall("c1", "bash", '{"cmd": "pytest -q\\ngit commit -m \\"BILL-4412: fix\\""}'),
        ),
    ),
    Message("user", (Text("212 passed, 1 skipped in 9.12s. We agreed on that on 4 March 2026."),)),
    Message("assistant", (Text("Money.split uses Decimal, ROUND_HALF_UP since v3.4, no float."),)),
    Message("assistant", (Text("The release 7.31 has 48,211 lines and spotter-gqc.4 is next."),)),
]
GROUND = read_ground_truth([Row(None, message) for message in SOURCE])


@pytest.mark.parametrize(
    "sentence",
    [
        "Constraint: do not change the signature of `money.round_amount`.",
        "The user requires **Decimal** and `ROUND_HALF_UP`, never `float()`.",
        "They agreed on 2026-03-04.",
        'Run `pytest -q` again; then `git commit -m "BILL-4412: ..."`.',
        "`round_amount/2` is called from `importer.py` (line 118) and `api.py:57`.",
        "`Money.split(...)` and `Decimal`/`ROUND_HALF_UP` are used.",
        "The files importer.py/api.py and/or the rest call it.",
        "`pytest ... commit` was run, and 212 tests passed.",
        "There are 48 211 lines in release 7.31 (v3.4).",
    ],
)
def test_a_correct_sentence_is_unchanged(sentence: str) -> None:
    checked = check_summary(sentence, GROUND)
    assert (checked.text, checked.dropped, checked.marked) == (sentence, (), ())


@pytest.mark.parametrize(
    ("sentence", "name"),
    [
        ("They read billing/money.py and oney.py.", "oney.py"),  # a part of money.py
        ("BILL-4413 is about round_amount.", "BILL-4413"),
        ("BILL-4412 has 97 failing tests.", "97"),
        ("Since v9.7 it uses Decimal in billing/money.py.", "v9.7"),
        ("round_amount and spotter-gqc.9 are next.", "spotter-gqc.9"),
        ("You must never touch `round_amuont` again.", "round_amuont"),  # a rule is not removed
        ("In billing/money.py, round_ammount rounds.", "round_ammount"),
    ],
)
def test_an_unverified_name_is_marked_and_its_sentence_stays(sentence: str, name: str) -> None:
    checked = check_summary(sentence, GROUND)
    assert checked.marked == (name,)
    assert checked.dropped == ()
    assert f"{name} [unverified]" in checked.text.replace("`", "")
    assert checked.text.replace(" [unverified]", "") == sentence


def test_a_short_sentence_with_only_invented_names_is_removed() -> None:
    checked = check_summary("They fixed round_amount. They read src/nowhere.py too.", GROUND)
    assert checked.text == "They fixed round_amount."
    assert checked.dropped == ("They read src/nowhere.py too.",)
