"""Prices: the same as `genai-prices` for the same model, and none for a model that it is not."""

import gzip
import importlib.util
import itertools
import json
import re
import tomllib
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

import orjson
import pytest

import weft
from weft.catalog import cost, find_known, known_models, load_catalog, sources
from weft.cli import main
from weft.errors import ConfigError

genai_prices = pytest.importorskip("genai_prices", reason="the source of the prices")

ROOT = Path(__file__).parents[2]
SPELLINGS = [
    line.split()
    for line in Path(__file__).with_name("spellings.txt").read_text().splitlines()
    if not line.startswith("#")
]
NOW = datetime(2026, 11, 18, 12, tzinfo=UTC)

if sources().prices != f"genai-prices {version('genai-prices')}":
    pytest.skip(
        f"the data is of {sources().prices}, installed is {version('genai-prices')}: make models",
        allow_module_level=True,
    )


def vendor_cost(vendor: str, name: str, counts: dict[str, int], at: datetime, when=None) -> float:
    """What `genai-prices` says."""
    usage = genai_prices.Usage(
        input_tokens=counts["input"],
        output_tokens=counts["output"],
        cache_read_tokens=counts["cached"],
        cache_write_tokens=counts["written"],
        cache_write_5m_tokens=counts["written"] - counts["written_1h"],
        cache_write_1h_tokens=counts["written_1h"],
    )
    price = genai_prices.calc_price(
        usage, name, provider_id=vendor, genai_request_timestamp=at, price_context=when
    )
    return float(price.total_price)


SMALL = {"input": 15_000, "output": 900, "cached": 9000, "written": 5000, "written_1h": 2000}
LARGE = {"input": 300_000, "output": 900, "cached": 250_000, "written": 30_000, "written_1h": 9000}


def test_there_are_many_spellings():
    assert len(SPELLINGS) >= 200
    assert sum(vendor == "-" for _, vendor, _ in SPELLINGS) >= 40


@pytest.mark.parametrize(
    ("spelling", "vendor", "name"), SPELLINGS, ids=[row[0] for row in SPELLINGS]
)
def test_a_spelling_has_the_price_of_its_model(spelling, vendor, name):
    price = load_catalog().find(spelling).price
    if vendor == "-":
        assert price is None
        return
    for counts in (SMALL, LARGE):
        dollars = cost(price, **counts, at=NOW.timestamp())
        assert dollars == pytest.approx(vendor_cost(vendor, name, counts, NOW), abs=1e-9)


DAYS = [
    datetime(2025, 3, 1, 12, tzinfo=UTC),  # before price changes
    datetime(2026, 3, 1, 20, tzinfo=UTC),  # before Opus 4.6 lost its tier; cheap hours of DeepSeek
    datetime(2026, 11, 18, 3, tzinfo=UTC),
    datetime(2027, 2, 1, tzinfo=UTC),  # after announced changes
]
KINDS = [
    None,
    {"processing": "batch"},
    {"service_tier": "flex"},
    {"service_tier": "priority"},
    {"speed": "fast"},
]


def test_every_known_model_costs_what_the_source_says():
    """On every day, for small and large requests, batches, tiers and fast mode."""
    for model in known_models():
        name = model.names[0]
        for at, counts, when in itertools.product(DAYS, (SMALL, LARGE), KINDS):
            ours = cost(model.price, **counts, at=at.timestamp(), when=when)
            theirs = vendor_cost(model.vendor, name, counts, at, when)
            assert ours == pytest.approx(theirs, abs=1e-9), (model.vendor, name, at, when)


def test_a_bare_name_belongs_to_the_same_vendor_as_at_the_source():
    for model in known_models():
        for name in (name for name in model.names if not re.search("[/:]", name)):
            try:
                theirs = genai_prices.calc_price(genai_prices.Usage(input_tokens=1000), name)
            except LookupError:
                continue
            known = find_known(name)
            assert known is not None, name
            ours = cost(known.price, input=1000, output=0)
            assert ours == pytest.approx(float(theirs.total_price), abs=1e-9), name


def test_the_data_is_what_the_tool_writes():
    spec = importlib.util.spec_from_file_location("tools_models", ROOT / "tools" / "models.py")
    assert spec is not None
    assert spec.loader is not None
    tool = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tool)
    for path, text in tool.outputs(sources().date).items():
        assert path.read_text() == text, f"{path}: run make models"


