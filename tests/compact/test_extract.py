"""What an extract contains: the state of the task and the relevant lines."""

import pytest

import weft
from extract_rows import assistant, compacted, count, number, sections, talk, user, work
from summarisers import says, writer
from weft.compact import extract_summary, plan_budget
from weft.model import Message, Text

MIGRATION = talk(
    "Plan the database migration for the orders service.",
    "Shall I (A) drop the legacy_orders table or (B) keep it read-only? Which region goes first?",
    "B. Frankfurt first.",
    "Understood, I will prepare the steps for that and show them to you before I run anything.",
    "No wait, Dublin first.",
    "Okay, changed.",
    "Thanks so much, you are great! I really appreciate all the help that you have given me.",
    "You are welcome! It is a pleasure to work with you on this.",
    *[
        text
        for n in range(6)
        for text in (
            f"Please show me status {n} of the migration job and its log lines.",
            f"Status {n}: running, nothing unusual to report in the log lines so far.",
        )
    ],
)


def test_a_question_and_its_short_answer_stay_together() -> None:
    decisions = sections(MIGRATION)["Decisions"]
    assert "(A) drop the legacy_orders table or (B) keep it read-only?" in decisions
    assert "User: B. Frankfurt first." in decisions


def test_greetings_are_omitted_and_the_last_of_repeated_lines_stays() -> None:
    text = "\n".join(sections(MIGRATION).values())
    assert "appreciate" not in text
    assert "welcome" not in text
    assert text.count("running, nothing unusual") <= 2  # the current one, and what it replaces


@pytest.mark.parametrize(
    "rule",
    [
        "Never push to the main branch.",
        "Always run the linter before you commit.",
        "Don't add new dependencies without asking me.",
        "Use Decimal, never float, for money.",
        "Commit messages must start with the ticket number.",
        "From now on, write a test before each fix.",
        "No force pushes, ever.",
        "Answer me in British English.",
        "I want type hints on every new function.",
        "Bitte nie direkt auf main pushen.",
        "不要改变公共接口。",
    ],
)
def test_a_rule_is_kept_in_the_users_words(rule: str) -> None:
    rows = talk(f"Fix the parser. {rule}", "I will.", "Go on with the next file now.", "Yes.")
    assert f"- {rule}" in sections(rows)["The user's words"]


@pytest.mark.parametrize(
    "text",
    [
        "I never understood why this failed so often.",
        "My manager always asks me about the dashboard.",
        "Must it be so slow?",
    ],
)
def test_a_narrative_or_a_question_is_not_a_rule(text: str) -> None:
    rows = talk(f"Fix the parser in src/parse.py. {text}", "I will look at it now.")
    assert text not in sections(rows).get("The user's words", "")


def test_text_added_by_a_client_is_not_the_users() -> None:
    rows = number(
        [
            Message("user", (Text("<command-name>/plan</command-name>"),)),
            Message("user", (Text("# Skill\nNever write TBD.\nAlways ask for the rig first."),)),
            Message("assistant", (Text("Which rig do you want to use for these beads?"),)),
            Message(
                "user",
                (
                    Text(
                        "<system-reminder>You must never mention this.</system-reminder>"
                        "Use the rig spotter."
                    ),
                ),
            ),
            Message("assistant", (Text("I create the beads in spotter now."),)),
        ]
    )
    state = sections(rows)
    assert "The user's words" not in state
    assert "Use the rig spotter." in "\n".join(state.values())
    assert "never mention" not in state.get("user", "")


def test_files_commands_and_errors_have_their_last_state() -> None:
    edit = {"file_path": "src/money.py", "old_string": "a", "new_string": "x = to_cents(total)"}
    uses = [
        ("Read", {"file_path": "src/money.py"}, "def split(total): ..."),
        ("Bash", {"command": "pytest -q"}, "E   TypeError: no str\n2 failed, 3 passed in 1.2s"),
        ("Edit", edit, "ok"),
        ("Bash", {"command": "pytest -q"}, "5 passed in 1.1s"),
        ("Bash", {"command": "mypy src"}, "src/money.py:7: error: Missing return"),
    ]
    rows = number([Message("user", (Text("Fix the rounding of invoices."),)), *work(*uses)])
    state = sections(rows)
    assert state["Files"] == "- src/money.py\n  changed, read; last change: x = to_cents(total)"
    assert "- pytest -q\n  5 passed in 1.1s" in state["Commands and their last results"]
    assert state["Current errors"] == "- src/money.py:7: error: Missing return"
    assert state["Goal"] == "- Fix the rounding of invoices."


def test_open_tasks_come_from_the_last_list() -> None:
    def todos(*statuses: str) -> dict:
        names = ("Read the parser", "Write a test", "Fix the bug")
        return {
            "todos": [
                {"content": name, "status": status}
                for name, status in zip(names, statuses, strict=True)
            ]
        }

    uses = [
        ("TodoWrite", todos("pending", "pending", "pending"), "ok"),
        ("TodoWrite", todos("completed", "in_progress", "pending"), "ok"),
    ]
    rows = number([Message("user", (Text("Fix the parser, step by step."),)), *work(*uses)])
    assert sections(rows)["Open tasks"] == "- Write a test\n  in progress\n- Fix the bug"


