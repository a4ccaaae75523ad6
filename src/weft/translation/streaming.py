"""Translate a stream: bytes of the upstream in, bytes of the client out."""

from weft.checked import checked_class
from weft.codec import AnswerOptions, AnswerTranslator, ThinkingMember, calls_of
from weft.model import JsonObject, Loss, Origin, Response

from .translate import check_thinking, find_codec


@checked_class(eager=("__init__",))
class StreamTranslator:
    """Translates an upstream's stream for a client. Chunks may have any size.

    `response` is the answer so far, as the client sees it. A stream that stops early, or breaks its
    own protocol, ends in the client's own error form, never in a success. If the upstream sends a
    whole body instead of a stream, the client still gets a stream. `sidecar` is the sidecar of the
    request's translation; the answer's own is `answer_sidecar`. `thinking` is as in
    `translate_response`.
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
        options = AnswerOptions(
            created=created or 0, calls=calls_of(sidecar), thinking=check_thinking(thinking)
        )
        self._translator = AnswerTranslator(
            find_codec(source, "source"), find_codec(target, "target"), options, Origin(source)
        )
        self.sidecar = sidecar

    @property
    def losses(self) -> list[Loss]:
        return self._translator.losses

    @property
    def response(self) -> Response:
        return self._translator.response

    @property
    def answer_sidecar(self) -> JsonObject:
        """The parts of the answer that the client cannot send back, for the translation of its next
        request; empty if there are none, or if the stream has not ended well."""
        return self._translator.stream_sidecar

    @property
    def failed(self) -> bool:
        """Whether the upstream failed, or was cut off, after the stream began."""
        return self._translator.error is not None

    @property
    def ended(self) -> bool:
        """Whether the stream has ended: by its final event, or by an error."""
        return self._translator.ended

    def feed(self, data: bytes) -> bytes:
        """The client's bytes for these bytes of the upstream."""
        piece = self._translator.feed(data)
        return piece.now + piece.last

    def close(self) -> bytes:
        """The client's bytes for the end of the upstream's stream."""
        piece = self._translator.close()
        return piece.now + piece.last