def test_the_patterns_have_no_prices_or_limits():
    """They hold for whole families, and a relative's price is wrong."""
    text = (ROOT / "src" / "weft" / "catalog" / "catalog.toml").read_text()
    with_figures = [
        row["match"]
        for row in tomllib.loads(text)["model"]
        if row.keys() & {"price", "window", "output"}
    ]
    assert with_figures == ["weft-offline*"]


@pytest.mark.parametrize(
    ("name", "window", "output"),
    [
        ("claude-opus-4-6", 1_000_000, 128_000),
        ("us.anthropic.claude-opus-4-6-v1:0", 1_000_000, 128_000),
        ("claude-sonnet-4-5", 200_000, 64_000),
        ("claude-sonnet-4-5[1m]", 1_000_000, 64_000),  # Claude Code's mark for the large window
        ("claude-opus-4-1-20250805", 200_000, 32_000),  # no longer in LiteLLM's table
        ("gpt-5", 400_000, 128_000),  # LiteLLM has the input alone: 272,000
        ("gpt-4.1", 1_047_576, 32_768),  # genai-prices rounds
        ("gpt-5.4", 1_050_000, 128_000),
        ("models/gemini-2.5-pro", 1_048_576, 65_536),
        ("claude-opus-4-60", 128_000, 8192),  # unknown: the defaults
    ],
)
def test_windows_and_output_limits(name, window, output):
    model = load_catalog().find(name)
    assert (model.window, model.output) == (window, output)


def test_the_mark_of_a_large_window_keeps_the_other_facts():
    catalog = load_catalog()
    assert catalog.find("claude-opus-4-8[1m]").inline_system == "after_user"
    assert catalog.find("claude-opus-4-8").inline_system == "after_user"


def test_an_upstream_named_like_a_vendor_has_that_vendors_price():
    catalog = load_catalog()
    assert catalog.find("openai/gpt-oss-120b", "groq").price != catalog.find("gpt-oss-120b").price
    assert catalog.find("gpt-oss-120b", "my-server").price == catalog.find("gpt-oss-120b").price


def answer(model: str, usage: dict) -> dict:
    return {
        "id": "m",
        "type": "message",
        "role": "assistant",
        "model": model,
        "content": [{"type": "text", "text": "hello"}],
        "stop_reason": "end_turn",
        "usage": {"input_tokens": 0, "output_tokens": 0, **usage},
    }


HOUR = {"ephemeral_1h_input_tokens": 1_000_000, "ephemeral_5m_input_tokens": 0}
FIVE_MINUTES = {"ephemeral_1h_input_tokens": 0, "ephemeral_5m_input_tokens": 1_000_000}


@pytest.mark.parametrize(
    ("model", "usage", "dollars"),
    [
        ("claude-opus-4-6", {"input_tokens": 1_000_000}, 5.0),
        ("claude-opus-4-6", {"cache_read_input_tokens": 1_000_000}, 0.5),
        ("claude-opus-4-6", {"cache_creation_input_tokens": 1_000_000}, 6.25),
        (
            "claude-opus-4-6",
            {"cache_creation_input_tokens": 1_000_000, "cache_creation": FIVE_MINUTES},
            6.25,
        ),
        ("claude-opus-4-6", {"cache_creation_input_tokens": 1_000_000, "cache_creation": HOUR}, 10),
        ("claude-opus-4-6", {"input_tokens": 1_000_000, "service_tier": "batch"}, 2.5),
        ("claude-opus-4-6", {"server_tool_use": {"web_search_requests": 3}}, 0.03),
        ("claude-opus-5", {"input_tokens": 1_000_000, "speed": "fast"}, 10.0),
        ("claude-haiku-5-5", {"input_tokens": 100_000}, 0.01),
        ("claude-haiku-5-5", {"input_tokens": 1_000_000}, 0.5),  # above 100,000: the higher tier
        ("claude-opus-9", {"input_tokens": 1_000_000}, None),
        ("weft-offline", {"input_tokens": 1_000_000}, 0.0),
    ],
)
def test_the_cost_of_an_answer(model, usage, dollars):
    with weft.open() as thread:
        thread.user("hi")
        thread.assistant(answer(model, usage))
        total = thread.usage()
    assert total.cost == (None if dollars is None else pytest.approx(dollars))
    assert total.unpriced == (1 if dollars is None else 0)
    assert json.loads(orjson.dumps(total.to_dict()))["cost"] == total.cost


