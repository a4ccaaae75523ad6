"""`weft models`: which models a vendor and words select, and what it says if there are none."""

import json

import pytest

from weft.cli import main

Captured = pytest.CaptureFixture[str]


def found(capfd: Captured, *words: str) -> set[tuple[str, str]]:
    assert main(["models", "--json", *words]) == 0
    return {(row["vendor"], row["id"]) for row in json.loads(capfd.readouterr().out)["models"]}


@pytest.mark.parametrize("vendor", ["OpenAI", "OPENAI", "openai"])
def test_a_vendor_is_named_in_any_case(capfd: Captured, vendor: str) -> None:
    assert found(capfd, "gpt-5", "--vendor", vendor) == {("openai", "gpt-5")}


@pytest.mark.parametrize(
    "words", [["opus", "4-6"], ["opus 4-6"], [" opus  4-6 "], ["OPUS", "4-6"], ["4-6 opus"]]
)
def test_several_words_select_models_with_all_of_them(capfd: Captured, words: list[str]) -> None:
    rows = found(capfd, *words)
    assert ("anthropic", "claude-opus-4-6") in rows
    assert all("opus" in id for _, id in rows)


@pytest.mark.parametrize(
    "words", [["weft-offline"], ["offline"], ["WEFT-offline"], ["--vendor", "Weft"]]
)
def test_the_offline_model_costs_nothing(capfd: Captured, words: list[str]) -> None:
    assert main(["models", "--json", *words]) == 0
    rows = json.loads(capfd.readouterr().out)["models"]
    (row,) = [row for row in rows if row["vendor"] == "weft"]
    assert (row["id"], row["price"]) == ("weft-offline", {"input": 0.0, "output": 0.0})


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["gpt-5x", "--vendor", "OpenAI"], "no model 'gpt-5x' of the vendor 'OpenAI' is known"),
        (["gpt-5x", "--vendor", "OpenAI"], "(similar: gpt-5"),
        (["--vendor", "Opnai"], "no model of the vendor 'Opnai' is known"),
        (["--vendor", "Opnai"], "(similar: openai"),
        (["claude-opus-4-60"], "no model 'claude-opus-4-60' is known"),
        (["zzzzzzzz"], "no model 'zzzzzzzz' is known, so it has no price; a [[model]]"),
    ],
)
def test_an_unknown_model_is_named_apart_from_its_vendor(
    capfd: Captured, words: list[str], expected: str
) -> None:
    assert main(["models", *words]) == 0
    assert expected in capfd.readouterr().err
