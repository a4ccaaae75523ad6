"""What a summary says about decisions, their outcomes and findings."""

import pytest

from extract_rows import number, sections, talk, user, work
from weft.compact import extract_summary
from weft.tokens import counter_for

DECISIONS, FACTS, FINDINGS = "Decisions", "Facts that changed", "Findings"
count = counter_for("estimate").message

SMALL = 260
"""Room for the state block alone."""


@pytest.mark.parametrize(
    ("talked", "later"),
    [
        (
            (
                "The pump P-17 stops every night. Find out why.",
                "I think the valve V-220 leaks. Shall I order a new seal for it?",
                "yes",
                "Ordered: one seal for V-220.",
                "the seal is in, it stopped again",
                "The tank was empty. So V-220 was not the cause.",
                "ok, go on",
            ),
            "So V-220 was not the cause.",
        ),
        (
            (
                "Wir brauchen einen Saal für die Feier.",
                "Der Saal Linde hat 80 Plätze und kostet 900 Euro. Soll ich ihn vormerken?",
                "Ja, den Saal Linde.",
                "Gut, der Saal Linde ist vorgemerkt.",
                "Wir werden jetzt wohl 120 Leute.",
                "Der Saal Linde ist dafür zu klein. Der Saal Eiche hat 150 Plätze.",
                "Gut, nimm den Saal Eiche.",
            ),
            "Der Saal Linde ist dafür zu klein.",
        ),
        (
            (
                "Plan the visit of the technician.",
                "There is Friday 6 March at 17:00. Shall I take the slot?",
                "ok friday then",
                "Done, the technician comes on Friday 6 March at 17:00.",
                "they wrote that he cannot come",
                "I am sorry. The technician of Friday is cancelled; I look for another slot.",
                "please do",
            ),
            "The technician of Friday is cancelled; I look for another slot.",
        ),
    ],
)
def test_a_decision_is_shown_with_its_outcome(talked: tuple[str, ...], later: str) -> None:
    assert f"\n  Later: {later}" in sections(talk(*talked))[DECISIONS]


def test_a_later_sentence_about_something_else_is_not_an_outcome() -> None:
    rows = talk(
        "Plan the meeting in Porto.",
        "The hotel Douro has 40 rooms at 128 euros. Shall I ask for an offer?",
        "yes, ask the Douro",
        "Good, I asked the Douro for an offer.",
        "What about the bus from Leeds?",
        "The bus from Leeds was cancelled; the train at 8:15 takes nine people.",
        "ok",
    )
    assert "Later:" not in sections(rows)[DECISIONS]


@pytest.mark.parametrize(
    ("proposal", "reply", "confirmation"),
    [
        (
            "The museum or the boat trip fit the afternoon.",
            "Take the boat trip.",
            "Good, the boat trip is planned for Thursday at 14:00.",
        ),
        (
            "Der Turm oder der Hafen passen am Nachmittag.",
            "Dann lieber der Hafen.",
            "Notiert: der Hafen am Donnerstag um 14 Uhr.",
        ),
        (
            "El museo o el paseo en barco caben por la tarde.",
            "Mejor el paseo en barco.",
            "Anotado: paseo en barco el jueves a las 14 horas.",
        ),
        ("下午可以去博物馆或者坐船。", "坐船吧，博物馆太远了。", "好的，周四下午两点坐船。"),
    ],
)
def test_a_confirmation_by_the_assistant_is_a_decision(
    proposal: str, reply: str, confirmation: str
) -> None:
    rows = talk("Plan our day in the city.", proposal, reply, confirmation, "What does it cost?")
    assert confirmation in sections(rows)[DECISIONS]