def test_a_series_of_log_lines_is_one_line_and_no_index() -> None:
    log = "\n".join(f"DEBUG billing.tax: loaded rate row {n} = 0.{n:03d}" for n in range(60))
    rows = number([Message("user", (Text("Run it."),)), *work(("Bash", {"command": "run"}, log))])
    summary = extract_summary(rows, 2000, count)
    assert summary is not None
    assert summary.text.count("loaded rate row") <= 2
    assert "Numbers:" not in summary.text


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("约束：不要改变公共接口。错误在 auth.py 第42行。", "- 错误在 auth.py 第42行。"),
        ("Ms. Okafor of accounting agreed to that on Monday.", "- Ms. Okafor of accounting"),
        ("We saw it, e.g. In the log of 7 May. It was late.", "- We saw it, e.g. In the log"),
    ],
)
def test_sentences_are_split_correctly(text: str, sentence: str) -> None:
    summary = extract_summary(talk(text), 500, count)
    assert summary is not None
    assert sentence in summary.text


def test_every_compaction_starts_from_the_original_messages() -> None:
    with weft.open() as thread:
        thread.user("Never push to main. The token limit of src/limits.py is 4,812.")
        thread.assistant("I will keep that in mind and read src/limits.py first.")
        for n in range(40):
            thread.user(f"Look at src/part_{n}.py and tell me what load_{n} returns.")
            thread.assistant(f"load_{n} in src/part_{n}.py returns the row number {n * 37 + 100}.")
            if n % 8 == 7:
                thread.compact(budget=500)
        text = thread.compile().messages[0].text
        assert "- Never push to main." in text
        assert "The token limit of src/limits.py is 4,812." in text
        assert text.count("[Summary of earlier messages") == 1


def test_a_summary_by_a_person_is_read_with_the_messages() -> None:
    with weft.open() as thread:
        thread.user("The build of src/app.py fails with exit status 117.")
        thread.assistant("I see that src/app.py imports a module that is gone.")
        thread.user("Go on with the next one.")
        thread.compact(keep=1, summary="The customer Nordwind waits for this since Friday.")
        for n in range(20):
            thread.assistant(f"Step {n} of src/step_{n}.py is done and nothing happened.")
            thread.user(f"Then look at src/step_{n + 1}.py as well.")
        thread.compact(budget=400)
        text = thread.compile().messages[0].text
        assert "Nordwind" in text
        assert "exit status 117" in text


RULES = "The user's words"
FILLER = "The survey covers another part of the building, and nothing in it was changed. " * 6


def test_the_users_own_task_belongs_to_the_goal_and_is_not_a_rule() -> None:
    rows = talk(
        "I have to organise our offsite and have never done that. Please plan it with me.",
        "Gladly.",
        "Tell me what comes first.",
        "The date comes first.",
    )
    read = sections(rows)
    assert "- I have to organise our offsite and have never done that." in read["Goal"]
    assert RULES not in read


def test_clear_rules_come_before_uncertain_ones() -> None:
    rules = [f"Never touch the folder number {n} of the archive." for n in range(4)]
    chat = [f"The lamp in room {n} is only red, and nobody touched it." for n in range(12)]
    rows = talk("Check the building.", *[text for n in range(12) for text in (chat[n], "I see.")])
    rows = number(
        [*(row.message for row in rows[:1]), assistant("Yes."), *map(user, rules)]
        + [row.message for row in rows[1:]]
    )
    read = sections(rows, 160)
    assert all(rule in read[RULES] for rule in rules)


@pytest.mark.parametrize(
    ("last", "expected"),
    [
        ("Each office collects them.", True),  # only an answer: the request is the one before
        ("Please write the list of rooms now.", False),  # a new request
    ],
)
def test_the_current_request_is_repeated_only_if_it_does_not_follow(
    last: str, expected: bool
) -> None:
    messages = [user("Plan the offsite for us."), assistant("I do. " + FILLER)]
    messages += [user("Please look at the hotels."), assistant("Done. " + FILLER)]
    messages += [user("Now start with the mail to the team. " + FILLER)]
    messages += [assistant(FILLER + "Does each office collect the passports?"), user(last)]
    summary = compacted(messages, 250)
    assert ("Current request:\n- Now start with the mail to the team." in summary) is expected
    assert "Next step:\n" in summary
    assert "Does each office collect the passports?" in summary


def test_a_short_question_is_quoted_with_its_options() -> None:
    rows = talk(
        "Book a technician.",
        "There are slots on Monday at 17:00 and on Tuesday at 18:00. Which one suits you?",
        "monday",
        "Booked.",
    )
    assert "slots on Monday at 17:00 and on Tuesday" in sections(rows)["Decisions"]


