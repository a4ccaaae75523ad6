"""Translation as a caller uses it: bodies in, bodies out, and everything that was lost beside.

A dict in gives a dict out, bytes give bytes. The sidecar is worked out only when it is asked for:
it costs a second translation. Nothing here reads a clock or a file but the shipped catalogue.
"""

from functools import cached_property
from math import inf
from typing import Any, cast, get_args

import orjson

from weft.catalog import Catalog, load_catalog
from weft.checked import checked_function
from weft.codec import (
    CODECS,
    AnswerOptions,
    AnswerTranslator,
    CachePolicy,
    Codec,
    SystemPolicy,
    Target,
    ThinkingMember,
    apply_sidecar,
    calls_of,
    carry,
    make_sidecar,
    model_of,
    parsed,
    verbatim,
)
from weft.errors import Refused
from weft.model import (
    JsonObject,
    Loss,
    Request,
)

Body = JsonObject | bytes | str


class Translation:
    """A translated body. `losses` is what the target's wire could not say; `path` where it goes."""

    def __init__(
        self,
        body: Any,
        losses: list[Loss],
        path: str = "",
        make: Any = None,
        status: int | None = None,
    ) -> None:
        self.body = body
        self.losses = losses
        self.path = path
        self.status = status
        self._make = make

    @cached_property
    def sidecar(self) -> JsonObject:
        """What the way back needs to restore the original; empty where it needs nothing."""
        made: JsonObject = self._make() if self._make is not None else {}
        write_body(made, True)  # what a body may hold but no JSON text can
        return made

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
    """A request in another vendor's protocol.

    `model` renames the model, and must be given where the source's body has none, unless a sidecar
    knows it. `strict` raises `Refused` on the first loss of meaning instead of reporting it.
    `upstream` is the deployment's name, for models that behave differently there.
    """
    check_policies(system, cache)
    reader, writer = find_codec(source, "source"), find_codec(target, "target")
    rows = catalog or load_catalog()

    def whole() -> Translation:
        return _translate(
            body, reader, writer, rows, model, system, strict, cache, sidecar, upstream
        )

    if isinstance(body, dict) or sidecar or cache != "keep":
        return whole()
    carried = carry(
        body,
        reader,
        writer,
        model,
        lambda request: Target(rows.find(request.model, upstream), system, cache, verbatim),
    )
    if carried is None:
        return whole()
    if strict:
        refuse_losses(carried.losses)
    request = carried.request
    path = writer.request_path(request.model, bool(request.params.stream))
    return Translation(carried.body, carried.losses, path, lambda: whole().sidecar)


def _translate(
    body: Body,
    reader: Codec,
    writer: Codec,
    rows: Catalog,
    model: str | None,
    system: SystemPolicy,
    strict: bool,
    cache: CachePolicy,
    sidecar: JsonObject | None,
    upstream: str,
) -> Translation:
    """Translation through the model, which takes every body there is."""
    raw, as_bytes = read_body(body)
    if model is None and sidecar and "model" not in raw:
        model = model_of(sidecar)  # a body without one comes home to the one it was made of
    decoded = reader.decode_request(raw, model)
    request = decoded if not sidecar else apply_sidecar(decoded, sidecar)
    if sidecar and system == "auto" and request.wire is not decoded.wire:
        system = "inline"  # the caller's own body, restored whole: nothing in it is moved
    goal = Target(
        rows.find(request.model, upstream), system, cache, verbatim if as_bytes else parsed
    )
    encoded = writer.encode_request(request, goal)
    if strict:
        refuse_losses(encoded.losses)

    def make() -> JsonObject:
        wire = encoded.body if not as_bytes else orjson.loads(orjson.dumps(encoded.body))
        home = Target(rows.find(decoded.model), "auto", "keep")
        return make_sidecar(
            decoded,
            writer.decode_request(wire, request.model),
            lambda echoed: reader.encode_request(echoed, home).body,
            raw,
            encoded.calls,
            named="model" in wire,
        )

    path = writer.request_path(request.model, bool(request.params.stream))
    return Translation(write_body(encoded.body, as_bytes), encoded.losses, path, make)


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
    """A whole answer of the upstream's protocol, for a client of another.

    `thinking` is the member in which a client of Chat Completions is shown thinking: clients of
    OpenRouter read `reasoning`, and `hidden` leaves it out.

    `sidecar` is the one that the request's translation left behind: by it the client's own tools
    are called. The answer's own sidecar, given with the client's next request, restores what the
    client could not hand back. Raises `UpstreamFailed` where the answer is a failure.
    """
    options = AnswerOptions(
        created=created, calls=calls_of(sidecar), thinking=check_thinking(thinking)
    )
    translator = AnswerTranslator(
        find_codec(source, "source"), find_codec(target, "target"), options
    )
    raw, as_bytes = read_body(body)
    original, response = translator.read_body(raw)
    encoded = translator.write_body(original, response)

    def make() -> JsonObject:
        return translator.sidecar(original, encoded.body)

    return Translation(write_body(encoded.body, as_bytes), encoded.losses, make=make)


