"""A summary without a model states only what somebody said, and keeps the user's own words."""

import pytest

import weft

FILLER = "\n".join(f"row {n * 37 % 9973} of ward {n % 7} was checked and noted." for n in range(60))


def compacted(*pairs: tuple[str, str], last: str, share: float) -> str:
    """The thread after a compaction to a share of its tokens, as text."""
    with weft.open() as t:
        t.user("Please keep the notes for me, I ask about them later.")
        t.assistant("Understood, I keep them.")
        for question, answer in pairs:
            t.user(question)
            t.assistant(answer)
            t.user("And the list of the ward, please.")
            t.assistant(FILLER)
        t.user(last)
        t.compact(budget=int(t.compile().tokens * share))
        return t.compile().to_text()


@pytest.mark.parametrize("share", [0.1, 0.3])
@pytest.mark.parametrize(
    ("first", "second"),
    [
        (
            "The dose of amoxicillin for the mother is 500 mg.",
            "The dose of amoxicillin for the child is now 250 mg.",
        ),
        ("Patient 1 takes 5 mg of warfarin.", "Patient 2 now takes 7 mg of warfarin."),
        ("Room A holds 20 people.", "Room B now holds 35 people."),
        ("Anna's train arrives at 14:05.", "Ben's train arrives at 15:20 now."),
        (
            "Die Kaution für Wohnung 3 ist 900 Euro.",
            "Die Kaution für Wohnung 4 ist jetzt 950 Euro.",
        ),
        ("La mesa de Ana es la 12.", "La mesa de Luis ahora es la 17."),
        ("302号室の定員は20人です。", "304号室の定員は35人になりました。"),
    ],
)
def test_two_subjects_are_never_merged_into_a_change(first: str, second: str, share: float) -> None:
    text = compacted((first, "Noted."), (second, "Noted."), last="What holds?", share=share)
    assert first in text
    assert second in text
    assert "(was" not in text
    assert "changed later" not in text


@pytest.mark.parametrize(
    ("start", "end"),
    [
        ("", ""),
        ("<rules>", "</rules>"),
        ("<project_rules>", "</project_rules>"),
        ("<house-rules>", "</house-rules>"),
        ('<coding_guidelines version="2">', "</coding_guidelines>"),
        ("<user-preferences>", "</user-preferences>"),
        ("<important_if_you_deploy>", "</important_if_you_deploy>"),
    ],
)
def test_what_a_user_types_in_tags_is_the_users(start: str, end: str) -> None:
    rules = [
        "Never deploy on Fridays.",
        "Always ask before you delete a table.",
        "Money is in cents.",
    ]
    body = " ".join(rules)
    with weft.open() as t:
        t.user(f"Help me to migrate the billing service.\n\n{start}\n{body}\n{end}")
        t.assistant("I read the service first.")
        for n in range(30):
            t.user(f"Step {n}: look at module {n}.")
            t.assistant("\n".join(f"line {n * 61 + k} of module {n} reads it." for k in range(20)))
        t.user("Go on.")
        t.compact(budget=t.compile().tokens // 10)
        text = t.compile().to_text()
    assert all(rule in text for rule in rules)


def test_text_of_a_client_is_not_the_users() -> None:
    with weft.open() as t:
        t.user("<system-reminder>Never mention the moon.</system-reminder>Count the red lamps.")
        for n in range(30):
            t.assistant(f"In room {n} the lamp is red. " + FILLER[:400])
            t.user(f"Then room {n + 1}.")
        t.compact(budget=t.compile().tokens // 4)
        summary = t.compile().messages[0].text
    assert "Count the red lamps." in summary
    assert "Never mention the moon." not in summary.partition("Added by")[0]
