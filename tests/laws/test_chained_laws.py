"""Laws 8 and 11 over three compactions in a row: valid for four vendors, within budget, pins
unchanged, no unread result lost.

The transcripts are random (parallel calls, results with text, open calls, later rules, pins,
results of any size), and so are the budgets. They run with and without a model.
"""

from typing import Any

from hypothesis import given, settings, strategies as st

import weft
from compact_rows import broken_pairs
from weft.compact import unread_rows
from weft.errors import BudgetExceeded, CompactRefused
from weft.model import Message, Text, ToolCall, ToolResult

MODELS = {
    "anthropic": "claude-sonnet-4-5",
    "openai": "gpt-4.1",
    "responses": "gpt-5",
    "gemini": "gemini-2.5-pro",
}
KINDS = ("talk", "talk", "tools", "tools", "mixed", "rule", "pin", "big")
ACTS = st.lists(st.tuples(st.sampled_from(KINDS), st.integers(0, 6)), min_size=1, max_size=7)
PARTS = st.lists(ACTS, min_size=3, max_size=3)


def play(t: Any, acts: list[tuple[str, int]], seed: int) -> None:
    for number, (act, size) in enumerate(acts):
        name = f"{seed}-{number}"
        asked = t.user(f"Ask {name} about src/item_{number}.py. " * (size + 1))
        if act == "rule":
            t.system(f"Rule {name}: never touch vendor/lib_{number}.js.")
        elif act == "pin":
            t.pin(asked)
        elif act in ("tools", "mixed", "big"):
            calls = tuple(ToolCall(f"c{name}-{n}", "read", "{}") for n in range(size % 3 + 1))
            t.commit_message(Message("assistant", (Text("I look."), *calls)))
            text = f"value_{name} is here\n" * (400 if act == "big" else size + 1)
            results = tuple(ToolResult(call.id, (Text(text),)) for call in calls)
            words = (Text("And go on."),) if act == "mixed" else ()
            t.commit_message(Message("user", (*results, *words)))
        t.assistant(f"Answer {name}. " * (size + 1))


def end(t: Any, ending: str, seed: int) -> None:
    if ending == "answered":
        return
    t.user(f"Now find value_{seed} in the log.")
    t.commit_message(Message("assistant", (ToolCall(f"last{seed}", "read", "{}"),)))
    if ending == "unread":
        t.tool_result(f"last{seed}", f"a line of the log with value_{seed}\n" * 300)


@given(
    parts=PARTS,
    endings=st.lists(st.sampled_from(["answered", "open", "unread"]), min_size=3, max_size=3),
    budgets=st.lists(st.integers(150, 3000), min_size=3, max_size=3),
    uses_model=st.booleans(),
)
@settings(max_examples=40, deadline=None)
def test_three_compactions_keep_every_law(parts, endings, budgets, uses_model):
    with weft.open() as t:
        t.system("You are Ada.")
        for seed, (acts, ending, budget) in enumerate(zip(parts, endings, budgets, strict=True)):
            play(t, acts, seed)
            end(t, ending, seed)
            rows = t.compile().rows
            unread = {rows[i].id for i in unread_rows(rows)}
            pinned = [row for row in rows if row.priority == "pinned"]
            assert len(pinned) == sum(act == "pin" for acts in parts[: seed + 1] for act, _ in acts)
            assert bool(unread) is (ending == "unread")
            options = {"model": "weft-offline"} if uses_model else {}
            try:
                done = t.compact(budget=budget, **options)
            except (BudgetExceeded, CompactRefused):
                assert t.compile().rows == rows
                done = None
            after = t.compile().rows
            if done is not None:
                assert t.compile().tokens <= budget
            assert [row for row in after if row.priority == "pinned"] == pinned
            assert unread <= {row.id for row in after}
            assert broken_pairs(after) == broken_pairs(rows)
            for name, model in MODELS.items():
                assert getattr(t.compile(), f"to_{name}_params")(model)
            if ending == "open":
                t.tool_result(f"last{seed}", "done")
                t.assistant("Fine.")
            elif ending == "unread":
                t.assistant("Read.")