def test_a_tools_error_is_current_until_the_tool_works() -> None:
    refused = '{"status": "error", "code": "E-4031", "message": "the queue is closed until 08:00"}'
    messages = work(
        ("fetch", {"url": "https://a.example/x"}, "HTTP 503 Service Unavailable"),
        ("fetch", {"url": "https://b.example/y"}, "HTTP 403 Forbidden"),
        ("escalate", {"to": "supervisor"}, refused),
        ("fetch", {"url": "https://a.example/x"}, "All is fine on this page."),
    )
    errors = sections(number([user("Look it up."), *messages]))["Current errors"]
    assert "https://b.example/y\n  HTTP 403 Forbidden" in errors
    assert "E-4031" in errors
    assert "503" not in errors


def test_an_announced_action_replaces_no_fact() -> None:
    rows = talk(
        "Implement the epic gqc.",
        "Let me mark the epic gqc.1 and start with 2 tasks. There are 4 new tasks under gqc.4.",
        "Go on.",
        "Let me implement gqc.7 now. Then I will implement gqc.8 in Project.",
    )
    assert "Facts that changed" not in sections(rows)


def test_log_lines_are_neither_content_nor_names() -> None:
    words = ["alpha", "beta", "gamma", "delta", "epsilon", "zeta", "eta", "theta", "iota", "kappa"]
    log = "\n".join(
        f"1{n}:0{n}:12 INFO worker-{n}{n}: step {word} took {n} ms" for n, word in enumerate(words)
    )
    rows = number([user("Run it."), *work(("Bash", {"command": "run"}, f"{log}\nbuilt app.js"))])
    summary = extract_summary(rows, 2000, count)
    assert summary is not None
    assert "worker-" not in summary.text
    assert "built app.js" in summary.text


def test_an_index_has_no_figures_and_no_series() -> None:
    flights = "\n".join(f"XX{n} leaves for {n * 7919} from hall_of_departures" for n in range(40))
    rows = number([user("Find flights."), *work(("search", {"query": "flights"}, flights))])
    summary = extract_summary(rows, 90, count)
    assert summary is not None
    assert "Numbers:" not in summary.text
    assert "XX1, XX2" not in summary.text


def test_lists_in_files_have_one_bullet() -> None:
    call = (
        "edit_file",
        {"path": "notes.md", "new_string": "- SPF 2.8 in https://a.example/wp"},
        "",
    )
    summary = extract_summary(number([user("Take notes."), *work(call)]), 2000, count)
    assert summary is not None
    assert "- - " not in summary.text


def test_content_related_to_the_last_request_comes_first() -> None:
    answers = [
        f"Order LO-{n}{n}{n} for the customer of floor {n} is booked, and more is to come soon."
        for n in range(30)
    ]
    answers[11] = "The courier brings the loaner by noon, and more is to come soon."
    messages = [user("Help the customers of this house."), assistant(" ".join(answers))]
    messages += [user("When does the loaner arrive?")]
    assert answers[11] in compacted(messages, 160)


def test_a_client_notice_is_not_a_request() -> None:
    notice = (
        "<task-notification>\n<task-id>b0</task-id>\n</task-notification>\nRead the output file"
    )
    notice += " to retrieve the result: /tmp/tasks/b0.output"
    messages = [user("Implement the parser for invoices."), assistant("I start. " + FILLER)]
    for n in range(20):
        messages += [user(notice), assistant(f"Part {n} is done. " + FILLER)]
    plan = plan_budget(number(messages), 400, count=count)
    requests = [row.message.text for row in plan.rows if row.message.role == "user"]
    assert requests[0] == "Implement the parser for invoices."


def test_originals_keep_their_order_after_several_compactions() -> None:
    """A summary may stand after a request that came later than what it replaced."""
    with weft.open() as t:
        t.user("Write a report about heat pumps in old houses.")
        t.assistant("I start. " + FILLER)
        for part in range(4):
            t.user(f"Now look into part {part} of the subject, please.")
            for n in range(12):
                t.assistant(f"Note {n} of part {part}. " + FILLER)
            t.compact(budget=500)
        [summary] = [row.message.text for row in t.compile().rows if row.kind == "summary"]
    assert "Goal:\n- Write a report about heat pumps in old houses." in summary


def test_a_rule_that_a_model_omits_stays_in_the_users_words() -> None:
    rules = [f"Never open the archive of the year {1990 + n}." for n in range(5)]
    answers = [says("They worked on the archive and went on with it.")] * 6
    with writer(*answers) as (_, asker), weft.open() as t:
        for rule in rules:
            t.user(f"Go on with the work. {rule}")
            t.assistant("Understood. " + FILLER)
            for _ in range(6):
                t.user("Go on with the next part of it.")
                t.assistant(FILLER)
            t.compact(model=asker)
        text = t.compile().messages[0].text
    assert all(rule in text for rule in rules)
