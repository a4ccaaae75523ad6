"""Google's URLs, and the URLs that an upstream gets."""

import pytest

from weft.gateway import read_address


@pytest.mark.parametrize(
    ("path", "model", "streams"),
    [
        ("/v1beta/models/gemini-3-pro:generateContent", "gemini-3-pro", False),
        ("/v1/models/gemini-3-pro:streamGenerateContent", "gemini-3-pro", True),
        ("/v1beta/models/up/some:tag:generateContent", "up/some:tag", False),
        ("/v1beta/models/gemini-3-pro:embedContent", None, None),
        ("/v1/models/gemini-3-pro", None, None),
        ("/v1/messages", None, None),
    ],
)
def test_a_path_names_the_model_and_the_method(path, model, streams):
    address = read_address(path)
    assert (address.model, address.streams) == (model, streams)


@pytest.mark.parametrize(
    ("method", "query", "path"),
    [
        ("generateContent", "", "/v1/models/m:generateContent"),
        ("generateContent", "key=secret&x=1", "/v1/models/m:generateContent?x=1"),
        ("streamGenerateContent", "", "/v1/models/m:streamGenerateContent?alt=sse"),
        ("streamGenerateContent", "alt=sse&key=s", "/v1/models/m:streamGenerateContent?alt=sse"),
    ],
)
def test_an_upstream_is_asked_for_sse_and_gets_no_key_in_the_url(method, query, path):
    assert read_address(f"/v1/models/known-here-as:{method}").path("m", query) == path
