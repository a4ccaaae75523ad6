"""`weft compact`: what each flag compacts, and which combinations are refused."""

import json
import re
from collections.abc import Callable
from pathlib import Path

import orjson
import pytest

import weft
from servers import scripted_upstream
from summarisers import refuses, says, talk
from weft.compact import unmarked

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(run: Run) -> Run:
    """The same, on a thread of three turns."""
    for n in range(3):
        run("commit", f"question {n}")
        run("commit", f"answer {n}", "--role", "assistant")
    return run


def message_texts(run: Run) -> list[str]:
    return [row["content"] for row in json.loads(run("compile", "--json")[1])]


@pytest.mark.parametrize(
    ("flags", "left"),
    [
        (["--summary", "S"], ["S", "question 2", "answer 2"]),
        (["--keep", "0", "--summary", "S"], ["S", "question 2", "answer 2"]),
        (["--keep", "1", "--summary", "S"], ["S", "question 2", "answer 2"]),
        (["--keep", "2", "--summary", "S"],
         ["S", "question 1", "answer 1", "question 2", "answer 2"]),
    ],
)  # fmt: skip
def test_a_summary_replaces_all_but_the_kept_turns(
    run: Run, flags: list[str], left: list[str]
) -> None:
    assert run("compact", *flags)[0] == 0
    first, *rest = message_texts(run)
    assert [unmarked(first), *rest] == left


@pytest.mark.parametrize(
    ("flags", "named"),
    [
        (["--budget", "-3"], ["--budget", "-3"]),
        (["--keep", "-1"], ["--keep", "-1"]),
        (["--from", "abcdef"], ["--from", "--summary"]),
        (["--keep", "1", "--to", "abcdef", "--summary", "S"], ["--keep", "--to"]),
        (["--replacements", "x.json", "--keep", "1"], ["--replacements", "--keep"]),
        (["--summary", " "], ["summary", "blank"]),
        (["--budget", "2"], ["budget of 2"]),
        (["--keep", "1", "--prompt", "P"], ["--prompt", "--model"]),
        (["--keep", "1", "--verbatim", "50"], ["--verbatim", "--model"]),
        (["--keep", "1", "--timeout", "5"], ["--timeout", "--model"]),
        (["--keep", "1", "--no-fallback"], ["--fallback", "--model"]),
        (["--model", "weft-offline", "--timeout", "0"], ["--timeout", "above 0"]),
        (["--model", "weft-offline", "--scoring", "none.toml"], ["none.toml"]),
        (["--keep", "1", "--upstream", "u=openai-chat:http://x"], ["--upstream", "--model"]),
        (["--model", "weft-offline", "--summary", "S"], ["--model", "--summary"]),
        (["--model", "weft-offline", "--from", "abcdef"], ["--model", "--from"]),
        (["--model", "weft-offline", "--budget", "2"], ["budget of 2"]),
        (["--model", "nobody"], ["nobody"]),
        (["--model", "m", "--upstream", "u=openai-chat:http://127.0.0.1:1"], ["'u'", "reached"]),
    ],
    ids=" ".join,
)
def test_contradictory_flags_are_refused_by_name(
    run: Run, flags: list[str], named: list[str]
) -> None:
    before = message_texts(run)
    code, out, err = run("compact", *flags)
    assert code != 0
    assert out == ""
    assert [word for word in named if word not in err] == []
    assert message_texts(run) == before


def test_the_help_describes_strip(run: Run) -> None:
    assert "lose reminders and thinking" in " ".join(run("compact", "--help")[1].split())


def test_P1_a_model_writes_the_summary_and_a_preview_asks_no_model(run: Run) -> None:
    before = message_texts(run)
    code, out, err = run("compact", "--model", "weft-offline", "--preview")
    assert (code, err) == (0, "")
    assert "would compact 4 messages" in out
    assert "1 request to weft-offline" in out
    assert message_texts(run) == before
    assert "may save nothing" in out
    code, out, err = run("compact", "--model", "weft-offline", "--keep", "1")
    assert (code, out, "would save nothing" in err) == (1, "", True)
    assert message_texts(run) == before
    code, out, _ = run("compact", "--model", "weft-offline", "--keep", "1", "--force", "--json")
    done = json.loads(out)
    assert (code, done["model"], done["requests"], done["messages"]) == (0, "weft-offline", 1, 4)
    assert message_texts(run)[1:] == ["question 2", "answer 2"]
    assert run("revert", done["commit"])[0] == 0
    assert message_texts(run) == before


