"""A short summary of a conversation has what the current request needs, and nothing outdated."""

import json

import pytest

from extract_rows import assistant, compacted, count, number, sections, talk, user, work
from weft.compact import extract_summary
from weft.model import Message

DECISIONS, DONE, FURTHER, LAST = "Decisions", "Done", "Further facts", "Last answer"
RULES = "Rules (the user's words)"
WEATHER = "The weather of the north is mild in spring, with some rain in the hills and by the sea. "


def action(name: str, arguments: dict[str, object], result: object, report: str) -> list[Message]:
    """A call, its result, and what the assistant says about it."""
    text = result if isinstance(result, str) else json.dumps(result)
    return [
        *work((name, {key: str(value) for key, value in arguments.items()}, text)),
        assistant(report),
    ]


def chatter(rounds: int) -> list[Message]:
    messages: list[Message] = []
    for n in range(rounds):
        messages += [user(f"Tell me about the hill {n}, please."), assistant(WEATHER * 2)]
    return messages


SUPPORT = [
    (
        "order_loaner",
        "Please send me a router for tomorrow, I am in the office.",
        {"order": "LO-30988", "eta": "12:00"},
        "The mobile router is on its way: order LO-30988 to the office, by tomorrow 12:00.",
        "when does the loaner arrive?",
    ),
    (
        "bestelle_leihgerät",
        "Bitte schick mir ein Gerät ins Büro.",
        {"auftrag": "LG-4471", "ankunft": "9:30"},
        "Das Gerät ist unterwegs: Auftrag LG-4471, Ankunft morgen um 9:30.",
        "wann kommt das Leihgerät?",
    ),
    (
        "commander_prêt",
        "Envoyez-moi un appareil au bureau.",
        {"commande": "PR-882", "arrivée": "11:15"},
        "L'appareil est en route : commande PR-882, arrivée demain à 11:15.",
        "quand arrive l'appareil en prêt ?",
    ),
]


@pytest.mark.parametrize(("name", "options", "result", "report", "last"), SUPPORT)
def test_what_was_done_is_there_if_the_last_request_needs_it(
    name: str, options: str, result: dict[str, str], report: str, last: str
) -> None:
    messages = [user("My line is down since 4 March."), assistant("I look at it.")]
    messages += [user(options), *action(name, {"to": "office"}, result, report)]
    messages += [*chatter(8), user(last)]
    assert report in compacted(messages, 260)


@pytest.mark.parametrize("word", ["today", "already", "schreib", "alors"])
def test_a_vague_word_of_the_last_request_does_not_make_a_sentence_relevant(word: str) -> None:
    heron, hotel = (
        "The heron breeds at Loch Ness in 2019.",
        f"The hotel {word} had 41 rooms in 1987.",
    )
    messages = [user("Plan the trip, never by car."), assistant("I plan it.")]
    messages += [user("What about the birds?"), assistant(heron)]
    messages += [user("What about the hotel?"), assistant(hotel)]
    messages += [*chatter(8), user(f"And the heron, {word}?")]
    summary = compacted(messages, 190)
    assert heron in summary
    assert hotel not in summary  # there is only room for one of the two


def test_of_two_reports_about_one_thing_the_newer_one_holds() -> None:
    rows = number(
        [
            user("My line is down. Get me a technician."),
            *action("book", {"slot": "Fri"}, {"ticket": "T-77"}, "Your ticket is T-77, Friday."),
            user("they moved it, please look"),
            *action("move", {"ticket": "T-77"}, {"ticket": "T-77", "slot": "9 March 17:00"},
                    "The visit is on Monday 9 March at 17:00."),
            user("ok thanks"),
        ]
    )  # fmt: skip
    done = sections(rows)[DONE]
    assert "T-77: The visit is on Monday 9 March at 17:00." in done
    assert "Friday" not in done


