"""Recorded answers by their id, with OpenAI's SDK: read, list the input, delete, `store: false`."""

import orjson
import pytest
from openai import APIStatusError, BadRequestError, NotFoundError, OpenAI

from servers import Scripted, scripted_upstream, weft_serve

KEYS = {"WEFT_API_KEYS": "ka,kb"}
ITEM = {
    **{"type": "message", "id": "msg_own", "role": "assistant", "status": "completed"},
    "content": [{"type": "output_text", "text": "From upstream", "annotations": []}],
}
BODY = {
    **{"id": "resp_upstream1", "object": "response", "created_at": 7, "status": "completed"},
    **{"model": "m", "output": [ITEM], "parallel_tool_calls": True, "tool_choice": "auto"},
    **{"tools": [], "usage": {"input_tokens": 3, "output_tokens": 4, "total_tokens": 7}},
}
CHAT_BODY = {
    **{"id": "c1", "object": "chat.completion", "created": 1, "model": "m"},
    "choices": [
        {
            "index": 0,
            "message": {"role": "assistant", "content": "From upstream"},
            "finish_reason": "length",
        }
    ],
    "usage": {"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 7},
}

TOOL = {"type": "function", "name": "look", "parameters": {"type": "object"}, "strict": False}


@pytest.fixture(scope="module")
def upstream():
    with scripted_upstream() as running:
        yield running


@pytest.fixture(scope="module")
def gateway(tmp_path_factory, upstream):
    flags = [
        f"--upstream=direct=openai-responses:{upstream.url}",
        f"--upstream=chat=openai-chat:{upstream.url}",
    ]
    with weft_serve(tmp_path_factory.mktemp("responses"), *flags, **KEYS) as running:
        yield running


def sdk(gateway, key: str = "ka") -> OpenAI:
    return OpenAI(base_url=f"{gateway.url}/v1", api_key=key, max_retries=0)


def answers(upstream, body) -> None:
    upstream.then(Scripted(orjson.dumps(body), kind="application/json"))


def test_an_answer_is_read_by_its_id(gateway):
    client = sdk(gateway)
    made = client.responses.create(
        model="weft-offline", input="How many?", instructions="Be brief.", tools=[TOOL]
    )
    read = client.responses.retrieve(made.id)
    assert read.id == made.id
    assert read.output_text == made.output_text
    assert [item.id for item in read.output] == [item.id for item in made.output]
    assert (read.status, read.model) == ("completed", "weft-offline")
    assert read.instructions == "Be brief."
    assert [tool.name for tool in read.tools] == ["look"]
    assert read.usage is not None
    assert read.created_at > 1_700_000_000
    streamed = list(client.responses.retrieve(made.id, stream=True))
    assert streamed[-1].type == "response.completed"
    assert streamed[-1].response.output_text == made.output_text


def test_a_streamed_answer_is_read_too(gateway):
    client = sdk(gateway)
    stream = client.responses.create(model="weft-offline", input="Stream it.", stream=True)
    made = list(stream)[-1].response
    assert client.responses.retrieve(made.id).output_text == made.output_text


@pytest.mark.parametrize(
    ("model", "body", "status"),
    [("direct/m", BODY, "completed"), ("chat/m", CHAT_BODY, "incomplete")],
)
def test_an_upstreams_answer_is_read_as_the_client_got_it(gateway, upstream, model, body, status):
    answers(upstream, body)
    client = sdk(gateway)
    made = client.responses.create(model=model, input="What is it?")
    read = client.responses.retrieve(made.id)
    assert (read.id, read.status) == (made.id, status)
    assert [item.to_dict() for item in read.output] == [item.to_dict() for item in made.output]
    assert read.usage.input_tokens == 3


def test_the_input_is_listed_in_pages(gateway):
    client = sdk(gateway)
    first = client.responses.create(model="weft-offline", input="One")
    second = client.responses.create(
        model="weft-offline", input="Two", previous_response_id=first.id
    )
    items = list(client.responses.input_items.list(second.id, order="asc"))
    texts = [item.content[0].text for item in items]
    assert texts == ["One", first.output_text, "Two"]
    newest = client.responses.input_items.list(second.id, limit=1)
    assert (newest.data[0].content[0].text, newest.has_more) == ("Two", True)
    assert [item.content[0].text for item in newest] == ["Two", first.output_text, "One"]
    with pytest.raises(BadRequestError) as error:
        client.responses.input_items.list(second.id, limit=101)
    assert error.value.param == "limit"


def test_a_deleted_answer_is_unknown_and_its_thread_stays(gateway):
    client = sdk(gateway)
    made = client.responses.create(model="weft-offline", input="Delete this")
    client.responses.delete(made.id)
    assert_unknown(client, made.id)
    with pytest.raises(NotFoundError):
        client.responses.delete(made.id)


def assert_unknown(client: OpenAI, id: str) -> None:
    with pytest.raises(NotFoundError) as error:
        client.responses.retrieve(id)
    assert f"Response with id '{id}' not found." in error.value.message
    assert error.value.type == "invalid_request_error"
    with pytest.raises(NotFoundError):
        client.responses.input_items.list(id)
    with pytest.raises(BadRequestError) as error:
        client.responses.create(model="weft-offline", input="go on", previous_response_id=id)
    assert error.value.code == "previous_response_not_found"
    assert error.value.param == "previous_response_id"
    assert f"Previous response with id '{id}' not found." in error.value.message


def test_another_key_does_not_find_it(gateway):
    made = sdk(gateway).responses.create(model="weft-offline", input="A's secret")
    assert_unknown(sdk(gateway, "kb"), made.id)
    with pytest.raises(NotFoundError):
        sdk(gateway, "kb").responses.delete(made.id)
    assert sdk(gateway).responses.retrieve(made.id).id == made.id
    with pytest.raises(APIStatusError) as error:
        sdk(gateway, "wrong").responses.retrieve(made.id)
    assert error.value.status_code == 401


@pytest.mark.parametrize("id", ["resp_0", "x", "resp_..%2F..", "%00", "ré"])
def test_an_id_that_nobody_got_is_unknown(gateway, id):
    with pytest.raises(NotFoundError):
        sdk(gateway).responses.retrieve(id)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("model", ["weft-offline", "direct/m", "chat/m"])
def test_an_answer_that_must_not_be_stored_has_no_id_here(gateway, upstream, model, stream):
    body = BODY if model == "direct/m" else CHAT_BODY
    answers(upstream, {**body, "id": f"resp_unstored{stream}"})
    client = sdk(gateway)
    made = client.responses.create(model=model, input="private", store=False, stream=stream)
    if stream:
        made = list(made)[-1].response
    assert_unknown(client, made.id)
    raw = client.responses.with_raw_response.create(model=model, input="private 2", store=False)
    assert raw.headers["x-weft-recorded"] == "store"


def test_what_must_not_be_stored_is_not_recorded_if_the_setting_says_so(tmp_path):
    (tmp_path / "weft.toml").write_text("record_unstored = false\n")
    with weft_serve(tmp_path, "--config", "weft.toml") as gateway:
        responses = sdk(gateway).responses.with_raw_response
        unstored = responses.create(model="weft-offline", input="private words", store=False)
        assert unstored.headers["x-weft-recorded"] == "no"
        stored = responses.create(model="weft-offline", input="public words", store=True)
        assert stored.headers["x-weft-recorded"] == "store"
        # It still continues a stored conversation.
        id = stored.parse().id
        next = responses.create(
            model="weft-offline", input="more", store=False, previous_response_id=id
        )
        assert next.headers["x-weft-recorded"] == "no"
    files = b"".join(file.read_bytes() for file in tmp_path.iterdir() if file.is_file())
    assert b"public words" in files
    assert b"private words" not in files
