"""What the state block contains: goal, rules, decisions, facts, errors and the current task."""

import pytest

import weft
from extract_rows import assistant, compacted, count, number, sections, talk, user, work
from weft.compact import extract_summary

RULES = "Rules (the user's words)"
FACTS = "Facts that changed"
FILLER = "The survey covers another part of the building, and nothing in it was noticed. " * 6


@pytest.mark.parametrize(
    ("text", "sentences"),
    [
        (
            "We act in Marlow v. Quayside Homes. The hearing is in June.",
            ["We act in Marlow v. Quayside Homes.", "The hearing is in June."],
        ),
        (
            "Wir reisen ab 4. Juli nach Oslo. Bitte plane das.",
            ["Wir reisen ab 4. Juli nach Oslo.", "Bitte plane das."],
        ),
        (
            "Die Abnahme ist am 3. Oktober im 2. Stock. Der Bauleiter kommt.",
            ["Die Abnahme ist am 3. Oktober im 2. Stock.", "Der Bauleiter kommt."],
        ),
        ("Es gilt § 14 Abs. 2 des Vertrags.", ["Es gilt § 14 Abs. 2 des Vertrags."]),
        ("We are 33. The house has 40 beds.", ["We are 33.", "The house has 40 beds."]),
        ("It was built in 1974. Nobody knew.", ["It was built in 1974.", "Nobody knew."]),
        (
            "did that twice. still red. please don't ask for it again. ever",
            ["did that twice. still red.", "please don't ask for it again. ever"],
        ),
        (
            "is it with or without VAT? it must be net",
            ["is it with or without VAT?", "it must be net"],
        ),
        (
            "we saw it, e.g. in the log of may. it was late",
            ["we saw it, e.g. in the log of may.", "it was late"],
        ),
        ("会议在周五。请准备文件！地点未定？", ["会议在周五。", "请准备文件！", "地点未定？"]),
        ("納期は金曜です。予算は未定です。", ["納期は金曜です。", "予算は未定です。"]),
    ],
)
def test_a_text_is_split_into_sentences(text: str, sentences: list[str]) -> None:
    summary = extract_summary(talk(text), 500, count)
    assert summary is not None
    bullets = {line[2:] for line in summary.text.splitlines() if line.startswith("- ")}
    assert bullets.issuperset(sentences)


CHANGES = [
    (
        "The launch is on 14 March.",
        "Legal needs one more week for the contract. We move the launch to 21 March.",
        "We move the launch to 21 March. (was: 14 March)",
    ),
    (
        "The week of 18 May would be good for the inspection.",
        "My landlord told me that the 18th is too close to the works, May is full of them. "
        "We have to move to the week of 11 May.",
        "We have to move to the week of 11 May. (was: 18 May)",  # not the sentence with the reason
    ),
    (
        "The pickup is at 9:00 at gate 4.",
        "The carrier changed the pickup. It is at 15:30 now.",
        "The carrier changed the pickup. It is at 15:30 now. (was: 9:00)",
    ),
    (
        "We are 34 guests and need a hall.",
        "By the way, two fell ill, so we are 32 now.",
        "By the way, two fell ill, so we are 32 now. (was: 34 guests)",
    ),
    (
        "the ticket is open as priority 3, please log it",
        "the manager made it priority 1 now, keep her in the loop",
        "the manager made it priority 1 now, keep her in the loop (was: 3)",
    ),
    (
        "04:45 is fine for the canary, with 10 % first",
        "the window is late today. so move the canary to 05:30",
        "so move the canary to 05:30 (was: 04:45)",
    ),
    (
        "The claim is for 86,000 pounds.",
        "They amended it this morning: the claim is for 91,500 pounds.",
        "the claim is for 91,500 pounds. (was: 86,000 pounds)",
    ),
    (
        "Die Abnahme ist am 4. Juni um neun.",
        "Der Bauleiter ist krank. Die Abnahme ist jetzt am 11. Juni.",
        "Die Abnahme ist jetzt am 11. Juni. (was: 4. Juni)",
    ),
    ("会议在3月5日举行。", "会议改为3月12日。", "会议改为3月12日。 (was: 3月5日)"),
    (
        "打ち合わせは5月8日です。",
        "打ち合わせは5月15日に変更になりました。",
        "打ち合わせは5月15日に変更になりました。 (was: 5月8日)",
    ),
]


