"""A website cannot use a gateway through a browser, and a vendor's answer is never a page of it."""

import http.client
from base64 import b64encode
from urllib.parse import urlsplit

import orjson
import pytest

from exact_upstream import Rule, exact_upstream
from servers import weft_serve

KEY = "client-key-0123456789"
BASIC = {"authorization": "Basic " + b64encode(f":{KEY}".encode()).decode()}
BEARER = {"authorization": f"Bearer {KEY}"}
JSON = {"content-type": "application/json"}
CHAT = b'{"model": "o/m", "messages": [{"role": "user", "content": "hi"}]}'

NAVIGATION = {
    "sec-fetch-site": "none",
    "sec-fetch-mode": "navigate",
    "sec-fetch-dest": "document",
}


def rule(value):
    return Rule(body=orjson.dumps(value))


def ask(gateway, method, path, body=None, headers=None):
    place = urlsplit(gateway.url)
    connection = http.client.HTTPConnection(place.hostname, place.port, timeout=60)
    try:
        connection.request(method, path, body, headers or {})
        answer = connection.getresponse()
        headers = {name.lower(): value for name, value in answer.getheaders()}
        return answer.status, headers, answer.read()
    finally:
        connection.close()


@pytest.fixture(scope="module")
def upstream():
    with exact_upstream() as running:
        yield running


@pytest.fixture(scope="module")
def gateway(tmp_path_factory, upstream):
    flag = f"--upstream=o=openai-chat:{upstream.url}/o/v1"
    with weft_serve(tmp_path_factory.mktemp("browser"), flag, O_API_KEY="k-0perator") as running:
        yield running


@pytest.fixture(scope="module")
def keyed(tmp_path_factory, upstream):
    flag = f"--upstream=o=openai-chat:{upstream.url}/o/v1"
    folder = tmp_path_factory.mktemp("keyed")
    with weft_serve(folder, flag, O_API_KEY="k-0perator", WEFT_API_KEYS=KEY) as running:
        yield running


OWN_HEADERS = {
    "content-security-policy": "default-src * 'unsafe-inline'",
    "x-content-type-options": "none",
}


@pytest.mark.parametrize(
    "kind",
    [
        "text/html",
        "image/svg+xml",
        "application/xml",
        "application/xhtml+xml",
        "application/pdf",
        "text/javascript",
        "multipart/x-mixed-replace; boundary=x",
        "application/octet-stream",
    ],
)
@pytest.mark.parametrize("status", [200, 404])
def test_an_answer_of_a_vendor_is_never_a_page_of_the_gateway(gateway, upstream, kind, status):
    page = b"<script>fetch('/api/threads')</script>"
    upstream.rules["GET", "/o/v1/files/file-page0001"] = Rule(
        body=page, kind=kind, status=status, answer_headers=OWN_HEADERS
    )
    for method in ("GET", "HEAD"):
        upstream.rules["HEAD", "/o/v1/files/file-page0001"] = upstream.rules[
            "GET", "/o/v1/files/file-page0001"
        ]
        found, headers, body = ask(gateway, method, "/v1/files/file-page0001")
        assert (found, body) == (status, page if method == "GET" else b"")
        assert headers["content-security-policy"] == "sandbox; default-src 'none'"
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["content-disposition"] == "attachment"


@pytest.mark.parametrize(
    ("sent", "answered"),
    [
        ("inline", "attachment"),
        ('inline; filename="a.html"', 'attachment; filename="a.html"'),
        ("attachment; filename=a.txt; x=1", "attachment; filename=a.txt"),
        (
            "inline; filename=\"a;b.txt\"; filename*=UTF-8''a%3Bb.txt",
            "attachment; filename=\"a;b.txt\"; filename*=UTF-8''a%3Bb.txt",
        ),
        ("form-data; filename=a, inline", "attachment; filename=a"),
        ("filename=a", "attachment"),
    ],
)
def test_the_name_of_a_download_is_kept(gateway, upstream, sent, answered):
    upstream.rules["GET", "/o/v1/files/file-name0001/content"] = Rule(
        body=b"x", kind="text/html", answer_headers={"content-disposition": sent}
    )
    _, headers, _ = ask(gateway, "GET", "/v1/files/file-name0001/content")
    assert headers["content-disposition"] == answered


def test_an_answer_of_a_conversation_is_never_a_page_of_the_gateway(gateway, upstream):
    for status in (200, 400):
        upstream.rules["POST", "/o/v1/chat/completions"] = Rule(
            body=b"<script>1</script>", kind="text/html", status=status, answer_headers=OWN_HEADERS
        )
        _, headers, _ = ask(gateway, "POST", "/v1/chat/completions", CHAT, JSON)
        assert headers["content-security-policy"] == "sandbox; default-src 'none'"
        assert headers["x-content-type-options"] == "nosniff"