def test_a_failed_call_is_an_error_and_not_done() -> None:
    messages = [
        user("Pass my request to the supervisor."),
        *action("escalate", {"to": "chief"}, {"status": "error", "code": "E-4031", "message": "x"},
                "The request could not be passed on: the queue is closed (error E-4031)."),
        user("ok"),
        assistant("The queue opens again at 8:00."),
    ]  # fmt: skip
    read = sections(number(messages), 250)
    assert DONE not in read
    assert "The request could not be passed on" in read["Current errors"]
    assert "{" not in read["Current errors"]


@pytest.mark.parametrize(
    ("question", "reply"),
    [
        ("Electro Levante asks for 4,480 euros. Shall I put it into the offer?", "Yes."),
        ("Electro Levante pide 4.480 euros. ¿Lo pongo en el presupuesto?", "Sí."),
        ("Electro Levante verlangt 4.480 Euro. Soll ich das übernehmen?", "Ja."),
    ],
)
def test_a_question_stays_with_the_answer_that_follows_the_summary(
    question: str, reply: str
) -> None:
    messages = [user("Write the offer for Mr Ferrer."), *chatter(12), user("And the electrician?")]
    messages += [assistant(question), user(f"{reply} Now write the offer, one page.")]
    messages += [assistant("I begin. Should I add 5 %?"), user("Yes, 5 %.")]
    summary = compacted(messages, 250, keep=2)
    last = summary.partition(f"{LAST}:\n")[2] or summary.partition("Next step:\n")[2]
    assert question.partition(". ")[2] in last
    assert "480 euro" in last.lower()


def test_a_reply_to_a_question_is_shown_with_the_work_that_it_is_about() -> None:
    messages = [user("Draft the memo on the clause."), *chatter(8)]
    messages += [user("Paragraph 11 is too long. Then go on with the area section, same length.")]
    messages += [assistant("The database signed me out (AUTH-419). Shall I leave gaps, or wait?")]
    messages += [user("Draft it with gaps, in yellow.")]
    summary = compacted(messages, 260, keep=1)
    assert "Then go on with the area section, same length." in summary


@pytest.mark.parametrize(
    ("question", "answer"),
    [
        ("The schedule of loss is missing. Do you have it?", "Not yet, I asked Fenwick & Rowe."),
        ("Die Liste der Gäste fehlt. Haben Sie sie?", "Noch nicht, ich frage Frau Kern."),
        ("Il manque la liste. L'avez-vous ?", "Pas encore, j'attends la réponse de Marc Leroux."),
    ],
)
def test_an_open_question_stays_in_a_short_summary(question: str, answer: str) -> None:
    messages = [user("Prepare the case. The hearing is on 4 June."), assistant(question)]
    messages += [user(answer), assistant("Good, I wait for it."), *chatter(8)]
    messages += [user("Now write the first section about the rooms 4 and 5.")]
    assert answer in compacted(messages, 250)


@pytest.mark.parametrize(
    "text",
    [
        "and start P-1 in K1 in the meantime",  # an order that is carried out once
        "Sanchis, no podemos parar la obra dos semanas.",
        "No se puede tirar.",
        "Some things you must respect.",
    ],
)
def test_an_order_a_fact_or_an_announcement_is_no_rule(text: str) -> None:
    rows = talk("Plan the runs of the week.", "I plan them.", f"Good. {text}", "Done.", "And now?")
    assert text not in sections(rows).get(RULES, "")


def test_a_file_that_could_not_be_read_is_not_listed_as_read() -> None:
    rows = number(
        [
            user("Check the date in the payroll file."),
            *work(("read_file", {"path": "/matters/payroll.xlsx"}, "error: the file is encrypted"),
                  ("read_file", {"path": "/matters/letter.pdf"}, "promoted in 2022")),
            assistant("The letter says 2022."),
            user("Good."),
        ]
    )  # fmt: skip
    files = sections(rows)["Files"]
    assert "/matters/letter.pdf" in files
    assert "payroll" not in files