@pytest.mark.parametrize(("old", "new", "fact"), CHANGES)
def test_a_changed_fact_is_stated_with_its_old_value(old: str, new: str, fact: str) -> None:
    rows = talk(f"Help me with it. {old}", "I note that down for you.", new, "Okay, I see.")
    assert fact in sections(rows)[FACTS]


def test_the_assistants_confirmation_identifies_the_users_change() -> None:
    rows = talk(
        "Plan our trip. The budget is 7,500 euros for everything but food.",
        "I will.",
        "My aunt pays a part of it now, so we can go up to 8,800.",
        "Good, then the budget is 8,800 euros.",
        "Yes.",
    )
    assert "the budget is 8,800 euros. (was: 7,500 euros)" in sections(rows)[FACTS]


@pytest.mark.parametrize(
    "text",
    [
        "I just got a mail that says the technician comes on Friday between 8 and 12?!",
        "but I do want the 46 now in any case, not instead of it",
    ],
)
def test_a_complaint_or_a_demand_is_not_a_changed_fact(text: str) -> None:
    rows = talk("My line is down since 4 March.", "The technician comes on Friday at 17:00.", text)
    assert text not in sections(rows).get(FACTS, "")


def test_a_statement_with_many_values_is_not_replaced_by_a_change_of_one() -> None:
    offer = "Hotel Alma has 41 rooms at 139 euros, a hall with 60 seats, and 12 parking lots."
    rows = talk(
        "Find a hotel for us.",
        offer,
        "The hall with 60 seats is taken on Tuesday, they offer the garden room instead.",
        "That has 35 seats.",
    )
    assert offer in "\n".join(sections(rows).values())


@pytest.mark.parametrize(
    "text",
    [
        "So she was without a flat for four months.",
        "Not yet, I asked the notary for it yesterday.",
        "Ich muss leider umplanen, der Zug fällt aus.",
        "We have (A) only trains, (B) trains and buses, or (C) none.",
        "two house rules.",
        "the cable looks fine to me, nobody touched it.",
    ],
)
def test_events_and_options_are_not_rules(text: str) -> None:
    rows = talk(f"Help me with the move to Leeds. {text}", "I will look at it now.")
    assert text not in sections(rows).get(RULES, "")


@pytest.mark.parametrize(
    "rule",
    [
        "And all amounts in francs please, including tax.",
        "Also two of us are vegan and Ilka is allergic to shrimps.",
        "A lead counts as lost only if it did not answer within 60 days.",
        "And the brief uses British spelling and numbered paragraphs.",
        "Unser Sohn verträgt keine Nüsse, und wir brauchen immer ein Kinderbett.",
        "Bitte noch nichts bestellen, bevor ich es freigebe.",
        "所有报价必须含税。",
        "花粉アレルギーがあるので窓を必ず閉めてください。",
    ],
)
def test_requirements_formats_and_conditions_are_rules(rule: str) -> None:
    rows = talk("Help me move.", "I will.", f"One thing. {rule}", "Yes.", "Pack the boxes.", "Yes.")
    assert rule in sections(rows)[RULES]


def test_an_answer_is_not_a_rule_but_can_contain_one() -> None:
    rows = talk(
        "Write the slide.",
        "Should it recommend (A) the campaign, (B) both, or (C) a rollback of the price as well?",
        "B. no rollback. And never name our supplier.",
        "Good.",
    )
    read = sections(rows)
    assert "- And never name our supplier." in read[RULES]
    assert "rollback" not in read[RULES]
    assert "User: B. no rollback." in read["Decisions"]