def test_a_choice_without_a_confirmation_is_quoted() -> None:
    rows = talk(
        "Find a place for the meeting in May.",
        "Porto has 19 degrees in May, Gdansk 16 degrees, Annecy 20 degrees.",
        "Porto then. Which hotels can take us?",
        "Three of them fit: Vista, Infante and Park.",
        "What do they cost?",
        "Vista 128 euros, Infante 104 euros, Park 139 euros.",
        "Ask the Park for an offer.",
    )
    assert "- User: Porto then. Which hotels can take us?" in sections(rows)[DECISIONS]


def test_an_answer_or_a_report_is_not_a_decision() -> None:
    messages = [
        user("Look at the sales of March."),
        *work(("sql", {"query": "select 1"}, "1,911")),
        *[row.message for row in talk("", "The sales of March are 1,911 units.")[1:]],
        user("How many of them are returns?"),
        *[row.message for row in talk("", "The returns of March are 120 units.")[1:]],
        user("Write the page about it."),
    ]
    assert DECISIONS not in sections(number(messages))


def test_a_rule_is_not_repeated_as_a_decision() -> None:
    rows = talk(
        "Plan the works in the house.",
        "I begin with the plan.",
        "Never work before 9 in the morning.",
        "Understood: no work before 9 in the morning.",
        "Go on with the bath.",
    )
    assert DECISIONS not in sections(rows)


def test_a_short_summary_has_the_confirmation_instead_of_the_exchange() -> None:
    rows = talk(
        "Get nine people from Leeds to the airport on Monday.",
        "Two offers fit: Pennine Coaches at 7:30 for 312 euros and Aire Minibus at 7:40 for 348. "
        "Which one do you prefer?",
        "Pennine is fine, it is cheaper.",
        "Noted: Pennine Coaches, 7:30 from Leeds, 312 euros.",
        "And the way back?",
        "The way back is at 18:00 with the same coach.",
    )
    summary = extract_summary(rows, SMALL, count)
    assert summary is not None
    assert "- Noted: Pennine Coaches, 7:30 from Leeds, 312 euros." in summary.text
    assert "Which one do you prefer?" not in summary.text
    assert "Which one do you prefer?" in sections(rows)[DECISIONS]


@pytest.mark.parametrize(
    ("finding", "other"),
    [
        (
            "That is the root cause: lot HP-7 has 4.9 % binder instead of 3.5 %.",
            "Maybe the root cause is the oven.",
        ),
        ("Die Ursache ist das Ventil V-220 im Keller.", "Vielleicht ist die Ursache der Tank."),
        ("原因是批次HP-7的粘合剂过多。", "原因可能是炉子。"),
    ],
)
def test_a_confirmed_cause_is_a_finding_and_a_guess_is_not(finding: str, other: str) -> None:
    rows = talk("Find out why the plates crack.", f"{other} I look.", "ok", f"{finding} I go on.")
    findings = sections(rows)[FINDINGS]
    assert finding in findings
    assert other not in findings


def test_a_denied_value_is_replaced() -> None:
    rows = talk(
        "The customer Halden needs 50 plates by 28 November. Plan the runs.",
        "I plan the runs.",
        "They called, they now need 64 plates, not 50.",
        "Good.",
    )
    read = sections(rows)
    assert "by 28 November. (changed later)" in read["Goal"]
    assert "they now need 64 plates, not 50." in read[FACTS]


def test_a_short_summary_omits_sentences_that_need_context() -> None:
    rows = talk(
        "Get the error rate of checkout down.",
        "The pool `orders-rw` has 159 of 200 connections open.",
        "ah ok, I see. and that it was them, wow",
        "The job `invoice-export` holds 151 of them since 02:07. Shall I end them?",
        "ok but only 20 at a time",
        "Agreed: batches of 20.",
        "did three more",
        "The rate is down to 6.8 %, and 80 sessions are ended.",
        "What is the rate of checkout now?",
    )
    summary = extract_summary(rows, 400, count)
    assert summary is not None
    assert "The rate is down to 6.8 %, and 80 sessions are ended." in summary.text
    assert "wow" not in summary.text
    assert "did three more" not in summary.text