def test_numbers_with_a_slash_and_recall_handles_are_no_paths() -> None:
    rows = number(
        [
            user("Find a flight. Use recall for e0bee46b14d4/0."),
            *work(("run", {"command": "search"}, "LH 2081/856 at 9:10\nsee src/flights/search.py")),
            assistant("LH 2081/856 leaves at 9:10, found in src/flights/search.py."),
        ]
    )
    summary = extract_summary(rows, 120, count)
    assert summary is not None
    assert not [line for line in summary.text.splitlines() if line.startswith("Paths: 2081")]
    index = [line for line in summary.text.splitlines() if line.startswith("Paths: ")]
    assert all("2081/856" not in line and "e0bee46b14d4" not in line for line in index)


def test_what_came_of_one_candidate_is_not_said_of_another() -> None:
    rows = talk(
        "Hire a manager. We meet Paul Girard and Aïcha Benali.",
        "Aïcha Benali prefers a call. Shall I offer her one?",
        "Yes, at 16:00.",
        "Good, the call with Aïcha Benali is at 16:00.",
        "Paul Girard wrote that he signed elsewhere.",
        "Then Paul Girard withdraws; Aïcha Benali remains.",
        "ok",
    )
    assert "Later: Then Paul Girard withdraws" not in sections(rows)[DECISIONS]


def test_a_decision_that_a_newer_one_restates_is_left_out() -> None:
    rows = talk(
        "Plan the meeting.",
        "Who moderates the retrospective?",
        "Piotr does it.",
        "Noted, Piotr moderates the retrospective on Wednesday at 16:00.",
        "Helen needs the Wednesday.",
        "Shall I move the retrospective?",
        "Tuesday 16:30 is better.",
        "Good, the retrospective that Piotr moderates is on Tuesday at 16:30.",
        "What else is missing?",
    )
    decisions = sections(rows)[DECISIONS]
    assert "16:30" in decisions
    assert "16:00" not in decisions


def test_figures_that_were_measured_again_are_left_out() -> None:
    messages = [user("Why did the churn go up? Never name the provider.")]
    for label, base in (("All accounts", 1200), ("Without tests", 1100), ("Without trials", 800)):
        series = ", ".join(f"{base + n} in {month}" for n, month in enumerate(MONTHS))
        messages += [assistant(f"{label}: {series}."), user("Look at it again, please.")]
    messages += [assistant("Shall I draw it?"), user("Yes, for 10 April."), *chatter(4)]
    messages += [user("Make the chart.")]
    summary = compacted(messages, 400)
    assert "Without trials: 800 in December" in summary
    assert "All accounts" not in summary


def test_a_figure_that_a_newer_sentence_denies_is_left_out() -> None:
    messages = [user("Why did the churn go up? Never name the provider.")]
    messages += [assistant("So the jump of the churn is plus 59 % against December.")]
    messages += [user("The tests must be out."), assistant("The jump is plus 39 %, not 59 %.")]
    messages += [user("Good, we move the page to 9 April."), *chatter(5), user("Write the page.")]
    summary = compacted(messages, 300)
    assert "plus 39 %, not 59 %" in summary
    assert "plus 59 % against" not in summary


MONTHS = ("December", "January", "February", "March")


def test_the_line_of_a_result_that_the_assistant_mentions_is_a_fact() -> None:
    log = "\n".join(f"02:{n:02d} INFO worker-{n}: step took {n} ms" for n in range(30))
    messages = [user("The error rate is 14 %. Bring it under 1 %. Never fail over.")]
    messages += action("metrics", {"expr": "rate"}, f"{log}\n03:19 checkout-api 0.6 %\n{log}",
                       "The error rate is 0.6 %, below your target.")  # fmt: skip
    messages += [user("Shall we stop?"), assistant("Yes. Shall I close it?"), user("no, wait")]
    messages += [*chatter(6), user("Write the timeline in UTC.")]
    summary = compacted(messages, 300)
    assert "03:19 checkout-api 0.6 %" in summary
    assert "worker" not in summary
