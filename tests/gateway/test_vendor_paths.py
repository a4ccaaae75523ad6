"""Paths of the vendors that Weft does not know are passed on to the upstream of that protocol."""

import hashlib
import http.client
import io
import socket
import threading
import time
from urllib.parse import urlsplit

import anthropic
import httpx2
import openai
import orjson
import psutil
import pytest
from google import genai
from google.genai import types

from exact_upstream import Rule, exact_upstream
from servers import post, weft_serve

KEY = "k-0perator-key-of-this-upstream"
VECTOR = {"object": "embedding", "index": 0, "embedding": [0.5, 0.25]}
EMBEDDINGS = {
    "object": "list",
    "data": [VECTOR],
    "model": "text-embedding-3-small",
    "usage": {"prompt_tokens": 1, "total_tokens": 1},
}
FILE = {
    "id": "file-abc123",
    "object": "file",
    "bytes": 3,
    "created_at": 1,
    "filename": "a.jsonl",
    "purpose": "batch",
    "status": "processed",
}
BATCH = {
    "id": "msgbatch_0123456789",
    "type": "message_batch",
    "processing_status": "in_progress",
    "request_counts": {
        "processing": 1,
        "succeeded": 0,
        "errored": 0,
        "canceled": 0,
        "expired": 0,
    },
    "ended_at": None,
    "created_at": "2026-01-01T00:00:00Z",
    "expires_at": "2026-01-02T00:00:00Z",
    "archived_at": None,
    "cancel_initiated_at": None,
    "results_url": None,
}
LISTED = {"object": "list", "data": [], "has_more": False, "first_id": None, "last_id": None}
WAV = bytes(range(256)) * 400
BEARER = {"authorization": f"Bearer {KEY}"}


def rule(value, headers=BEARER, **options):
    body = value if isinstance(value, bytes) else orjson.dumps(value)
    return Rule(body=body, headers=headers, **options)


RULES = {
    ("POST", "/o/v1/embeddings"): rule(EMBEDDINGS),
    ("POST", "/o/v1/files"): rule(FILE),
    ("GET", "/o/v1/files"): rule(LISTED),
    ("GET", "/o/v1/files?limit=7&purpose=batch"): rule(LISTED),
    ("GET", "/o/v1/files/file-abc123"): rule(FILE),
    ("GET", "/o/v1/files/file-abc123/content"): rule(b"\x00\xffraw", kind="application/binary"),
    ("DELETE", "/o/v1/files/file-abc123"): rule({**FILE, "deleted": True}),
    ("POST", "/o/v1/audio/speech"): rule(WAV, kind="audio/wav"),
    ("POST", "/o/v1/audio/transcriptions"): rule({"text": "hello"}),
    ("POST", "/o/v1/images/generations"): rule({"created": 1, "data": [{"b64_json": "aGk="}]}),
    ("POST", "/o/v1/images/edits"): rule({"created": 1, "data": [{"b64_json": "aGk="}]}),
    ("POST", "/o/v1/moderations"): rule({"id": "m", "model": "omni", "results": []}),
    ("POST", "/o/v1/rerank"): rule({"results": []}),
    ("POST", "/a/v1/messages/batches"): rule(BATCH, {"x-api-key": KEY}),
    ("GET", "/a/v1/messages/batches"): rule(LISTED, {"x-api-key": KEY}),
    ("GET", "/a/v1/messages/batches/msgbatch_0123456789"): rule(BATCH, {"x-api-key": KEY}),
    ("POST", "/g/v1/models/gemini-embedding-001:batchEmbedContents"): rule(
        {"embeddings": [{"values": [0.5]}]}, {"x-goog-api-key": KEY}
    ),
    ("GET", "/g/v1/files/abc123def"): rule({"name": "files/abc123def"}, {"x-goog-api-key": KEY}),
}


@pytest.fixture(scope="module")
def upstream():
    with exact_upstream() as running:
        running.rules.update(RULES)
        yield running


