"""`GET /metrics` after successful, refused and failed exchanges."""

import http.client
import time
from urllib.parse import urlsplit

import orjson
import pytest
from prometheus_client.parser import text_string_to_metric_families

from servers import Scripted, post, scripted_upstream, weft_serve

SECRET = "a question that no metric may hold"


@pytest.fixture
def upstream():
    with scripted_upstream() as running:
        yield running


def scrape(url, headers=None):
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=60)
    try:
        connection.request("GET", "/metrics", headers=headers or {})
        reply = connection.getresponse()
        return reply.status, reply.read().decode()
    finally:
        connection.close()


def samples(text):
    """Each sample's value by its name and labels."""
    return {
        (sample.name, *sorted(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def total(values, name, **labels):
    wanted = set(labels.items())
    return sum(value for key, value in values.items() if key[0] == name and wanted <= set(key[1:]))


def scrape_when_idle(url):
    """The text once no exchange runs: an exchange is counted just after its last byte."""
    deadline = time.monotonic() + 60
    while True:
        status, text = scrape(url)
        assert status == 200
        if total(samples(text), "weft_exchanges_in_progress") == 0:
            return text
        assert time.monotonic() < deadline, text
        time.sleep(0.02)


def ask(url, model, **more):
    body = {"model": model, "max_tokens": 9, "messages": [{"role": "user", "content": SECRET}]}
    return post(f"{url}/v1/messages", {**body, **more})[0]


def test_exchanges_are_counted_by_outcome(tmp_path, upstream):
    flag = f"--upstream=busy=anthropic:{upstream.url}"
    with weft_serve(tmp_path, flag) as gateway:
        assert ask(gateway.url, "weft-offline") == 200
        assert ask(gateway.url, "weft-offline", stream=True) == 200
        error = orjson.dumps({"type": "error", "error": {"type": "overloaded_error"}})
        upstream.then(Scripted(error, status=529, kind="application/json"))
        assert ask(gateway.url, "busy/unknown-model") == 529
        assert ask(gateway.url, "weft-offline", messages="nonsense") == 400
        text = scrape_when_idle(gateway.url)
    assert SECRET not in text
    assert "unknown-model" not in text
    values = samples(text)
    assert total(values, "weft_exchanges_total", protocol="anthropic") == 4
    assert total(values, "weft_exchanges_total", outcome="ok", status="200") == 2
    assert total(values, "weft_exchanges_total", upstream="busy", status="529") == 1
    assert total(values, "weft_exchanges_total", outcome="refused", status="400") == 1
    assert total(values, "weft_tokens_total", kind="output") > 0
    assert total(values, "weft_exchange_seconds_count") == 4
    assert total(values, "weft_exchange_seconds_bucket", le="+Inf") == 4


def test_a_server_with_keys_requires_one(tmp_path):
    with weft_serve(tmp_path, WEFT_API_KEYS="one") as gateway:
        assert scrape(gateway.url)[0] == 401
        status, text = scrape(gateway.url, {"authorization": "Bearer one"})
    assert status == 200
    assert total(samples(text), "weft_exchanges_in_progress") == 0
