"""What an extract contains: the user's words, what calls tell, lines, names."""

import json

import pytest

import weft
from extract_rows import assistant, compacted, count, number, sections, user, work
from summarisers import says, writer
from weft.compact import extract_summary, plan_budget
from weft.model import Message, Text, ToolCall, ToolResult

ALL, PART = "The user's messages, oldest first", "From the user's messages, oldest first"
COMMANDS, FAILED = "Last commands, newest first", "Failed calls, newest first"
CHANGED, READ = "Files changed, newest first", "Files read, newest first"
FILLER = "The survey covers another part of the building, and nothing in it was changed. " * 6


@pytest.mark.parametrize(
    "text",
    [
        "Never push to the main branch.",
        "Hands off the billing service.",  # no word of a rule
        "Prices ex VAT.",
        "Nooit voor tien uur bellen.",
        "公開APIは変えないでください。",
        "Ne touche jamais à la base.\n\nEt pas de vendredi.",  # with its lines
    ],
)
def test_everything_that_the_user_typed_is_kept_if_it_fits(text: str) -> None:
    messages = [user(f"Fix the parser. {text}"), assistant(FILLER * 5), user("Go on."), *[]]
    messages += [assistant(FILLER * 5), user("And the next file.")]
    rows = number(messages)
    tokens = sum(count(row.message) for row in rows)
    read = sections(rows, tokens // 3)
    items = [line.strip() for line in read[ALL].removeprefix("- ").splitlines() if line.strip()]
    assert items[0] == f"Fix the parser. {text}".splitlines()[0]
    assert all(line in items[0] or line in items for line in text.splitlines() if line)


def test_the_first_the_newest_and_the_telling_messages_stay_if_not_all_fit() -> None:
    texts = [
        f"Please look at room {n} as well, and tell me what it is like. " * 4 for n in range(40)
    ]
    texts[0] = "Plan the move of our office."
    texts[7] = "The keys are with Mrs. Okafor in Leeds, phone 0113 496 0521."
    texts[-1] = "And measure the last room."
    rows = number([message for text in texts for message in (user(text), assistant("I do."))])
    read = sections(rows, 400)
    assert texts[0] in read[PART]
    assert texts[7] in read[PART]
    assert texts[-1] in read[PART]


def test_a_long_message_is_cut_with_a_mark() -> None:
    log = "\n".join(f"line {n} of the log says nothing at all about it" for n in range(300))
    rows = number([user(f"Why does it fail?\n{log}\nTell me the cause."), assistant("I look.")])
    read = sections(rows, 300)
    assert read[PART].startswith("- Why does it fail?")
    assert "[...]" in read[PART]


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
    assert sections(rows)[ALL] == "- Use the rig spotter."


def test_files_and_commands_have_their_last_state() -> None:
    edit = {"file_path": "src/money.py", "old_string": "a", "new_string": "x = to_cents(total)"}
    uses = [
        ("Read", {"file_path": "src/money.py"}, "def split(total): ..."),
        ("Read", {"file_path": "src/shop.py"}, "import money"),
        ("Bash", {"command": "pytest -q"}, "E   TypeError: no str\n2 failed, 3 passed in 1.2s"),
        ("Edit", edit, "ok"),
        ("Bash", {"command": "pytest -q"}, "5 passed in 1.1s"),
        ("shell", {"command": ["bash", "-lc", "mypy src"]}, "src/money.py:7: error: no return"),
    ]
    rows = number([Message("user", (Text("Fix the rounding of invoices."),)), *work(*uses)])
    read = sections(rows)
    assert read[COMMANDS] == (
        "- mypy src\n  -> src/money.py:7: error: no return\n- pytest -q\n  -> 5 passed in 1.1s"
    )
    assert read[CHANGED] == "- src/money.py"
    assert read[READ] == "- src/shop.py"


def test_a_failed_edit_changed_no_file() -> None:
    edit = {"file_path": "src/money.py", "old_string": "a", "new_string": "b"}
    call = ToolCall("c", "Edit", json.dumps(edit))
    result = ToolResult("c", (Text("String to replace not found in file."),), is_error=True)
    rows = number([user("Fix it."), Message("assistant", (call,)), Message("tool", (result,))])
    read = sections(rows)
    assert CHANGED not in read
    assert read[FAILED] == "- Edit src/money.py\n  -> String to replace not found in file."


def test_a_patch_names_the_files_that_it_changes() -> None:
    patch = "*** Begin Patch\n*** Update File: src/a.py\n+x = 1\n*** Add File: b.md\n+text\n"
    call = ToolCall("c", "apply_patch", patch)
    result = ToolResult("c", (Text("Done!"),))
    rows = number([user("Fix it."), Message("assistant", (call,)), Message("tool", (result,))])
    assert sections(rows)[CHANGED] == "- b.md\n- src/a.py"


def test_open_tasks_come_from_the_last_list() -> None:
    def todos(*statuses: str) -> dict:
        texts = ("Write the parser", "Test the parser", "Write the docs")
        return {
            "todos": [{"content": t, "status": s} for t, s in zip(texts, statuses, strict=True)]
        }

    uses = [
        ("TodoWrite", todos("in_progress", "pending", "pending"), "ok"),
        ("TodoWrite", todos("completed", "in_progress", "pending"), "ok"),
    ]
    read = sections(number([user("Build it."), *work(*uses)]))
    assert read["Tasks in progress"] == "- Test the parser"
    assert read["Open tasks"] == "- Write the docs"
    assert "Open tasks" not in sections(
        number([user("Build it."), *work(*uses, ("TodoWrite", todos(*["completed"] * 3), "ok"))])
    )


def test_tasks_that_single_calls_create_and_close_are_known() -> None:
    uses = [
        ("TaskCreate", {"subject": "Write the parser"}, "Task #1 created"),
        ("TaskCreate", {"subject": "Write the docs"}, "Task #2 created"),
        ("TaskUpdate", {"taskId": "1", "status": "completed"}, "Updated task #1"),
    ]
    assert sections(number([user("Build it."), *work(*uses)]))["Open tasks"] == "- Write the docs"


def test_an_index_has_no_figures_no_series_and_no_letters_of_escapes() -> None:
    flights = "\n".join(f"XX{n} leaves for {n * 7919} from hall_of_departures" for n in range(40))
    page = json.dumps({"text": "Intro\nThe end\nTheOtherPart ré\u00e9gia"})
    uses = [
        ("search", {"query": "flights"}, flights),
        ("fetch", {"url": "https://a.example"}, page),
    ]
    rows = number([user("Find flights."), *work(*uses)])
    for size in (150, 250, 400):
        summary = extract_summary(rows, size, count)
        assert summary is not None
        index = summary.text.partition("Other names: ")[2].partition("\n")[0].split(", ")
        assert not {"nThe", "nTheOtherPart", "u00e9gia", "XX1"} & {*index}


def test_lists_in_files_have_one_bullet() -> None:
    arguments = {"path": "notes.md", "new_string": "- SPF 2.8 in https://a.example/wp"}
    call = ("edit_file", arguments, "")
    summary = extract_summary(number([user("Take notes."), *work(call)]), 2000, count)
    assert summary is not None
    assert "- - " not in summary.text


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
    assert f"{ALL}:\n- Write a report about heat pumps in old houses.\n- Now look" in summary


@pytest.mark.parametrize("text", ["assistant", "user"])
def test_a_persons_own_summary_is_read_again(text: str) -> None:
    with weft.open() as thread:
        thread.user("Fix the export. " + FILLER)
        thread.assistant("The exit status 117 means that the disk is full. " + FILLER)
        thread.user("Go on.")
        thread.compact(keep=1, summary="The customer Nordwind waits for this since Friday.")
        for n in range(20):
            thread.assistant(f"Step {n} of src/step_{n}.py is done and nothing happened.")
            thread.user(f"Then look at src/step_{n + 1}.py as well.")
        thread.compact(budget=500)
        text = thread.compile().messages[0].text
        assert "Nordwind" in text
        assert "exit status 117" in text


def test_what_a_model_omits_stays_in_the_users_words() -> None:
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


def test_the_summary_and_the_rest_share_the_budget() -> None:
    messages = [user("Find every hotel."), assistant("I look.")]
    for n in range(30):
        messages += [user(f"And in town {n}?"), assistant(f"Hotel {n}. " + FILLER)]
    tokens = sum(map(count, messages))
    for percent in (10, 30, 60, 90):
        budget = tokens * percent // 100
        plan = plan_budget(number(messages), budget, count=count)
        assert 0.9 * budget <= sum(count(row.message) for row in plan.rows) <= budget
    assert "Find every hotel." in compacted(messages, tokens // 10)