def flags(upstream):
    return [
        f"--upstream=o=openai-chat:{upstream.url}/o/v1",
        f"--upstream=r=openai-responses:{upstream.url}/o/v1",
        f"--upstream=a=anthropic:{upstream.url}/a",
        f"--upstream=g=gemini:{upstream.url}/g",
    ]


KEYS = {name: KEY for name in ("O_API_KEY", "R_API_KEY", "A_API_KEY", "G_API_KEY")}


@pytest.fixture(scope="module")
def gateway(tmp_path_factory, upstream):
    with weft_serve(tmp_path_factory.mktemp("paths"), *flags(upstream), **KEYS) as running:
        yield running


@pytest.fixture
def client(gateway):
    with openai.OpenAI(base_url=f"{gateway.url}/v1", api_key="mine", max_retries=0) as client:
        yield client


def ask(gateway, method, path, body=None, headers=None):
    """Status, headers and body of a request with exactly this path."""
    place = urlsplit(gateway.url)
    connection = http.client.HTTPConnection(place.hostname, place.port, timeout=60)
    try:
        connection.request(method, path, body, headers or {})
        answer = connection.getresponse()
        headers = {name.lower(): value for name, value in answer.getheaders()}
        return answer.status, headers, answer.read()
    finally:
        connection.close()


def test_openai_calls(client, upstream):
    upstream.requests.clear()
    found = client.embeddings.create(model="text-embedding-3-small", input="hi")
    assert found.data[0].embedding == [0.5, 0.25]
    assert client.files.create(file=("a.jsonl", b"{}\n"), purpose="batch").id == "file-abc123"
    assert client.files.retrieve("file-abc123").filename == "a.jsonl"
    assert client.files.content("file-abc123").content == b"\x00\xffraw"
    assert client.files.delete("file-abc123").id == "file-abc123"
    assert list(client.files.list(purpose="batch", limit=7)) == []
    speech = client.audio.speech.create(model="tts-1", voice="alloy", input="hi")
    assert speech.content == WAV
    text = client.audio.transcriptions.create(model="whisper-1", file=("a.wav", io.BytesIO(WAV)))
    assert text.text == "hello"
    assert client.images.generate(model="gpt-image-1", prompt="x").data[0].b64_json == "aGk="
    edited = client.images.edit(model="gpt-image-1", prompt="x", image=("a.png", b"png"))
    assert edited.data[0].b64_json == "aGk="
    assert client.moderations.create(model="omni", input="x").results == []
    for _, _, headers, _ in upstream.requests:
        assert "mine" not in str(headers)


def test_anthropic_batches(gateway):
    client = anthropic.Anthropic(base_url=gateway.url, api_key="mine", max_retries=0)
    params = {"model": "c", "max_tokens": 5, "messages": [{"role": "user", "content": "hi"}]}
    requests = [{"custom_id": "one", "params": params}]
    assert client.messages.batches.create(requests=requests).id == BATCH["id"]
    assert client.messages.batches.retrieve(BATCH["id"]).processing_status == "in_progress"
    assert list(client.messages.batches.list()) == []
    client.close()


def test_google_embeddings_and_files(gateway):
    options = types.HttpOptions(base_url=gateway.url)
    client = genai.Client(api_key="mine", http_options=options)
    found = client.models.embed_content(model="gemini-embedding-001", contents="hi")
    assert found.embeddings[0].values == [0.5]
    assert client.files.get(name="files/abc123def").name == "files/abc123def"
    client.close()


def test_nothing_is_recorded(gateway):
    status, headers, _ = ask(gateway, "GET", "/v1/files")
    assert (status, headers["x-weft-recorded"]) == (200, "no")
    line = gateway.await_lines(1, lambda line: line["path"] == "/v1/files")[-1]
    assert (line["upstream"], line["outcome"], "thread" in line) == ("o", "ok", False)


@pytest.mark.parametrize(
    "path", ["/embeddings", "/v1/embeddings", "/v1/v1/embeddings", "/v1/embeddings?x=1"]
)
def test_the_version_may_come_never_or_twice(gateway, upstream, path):
    upstream.rules["POST", "/o/v1/embeddings?x=1"] = rule(EMBEDDINGS)
    body = orjson.dumps({"model": "text-embedding-3-small", "input": "x"})
    assert ask(gateway, "POST", path, body, {"content-type": "application/json"})[0] == 200


