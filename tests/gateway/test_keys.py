"""Clients with keys: names, replacement of keys, limits of one client, ids of requests."""

import io
import json
import threading
import time
from hashlib import sha256
from urllib.error import HTTPError
from urllib.request import Request as UrlRequest, urlopen

import pytest

import weft
from servers import post, weft_serve
from slow_upstream import slow_upstream
from weft.cli import main
from weft.gateway import Flags, read_settings


def digest(key: str) -> str:
    return "sha256:" + sha256(key.encode()).hexdigest()


def table(name: str, *keys: str, scope: str | None = None, **members: object) -> str:
    lines = ["[[key]]", f'name = "{name}"', f"hashes = {json.dumps([*map(digest, keys)])}"]
    if scope is not None:
        lines.append(f'scope = "{scope}"')
    lines += [f"{key} = {json.dumps(value)}" for key, value in members.items()]
    return "\n".join(lines) + "\n"


def get(url: str, key: str | None = None) -> tuple[int, bytes]:
    headers = {} if key is None else {"authorization": f"Bearer {key}"}
    try:
        with urlopen(UrlRequest(url, headers=headers), timeout=60) as reply:
            return reply.status, reply.read()
    except HTTPError as error:
        with error:
            return error.code, error.read()


def say(gateway, key: str | None, *texts: str, **headers: str):
    """A conversation with the offline model; the last text is new."""
    messages = []
    for text in texts:
        role = "user" if len(messages) % 2 == 0 else "assistant"
        messages.append({"role": role, "content": text})
    body = {"model": "weft-offline", "max_tokens": 99, "messages": messages}
    sent = {name.replace("_", "-"): value for name, value in headers.items()}
    if key is not None:
        sent["x-api-key"] = key
    status, answered, data = post(f"{gateway.url}/v1/messages", body, sent)
    assert status == 200, data
    return json.loads(data)["content"][0]["text"], answered


def threads(gateway, key: str | None) -> set[str]:
    return {
        each["name"] for each in json.loads(get(f"{gateway.url}/api/threads", key)[1])["threads"]
    }


class Server:
    """`weft serve` on one store, started again with each config."""

    def __init__(self, folder) -> None:
        self.folder = folder

    def run(self, config: str, **environ: str):
        (self.folder / "weft.toml").write_text(config)
        return weft_serve(self.folder, "--config", "weft.toml", **environ)


@pytest.fixture
def run(capfd):
    def command(*words: str) -> tuple[int, str, str]:
        code = main(words)
        return (code, *capfd.readouterr())

    return command


@pytest.fixture
def server(tmp_path):
    return Server(tmp_path)


def test_a_key_is_replaced_and_the_conversation_goes_on(server):
    with server.run(table("alice", "old")) as gateway:
        first, headers = say(gateway, "old", "my plan", x_session_id="s")
        thread = headers["x-weft-thread"]
    with server.run(table("alice", "old", "new")) as gateway:  # both are valid
        second, headers = say(gateway, "new", "my plan", first, "go on", x_session_id="s")
        assert headers["x-weft-thread"] == thread
        assert threads(gateway, "old") == threads(gateway, "new") == {thread}
    with server.run(table("alice", "new")) as gateway:
        assert threads(gateway, "new") == {thread}
        assert get(f"{gateway.url}/api/threads", "old")[0] == 401
        texts = ("my plan", first, "go on", second, "and now?")
        assert say(gateway, "new", *texts, x_session_id="s")[1]["x-weft-thread"] == thread
        assert [each["key"] for each in gateway.await_lines(1)] == ["alice"]


