"""Numbers stay as they were written, in every direction, or are refused or reported."""

import copy
import json
import pickle
from pathlib import Path

import pytest

import weft
from weft import StreamTranslator, translate, translate_response
from weft.errors import Refused
from weft.exact_json import JSONDecodeError, dumps, loads
from weft.model import ToolCall

PROTOCOLS = ("anthropic", "openai-chat", "openai-responses", "gemini")
MODELS = {"gemini": "gemini-3-pro-preview"}

NUMBERS = [
    "1000000000000000000001",  # more than 64 bits
    "-9223372036854775809",
    "18446744073709551615",  # the largest integer of 64 bits
    "115792089237316195423570985008687907853269984665640564039457584007913129639935",  # 2**256-1
    "0.12345678901234567890",
    "1.000000000000000001",  # an amount with 18 decimals
    "123456789012345678901.5",
    "1.0",
    "1",
    "1.50",
    "1e5",
    "1E+5",
    "1e-7",
    "0.00001",
    "-0",
    "-0.0",
    "0e0",
    "1e300",
    "5e-324",
]
ARGUMENTS = '{"n":[' + ",".join(NUMBERS) + '],"text":"-0 and 1e5, 1.50"}'
LONG = [n for n in NUMBERS if "." in n and len(n) > 18]
"""What a float cannot hold."""


def request_of(protocol: str, arguments: str = ARGUMENTS) -> bytes:
    schema = '{"type":"object","properties":{"n":{"type":"array","const":' + arguments + "}}}"
    quoted = json.dumps(arguments)
    bodies = {
        "anthropic": '{"model":"m","max_tokens":9,"messages":[{"role":"user","content":"pay"},'
        '{"role":"assistant","content":[{"type":"tool_use","id":"t1","name":"pay","input":%(a)s}]},'
        '{"role":"user","content":[{"type":"tool_result","tool_use_id":"t1","content":%(q)s}]}],'
        '"tools":[{"name":"pay","input_schema":%(s)s}]}',
        "openai-chat": '{"model":"m","messages":[{"role":"user","content":"pay"},'
        '{"role":"assistant","content":null,"tool_calls":[{"id":"t1","type":"function",'
        '"function":{"name":"pay","arguments":%(q)s}}]},'
        '{"role":"tool","tool_call_id":"t1","content":%(q)s}],'
        '"tools":[{"type":"function","function":{"name":"pay","parameters":%(s)s}}]}',
        "openai-responses": '{"model":"m","input":[{"role":"user","content":"pay"},'
        '{"type":"function_call","call_id":"t1","name":"pay","arguments":%(q)s},'
        '{"type":"function_call_output","call_id":"t1","output":%(q)s}],'
        '"tools":[{"type":"function","name":"pay","parameters":%(s)s,"strict":false}]}',
        "gemini": '{"contents":[{"role":"user","parts":[{"text":"pay"}]},'
        '{"role":"model","parts":[{"functionCall":{"name":"pay","args":%(a)s}}]},'
        '{"role":"user","parts":[{"functionResponse":{"name":"pay","response":%(a)s}}]}],'
        '"tools":[{"functionDeclarations":[{"name":"pay","parametersJsonSchema":%(s)s}]}]}',
    }
    return (bodies[protocol] % {"a": arguments, "q": quoted, "s": schema}).encode()


def answer_of(protocol: str, arguments: str = ARGUMENTS) -> bytes:
    quoted = json.dumps(arguments)
    bodies = {
        "anthropic": '{"id":"msg_1","type":"message","role":"assistant","model":"m","content":'
        '[{"type":"tool_use","id":"t1","name":"pay","input":%(a)s}],"stop_reason":"tool_use",'
        '"stop_sequence":null,"usage":{"input_tokens":1,"output_tokens":1}}',
        "openai-chat": '{"id":"x","object":"chat.completion","created":1,"model":"m","choices":'
        '[{"index":0,"message":{"role":"assistant","content":null,"tool_calls":[{"id":"t1",'
        '"type":"function","function":{"name":"pay","arguments":%(q)s}}]},"finish_reason":'
        '"tool_calls"}],"usage":{"prompt_tokens":1,"completion_tokens":1,"total_tokens":2}}',
        "openai-responses": '{"id":"resp_1","object":"response","created_at":1,'
        '"status":"completed","model":"m","output":[{"type":"function_call","id":"fc_1","call_id":"t1",'
        '"name":"pay",'
        '"arguments":%(q)s,"status":"completed"}],"usage":{"input_tokens":1,"output_tokens":1,'
        '"total_tokens":2}}',
        "gemini": '{"candidates":[{"content":{"role":"model","parts":[{"functionCall":{"name":'
        '"pay","args":%(a)s}}]},"finishReason":"STOP"}],"usageMetadata":{"promptTokenCount":1,'
        '"candidatesTokenCount":1,"totalTokenCount":2}}',
    }
    return (bodies[protocol] % {"a": arguments, "q": quoted}).encode()