def test_a_form_is_kept_byte_for_byte(gateway, upstream):
    upstream.requests.clear()
    body = (
        b'--XX\r\nContent-Disposition: form-data; name="purpose"\r\n\r\nbatch\r\n'
        b'--XX\r\nContent-Disposition: form-data; name="file"; filename="\xc3\xa9"\r\n\r\n'
        + bytes(range(256))
        + b"\r\n--XX--\r\nepilogue"
    )
    kind = 'multipart/form-data; boundary="XX"'
    assert ask(gateway, "POST", "/v1/files", body, {"content-type": kind})[0] == 200
    [(_, _, headers, sent)] = upstream.requests
    assert (headers["content-type"], sent) == (kind, body)


def test_the_model_decides_between_upstreams(tmp_path, upstream):
    rules = {
        ("POST", "/one/v1/embeddings"): rule({"one": 1}, {}),
        ("POST", "/two/v1/embeddings"): rule({"two": 2}, {}),
        ("POST", "/two/v1/audio/transcriptions"): rule({"text": "two"}, {}),
        ("GET", "/two/v1/files"): rule({"two": 2}, {}),
    }
    upstream.rules.update(rules)
    config = tmp_path / "weft.toml"
    tables = (
        f'[[upstream]]\nname = "{name}"\nprotocol = "openai-chat"\nmodels = ["{name}-*"]\n'
        f'url = "{upstream.url}/{name}/v1"\n'
        for name in ("one", "two")
    )
    text = "".join(tables) + '[aliases]\nsmall = "two/two-small"\n'
    config.write_text(text)
    kind = {"content-type": "application/json"}
    with weft_serve(tmp_path, f"--config={config}") as gateway:
        for model, answer, sent in (
            ("one-x", b'{"one":1}', "one-x"),
            ("two-x", b'{"two":2}', "two-x"),
            ("two/any", b'{"two":2}', "any"),
            ("small", b'{"two":2}', "two-small"),
        ):
            upstream.requests.clear()
            body = b'{"input": 1.0, "model": "%s", "n": 12345678901234567890123}' % model.encode()
            status, _, found = ask(gateway, "POST", "/v1/embeddings", body, kind)
            assert (status, found) == (200, answer)
            assert upstream.requests[0][3] == body.replace(model.encode(), sent.encode())
        body = (
            b'--XX\r\nContent-Disposition: form-data; name="model"\r\n\r\n%s\r\n'
            b'--XX\r\nContent-Disposition: form-data; name="file"; filename="a"\r\n\r\nx\r\n--XX--'
        )
        form = {"content-type": "multipart/form-data; boundary=XX"}
        path = "/v1/audio/transcriptions"
        assert ask(gateway, "POST", path, body % b"two-x", form)[0] == 200
        # the name would have to be changed in the form
        status, _, found = ask(gateway, "POST", path, body % b"small", form)
        assert (status, b"two-small" in found) == (400, True)
        # no model, and nothing else that decides
        status, _, found = ask(gateway, "GET", "/v1/files")
        assert (status, b"default = true" in found) == (400, True)
    config.write_text(text.replace('name = "two"', 'name = "two"\ndefault = true'))
    with weft_serve(tmp_path, f"--config={config}") as gateway:
        assert ask(gateway, "GET", "/v1/files")[2] == b'{"two":2}'


def test_a_model_of_another_protocol_is_not_asked(gateway, upstream):
    upstream.requests.clear()
    for model in ("a/claude", "weft-offline"):
        body = {"model": model, "input": "x"}
        status, _, answer = post(f"{gateway.url}/v1/embeddings", body)
        assert (status, b"is not translated" in answer) == (404, True)
    assert upstream.requests == []