def test_P1_an_upstream_can_be_named_and_its_progress_goes_to_stderr(run: Run) -> None:
    with scripted_upstream() as upstream:
        upstream.then(says("They asked."))
        for n in range(3, 9):
            run("commit", f"question {n} " * 400)
            run("commit", f"answer {n} " * 400, "--role", "assistant")
        flags = ["--upstream", f"u=openai-chat:{upstream.url}", "--prompt", "Sum up."]
        code, out, err = run("compact", "--model", "gpt-4", *flags)
        sent = [orjson.loads(request["body"]) for request in upstream.requests]
    assert code == 0, err
    assert f"{len(sent)} requests to gpt-4" in out
    assert [line for line in err.splitlines() if line.startswith("Summarising part 2 of")]
    assert {body["messages"][0]["content"] for body in sent} == {"Sum up."}


def write_config(folder: Path, upstream: str, table: str) -> list[str]:
    path = folder / "weft.toml"
    path.write_text(
        f'[compaction]\n{table}\n[[upstream]]\nname = "u"\nprotocol = "openai-chat"\n'
        f'url = "{upstream}"\n'
    )
    return ["--config", str(path)]


def test_the_config_table_names_the_model_and_the_prompt(run: Run, tmp_path) -> None:
    table = 'model = "gpt-4"\nprompt = "Table."\nretries = 0'
    with scripted_upstream() as upstream:
        config = write_config(tmp_path, upstream.url, table)
        upstream.then(says("They asked."))
        code, out, err = run("compact", *config, "--keep", "1", "--force")
        assert (code, "1 request to gpt-4" in out) == (0, True), err
        assert orjson.loads(upstream.requests[-1]["body"])["messages"][0]["content"] == "Table."
        upstream.requests.clear()
        flags = ["--keep", "1", "--force", "--model", "gpt-5", "--prompt", "Flag."]
        upstream.then(says("They asked."))
        run("commit", "question 3")
        run("commit", "answer 3", "--role", "assistant")
        code, out, err = run("compact", *config, *flags)  # flags come before the table
        sent = orjson.loads(upstream.requests[-1]["body"])
        assert (code, sent["model"], sent["messages"][0]["content"]) == (0, "gpt-5", "Flag."), err
        upstream.requests.clear()
        upstream.then(refuses(500, "down"))
        for n in range(4, 6):
            run("commit", f"question {n}")
            run("commit", f"answer {n}", "--role", "assistant")
        assert run("compact", *config, "--keep", "1", "--no-fallback")[0] == 1
        assert len(upstream.requests) == 1  # retries = 0


@pytest.mark.parametrize(
    ("table", "named"),
    [
        ('model = "same"', ["same", "--model"]),
        ("retries = -1", ["weft.toml", "[compaction]", "retries"]),
        ("target = 2", ["weft.toml", "[compaction]", "target"]),
        ("", ["--config", "--model"]),
    ],
)
def test_an_unusable_config_table_is_named(run: Run, tmp_path, table, named) -> None:
    config = write_config(tmp_path, "http://127.0.0.1:1", table)
    code, _, err = run("compact", *config, "--keep", "1")
    assert code != 0
    assert [word for word in named if word not in err] == []