def test_an_answer_costs_what_it_cost_on_its_day():
    """Until March 13, 2026, prompts of Opus 4.6 above 200,000 tokens cost twice as much."""

    def line(day: str) -> str:
        message = answer("claude-opus-4-6", {"input_tokens": 400_000})
        question = {"role": "user", "content": "hi"}
        facts = {"sessionId": day, "timestamp": f"{day}T12:00:00Z", "cwd": "/w", "version": "2.1.0"}
        rows = [
            {"type": "user", "uuid": "a", "parentUuid": None, "message": question, **facts},
            {"type": "assistant", "uuid": "b", "parentUuid": "a", "message": message, **facts},
        ]
        return "\n".join(map(json.dumps, rows))

    costs = {}
    for day in ("2026-03-01", "2026-04-01"):
        with weft.open(thread=day) as thread:
            thread.import_bytes(line(day).encode())
            costs[day] = thread.usage().cost
    assert costs == {"2026-03-01": pytest.approx(4.0), "2026-04-01": pytest.approx(2.0)}


def test_a_row_of_ones_own_wins():
    own = {"input": 1.0, "output": 2.0, "written_1h": 7.0}
    row = {"match": "claude-opus-4-6", "price": own, "window": 50_000}
    model = load_catalog(models=[row]).find("claude-opus-4-6")
    assert model.price == weft.Price(input=1.0, output=2.0, written_1h=7.0)
    assert (model.window, model.output) == (50_000, 128_000)
    tiers = [{"above": 100, "input": 2.0}]
    row = {"match": "mine", "price": {"input": 1.0, "output": 0.0, "tiers": tiers}}
    price = load_catalog(models=[row]).find("mine").price
    assert price is not None
    assert cost(price, input=1000, output=0) == pytest.approx(0.002)
    with pytest.raises(ConfigError, match="inputs"):
        load_catalog(models=[{"match": "mine", "price": {"inputs": 1.0, "output": 0.0}}])


def test_a_cost_limit_needs_a_price():
    with weft.open() as thread:
        with pytest.raises(ConfigError, match=r"no price for 'claude-opus-4-60'"):
            weft.Agent(thread, model="claude-opus-4-60", api_key="k", cost_limit=1.0)
        weft.Agent(thread, model="claude-opus-4-6", api_key="k", cost_limit=1.0)


RECORDED = ROOT.parent / "shared" / "corpus" / "transcripts" / "claude-code-258c7280.jsonl.gz"


@pytest.mark.skipif(not RECORDED.exists(), reason="the recorded sessions are not here")
def test_a_recorded_session_costs_what_the_vendor_charged():
    """Opus 4.6, with cache writes of five minutes and of an hour."""
    with weft.open() as thread:
        thread.import_bytes(gzip.decompress(RECORDED.read_bytes()))
        total = thread.usage()
    assert f"{total.cost:.2f}" == "11.85"
    assert total.unpriced == 0


def test_the_command_lists_models_with_their_source(capsys):
    assert main(["models", "claude-opus-4-6", "--vendor", "anthropic"]) == 0
    printed = capsys.readouterr().out
    assert "1,000,000" in printed
    assert sources().prices in printed
    assert sources().date in printed


def test_the_command_writes_json(capsys):
    assert main(["models", "us.anthropic.claude-opus-4-6-v1:0", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert listed["prices"] == sources().prices
    assert [row["vendor"] for row in listed["models"]] == ["aws"]
    assert listed["models"][0]["price"]["written_1h"] == 11.0
    assert main(["models", "--json"]) == 0
    everything = json.loads(capsys.readouterr().out)["models"]
    assert len(everything) == len(list(known_models())) + 1  # and Weft's own


def test_the_command_lists_rows_of_ones_own(tmp_path, capsys):
    config = tmp_path / "weft.toml"
    config.write_text(
        '[[model]]\nmatch = "house-*"\nwindow = 32000\nprice = { input = 1, output = 2 }\n'
    )
    assert main(["models", "house", "--config", str(config)]) == 0
    assert "32,000" in capsys.readouterr().out


def test_the_command_says_that_a_model_is_unknown(capsys):
    assert main(["models", "claude-opus-4-60"]) == 0
    assert "has no price" in capsys.readouterr().err
    assert main(["models", "claude-opus-4-60", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["models"] == []