def test_a_protocol_without_an_upstream_is_explained(tmp_path, upstream):
    with weft_serve(tmp_path, f"--upstream=a=anthropic:{upstream.url}/a") as gateway:
        status, _, answer = post(f"{gateway.url}/v1/embeddings", {"model": "m", "input": "x"})
        error = orjson.loads(answer)["error"]
        assert (status, "no upstream for /v1/embeddings" in error["message"]) == (404, True)
        headers = {"x-goog-api-key": "k"}
        status, _, answer = ask(gateway, "GET", "/v1beta/files", headers=headers)
        assert (status, orjson.loads(answer)["error"]["status"]) == (404, "NOT_FOUND")


HOSTILE = [
    "/v1/../api/threads",
    "/v1/files/../../../admin",
    "/v1/files/%2e%2e/%2e%2e/admin",
    "/v1/files/..%2f..%2fadmin",
    "/v1/files/%252e%252e/admin",
    "/v1/files/a%5c..%5cadmin",
    "/v1/files/a%0d%0aX-Evil:%201",
    "/v1/files/%00",
    "/v1//evil.example/x",
    "/v1/http://evil.example/",
    "//evil.example/v1/files",
    "/v1/./files",
    "/v1/files;x=1",  # some servers ignore what follows the `;`
    "/upload/../v1/files",
    "/v1/models/../files",
]


@pytest.mark.parametrize("method", ["GET", "POST", "DELETE"])
@pytest.mark.parametrize("path", HOSTILE)
def test_a_hostile_path_never_reaches_an_upstream(gateway, upstream, path, method):
    upstream.requests.clear()
    status, headers, _ = ask(gateway, method, path, b"" if method == "POST" else None)
    assert status in (400, 404, 405)
    assert "x-evil" not in headers
    assert not [path for _, path, _, _ in upstream.requests if "models" not in path]


def test_an_absolute_url_is_only_its_path(gateway, upstream):
    upstream.requests.clear()
    place = urlsplit(gateway.url)
    with socket.create_connection((place.hostname, place.port), timeout=60) as raw:
        head = f"GET http://127.0.0.1/v1/files HTTP/1.1\r\nHost: {place.netloc}\r\n"
        raw.sendall(f"{head}Connection: close\r\n\r\n".encode())
        while raw.recv(65536):
            pass
    assert [path for _, path, _, _ in upstream.requests] in ([], ["/o/v1/files"])


@pytest.mark.parametrize("path", ["/v1/realtime", "/v1/responses"])
def test_a_websocket_is_not_passed_on(gateway, upstream, path):
    upstream.requests.clear()
    headers = {
        "connection": "upgrade",
        "upgrade": "websocket",
        "sec-websocket-version": "13",
        "sec-websocket-key": "MTIzNDU2Nzg5MDEyMzQ1Ng==",
    }
    assert ask(gateway, "GET", path, headers=headers)[0] in (404, 426)
    assert upstream.requests == []


def test_redirects_are_not_followed_and_errors_keep_their_form(gateway, upstream):
    error = {"error": {"message": f"bad key {KEY}", "type": "x", "code": 7}}
    upstream.rules["GET", "/o/v1/files/file-broken1"] = rule(error, status=418)
    upstream.rules["GET", "/o/v1/files/file-moved12"] = rule(b"", status=302)
    status, _, answer = ask(gateway, "GET", "/v1/files/file-broken1")
    expected = {"error": {"message": "bad key [redacted]", "type": "x", "code": 7}}
    assert (status, orjson.loads(answer)) == (418, expected)
    status, _, answer = ask(gateway, "GET", "/v1/files/file-moved12")
    assert (status, b"status 302" in answer) == (502, True)


def test_headers_of_the_connection_and_secrets_are_not_passed_on(gateway, upstream):
    upstream.requests.clear()
    headers = {
        "cookie": "session=1",
        "x-forwarded-for": "1.2.3.4",
        "x-auth-token": "mine-mine",
        "openai-beta": "assistants=v2",
        "range": "bytes=0-3",
        "connection": "x-odd",
        "x-odd": "1",
    }
    path = "/v1/files?limit=7&purpose=batch&api_key=mine-mine"
    assert ask(gateway, "GET", path, headers=headers)[0] == 200
    [(_, sent_path, sent, _)] = upstream.requests
    assert sent_path == "/o/v1/files?limit=7&purpose=batch"
    assert (sent["openai-beta"], sent["range"]) == ("assistants=v2", "bytes=0-3")
    assert "mine-mine" not in str(sent)
    assert {"cookie", "x-forwarded-for", "x-odd"}.isdisjoint(sent)