def test_P2_custom_weights_decide_what_stays(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "weights.toml"
    file.write_text('keywords = ["kraken"]\nkeyword = 50')
    run("commit", "beware of the kraken")
    for n in range(3, 9):
        run("commit", f"question {n}")
        run("commit", f"answer {n}", "--role", "assistant")
    flags = ["--keep", "1", "--verbatim", "10", "--scoring", str(file)]
    assert run("compact", "--model", "weft-offline", *flags)[0] == 0
    assert message_texts(run)[1] == "beware of the kraken"
    file.write_text("recency = 1.5")
    code, _, err = run("compact", "--model", "weft-offline", *flags)
    assert code != 0
    assert "recency" in err


def test_P4_current_summaries_are_listed(run: Run) -> None:
    assert run("compact", "--list")[:2] == (0, "")
    done = json.loads(run("compact", "--model", "weft-offline", "--force", "--json")[1])
    code, out, _ = run("compact", "--list")
    assert code == 0
    assert out.startswith(f"{done['commit'][:12]} 4 messages, ")
    [result] = json.loads(run("compact", "--list", "--json")[1])
    assert (result["commit"], result["count"], result["depth"]) == (done["commit"], 4, 0)
    code, _, err = run("compact", "--list", "--keep", "1")
    assert code != 0
    assert "--keep" in err


def test_an_extract_is_listed_by_its_first_text(run: Run) -> None:
    for n in range(3, 30):
        run("commit", f"Rule {n}: read part {n} again and again before you write about it.")
    assert run("compact", "--keep", "1")[0] == 0
    code, out, _ = run("compact", "--list")
    assert (code, "by the engine" in out) == (0, False)
    assert "messages: question 0" in out


@pytest.mark.parametrize("flags", [[], ["--no-fallback"]])
def test_a_failing_model_is_reported_and_the_budget_is_met_without_it(
    tmp_path: Path, run: Run, flags: list[str]
) -> None:
    with weft.open(tmp_path / "store.db") as thread:
        talk(thread, 30)
    with scripted_upstream() as upstream:
        upstream.then(refuses(401, "no such key"))
        where = ("--upstream", f"u=openai-chat:{upstream.url}", "--model", "m", "--budget", "900")
        code, out, errors = run("compact", *where, *flags)
    assert "no such key" in errors
    if flags:
        assert (code, out) == (1, "")
        return
    assert code == 0
    assert "by an extract without a model" in out
    assert "Next: an extract without a model." in errors


@pytest.fixture
def session(run: Run) -> Run:
    """Like an agent's session: one request more, with long answers."""
    run("commit", "Please fix the parser.")
    for n in range(8):
        text = f"Step {n}. " + " ".join(f"file{n}_{i}.py has {i} lines." for i in range(40))
        run("commit", text, "--role", "assistant")
    return run


def test_without_a_flag_the_thread_is_halved_and_the_output_says_how(session: Run) -> None:
    before = json.loads(session("compile", "--json")[1])
    code, out, _ = session("compact")
    assert code == 0
    line, writer, restore = out.splitlines()
    tokens = [int(n.replace(",", "")) for n in re.findall(r"([\d,]+) (?:→|tokens)", line)]
    assert tokens[1] <= tokens[0] // 2
    assert re.fullmatch(
        r"\d+ messages? replaced by an extract without a model, \d+ messages? kept", writer
    )
    command = re.search(r"`weft (revert .*)`", restore)
    assert command
    assert session(*command[1].split())[0] == 0
    assert json.loads(session("compile", "--json")[1]) == before


def test_json_has_what_the_output_says(session: Run) -> None:
    preview = json.loads(session("compact", "--preview", "--json")[1])
    assert preview["restore"] is None
    result = json.loads(session("compact", "--json")[1])
    assert result["tokens_after"] <= result["budget"] == result["tokens_before"] // 2
    assert result["messages_kept"] == len(json.loads(session("compile", "--json")[1])) - 1
    assert result["method"] == "extract"
    assert result["commit"].startswith(result["restore"].split()[-1])


@pytest.mark.parametrize(
    "flags",
    [
        ["--keep", "9"],  # more than there are
        ["--budget", "9"],
        ["--budget", "9", "--keep", "2"],
        ["--keep", "9", "--model", "weft-offline"],
    ],
)
def test_each_number_that_a_refusal_names_works(session: Run, flags: list[str]) -> None:
    _, out, err = session("compact", *flags)
    named = re.findall(r"--(?:keep|budget) \d+", (out + err).splitlines()[0])
    assert any(words.startswith("--budget") for words in named)  # one turn: no keep saves tokens
    for words in named:
        result = json.loads(session("compact", *words.split(), "--preview", "--json")[1])
        assert result["tokens_after"] < result["tokens_before"]


def test_a_thread_that_cannot_be_halved_is_as_small_as_possible_or_refused(run: Run) -> None:
    code, _, err = run("compact")
    assert code == 1
    assert "would save nothing" in err


def test_the_library_halves_a_thread_and_names_arguments() -> None:
    with weft.open() as thread:
        for n in range(2):
            thread.user(f"question {n}")
            thread.assistant(" ".join(f"word{n}_{i}" for i in range(400)))
        assert "in 2 turns; keep=1 or budget=" in str(thread.compact(keep=3))
        with pytest.raises(
            weft.BudgetExceeded, match=r"; keep=1 or budget=\d+ would work"
        ) as error:
            thread.compact(budget=3)
        assert error.value.works["budget"] == error.value.needed
        result = thread.compact()  # the last turn is more than half of it, and stays
        assert result.tokens_before // 2 < result.tokens_after == result.budget