@pytest.mark.parametrize("where", ["keys", "environment", "nothing"])
def test_a_name_takes_over_the_threads_of_a_key_without_one(server, where):
    config = f'keys = ["{digest("old")}"]\n' if where == "keys" else ""
    environ = {"WEFT_API_KEYS": "old"} if where == "environment" else {}
    key = None if where == "nothing" else "old"
    with server.run(config, **environ) as gateway:
        first, headers = say(gateway, key, "my plan", x_session_id="s")
        thread = headers["x-weft-thread"]
    scope = "local" if where == "nothing" else digest("old")
    with server.run(table("alice", "old", "new", scope=scope) + table("bob", "b")) as gateway:
        texts = ("my plan", first, "go on")
        assert say(gateway, "new", *texts, x_session_id="s")[1]["x-weft-thread"] == thread
        assert threads(gateway, "old") == {thread}
        assert threads(gateway, "b") == set()
    with server.run(table("alice", "new")) as gateway:  # without the scope, it is another client
        assert threads(gateway, "new") == set()


def test_keys_without_names_keep_their_threads(server):
    with server.run("", WEFT_API_KEYS="one,two") as gateway:
        thread = say(gateway, "one", "hello", x_session_id="s")[1]["x-weft-thread"]
    prefix = digest("one").removeprefix("sha256:")[:6]
    assert thread == f"session-s-k{prefix}"
    with server.run(f'keys = ["{digest("one")}"]\n' + table("alice", "a")) as gateway:
        assert threads(gateway, "one") == {thread}
        assert say(gateway, "a", "hello", x_session_id="s")[1]["x-weft-thread"] != thread
        say(gateway, "one", "more")
        assert [each["key"] for each in gateway.await_lines(2)] == ["alice", prefix]


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (table("a b", "x"), "a name has letters"),
        (table("", "x"), "a name has letters"),
        (table("a/b", "x"), "a name has letters"),
        (table("local", "x"), "a name has letters"),  # the scope of a server without keys
        (table("0123456789abcdef", "x"), "a name has letters"),  # looks like a key's scope
        (table("a", "x") + table("a", "y"), "has two tables"),
        (table("a", "x") + table("b", "x"), "is also in another place"),
        (f'keys = ["{digest("x")}"]\n' + table("b", "x"), "is also in another place"),
        (table("a", "x", scope=digest("o")) + table("b", "y", scope=digest("o")), "same scope"),
        (table("a", "x", scope="b") + table("b", "y"), "is 'local' or the hash"),
        (table("a"), "has no hashes"),
        ('[[key]]\nname = "a"\nhashes = ["secret"]\n', "is not of the form"),
        ('[[key]]\nname = "a"\nhashes = []\nbudget = 1\n', "unknown key 'budget' in .key."),
    ],
)
def test_a_wrong_table_is_an_error_that_says_what_is_wrong(tmp_path, config, message):
    (tmp_path / "weft.toml").write_text(config)
    with pytest.raises(weft.ConfigError, match=message) as error:
        read_settings(Flags(config=str(tmp_path / "weft.toml")), {})
    assert "secret" not in str(error.value)


def test_the_exchanges_of_a_client_may_be_left_unrecorded(server):
    with server.run(table("alice", "a", record=False) + table("bob", "b")) as gateway:
        assert say(gateway, "a", "a secret")[1]["x-weft-recorded"] == "no"
        assert say(gateway, "b", "a question")[1]["x-weft-recorded"] == "store"
        assert threads(gateway, "a") == set()
    assert b"a secret" not in b"".join(file.read_bytes() for file in server.folder.iterdir())


LIMITS = "[limits]\nrequests = 6\n"