CLIENT_KEY = "client-key-0123456789"
CLIENT = {"authorization": f"Bearer {CLIENT_KEY}"}


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/v1/files", 403),  # lists what others stored
        ("GET", "/v1/fine_tuning/jobs", 403),
        ("GET", "/v1/organization/admin_api_keys", 403),
        ("GET", "/v1/files/file-abc123", 200),
        ("POST", "/v1/embeddings", 200),
        ("GET", "/v1/conversations/conv_0123456789/items", 404),
    ],
)
def test_with_keys_nobody_sees_a_list_of_what_others_stored(
    tmp_path, upstream, method, path, status
):
    body = b'{"model": "text-embedding-3-small"}' if method == "POST" else None
    kind = {"content-type": "application/json"}
    with weft_serve(tmp_path, *flags(upstream), WEFT_API_KEYS=CLIENT_KEY, **KEYS) as gateway:
        assert ask(gateway, method, path, body, kind)[0] == 401
        upstream.requests.clear()
        assert ask(gateway, method, path, body, {**kind, **CLIENT})[0] == status
        assert CLIENT_KEY not in str(upstream.requests)


def test_the_setting_turns_it_off_or_limits_it(tmp_path, upstream):
    config = tmp_path / "weft.toml"
    config.write_text("pass_through_paths = false\n")
    body = {"model": "text-embedding-3-small", "input": "x"}
    with weft_serve(tmp_path, f"--config={config}", *flags(upstream), **KEYS) as gateway:
        status, _, answer = post(f"{gateway.url}/v1/embeddings", body)
        assert (status, orjson.loads(answer)["error"]["code"]) == (404, "unknown_url")
    config.write_text('pass_through_paths = ["/v1/embeddings", "/v1/files"]\n')
    environ = {**KEYS, "WEFT_API_KEYS": CLIENT_KEY}
    with weft_serve(tmp_path, f"--config={config}", *flags(upstream), **environ) as gateway:
        assert post(f"{gateway.url}/v1/embeddings", body, CLIENT)[0] == 200
        assert ask(gateway, "GET", "/v1/files", headers=CLIENT)[0] == 200  # it is named
        status, _, answer = ask(gateway, "GET", "/v1/files/file-abc123", headers=CLIENT)
        assert (status, b"pass_through_paths" in answer) == (404, True)


class Counting:
    """An upstream that counts what it receives, and sends as much, without keeping any of it."""

    def __init__(self):
        self.received = 0
        self.digest = hashlib.sha256()
        self.answer = 0
        self.cut = False
        self.server = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self.server.getsockname()[1]}"
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self):
        while True:
            try:
                connection, _ = self.server.accept()
            except OSError:
                return
            with connection:
                self._answer(connection)

    def _answer(self, connection):
        data = b""
        while b"\r\n\r\n" not in data:
            data += connection.recv(65536)
        head, _, rest = data.partition(b"\r\n\r\n")
        lengths = [line for line in head.lower().split(b"\r\n") if b"content-length" in line]
        length = int(lengths[0].partition(b":")[2]) if lengths else 0
        self.received, self.digest = 0, hashlib.sha256()
        while True:
            self.received += len(rest)
            self.digest.update(rest)
            if self.received >= length:
                break
            rest = connection.recv(1 << 20)
        try:
            connection.sendall(
                b"HTTP/1.1 200 OK\r\ncontent-type: application/octet-stream\r\n"
                + (b"transfer-encoding: chunked\r\n" if self.cut else b"")
                + (b"" if self.cut else b"content-length: %d\r\n" % self.answer)
                + b"connection: close\r\n\r\n"
            )
            piece = b"x" * (1 << 20)
            for _ in range(self.answer >> 20):
                connection.sendall(b"100000\r\n%b\r\n" % piece if self.cut else piece)
        except OSError:
            pass