def test_a_later_changed_goal_or_decision_is_marked() -> None:
    rows = talk(
        "We are 34 people from Lyon, Porto, Gdansk, Leeds and Cork. Plan our meeting.",
        "The train leaves at 8:15. Shall I take it?",
        "ok, the train at 8:15",
        "Noted.",
        "Two left us, so we are 32 now.",
        "Noted.",
        "Please move the train to 9:40 instead.",
        "Done.",
    )
    read = sections(rows)
    assert "Leeds and Cork. (changed later)" in read["Goal"]
    assert "(changed later)" in read["Decisions"]
    assert "so we are 32 now. (was: 34 people)" in read[FACTS]


@pytest.mark.parametrize(
    ("reply", "last"),
    [
        (
            "I'll ask Tom for the key. In the meantime write the draft: short, no names of people.",
            "yes it should, go on with the rest",
        ),
        ("Das frage ich gleich. Schreib bis dahin den Entwurf, ohne Namen.", "Ja, mach weiter."),
        ("稍后告诉你。请先写草稿，不要写人名。", "好的，继续"),
    ],
)
def test_work_requested_in_a_reply_is_the_current_request(reply: str, last: str) -> None:
    messages = [user("Find out why the pump stopped."), assistant("I look. " + FILLER)]
    messages += [user("Please note the pressure of the tank."), assistant("Noted. " + FILLER)]
    messages += [assistant("I have no key for the archive. Could you give me one?"), user(reply)]
    messages += [assistant(FILLER + "I start with it. Should it name the costs?"), user(last)]
    summary = compacted(messages, 260)
    request = summary.partition("Current request:\n")[2].partition("\n\n")[0]
    assert any(word in request for word in ("write the draft", "Schreib", "请先写草稿"))


def test_a_question_is_quoted_with_the_chosen_option() -> None:
    rows = talk(
        "Get us to the airport.",
        "Two offers fit: Moor Coaches at 7:30 and Vale Minibus at 7:40. Vale has a lift. Nobody of "
        "you needs it. Which one do you prefer?",
        "Moor is fine, it is cheaper.",
        "There is a cottage near Hull for 460 euros. It lies outside of the town. Agreed?",
        "Yes, great!",
    )
    decisions = sections(rows)["Decisions"]
    assert "Moor Coaches at 7:30" in decisions
    assert "a cottage near Hull for 460 euros" in decisions


def test_error_text_printed_by_a_command_is_not_a_current_error() -> None:
    issue = (
        "Fix the importer\n- Show an error if the file is not found\n- It failed in May, see log"
    )
    rows = number(
        [
            user("Implement issue 7."),
            *work(
                ("Bash", {"command": "tracker show 7"}, issue),
                ("Bash", {"command": "pytest -q"}, "FAILED tests/test_a.py::test_b - KeyError"),
            ),
        ]
    )
    errors = sections(rows)["Current errors"]
    assert "FAILED tests/test_a.py::test_b - KeyError" in errors
    assert "not found" not in errors
    assert "in May" not in errors


def test_an_item_that_does_not_fit_does_not_end_the_state_block() -> None:
    long = "Never open the valve of the northern line before " + "the crew has left, " * 12
    rows = talk(
        "Plan the inspection of the plant. The visit is on 4 March.",
        "I will.",
        f"{long.strip(' ,')}.",
        "Noted.",
        "The visit is on 11 March now.",
        "Noted.",
        "Pack the boxes for the crew.",
        "They are packed.",
    )
    assert "on 11 March now. (was: 4 March)" in sections(rows, 110)[FACTS]


def test_the_number_of_compactions_does_not_change_what_is_kept() -> None:
    messages = [user("Plan the fair. We are 34 people. Never book without my yes.")]
    for n in range(30):
        messages += [assistant(f"Stand {n} costs {n * 70 + 11} euros. " + FILLER)]
        messages += [user(f"Please look at stand {n + 1} as well.")]
    texts: list[str] = []
    for times in (1, 5):
        with weft.open() as thread:
            for n, message in enumerate(messages):
                thread.commit_message(message)
                if n % (len(messages) // times) == 0 and n > 10:
                    thread.compact(budget=450)
            thread.compact(budget=400)
            texts.append("\n".join(row.text for row in thread.compile().messages))
    assert texts[0] == texts[1]
