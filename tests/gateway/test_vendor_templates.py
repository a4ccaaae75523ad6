"""With keys, only paths that make something, or that name one object, are passed on."""

import http.client
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from exact_upstream import Rule, exact_upstream
from servers import weft_serve

KEY = "client-key-0123456789"
GUIDE = Path(__file__).parents[2] / "docs/guide/upstreams.md"

PASSED_ON = [
    ("POST", "/v1/embeddings"),
    ("POST", "/v1/files"),
    ("GET", "/v1/files/file-1"),
    ("HEAD", "/v1/files/file-abcdefghijkl"),
    ("DELETE", "/v1/files/x"),
    ("GET", "/v1/files/file-abc123/content"),
    ("POST", "/v1/uploads/upload_abc/parts"),
    ("GET", "/v1/messages/batches/msgbatch_abc"),
    ("GET", "/v1/messages/batches/msgbatch_abc/results"),
    ("POST", "/v1/batches/batch_abc/cancel"),
    ("POST", "/v1/images/edits"),
    ("POST", "/v1/audio/speech"),
    ("POST", "/v1beta/models/gemini-embedding-001:embedContent"),
    ("GET", "/v1beta/files/abc"),
    ("POST", "/upload/v1beta/files"),
    ("PATCH", "/v1beta/cachedContents/abc"),
]
KEPT_BACK = [
    ("GET", "/v1/files"),
    ("HEAD", "/v1/files"),
    ("GET", "/v1/batches"),
    ("GET", "/v1/messages/batches"),
    ("GET", "/v1/chat/completions"),
    ("GET", "/v1/vector_stores"),
    ("GET", "/v1/vector_stores/vs_0123456789/files"),
    ("GET", "/v1beta/files"),
    ("GET", "/v1beta/cachedContents"),
    ("GET", "/v1/usage/2024-11-18"),
    ("GET", "/v1/dashboard/billing/usage20241118"),
    ("GET", "/v1/files/limit100000/list"),
    ("GET", "/v1/organization/usage/completions"),
    ("GET", "/v1/organization/projects/proj_0123456789/api_keys"),
    ("GET", "/v1/organization/admin_api_keys/key_0123456789"),
    ("POST", "/v1/organization/admin_api_keys"),
    ("DELETE", "/v1/organization/users/user-0123456789"),
    ("POST", "/v1/organization/invites"),
    ("GET", "/v1/organizations/api_keys/apikey_0123456789"),
    ("GET", "/v1/fine_tuning/jobs/ftjob-0123456789"),
    ("POST", "/v1/realtime/client_secrets"),
    ("DELETE", "/v1/models/ft-0123456789"),
    ("PATCH", "/v1/files/file-abc123"),
    ("POST", "/v1/Embeddings"),
    ("POST", "/v1/embeddings/x"),
    ("POST", "/v1beta/models/x:embedContent/y"),
    ("POST", "/v1beta/tunedModels/x:transferOwnership"),
    ("POST", "/v1beta/corpora/x/permissions"),
    ("GET", "/upload/v1beta/files"),
]


def serve(folder, upstream, text=""):
    config = folder / "weft.toml"
    config.write_text(text)
    return weft_serve(
        folder,
        f"--config={config}",
        f"--upstream=o=openai-chat:{upstream.url}/v1",
        f"--upstream=a=anthropic:{upstream.url}",
        f"--upstream=g=gemini:{upstream.url}",
        WEFT_API_KEYS=KEY,
        **dict.fromkeys(("O_API_KEY", "A_API_KEY", "G_API_KEY"), "k-0perator-key"),
    )


@pytest.fixture(scope="module")
def upstream():
    with exact_upstream() as running:
        yield running


@pytest.fixture(scope="module")
def gateway(tmp_path_factory, upstream):
    with serve(tmp_path_factory.mktemp("templates"), upstream) as running:
        yield running


def is_passed_on(gateway, upstream, method, path):
    """Whether a request reaches the upstream."""
    upstream.requests.clear()
    place = urlsplit(gateway.url)
    connection = http.client.HTTPConnection(place.hostname, place.port, timeout=60)
    body = b"{}" if method in ("POST", "PATCH") else None
    headers = {"authorization": f"Bearer {KEY}", "content-type": "application/json"}
    try:
        connection.request(method, path, body, headers)
        status = connection.getresponse().status
    finally:
        connection.close()
    asked = [path for _, path, _, _ in upstream.requests]
    assert asked or status in (403, 404)
    return bool(asked)


@pytest.mark.parametrize(("method", "path"), PASSED_ON)
def test_a_path_of_the_list_is_passed_on(gateway, upstream, method, path):
    upstream.rules[method, path] = Rule(body=b"{}")
    assert is_passed_on(gateway, upstream, method, path)


@pytest.mark.parametrize(("method", "path"), KEPT_BACK)
def test_any_other_path_is_not_passed_on(gateway, upstream, method, path):
    assert not is_passed_on(gateway, upstream, method, path)


@pytest.mark.parametrize(
    ("text", "path", "passed"),
    [
        ("pass_through_paths = true\n", "/v1/files", True),
        ("pass_through_paths = true\n", "/v1/usage/2024-11-18", True),
        ("pass_through_paths = true\n", "/v1/conversations/conv_1/items", False),
        ('pass_through_paths = ["/v1/files*"]\n', "/v1/files", True),
        ('pass_through_paths = ["/v1/files*"]\n', "/v1/batches/batch_1", False),
        ("pass_through_paths = false\n", "/v1/files/file-1", False),
    ],
)
def test_the_setting_opens_more_or_less(tmp_path, upstream, text, path, passed):
    with serve(tmp_path, upstream, text) as gateway:
        assert is_passed_on(gateway, upstream, "GET", path) is passed


def documented():
    """Every method and path of the list in the guide, with an example for each name."""
    block = GUIDE.read_text().partition("```text\nPOST /v1/embeddings")[2].partition("```")[0]
    for line in ("POST /v1/embeddings" + block).splitlines():
        *methods, path = line.split()
        for name, example in (("{id}", "x-1"), ("{model}", "m-1"), ("{version}", "v1beta")):
            path = path.replace(name, example)
        yield from ((method, path) for method in methods)


@pytest.mark.parametrize(("method", "path"), list(documented()))
def test_every_path_of_the_guide_is_passed_on(gateway, upstream, method, path):
    assert is_passed_on(gateway, upstream, method, path)
