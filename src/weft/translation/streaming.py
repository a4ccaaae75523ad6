"""Streams as a caller translates them: an upstream's bytes in, the client's bytes out."""

from weft.codec import (
    AnswerReader,
    CallRestorer,
    RefusalTeller,
    ThinkingMember,
    calls_of,
    place_thinking_event,
    tell_refusal,
    tells_apart,
    write_frame,
)
from weft.errors import UpstreamProtocolError
from weft.model import (
    ApiError,
    Delta,
    Event,
    Fail,
    Finish,
    Fold,
    JsonObject,
    Loss,
    Origin,
    Other,
    Place,
    Response,
)
from weft.translation.translate import answer_sidecar, check_thinking, find_codec


class StreamTranslator:
    """An upstream's stream becomes the client's, in whatever pieces the bytes arrive.

    `response` is the answer so far, as the client sees it. A stream that stops early, or breaks its
    own protocol, ends in the client's own error form, never in a success. A whole answer in place
    of a stream becomes a stream. `sidecar` is the one that the request's translation left behind;
    the answer's own is `answer_sidecar`. `thinking` is as in `translate_response`.
    """

    def __init__(
        self,
        source: str,
        target: str,
        sidecar: JsonObject | None = None,
        created: int | None = None,
        *,
        thinking: ThinkingMember = "reasoning_content",
    ) -> None:
        self._thinking: ThinkingMember = check_thinking(thinking)
        self._same = source == target
        self._maker = find_codec(source, "source")
        self._reader = AnswerReader(self._maker)
        self._client = find_codec(target, "target")
        self._encoder = self._client.stream_encoder(created or 0)
        self._fold = Fold(Origin(source))
        calls = calls_of(sidecar)
        self._restorer = CallRestorer(calls) if calls else None
        self._teller = RefusalTeller() if tells_apart(self._maker, self._client) else None
        self._shown = Fold(Origin(source)) if calls else self._fold
        self.sidecar = sidecar
        self._encoder.losses.locate = self._locate

    def _locate(self, place: Place) -> str:
        return self._maker.locate_answer(self._fold.response(), place)

    @property
    def losses(self) -> list[Loss]:
        return [*self._reader.repairs, *self._encoder.losses.items]

    @property
    def response(self) -> Response:
        shown = self._shown.response()
        return shown if self._teller is None else tell_refusal(shown)

    @property
    def answer_sidecar(self) -> JsonObject:
        """What the client cannot hand back of the answer, for the translation of its next request;
        empty where it can, or where the stream has not come to a good end."""
        if not self.ended or self.failed:
            return {}
        shown = self._client.encode_response(self.response, 0).body
        return answer_sidecar(self._fold.response(), shown, self._client)

    @property
    def failed(self) -> bool:
        """Whether the upstream failed, or was cut off, after the stream began."""
        return self._fold.error is not None

    @property
    def ended(self) -> bool:
        """Whether the wire's terminal mark, or an error, has come."""
        return self._fold.ended

    def feed(self, data: bytes) -> bytes:
        """The client's bytes for these bytes of the upstream's."""
        return b"".join(self._send(self._reader.feed(data)))

    def close(self) -> bytes:
        """What ends the client's stream once the upstream's has ended."""
        return b"".join(self._send(self._reader.close()))

    def _send(self, events: list[Event]) -> list[bytes]:
        out: list[bytes] = []
        for event in events:
            if self._fold.ended and not (self._same and isinstance(event, Other | Finish)):
                continue  # its own wire repeats what stood behind the end, and nobody else
            try:
                self._fold.send(event)
            except UpstreamProtocolError as error:
                event = Fail(ApiError("server", str(error), 502, "api_error"))
                self._fold.send(event)
            if type(event) is Delta and self._restorer is None:  # by far the most
                out += [write_frame(frame) for frame in self._encoder.send(event)]
                continue
            for said in self._retold(event):
                said = place_thinking_event(said, self._thinking, self._client.protocol)
                out += [write_frame(frame) for frame in self._encoder.send(said)]
        return out

    def _retold(self, event: Event) -> list[Event]:
        """The events that say this one to the client: with its tools' own names, and with the
        explanation of a refusal where its wire has a place for it."""
        said = [event]
        if self._restorer is not None:
            said = self._restorer.send(event)
            for known in said:
                self._shown.send(known)
        teller = self._teller
        if teller is None:
            return said
        return [told for known in said for told in teller.send(known)]
