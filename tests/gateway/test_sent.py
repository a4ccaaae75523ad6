"""`weft show ID --sent` prints the exact bytes that the gateway sent to the upstream."""

import asyncio
import subprocess
import sys
from itertools import pairwise, product

import orjson
import pytest
from aiohttp import ClientSession

import weft
import weft.thread
from protocol_rows import PROTOCOLS
from servers import LAUNCH, REQUEST_PATHS, UPSTREAM_NAMES, Scripted, post, weft_serve
from weft.store import open_store
from weft.thread import archive_bytes, forget, fsck, gc, import_bytes

ANSWER = {
    "id": "msg_1",
    "type": "message",
    "role": "assistant",
    "model": "m",
    "content": [{"type": "text", "text": "The tree stands where the river bends."}],
    "stop_reason": "end_turn",
    "stop_sequence": None,
    "usage": {"input_tokens": 12, "output_tokens": 6},
}
ECHO = {"role": "assistant", "content": ANSWER["content"]}
ODD = (
    b'{ "model" : "m",\n "max_tokens":64, "metadata":{"user_id":"u\\/1"}, "top_p": 1.0,\r\n'
    b'  "system" : "Stra\\u00DFe und Stra\xc3\x9fe", "messages":[ {"role":"user",'
    b'"content":[{"type":"text","text":"a tab\\t, a quote \\" and \\u0041 longer words",'
    b'"cache_control":{"type":"ephemeral"}}]}%b ] , "top_p": 1.0 }'
)


@pytest.fixture(scope="module")
def plain(tmp_path_factory, upstream):
    """One upstream, whose callers' bodies pass as they are."""
    flag = f"--upstream=up=anthropic:{upstream.url}"
    with weft_serve(tmp_path_factory.mktemp("one"), flag) as running:
        yield running


def answer(protocol, streamed=False):
    if not streamed:
        body = weft.translate_response(ANSWER, source="anthropic", target=protocol).body
        return Scripted(orjson.dumps(body), kind="application/json")
    parts = [
        {"type": "message_start", "message": {**ANSWER, "content": [], "stop_reason": None}},
        {
            "type": "content_block_start",
            "index": 0,
            "content_block": {"type": "text", "text": ""},
        },
        {
            "type": "content_block_delta",
            "index": 0,
            "delta": {"type": "text_delta", "text": ANSWER["content"][0]["text"]},
        },
        {"type": "content_block_stop", "index": 0},
        {
            "type": "message_delta",
            "delta": {"stop_reason": "end_turn"},
            "usage": {"output_tokens": 6},
        },
        {"type": "message_stop"},
    ]
    frames = b"".join(
        b"event: %b\ndata: %b\n\n" % (p["type"].encode(), orjson.dumps(p)) for p in parts
    )
    to = weft.StreamTranslator(source="anthropic", target=protocol, created=1)
    return Scripted(to.feed(frames) + to.close())


def show(store, thread, *words, id="main"):
    """The output, the errors and the exit code of the command."""
    command = [sys.executable, "-c", LAUNCH, "show", id, "--sent", *words]
    options = ["--store", str(store), "--thread", thread]
    done = subprocess.run([*command, *options], capture_output=True, check=False)
    return done.stdout, done.stderr.decode(), done.returncode


def turn(text, *before, **more):
    messages = [*before, {"role": "user", "content": text}]
    tools = [
        {
            "name": "look",
            "description": "Looks at the place that is named.",
            "input_schema": {"type": "object", "properties": {"place": {"type": "string"}}},
        }
    ]
    return {"model": "m", "max_tokens": 64, "tools": tools, "messages": messages, **more}


def ask(url, protocol, model, body, **headers):
    """Ask in this protocol; returns the thread of the answer."""
    translated = weft.translate({**body, "model": model}, source="anthropic", target=protocol).body
    status, reply_headers, data = post(
        url + REQUEST_PATHS[protocol].format(model=model), translated, headers
    )
    assert status == 200, data
    return reply_headers["x-weft-thread"]


@pytest.mark.parametrize(("client", "behind"), [*product(PROTOCOLS, PROTOCOLS)])
def test_the_sent_request_is_printed_again(gateway, upstream, client, behind):
    upstream.then(answer(behind))
    model, words = f"{UPSTREAM_NAMES[behind]}/m", f"Where is the tree of {client} and {behind}?"
    first = turn(words)
    thread = ask(gateway.url, client, model, first)
    second = turn("And the river, where does it bend?", *first["messages"], ECHO, top_p=0.5)
    assert ask(gateway.url, client, model, second) == thread
    with weft.thread.open(gateway.store, thread) as opened:
        answers = [info.id for info in reversed(opened.log()) if info.usage is not None]
    assert len(answers) == 2
    for id, request in zip(answers, upstream.requests, strict=True):
        assert show(gateway.store, thread, id=id) == (request["body"], "", 0)
    receipt = orjson.loads(show(gateway.store, thread, "--json")[0])
    assert receipt["body"] == orjson.loads(upstream.requests[1]["body"])
    assert (receipt["receipt"]["protocol"], receipt["receipt"]["model"]) == (behind, "m")


@pytest.mark.parametrize(
    ("protocol", "words"),
    [("anthropic", "streamed"), ("openai-chat", "streamed for chat")],
)
def test_a_streamed_answer_has_its_sent_request(gateway, upstream, protocol, words):
    upstream.then(answer(protocol, streamed=True))
    body = turn(words, stream=True)
    thread = ask(gateway.url, "anthropic", f"{UPSTREAM_NAMES[protocol]}/m", body)
    assert show(gateway.store, thread)[0] == upstream.requests[0]["body"]