def count(body: bytes | str) -> int:
    """How often the arguments are in a body, as an object or as text."""
    text = body.decode() if isinstance(body, bytes) else body
    return text.count(ARGUMENTS) + text.count(json.dumps(ARGUMENTS)[1:-1])


PAIRS = [(source, target) for source in PROTOCOLS for target in PROTOCOLS]


@pytest.mark.parametrize(("source", "target"), PAIRS)
def test_the_bytes_of_a_request_keep_every_number(source: str, target: str) -> None:
    body = request_of(source)
    translated = translate(body, source, target, model=MODELS.get(target, "m"))
    assert count(translated.body) == count(body) == 3
    stored = json.loads(json.dumps(translated.sidecar))  # by another JSON library
    back = translate(translated.body, target, source, model="m", sidecar=stored)
    assert count(back.body) == 3


@pytest.mark.parametrize(("source", "target"), PAIRS)
def test_an_answer_and_its_stream_keep_every_number(source: str, target: str) -> None:
    body = answer_of(source)
    translated = translate_response(body, source, target)
    assert count(translated.body) == 1
    assert not [loss for loss in translated.losses if loss.code == "number_rounded"]
    stream = StreamTranslator(source, target)
    text = (stream.feed(body) + stream.close()).decode()
    assert count(text) >= 1
    again = StreamTranslator(target, source)  # a whole stream as the upstream's bytes
    back = (again.feed(text.encode()) + again.close()).decode()
    assert count(back) >= 1


@pytest.mark.parametrize(("source", "target"), PAIRS)
def test_a_dict_keeps_every_integer(source: str, target: str) -> None:
    body = json.loads(request_of(source))
    translated = translate(body, source, target, model=MODELS.get(target, "m")).body
    text = json.dumps(translated)
    for number in NUMBERS[:4]:
        assert text.count(number) == 3


@pytest.mark.parametrize("source", ["openai-chat", "openai-responses"])
@pytest.mark.parametrize("target", ["anthropic", "gemini"])
def test_a_decimal_that_no_float_holds_is_reported_in_a_dict(source: str, target: str) -> None:
    body = json.loads(request_of(source))
    translated = translate(body, source, target, model=MODELS.get(target, "m"))
    rounded = [loss for loss in translated.losses if loss.code == "number_rounded"]
    assert [loss.detail for loss in rounded] == [", ".join(LONG)]
    assert rounded[0].path.startswith(("messages[1]", "input[1]"))
    assert type(json.loads(json.dumps(translated.body))) is dict
    with pytest.raises(Refused):
        translate(body, source, target, model=MODELS.get(target, "m"), strict=True)
    answer = translate_response(json.loads(answer_of(source)), source, target)
    assert {loss.detail for loss in answer.losses if loss.code == "number_rounded"} == set(LONG)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_store_keeps_every_number(protocol: str, tmp_path: Path) -> None:
    request = weft.decode(request_of(protocol), protocol, model="m")
    with weft.open(str(tmp_path / "a.db")) as t:
        for message in request.messages:
            t.commit_message(message)
    with weft.open(str(tmp_path / "a.db")) as t:
        messages = t.compile().messages
        call = next(b for m in messages for b in m.blocks if isinstance(b, ToolCall))
        assert call.arguments == ARGUMENTS
        params = t.compile().to_anthropic_params("m")
        assert "number_rounded" in {loss.code for loss in params.losses}  # it is a dict
        assert NUMBERS[0] in json.dumps(params)


def test_an_unknown_member_keeps_its_number_in_a_store(tmp_path: Path) -> None:
    body = request_of("anthropic").replace(
        b'"name":"pay","input"', b'"x":[1.50,-0,1e5],"name":"pay","input"', 1
    )
    with weft.open(str(tmp_path / "a.db")) as t:
        for message in weft.decode(body, "anthropic").messages:
            t.commit_message(message)
    with weft.open(str(tmp_path / "a.db")) as t:
        call = t.compile().messages[1].blocks[0]
        assert dumps(call.ext["anthropic"]) == b'{"x":[1.50,-0,1e5]}'


@pytest.mark.parametrize("text", NUMBERS)
def test_a_number_is_written_as_it_was_read(text: str) -> None:
    for spelled in (text, f"[{text} ]", f'{{"a":{text}}}', f'{{"-0 ":{text},"b":[{text}\n]}}'):
        value = loads(spelled)
        assert loads(spelled.encode()) == value
        assert json.loads(spelled) == value
        written = dumps(value).decode()
        assert written == "".join(spelled.split()).replace('"-0"', '"-0 "')
        assert dumps(pickle.loads(pickle.dumps(copy.deepcopy(value)))).decode() == written


@pytest.mark.parametrize("text", ["1e400", "-1e400", "1" * 5000, "[" * 2000 + "]" * 2000])
def test_what_cannot_be_carried_is_refused(text: str) -> None:
    with pytest.raises(JSONDecodeError):
        loads(text)
    with pytest.raises(Refused):
        translate('{"model":"m","max_tokens":9,"messages":[],"x":' + text + "}")
