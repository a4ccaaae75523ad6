"""The check of a model's summary: what is removed, marked and kept."""

from typing import Any

import pytest

from weft.catalog import load_catalog
from weft.compact import (
    Summary,
    SummaryJob,
    SummarySource,
    check_summary,
    read_ground_truth,
    summarise,
)
from weft.history import Row
from weft.model import Message, Request, Response, Stop, Text, Tool, ToolCall
from weft.tokens import counter_for

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


CALLS = read_ground_truth(
    [
        Row(None, Message("assistant", (ToolCall("c", name, arguments),)))
        for name, arguments in (
            ("Read", '{"file_path": "/srv/app.py", "offset": 4100}'),
            ("mcp__jira__getIssue", '{"issueKey":"OPS-7","timeout":120000,"max_results":null}'),
            ("Edit", '{"edits":[{"old_string":"a\\nround_amount()","replaceAll":true}]}'),
            ("Grep", '{"pattern":"x","output_mode":"content","-A":3,"ratio":0.125}'),
            ("run", '{"cut_off_key": "the end is miss'),  # no complete JSON
        )
    ]
)


@pytest.mark.parametrize(
    "sentence",
    [
        'It called Read with {"file_path": "/srv/app.py", "offset": 4100}.',
        '[Tool call Grep]: {"pattern":"x","output_mode":"content","-A":3,"ratio":0.125}',
        'The `issueKey` was OPS-7, and "timeout":120000 was sent.',
        "max_results was not set.",  # a key without a value
        '{"edits":[{"old_string":"a\\nround_amount()","replaceAll":true}]}',  # nested keys
        "`mcp__jira__getIssue` was called with `issueKey`.",
        "A call with cut_off_key failed.",
    ],
)
def test_the_keys_and_numbers_of_a_call_are_known_names(sentence: str) -> None:
    checked = check_summary(sentence, CALLS)
    assert (checked.text, checked.dropped, checked.marked) == (sentence, (), ())


@pytest.mark.parametrize(
    ("sentence", "name"),
    [
        ("The file_paths of Read was /srv/app.py.", "file_paths"),
        ("The timeout of OPS-7 was 125000 by then.", "125000"),
        ("The old_string had nround_amount.", "nround_amount"),  # the n of an escape is no letter
    ],
)
def test_altered_keys_and_numbers_of_a_call_are_marked(sentence: str, name: str) -> None:
    assert check_summary(sentence, CALLS).marked == (name,)


LIVE = Request(
    "m",
    (
        Message("system", (Text("Never touch vendor_dir."),)),
        Message("user", (Text("Run build_all."),), name="ana_lopez"),
        Message("assistant", (ToolCall("c", "run", '{"dry_run":false}'),)),
    ),
    tools=(Tool("close_issue", "Needs jira_token.", {"properties": {"issueKey": {}}}),),
)


@pytest.mark.parametrize(
    ("text", "settings"),
    [
        ("The rule is about vendor_dir.", {"live": LIVE}),
        ("The user ana_lopez asked.", {"live": LIVE}),
        ("They used dry_run then.", {"live": LIVE}),  # the key of a call that is not summarised
        ("They can use close_issue with issueKey and jira_token.", {"live": LIVE}),
        ("All about api_keys was said.", {"prompt": "Write what was said about api_keys."}),
        ("They ran build_all.", {}),
    ],
)
def test_every_name_that_the_request_shows_is_known(text: str, settings: Any) -> None:
    assert summary_of(text, settings).marked == ()
    assert summary_of("They say build_all and made_up.", settings).marked == ("made_up",)


def summary_of(text: str, settings: Any) -> Summary:
    """The summary of a message if the model answers with this text."""
    rows = (Row(None, Message("user", (Text("Run build_all. " * 40),))),)
    job = SummaryJob(model=load_catalog().find("gpt-4.1"), limit=300, **settings)
    flow = summarise(SummarySource(rows=rows), job, counter_for("estimate").message)
    next(flow)
    try:
        flow.send(Response(Message("assistant", (Text(text),)), stop=Stop("end")))
    except StopIteration as end:
        return end.value
    raise AssertionError("a second request")


def test_a_heading_is_marked_and_stays_so_that_no_line_moves_under_another():
    text = "Added by a_tool:\n- one\n\nResult of made_up_tool:\n- two"
    checked = check_summary(
        text, read_ground_truth([Row(None, Message("user", (Text("a_tool"),)))])
    )
    assert checked.dropped == ()
    assert checked.text == text.replace("made_up_tool", "made_up_tool [unverified]")
