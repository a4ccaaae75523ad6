"""Upstreams as records."""

import pytest

from weft.client import Provider, make_provider, read_provider
from weft.errors import ConfigError


@pytest.mark.parametrize(
    ("base", "path", "url"),
    [
        ("https://api.example", "/v1/messages", "https://api.example/v1/messages"),
        ("https://api.example/", "/v1/messages", "https://api.example/v1/messages"),
        ("https://api.example/v1", "/v1/messages", "https://api.example/v1/messages"),
        (
            "https://api.example/v1/",
            "/v1/messages?beta=true",
            "https://api.example/v1/messages?beta=true",
        ),
        ("https://api.example/proxy", "/v1/messages", "https://api.example/proxy/v1/messages"),
    ],
)
def test_a_base_may_end_in_v1_or_not(base, path, url):
    assert Provider(name="x", protocol="anthropic", base_url=base).url(path) == url


def test_a_spec_names_a_provider():
    provider = read_provider("local=anthropic:http://127.0.0.1:9/v1")
    assert (provider.name, provider.protocol) == ("local", "anthropic")
    assert dict(provider.headers) == {"anthropic-version": "2023-06-01"}


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ("local", "NAME=PROTOCOL:URL"),
        ("local=anthropic", "NAME=PROTOCOL:URL"),
        ("local=anthropic:ftp://x", "NAME=PROTOCOL:URL"),
        ("local=telepathy:http://x", "'telepathy'"),
    ],
)
def test_a_wrong_spec_is_refused_with_its_place(spec, words):
    with pytest.raises(ConfigError, match=words):
        read_provider(spec)


@pytest.mark.parametrize(
    ("protocol", "headers"),
    [
        ("anthropic", {"x-api-key": "secret"}),
        ("openai-chat", {"authorization": "Bearer secret"}),
        ("openai-responses", {"authorization": "Bearer secret"}),
    ],
)
def test_a_key_goes_where_its_protocol_wants_it_and_into_no_repr(protocol, headers):
    provider = make_provider("x", protocol, "http://x", key="secret")
    assert provider.auth_headers() == headers
    assert "secret" not in repr(provider)
