"""The public translation functions: a body or a stream in, its translation and the losses out.

A dict gives a dict, bytes give bytes. The sidecar is computed on first use, because it costs a
second translation. The only file that is read is the shipped catalogue; no clock is read.

This module is a layer of its own: it needs the codecs and the model catalogue, but no thread.
"""

from collections.abc import Callable
from functools import cached_property
from math import inf
from typing import Any, cast, get_args

from msgspec import structs

from weft import exact_json
from weft.catalog import Catalog, load_catalog
from weft.checked import checked_class, checked_function
from weft.codec import (
    CODECS,
    AnswerOptions,
    AnswerTranslator,
    CachePolicy,
    Codec,
    SimpleRequest,
    SystemPolicy,
    Target,
    ThinkingMember,
    apply_sidecar,
    as_dict,
    make_sidecar,
    model_of,
    parsed,
    read_simple,
    renamed_tools_of,
    verbatim,
    write_request,
)
from weft.errors import Refused
from weft.model import (
    JsonObject,
    Loss,
    Origin,
    Request,
    Response,
    by_importance,
)


@checked_class(eager=("__init__",))
class StreamTranslator:
    """Translates an upstream's stream for a client. Chunks may have any size.

    `response` is the answer so far, as the client sees it. A stream that stops early, or breaks its
    own protocol, ends in the client's own error form, never in a success. If the upstream sends a
    whole body instead of a stream, the client still gets a stream. `sidecar` is the sidecar of the
    request's translation; the answer's own is `answer_sidecar`. `created` and `thinking` are as in
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
            created=created or 0,
            renamed_tools=renamed_tools_of(sidecar),
            thinking=check_thinking(thinking),
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
        """The sidecar to pass to the translation of the client's next request.

        It has the parts of the answer that the client cannot send back. It is empty if there are
        none, or if the stream has not ended successfully.
        """
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


Body = JsonObject | bytes | str
SYSTEM_POLICIES: tuple[str, ...] = get_args(SystemPolicy)
CACHE_POLICIES: tuple[str, ...] = get_args(CachePolicy)


class Translation:
    """A translated body.

    `losses` lists what was dropped, changed, added or moved. `path` is the URL path to send a
    request to. `status` is the HTTP status of a translated error.
    """

    def __init__(
        self,
        body: Any,
        losses: list[Loss],
        path: str = "",
        compute_sidecar: Callable[[], JsonObject] | None = None,
        status: int | None = None,
    ) -> None:
        self.body = body
        self.losses = losses
        self.path = path
        self.status = status
        self._compute_sidecar = compute_sidecar

    @cached_property
    def sidecar(self) -> JsonObject:
        """What the reverse translation needs to restore the original; empty if it needs nothing."""
        sidecar = self._compute_sidecar() if self._compute_sidecar is not None else {}
        write_body(sidecar, True)  # raises if it contains a value that JSON cannot represent
        return sidecar

    def __repr__(self) -> str:
        return f"Translation(path={self.path!r}, losses={len(self.losses)})"


@checked_function
def translate(
    body: Body,
    source: str = "anthropic",
    target: str = "openai-chat",
    model: str | None = None,
    system: SystemPolicy = "auto",
    strict: bool = False,
    cache: CachePolicy = "keep",
    sidecar: JsonObject | None = None,
    *,
    upstream: str = "",
    catalog: Catalog | None = None,
) -> Translation:
    """Translate a request body to another protocol.

    - `model`: the model's name in the translated body. Required if the body names no model
      (Gemini), unless the sidecar has the name.
    - `strict`: raise `Refused` for the most important loss, unless all are of form.
    - `sidecar`: the sidecar of the translation that made this body; it restores the original.
    - `upstream`: the deployment that receives the body, for models that behave differently there.
    """
    check_policies(system, cache)
    reader, writer = find_codec(source, "source"), find_codec(target, "target")
    models = catalog or load_catalog()
    incoming = _Incoming(body, reader, model, sidecar)
    request = incoming.read_for(writer)
    if sidecar and system == "auto" and incoming.is_restored:
        system = "inline"  # the caller's own body, restored exactly: no system message moves
    as_bytes = not isinstance(body, dict)
    write_target = Target(
        models.find(incoming.model, upstream), system, cache, verbatim if as_bytes else parsed
    )
    written = write_request(request, writer, write_target)
    if strict:
        refuse_losses(written.losses)

    def compute_sidecar() -> JsonObject:
        translated = exact_json.loads(exact_json.dumps(written.body)) if as_bytes else written.body
        decoded = incoming.decoded
        source_target = Target(models.find(decoded.model), "auto", "keep")
        return make_sidecar(
            decoded,
            writer.decode_request(translated, incoming.model),
            lambda echoed: write_request(echoed, reader, source_target).body,
            incoming.raw,
            written.renamed_tools,
            names_model="model" in translated,
        )

    return Translation(
        write_body(written.body, as_bytes), written.losses, written.path, compute_sidecar
    )


class _Incoming:
    """A request body to translate, decoded as late as possible.

    After `read_for`, `model` is the name of its model, and `is_restored` tells whether the sidecar
    restored the exact original.
    """

    def __init__(
        self, body: Body, reader: Codec, model: str | None, sidecar: JsonObject | None
    ) -> None:
        self._body = body
        self._reader = reader
        self._model_override = model
        self._sidecar = sidecar
        self.model = ""
        self.is_restored = False

    def read_for(self, writer: Codec) -> Request | SimpleRequest:
        """Read the body; returns the source from which `write_request` writes for this codec."""
        if not isinstance(self._body, dict) and not self._sidecar:
            simple = read_simple(
                self._body, self._reader, writer, self._model_override, lambda: self.decoded
            )
            if simple is not None:
                self.model = simple.setup.model
                return simple
        request = self.decoded
        if self._sidecar:
            request = apply_sidecar(request, self._sidecar)
            self.is_restored = request.wire is not self.decoded.wire
        self.model = request.model
        return request

    @cached_property
    def raw(self) -> JsonObject:
        return read_body(self._body)[0]

    @cached_property
    def decoded(self) -> Request:
        model = self._model_override
        if model is None and self._sidecar and "model" not in self.raw:
            model = model_of(self._sidecar)  # Gemini's body has none; the original had one
        return self._reader.decode_request(self.raw, model)


@checked_function
def translate_response(
    body: Body,
    source: str,
    target: str,
    sidecar: JsonObject | None = None,
    *,
    created: int = 0,
    thinking: ThinkingMember = "reasoning_content",
) -> Translation:
    """Translate a complete answer of an upstream for a client of another protocol.

    `sidecar` is the sidecar of the request's translation: it restores the client's own tool names.
    Pass the answer's sidecar to the translation of the client's next request to restore what the
    client cannot send back.

    `created` is the time in the translated answer, in seconds since 1970, if its protocol requires
    one. `thinking` is the member that shows thinking to a Chat Completions client. OpenRouter's
    clients read `reasoning`; `hidden` omits it.

    Raises `UpstreamFailed` if the answer reports a failure.
    """
    options = AnswerOptions(
        created=created, renamed_tools=renamed_tools_of(sidecar), thinking=check_thinking(thinking)
    )
    translator = AnswerTranslator(
        find_codec(source, "source"), find_codec(target, "target"), options
    )
    raw, as_bytes = read_body(body)
    original, response = translator.read_body(raw)
    encoded = translator.write_body(original, response)

    def compute_sidecar() -> JsonObject:
        return translator.sidecar(original, encoded.body)

    translated, losses = (encoded.body, []) if as_bytes else as_dict(encoded.body)
    return Translation(
        write_body(translated, as_bytes),
        by_importance([*encoded.losses, *losses]),
        compute_sidecar=compute_sidecar,
    )


@checked_function
def translate_error(body: Any, status: int, source: str, target: str) -> Translation:
    """Translate an upstream's error body to the client's protocol; the result has a `status`."""
    reader, writer = find_codec(source, "source"), find_codec(target, "target")
    as_bytes = isinstance(body, bytes)
    raw: Any = body
    if isinstance(body, bytes | str):
        try:
            raw = exact_json.loads(body)
        except exact_json.JSONDecodeError:
            raw = body.decode("utf-8", "replace") if isinstance(body, bytes) else body
    target_status, target_body = writer.encode_error(reader.decode_error(raw, status))
    return Translation(write_body(target_body, as_bytes), [], status=target_status)


@checked_function
def decode(body: Body, protocol: str, model: str | None = None) -> Request:
    """Decode a request body into a `Request`.

    The origin of its assistant messages is this protocol and the model that the body names, so that
    a thread that they are added to sends their thinking back to that model.
    """
    request = find_codec(protocol, "protocol").decode_request(read_body(body)[0], model)
    return _with_origin(request, Origin(protocol, model=request.model or None))


def _with_origin(request: Request, origin: Origin) -> Request:
    """The request with this origin in each assistant message that has none."""
    messages = tuple(
        structs.replace(message, origin=origin)
        if message.role == "assistant" and message.origin is None
        else message
        for message in request.messages
    )
    return structs.replace(request, messages=messages)


@checked_function
def encode(
    request: Request,
    protocol: str,
    *,
    system: SystemPolicy = "auto",
    cache: CachePolicy = "keep",
    upstream: str = "",
    catalog: Catalog | None = None,
) -> Translation:
    """Encode a `Request` as a body of this protocol."""
    check_policies(system, cache)
    codec = find_codec(protocol, "protocol")
    models = catalog or load_catalog()
    target = Target(models.find(request.model, upstream), system, cache)
    written = write_request(request, codec, target)
    body, losses = as_dict(written.body)
    return Translation(body, [*written.losses, *losses], written.path)


def check_policies(system: str, cache: str) -> None:
    """Raise `Refused` for an unknown policy."""
    for param, policy, supported in (
        ("system", system, SYSTEM_POLICIES),
        ("cache", cache, CACHE_POLICIES),
    ):
        if policy not in supported:
            raise Refused(f"{policy!r} is not one of {', '.join(supported)}", param=param)


def check_thinking(member: ThinkingMember) -> ThinkingMember:
    """The member; raises `Refused` if it is unknown."""
    if member not in get_args(ThinkingMember):
        supported = ", ".join(get_args(ThinkingMember))
        raise Refused(f"{member!r} is not one of {supported}", param="thinking")
    return member


def find_codec(protocol: str, param: str) -> Codec:
    """The codec with this name; raises `Refused` with the known names."""
    codec = CODECS.get(protocol)
    if codec is None:
        raise Refused(
            f"unknown protocol {protocol!r}; use one of {', '.join(sorted(CODECS))}", param=param
        )
    return codec


def read_body(body: Body) -> tuple[JsonObject, bool]:
    """The body as a JSON object, and whether it was text; raises `Refused` for other values."""
    if isinstance(body, dict):
        data = write_body(body, True)  # raises for cycles, other keys than strings, surrogates
        if b"null" in data and exact_json.loads(data) != body:
            refuse_non_finite(body)
        return body, False
    try:
        raw = exact_json.loads(body)
    except exact_json.JSONDecodeError as error:
        raise Refused(f"the body is not JSON: {error}", param="") from None
    if not isinstance(raw, dict):
        raise Refused(f"the body is {type(raw).__name__}, not an object", param="")
    return cast(JsonObject, raw), True


def write_body(body: Any, as_bytes: bool) -> Any:
    """The body in the type that the caller passed."""
    if not as_bytes:
        return body
    try:
        return exact_json.dumps(body)
    except TypeError as error:
        path = find_unwritable(body).removeprefix(".")
        raise Refused(f"cannot be written as JSON: {error}", param=path) from None


def find_unwritable(value: Any, limit: int = 64) -> str:
    """The path of a value that JSON cannot express, or where the nesting exceeds `limit`."""
    steps: list[tuple[str, Any]] = []
    if isinstance(value, dict):
        items = cast("dict[Any, Any]", value).items()
        steps = [
            (f".{key}" if isinstance(key, str) else f"[{key!r}]", inner) for key, inner in items
        ]
    elif isinstance(value, list):
        steps = [(f"[{number}]", inner) for number, inner in enumerate(cast("list[Any]", value))]
    for step, inner in steps if limit else ():
        try:
            exact_json.dumps(inner)
        except TypeError:
            return step + find_unwritable(inner, limit - 1)
    return ""


def refuse_non_finite(body: JsonObject) -> None:
    """Raise `Refused` on the first NaN or infinity, which orjson would write as null."""
    unchecked: list[tuple[str, Any]] = [("", body)]
    while unchecked:
        path, value = unchecked.pop()
        if isinstance(value, dict):
            items = cast("dict[str, Any]", value).items()
            unchecked += [(f"{path}.{key}" if path else key, inner) for key, inner in items]
        elif isinstance(value, list):
            items = enumerate(cast("list[Any]", value))
            unchecked += [(f"{path}[{number}]", inner) for number, inner in items]
        elif isinstance(value, float) and not -inf < value < inf:
            raise Refused(f"is {value}, which JSON cannot represent", param=path)


def refuse_losses(losses: list[Loss]) -> None:
    """Strict mode: raise on the most important loss, unless all are of form."""
    for loss in by_importance(losses):
        if loss.level != "form":
            raise Refused(f"strict translation is not possible: {loss.message}", param=loss.path)
