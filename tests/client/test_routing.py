"""Which upstream answers a model's name."""

import pytest

from weft.catalog import load_catalog
from weft.client import OFFLINE, find_route, make_provider
from weft.errors import Refused
from weft.gateway import Flags, read_settings

CATALOG = load_catalog()
ONE = (make_provider("one", "anthropic", "http://one"),)
KEYS = {"ANTHROPIC_API_KEY": "a", "OPENAI_API_KEY": "o"}


def standing(environ):
    return read_settings(Flags(), environ).providers


def patterned():
    first = make_provider("a", "anthropic", "http://a", models=("big-*",))
    second = make_provider("b", "openai-chat", "http://b", models=("small-*",))
    return (first, second)


@pytest.mark.parametrize(
    ("model", "protocol", "providers", "name", "known_as"),
    [
        ("weft-offline", "anthropic", ONE, "weft", "weft-offline"),
        ("weft-offline-2", "anthropic", ONE, "weft", "weft-offline-2"),
        ("anything/at-all", "openai-chat", ONE, "one", "anything/at-all"),  # the only one
        ("one/big", "openai-chat", ONE, "one", "big"),  # named before the slash
        ("claude-opus-4-8", "openai-chat", standing(KEYS), "anthropic", "claude-opus-4-8"),
        ("gpt-5", "openai-chat", standing(KEYS), "openai-chat", "gpt-5"),  # same protocol wins
        ("gpt-5", "openai-responses", standing(KEYS), "openai", "gpt-5"),
        ("gpt-5", "anthropic", standing(KEYS), "openai", "gpt-5"),
        ("claude-opus-4-8", "anthropic", standing({}), "anthropic", "claude-opus-4-8"),  # passes
        ("mystery", "openai-chat", standing(KEYS), "openai-chat", "mystery"),
        ("small-1", "anthropic", patterned(), "b", "small-1"),
        ("big-1", "openai-chat", patterned(), "a", "big-1"),
    ],
)
def test_a_models_name_finds_its_upstream(model, protocol, providers, name, known_as):
    route = find_route(model, protocol, providers, CATALOG)
    assert (route.provider.name, route.model) == (name, known_as)


def test_the_offline_model_is_the_record_itself():
    assert find_route("weft-offline", "anthropic", (), CATALOG).provider is OFFLINE


@pytest.mark.parametrize("providers", [(), standing({}), standing({"OPENAI_API_KEY": "o"})])
def test_a_model_is_never_tried_at_another_vendors_door(providers):
    with pytest.raises(Refused) as refused:
        find_route("claude-opus-4-8", "openai-chat", providers, CATALOG)
    assert (refused.value.status, refused.value.param) == (404, "model")
