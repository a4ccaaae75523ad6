"""A small protocol that Weft does not know: text only, one list of `turns`.

It shows how little a new protocol needs: this module, and one line in `weft.codec.base`.
"""

from collections.abc import Sequence
from typing import Any

import orjson

from weft.codec import Auth, Codec, Encoded, Frame, Http, Losses, Target
from weft.model import (
    ApiError,
    Close,
    Delta,
    End,
    Event,
    Fail,
    Finish,
    JsonObject,
    Message,
    Open,
    Params,
    Request,
    Response,
    Start,
    Stop,
    Text,
    Wire,
)

PROTOCOL = "fifth"


def locate(place: Any) -> str:
    match place:
        case ("params", name):
            return str(name)
        case (int(number), *_):
            return f"turns[{number}].says"
        case _:
            return ""


def decode_request(body: JsonObject, _model: str | None = None) -> Request:
    messages = tuple(Message(turn["who"], (Text(turn["says"]),)) for turn in body["turns"])
    params = Params(max_tokens=body.get("limit"), stream=body.get("stream"))
    own = {key: value for key, value in body.items() if key not in ("model", "turns")}
    wire = Wire(PROTOCOL, locate, lambda _block: "says")
    return Request(body["model"], messages, params=params, raw={PROTOCOL: own}, wire=wire)


def write_messages(messages: Sequence[Message]) -> list[JsonObject]:
    return [{"who": message.role, "says": message.text} for message in messages]


def encode_request(request: Request, _target: Target) -> Encoded:
    losses = Losses(request)
    for number, message in enumerate(request.messages):
        for index, block in enumerate(message.blocks):
            if not isinstance(block, Text):
                losses.add((number, index), "param_dropped", type(block).__name__)
    body: JsonObject = {"model": request.model, "turns": write_messages(request.messages)}
    if request.params.max_tokens is not None:
        body["limit"] = request.params.max_tokens
    return Encoded(body, losses.items)


def decode_response(body: JsonObject) -> Response:
    message = Message("assistant", (Text(body["reply"]),))
    return Response(message, model=body.get("model"), stop=Stop("end", "done"))


def encode_response(response: Response, _created: int, _locate: Any = None) -> Encoded:
    return Encoded({"model": response.model, "reply": response.message.text}, [])


class StreamDecoder:
    def __init__(self) -> None:
        self.repairs = Losses()
        self._open = False
        self.is_complete = False

    def feed(self, frame: Frame) -> list[Event]:
        raw = orjson.loads(frame.data)
        events: list[Event] = []
        if not self._open:
            self._open = True
            events += [Start(model="m"), Open(0, Text(""))]
        if "done" in raw:
            self.is_complete = True
            return [*events, Close(0), Finish(Stop("end", "done")), End()]
        return [*events, Delta(0, "text", raw["text"])]

    def close(self) -> list[Event]:
        return []


class StreamEncoder:
    def __init__(self, _created: int) -> None:
        self.losses = Losses()

    def send(self, event: Event) -> list[Frame]:
        match event:
            case Delta(kind="text", text=text):
                return [Frame(orjson.dumps({"text": text}).decode())]
            case End():
                return [Frame('{"done":true}')]
            case Fail(error=error):
                return [Frame(orjson.dumps({"error": error.message}).decode())]
            case _:
                return []


def decode_error(body: Any, status: int) -> ApiError:
    return ApiError("server", str(body), status)


def encode_error(error: ApiError) -> tuple[int, JsonObject]:
    return error.status, {"error": error.message}


CODEC = Codec(
    protocol=PROTOCOL,
    decode_request=decode_request,
    encode_request=encode_request,
    write_messages=write_messages,
    decode_response=decode_response,
    encode_response=encode_response,
    locate_answer=lambda _response, _place: "reply",
    stream_decoder=StreamDecoder,
    stream_encoder=StreamEncoder,
    decode_error=decode_error,
    encode_error=encode_error,
    request_path=lambda _model, _stream: "/v1/fifth",
    http=Http(auth=Auth("x-fifth-key"), paths=("/v1/fifth",)),
    conversation_member="turns",
    answer_member="reply",
    empty_request={"model": "any", "turns": []},
    rewritable_members=("turns",),
)
