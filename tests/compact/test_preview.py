"""A preview says for each message whether it is kept, thinned or compacted, and why."""

import orjson
import pytest

import weft
from summarisers import talk, tool_round
from weft.cli import main
from weft.model import Message, ToolCall


def work(t):
    t.system("You are Ada.")
    t.pin(t.user("Never push to main."))
    t.assistant("Agreed.")
    talk(t, 12)
    t.system("From here on, answer in French.")
    t.user("Read the log.")
    tool_round(t, 1)
    t.commit_message(Message("assistant", (ToolCall("big", "read", "{}"),)))
    t.tool_result("big", "\n".join(f"line {n}: nothing" for n in range(3000)))


@pytest.mark.parametrize("options", [{}, {"model": "weft-offline"}], ids=["extract", "model"])
def test_each_message_has_an_action_and_a_reason(options):
    with weft.open() as t:
        work(t)
        before = t.compile()
        preview = t.compact(budget=900, preview=True, **options)
        assert t.compile().rows == before.rows
        by_id = {change.id: change for change in preview.changes if change.id is not None}
        assert set(by_id) == set(before.ids)
        reasons = [(by_id[id].action, by_id[id].reason) for id in before.ids]
        assert reasons[0] == ("kept", "a leading system message")
        assert reasons[1] == ("kept", "pinned")
        assert reasons[3][0] == "folded"
        assert ("kept", "a rule of the system") in reasons
        assert ("kept", "the current request") in reasons
        assert reasons[-1][0] == "thinned"
        assert by_id[before.ids[-1]].tokens_after < by_id[before.ids[-1]].tokens_before
        assert [change.action for change in preview.changes].count("added") == 1
        assert all(change.reason for change in preview.changes)


def test_a_preview_of_ranges_has_them_too():
    with weft.open(checkpoints=True) as t:
        talk(t, 4)
        first, second = [point.id for point in t.checkpoints()][:2]
        preview = t.compact([{"from": first, "to": second, "summary": "They met."}], preview=True)
        actions = [change.action for change in preview.changes]
        assert actions.count("folded") >= 1
        assert actions.count("added") == 1


def test_the_command_prints_them(tmp_path, capsys):
    path = str(tmp_path / "a.db")
    with weft.open(path) as t:
        work(t)
    words = ["compact", "--store", path, "--thread", "default", "--budget", "900", "--preview"]
    assert main([*words, "--json"]) == 0
    printed = orjson.loads(capsys.readouterr().out)
    assert {change["action"] for change in printed["changes"]} == {
        "kept",
        "thinned",
        "folded",
        "added",
    }
    assert any("Summary of earlier messages" in row["text"] for row in printed["after"])
    assert main(words) == 0
    out = capsys.readouterr().out
    assert "pinned" in out
    assert "folded" in out
