"""The page and its files over HTTP."""

import re
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest

from servers import weft_serve

FOREVER = "public, max-age=31536000, immutable"


@pytest.fixture(scope="module")
def url(tmp_path_factory):
    with weft_serve(tmp_path_factory.mktemp("page"), "--no-sample") as gateway:
        yield gateway.url


def test_a_browser_keeps_the_files_of_the_page_until_they_change(url):
    with urlopen(f"{url}/") as reply:
        page = reply.read().decode()
        assert reply.headers["cache-control"] == "no-cache"
    paths = set(re.findall(r'"(/static/[^"]+)"', page))
    types = {"js": "text/javascript", "css": "text/css", "svg": "image/svg+xml"}
    assert {path.rpartition(".")[2] for path in paths} == types.keys()
    for path in paths:
        with urlopen(url + path) as reply:
            assert reply.headers["cache-control"] == FOREVER, path
            assert reply.headers.get_content_type() == types[path.rpartition(".")[2]]
            versioned = reply.read()
        with urlopen(f"{url}/static/{path.rpartition('/')[2]}") as reply:
            assert reply.headers["cache-control"] == "no-cache"
            assert reply.read() == versioned


@pytest.mark.parametrize(
    "path",
    [
        "/static/__init__.py",  # not a file of the page
        "/static/%2e%2e/weft.py",
        "/static/0123456789ab/app.js",  # of another version
        "/static/",
        "/static/missing.js",
    ],
)
def test_other_files_are_not_served(url, path):
    with pytest.raises(HTTPError) as caught:
        urlopen(url + path)
    assert caught.value.code == 404