def test_a_body_is_stored_in_any_spelling(plain, upstream):
    upstream.then(answer("anthropic"))
    url, headers = f"{plain.url}/v1/messages", {"x-weft-thread": "odd", "x-api-key": "sk-mine"}
    post(url, ODD % b"", headers)
    assert show(plain.store, "odd")[0] == upstream.requests[0]["body"] == ODD % b""
    more = b' , %b, {"role":"user","content":"go on \xf0\x9f\x8c\xb3"}' % orjson.dumps(ECHO)
    post(url, ODD % more, headers)
    assert show(plain.store, "odd")[0] == upstream.requests[1]["body"] == ODD % more
    written = b"".join(path.read_bytes() for path in plain.store.parent.glob("weft.db*"))
    assert b"sk-mine" not in written


def test_the_offline_model_gets_the_callers_bytes(plain):
    body = b'{"model": "weft-offline", "max_tokens":50,"messages":[{"role":"user","content":"hi"}]}'
    post(f"{plain.url}/v1/messages", body, {"x-weft-thread": "inside"})
    assert show(plain.store, "inside") == (body, "", 0)


def test_the_pages_chat_stores_sent_requests(plain, upstream):
    upstream.then(answer("anthropic", streamed=True))

    async def chat(words):
        async with ClientSession() as session, session.ws_connect(plain.url + "/ws") as socket:
            frame = {"type": "say", "text": words, "thread": "page", "model": "m"}
            await socket.send_json(frame)
            while (received := await socket.receive_json(timeout=60))["type"] != "message_complete":
                assert received["type"] != "error", received

    for words in ("Where is the tree?", "And the river?"):
        asyncio.run(chat(words))
    assert len(upstream.requests) == 2
    assert show(plain.store, "page") == (upstream.requests[1]["body"], "", 0)


def test_a_conversation_stored_by_the_server_is_recorded_as_sent(gateway, upstream):
    """What is continued by an id is sent whole to a vendor that does not know the id."""
    upstream.then(answer("anthropic"))
    first = {"model": "a/m", "input": "Where is the tree, then?", "max_output_tokens": 9}
    url = gateway.url + REQUEST_PATHS["openai-responses"]
    id = orjson.loads(post(url, first)[2])["id"]
    more = {**first, "input": "And the river?", "previous_response_id": id}
    status, headers, data = post(url, more)
    assert status == 200, data
    assert b"Where is the tree, then?" in upstream.requests[1]["body"]
    assert show(gateway.store, headers["x-weft-thread"])[0] == upstream.requests[1]["body"]


def test_a_long_conversation_is_not_stored_again_each_turn(plain, upstream):
    upstream.then(answer("anthropic"))
    tools = turn("")["tools"] * 40
    messages = [{"role": "user", "content": "The whole story so far. " + "word by word, " * 14000}]
    sizes = []
    for number in range(12):
        body = turn(f"Chapter {number}, please.", *messages, tools=tools, temperature=0.5)
        thread = ask(plain.url, "anthropic", "m", body, **{"x-weft-thread": "long"})
        messages = [*body["messages"], ECHO]
        sizes.append(_weight(plain.store, thread))
    assert len(upstream.requests[-1]["body"]) > 200_000
    assert show(plain.store, thread)[0] == upstream.requests[-1]["body"]
    grown = [after - before for before, after in pairwise(sizes)]
    assert max(grown) < 3000
    assert max(grown[1:]) - min(grown[1:]) < 100  # no turn costs more than the one before it


def _weight(store, thread):
    with weft.thread.open(store, thread) as opened:
        steps = opened.store.walk(thread, bytes.fromhex(opened.branches()["main"]))
    return sum(len(step.commit.data) + sum(map(len, step.contents)) for step in steps)


def test_a_forgotten_text_is_removed_from_sent_requests_permanently(tmp_path, upstream):
    upstream.then(answer("anthropic"))
    secret = "hunter/2 is the password"
    spelt = ODD.replace(b"longer words", secret.replace("/", "\\/").encode())
    flag = f"--upstream=up=anthropic:{upstream.url}"
    with weft_serve(tmp_path, flag) as running:
        post(f"{running.url}/v1/messages", spelt % b"", {"x-weft-thread": "odd"})
        assert show(running.store, "odd")[0] == spelt % b""
    assert forget(running.store, secret)
    assert fsck(running.store).clean
    printed, why, code = show(running.store, "odd")
    assert (printed, code) == (b"", 1)
    assert "was forgotten" in why
    with weft_serve(tmp_path, flag) as running:  # the client still says it in every request
        more = b' , %b, {"role":"user","content":"go on"}' % orjson.dumps(ECHO)
        post(f"{running.url}/v1/messages", spelt % more, {"x-weft-thread": "odd"})
        printed, why, code = show(running.store, "odd")
        assert (printed, code) == (b"", 1)
        assert "was forgotten" in why
    written = b"".join(path.read_bytes() for path in tmp_path.glob("weft.db*"))
    assert b"hunter" not in written
    assert fsck(running.store).clean


def test_archives_and_gc_keep_sent_requests(plain, upstream, tmp_path):
    upstream.then(answer("anthropic"))
    first = turn("Where does the archive keep it?")
    ask(plain.url, "anthropic", "m", first, **{"x-weft-thread": "kept"})
    second = turn("And then?", *first["messages"], ECHO)
    ask(plain.url, "anthropic", "m", second, **{"x-weft-thread": "kept"})
    gc(plain.store, days=0)
    copy = tmp_path / "copy.db"
    source, target = open_store(plain.store), open_store(copy)
    import_bytes(target, archive_bytes(source, ["kept"]))
    source.close()
    target.close()
    assert fsck(copy).clean
    assert show(copy, "kept")[0] == upstream.requests[1]["body"]