FOREIGN = [
    NAVIGATION,  # from the address bar, a bookmark or a link in a mail
    {**NAVIGATION, "sec-fetch-site": "cross-site", "sec-fetch-user": "?1"},
    {**NAVIGATION, "sec-fetch-site": "same-site"},
    {**NAVIGATION, "sec-fetch-site": "same-origin"},
    {**NAVIGATION, "sec-fetch-dest": "iframe"},
    {**NAVIGATION, "sec-fetch-dest": "embed"},
    {"sec-fetch-dest": "image"},
    {"sec-fetch-dest": "script", "sec-fetch-mode": "no-cors", "sec-fetch-site": "same-origin"},
    {"sec-fetch-dest": "serviceworker", "sec-fetch-site": "same-origin"},
    {"sec-fetch-dest": "video", "range": "bytes=0-"},
    {"sec-fetch-dest": "style"},
    {"sec-fetch-dest": "font"},
    {"sec-fetch-site": "cross-site", "sec-fetch-mode": "no-cors", "sec-fetch-dest": "empty"},
    {"sec-fetch-site": "same-site", "sec-fetch-mode": "no-cors", "sec-fetch-dest": "empty"},
    {"sec-fetch-site": "cross-site"},
    {"sec-fetch-site": "Cross-Site"},
    {"sec-fetch-mode": "websocket"},
    {"upgrade-insecure-requests": "1"},  # a navigation over plain HTTP, without Sec-Fetch-*
    {"sec-purpose": "prefetch;prerender"},
]


@pytest.mark.parametrize("browser", FOREIGN)
@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("GET", "/v1/files/file-page0001", None),
        ("HEAD", "/v1/files/file-page0001", None),
        ("GET", "/v1beta/files/abc123def", None),
        ("POST", "/v1/embeddings", b'{"input": "x"}'),
        ("POST", "/v1/chat/completions", CHAT),
        ("POST", "/v1/messages/count_tokens", CHAT),
        ("GET", "/v1/responses/resp_0123456789", None),
    ],
)
def test_what_a_browser_requests_by_itself_is_refused(
    gateway, upstream, method, path, body, browser
):
    upstream.requests.clear()
    assert ask(gateway, method, path, body, {**JSON, **browser})[0] == 403
    assert upstream.requests == []


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        (BASIC, 403),  # a browser adds the login of an earlier visit to every request
        ({**BASIC, **NAVIGATION}, 403),
        ({**BASIC, "sec-fetch-site": "same-origin", "sec-fetch-dest": "empty"}, 200),
        (BEARER, 200),
    ],
)
def test_the_login_of_an_earlier_visit_does_not_pay_for_a_get(keyed, upstream, headers, status):
    upstream.rules["GET", "/o/v1/files/file-paid0001"] = rule({"id": 1})
    upstream.requests.clear()
    assert ask(keyed, "GET", "/v1/files/file-paid0001", headers=headers)[0] == status
    assert len(upstream.requests) == (1 if status == 200 else 0)


@pytest.mark.parametrize(
    "program",
    [
        {},
        {"sec-fetch-mode": "cors"},  # Node's fetch
        {"sec-fetch-site": "none", "sec-fetch-mode": "no-cors", "sec-fetch-dest": "empty"},
        {"sec-fetch-site": "same-origin", "sec-fetch-mode": "cors", "sec-fetch-dest": "empty"},
        {"user-agent": "Mozilla/5.0", "accept": "*/*"},
    ],
)
def test_what_a_program_requests_is_answered(gateway, upstream, program):
    upstream.rules["GET", "/o/v1/files/file-page0001"] = rule({"id": 1})
    assert ask(gateway, "GET", "/v1/files/file-page0001", headers=program)[0] == 200


def test_the_page_and_the_list_of_models_open_in_a_browser(gateway):
    assert ask(gateway, "GET", "/healthz", headers=NAVIGATION)[0] == 200
    assert ask(gateway, "GET", "/v1/models", headers=NAVIGATION)[0] == 200
    assert ask(gateway, "GET", "/", headers=NAVIGATION)[0] == 200


@pytest.mark.parametrize(
    "name",
    [
        *("X-HTTP-Method-Override", "X-HTTP-Method", "X-Method-Override", "X-Method"),
        *("X_HTTP_Method_Override", "_method", "$httpMethod", "HTTP-Method-Override"),
        *("X-Original-URL", "X-Rewrite-URL", "X-Original-URI", "X-Rewrite-URI"),
        *("X-Original-Host", "X-Forwarded_Host", "X-Envoy-Original-Path", "X-Host-Override"),
        *("X-HTTP-Host-Override", "X-HTTP-Path-Override", "X-Original-Method"),
    ],
)
def test_no_header_changes_the_method_or_the_path(gateway, upstream, name):
    upstream.rules["POST", "/o/v1/embeddings"] = rule({"id": 1})
    upstream.rules["POST", "/o/v1/chat/completions"] = rule({"id": 1})
    for path, body in (("/v1/embeddings", b'{"input": "x"}'), ("/v1/chat/completions", CHAT)):
        upstream.requests.clear()
        ask(gateway, "POST", path, body, {**JSON, name: "GET", "x-kept": "1"})
        [(_, _, sent, _)] = upstream.requests
        assert (name.lower() in sent, sent["x-kept"]) == (False, "1")


@pytest.mark.parametrize(
    "query",
    [
        *("_method=GET", "%24httpMethod=GET", "$httpMethod=GET", "$HTTPMETHOD=GET"),
        *("$httpHeaders=X-HTTP-Method-Override:GET", "X-HTTP-Method-Override=GET"),
        *("%5Fmethod=GET", "x-http-method=GET", "httpMethod=GET", "$req=x"),
    ],
)
def test_no_query_changes_the_method(gateway, upstream, query):
    upstream.rules["POST", "/o/v1/embeddings?alt=json&fields=a"] = rule({"id": 1})
    path = f"/v1/embeddings?alt=json&{query}&fields=a"
    assert ask(gateway, "POST", path, b'{"input": "x"}', JSON)[0] == 200