@checked_function
def translate_error(body: Any, status: int, source: str, target: str) -> Translation:
    """An error of the upstream's, in the client's own envelope; `status` goes along."""
    reader, writer = find_codec(source, "source"), find_codec(target, "target")
    as_bytes = isinstance(body, bytes)
    raw: Any = body
    if isinstance(body, bytes | str):
        try:
            raw = orjson.loads(body)
        except orjson.JSONDecodeError:
            raw = body.decode("utf-8", "replace") if isinstance(body, bytes) else body
    code, wire = writer.encode_error(reader.decode_error(raw, status))
    return Translation(write_body(wire, as_bytes), [], status=code)


@checked_function
def decode(body: Body, protocol: str, model: str | None = None) -> Request:
    """A request body as values of the model."""
    return find_codec(protocol, "protocol").decode_request(read_body(body)[0], model)


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
    """Values of the model as a request body of this protocol."""
    check_policies(system, cache)
    codec = find_codec(protocol, "protocol")
    rows = catalog or load_catalog()
    encoded = codec.encode_request(
        request, Target(rows.find(request.model, upstream), system, cache)
    )
    path = codec.request_path(request.model, bool(request.params.stream))
    return Translation(encoded.body, encoded.losses, path)


def check_policies(system: str, cache: str) -> None:
    """Raise `Refused` where a policy is none of the known ones."""
    for param, given, known in (
        ("system", system, get_args(SystemPolicy)),
        ("cache", cache, get_args(CachePolicy)),
    ):
        if given not in known:
            raise Refused(f"{given!r} is none of {', '.join(known)}", param=param)


def check_thinking(member: ThinkingMember) -> ThinkingMember:
    """The member; raises `Refused` where it is none of the known ones."""
    if member not in get_args(ThinkingMember):
        known = ", ".join(get_args(ThinkingMember))
        raise Refused(f"{member!r} is none of {known}", param="thinking")
    return member


def find_codec(protocol: str, param: str) -> Codec:
    """The codec of that name; raises `Refused` listing the names there are."""
    codec = CODECS.get(protocol)
    if codec is None:
        raise Refused(
            f"{protocol!r} is no protocol; there are {', '.join(sorted(CODECS))}", param=param
        )
    return codec


def read_body(body: Body) -> tuple[JsonObject, bool]:
    """The JSON object of a body, and whether it came as text; raises `Refused` where it is none."""
    if isinstance(body, dict):
        data = write_body(body, True)  # cycles, keys that are no strings, halves of characters
        if b"null" in data and orjson.loads(data) != body:
            refuse_no_number(body)
        return body, False
    try:
        raw = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise Refused(f"the body is not JSON: {error}", param="") from None
    if not isinstance(raw, dict):
        raise Refused(f"the body is {type(raw).__name__}, not an object", param="")
    return cast(JsonObject, raw), True


def write_body(body: Any, as_bytes: bool) -> Any:
    """The body in the kind that the caller gave."""
    if not as_bytes:
        return body
    try:
        return orjson.dumps(body)
    except TypeError as error:
        path = unwritable(body).removeprefix(".")
        raise Refused(f"cannot be written as JSON: {error}", param=path) from None


def unwritable(value: Any, limit: int = 64) -> str:
    """The path of what JSON cannot say; a cycle or a pit is told by where it is too deep."""
    steps: list[tuple[str, Any]] = []
    if isinstance(value, dict):
        items = cast("dict[Any, Any]", value).items()
        steps = [(f".{key}" if isinstance(key, str) else f"[{key!r}]", v) for key, v in items]
    elif isinstance(value, list):
        steps = [(f"[{number}]", v) for number, v in enumerate(cast("list[Any]", value))]
    for step, inner in steps if limit else ():
        try:
            orjson.dumps(inner)
        except TypeError:
            return step + unwritable(inner, limit - 1)
    return ""


def refuse_no_number(body: JsonObject) -> None:
    """Raise `Refused` on the first number that JSON has not: written, it would silently be null."""
    waiting: list[tuple[str, Any]] = [("", body)]
    while waiting:
        path, value = waiting.pop()
        if isinstance(value, dict):
            items = cast("dict[str, Any]", value).items()
            waiting += [(f"{path}.{key}" if path else key, inner) for key, inner in items]
        elif isinstance(value, list):
            items = enumerate(cast("list[Any]", value))
            waiting += [(f"{path}[{number}]", inner) for number, inner in items]
        elif isinstance(value, float) and not -inf < value < inf:
            raise Refused(f"is {value}, which JSON has no number for", param=path)


def refuse_losses(losses: list[Loss]) -> None:
    """Strict mode: raise on the first loss of meaning."""
    for loss in losses:
        if loss.level == "meaning":
            raise Refused(f"strict translation is not possible: {loss.message}", param=loss.path)