def rss(gateway):
    return psutil.Process(gateway.process.pid).memory_info().rss


SIZE = 200 << 20


def test_a_large_upload_and_download_are_not_kept_in_memory(tmp_path):
    counting = Counting()
    piece = bytes(range(256)) * 4096  # 1 MB
    with weft_serve(tmp_path, f"--upstream=o=openai-chat:{counting.url}/v1") as gateway:
        ask(gateway, "GET", "/v1/files/file-warm1234")
        before, highest = rss(gateway), [0]
        done = threading.Event()

        def watch():
            while not done.wait(0.02):
                highest[0] = max(highest[0], rss(gateway))

        watcher = threading.Thread(target=watch)
        watcher.start()
        try:
            headers = {"content-length": str(SIZE), "content-type": "application/octet-stream"}
            pieces = (piece for _ in range(SIZE >> 20))
            assert ask(gateway, "POST", "/v1/files", pieces, headers)[0] == 200
            assert counting.received == SIZE
            expected = hashlib.sha256()
            for _ in range(SIZE >> 20):
                expected.update(piece)
            assert counting.digest.digest() == expected.digest()
            counting.answer = SIZE
            place = urlsplit(gateway.url)
            connection = http.client.HTTPConnection(place.hostname, place.port, timeout=60)
            connection.request("GET", "/v1/files/file-big12345/content")
            answer = connection.getresponse()
            size = 0
            while data := answer.read(1 << 20):
                size += len(data)
            connection.close()
            assert size == SIZE
        finally:
            done.set()
            watcher.join()
            counting.server.close()
        assert highest[0] - before < 60 << 20  # of 200 MB each way


@pytest.mark.parametrize("cut", [False, True])
def test_an_answer_that_breaks_off_is_not_complete(tmp_path, cut):
    counting = Counting()
    counting.cut, counting.answer = cut, (3 << 20) + (0 if cut else 5)
    with weft_serve(tmp_path, f"--upstream=o=openai-chat:{counting.url}/v1") as gateway:
        with pytest.raises(httpx2.HTTPError):
            httpx2.get(f"{gateway.url}/v1/files/file-cut12345/content", timeout=60)
        counting.server.close()
        [line] = gateway.await_lines(1, lambda line: "file-cut" in line["path"])
        assert line["outcome"] == "cut"


def test_a_client_that_leaves_in_an_upload_frees_its_slot(tmp_path, upstream):
    spec = f"--upstream=o=openai-chat:{upstream.url}/o/v1"
    with weft_serve(tmp_path, spec, **KEYS) as gateway:
        place = urlsplit(gateway.url)
        for _ in range(5):
            with socket.create_connection((place.hostname, place.port), timeout=60) as raw:
                head = f"POST /v1/files HTTP/1.1\r\nHost: {place.netloc}\r\n"
                raw.sendall(f"{head}Content-Length: 100000\r\n\r\npart".encode())
                time.sleep(0.1)
        lines = gateway.await_lines(5, lambda line: line["path"] == "/v1/files")
        assert {line["outcome"] for line in lines} == {"client_left"}
        assert ask(gateway, "GET", "/v1/files")[0] == 200


def test_a_body_that_takes_too_long_is_refused(tmp_path, upstream):
    config = tmp_path / "weft.toml"
    config.write_text("[limits]\nbody_seconds = 0.5\n")
    spec = f"--upstream=o=openai-chat:{upstream.url}/o/v1"
    with weft_serve(tmp_path, f"--config={config}", spec, **KEYS) as gateway:
        place = urlsplit(gateway.url)
        with socket.create_connection((place.hostname, place.port), timeout=60) as raw:
            head = f"POST /v1/files HTTP/1.1\r\nHost: {place.netloc}\r\n"
            raw.sendall(f"{head}Content-Length: 100000\r\n\r\npart".encode())
            assert b" 408 " in raw.recv(4096)