def test_one_key_cannot_take_every_slot(server):
    with slow_upstream() as upstream:
        config = (
            table("alice", "a")
            + table("bob", "b")
            + f'[[upstream]]\nname = "up"\nprotocol = "anthropic"\nurl = "{upstream.url}"\n'
            + LIMITS
        )
        with server.run(config) as gateway:
            running = [ask_slowly(gateway, "a") for _ in range(3)]
            await_running(gateway, "alice", 3)
            status, headers, body = post(f"{gateway.url}/v1/messages", BODY, {"x-api-key": "a"})
            assert (status, headers["retry-after"]) == (429, "1")
            assert "limits.requests_per_key" in json.loads(body)["error"]["message"]
            assert say(gateway, "b", "hello")[0]
            running += [ask_slowly(gateway, "b") for _ in range(3)]
            await_running(gateway, "bob", 3)
            # Every slot is taken now.
            for path in ("/metrics", "/healthz", "/", "/api/threads"):
                assert get(gateway.url + path, "b")[0] == 200, path
            metrics = get(f"{gateway.url}/metrics", "b")[1].decode()
            assert 'weft_refused_total{status="429",key="alice"} 1' in metrics
            assert 'weft_exchanges_total{protocol="anthropic",upstream="weft",' in metrics
            assert 'key="bob"} 1' in metrics
            upstream.gate.set()
            for thread in running:
                thread.join(60)


BODY = {
    "model": "m",
    "max_tokens": 9,
    "stream": True,
    "messages": [{"role": "user", "content": "HELD"}],
}


def ask_slowly(gateway, key: str) -> threading.Thread:
    arguments = (f"{gateway.url}/v1/messages", BODY, {"x-api-key": key})
    thread = threading.Thread(target=post, args=arguments, daemon=True)
    thread.start()
    return thread


def await_running(gateway, name: str, number: int) -> None:
    line = f'weft_key_requests_in_progress{{key="{name}"}} {number}\n'
    deadline = time.monotonic() + 60
    while line not in get(f"{gateway.url}/metrics", "a")[1].decode():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_every_answer_has_the_id_that_the_log_has(server):
    with server.run("") as gateway:
        first = say(gateway, None, "hello")[1]["x-request-id"]
        own = say(gateway, None, "hello again", x_request_id="proxy-1.2_3")[1]["x-request-id"]
        unsafe = say(gateway, None, "once more", x_request_id='a"b c')[1]["x-request-id"]
        assert own == "proxy-1.2_3"
        assert unsafe != 'a"b c'
        assert len({first, own, unsafe}) == 3
        lines = gateway.await_lines(3)
        assert [line["request"] for line in lines] == [first, own, unsafe]
        for path in ("/v1/nothing", "/healthz", "/", "/metrics"):
            with_id = urlopen_headers(gateway.url + path)
            assert with_id["x-request-id"], path


def urlopen_headers(url: str):
    try:
        with urlopen(url, timeout=60) as reply:
            return reply.headers
    except HTTPError as error:
        with error:
            return error.headers


def test_a_new_key_works_with_the_lines_that_the_command_prints(server, run):
    code, out, _ = run("keys", "new", "alice")
    assert code == 0
    key = out.partition("key:")[2].split()[0]
    config = out[out.index("[[key]]") :]
    with server.run(config) as gateway:
        assert say(gateway, key, "hello")[0]
        assert get(f"{gateway.url}/api/threads", key + "x")[0] == 401


def test_a_key_from_standard_input_is_hashed(run, monkeypatch):
    monkeypatch.setattr("sys.stdin", io.StringIO("my-key\n"))
    assert run("keys", "hash")[:2] == (0, digest("my-key") + "\n")
    monkeypatch.setattr("sys.stdin", io.StringIO("my-key\n"))
    assert json.loads(run("keys", "hash", "--json")[1]) == {"hash": digest("my-key")}
    monkeypatch.setattr("sys.stdin", io.StringIO("\n"))
    assert run("keys", "hash")[0] == 1


def test_a_key_without_a_name_is_a_line_for_the_list(run):
    made = json.loads(run("keys", "new", "--json")[1])
    assert made["hash"] == digest(made["key"])
    assert 'keys = ["sha256:' in run("keys", "new")[1]


@pytest.mark.parametrize("name", ["a b", "local", "-x", "0123456789abcdef", "x" * 65, 'a"b', "é"])
def test_a_name_that_the_config_file_refuses_gets_no_key(run, name):
    code, out, _ = run("keys", "new", "--", name)
    assert (code != 0, out) == (True, "")
