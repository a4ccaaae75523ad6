"""Streams, both ways: https://platform.openai.com/docs/api-reference/chat-streaming

A chunk has no blocks, only members that grow. The decoder makes blocks of them:

- Thinking, content and refusal are one block each, until a member of another kind arrives.
- A tool call is a block as soon as its id and name are known. All calls stay open until the
  finish reason, because their arguments may interleave.

A chunk may have several members, and servers differ in which ones they use. So each chunk is also
passed on unchanged, as a `Chunk` before its events: a client of the same protocol gets exactly what
was sent.

The encoder writes a stream of the same protocol back chunk by chunk, unchanged. Any other is
written from its events: text as it arrives, and calls numbered in the order in which they open. The
end is the finish reason, the usage in a chunk without choices, and `[DONE]`, which never follows a
failure.
"""

from typing import Any, Literal, cast

import orjson

from weft.codec.base import Frame, Losses, members
from weft.codec.lenient import arguments_text, made_call_id, optional_text, piece_of
from weft.codec.openai import decode_error, encode_error
from weft.codec.read import wrong
from weft.codec.stream import (
    MALFORMED,
    Pieces,
    cut_off,
    grow,
    json_frame,
    malformed,
    read_frame,
    settle,
    unreadable,
)
from weft.model import (
    ApiError,
    Audio,
    Block,
    Close,
    Delta,
    End,
    Event,
    Fail,
    Finish,
    JsonObject,
    Open,
    Other,
    Refusal,
    Start,
    Stop,
    Text,
    Thinking,
    ToolCall,
    Usage,
    merge_usage,
    streamed_text,
)

from .messages import decode_audio_answer, write_call
from .response import (
    MESSAGE,
    decode_stop,
    decode_usage,
    encode_usage,
    failed_choice,
    finish_reason,
    is_supported,
    thinking_member,
)
from .wire import CHUNK, PROTOCOL, REASONING, REASONING_DETAILS, REASONING_PROOF

DONE = "[DONE]"

ENVELOPE = frozenset({"id", "model", "object", "choices", "usage", "error"})
QUIET = frozenset({"created", "obfuscation", "service_tier", "system_fingerprint"})
"""Members of every chunk that a client of another protocol does not need."""

CHOICE = frozenset({"index", "delta", "finish_reason"})
DELTA = frozenset(
    {
        "role",
        "content",
        "refusal",
        "tool_calls",
        "function_call",
        "audio",
        REASONING_PROOF,
        REASONING_DETAILS,
        *REASONING,
    }
)

PROSE: dict[str, type[Text] | type[Refusal]] = {"content": Text, "refusal": Refusal}


class Chunk(Finish, frozen=True, gc=False, kw_only=True):
    """The original frame, before the events decoded from it.

    It is an empty `Finish`, so the encoders of other protocols skip it.
    """

    frame: Frame


class _Call:
    """A tool call that is arriving; `index` is the index of its block, once that is open."""

    def __init__(self, *, custom: bool = False, legacy: bool = False) -> None:
        self.id = ""
        self.name = ""
        self.custom = custom
        self.legacy = legacy
        self.index: int | None = None
        self.early: list[str] = []
        self.has_arguments = False


class StreamDecoder:
    """Turns frames into events. `_prose` is the kind and index of the open text block."""

    def __init__(self) -> None:
        self._count = 0
        self._prose: tuple[str, int] | None = None
        self._thought: list[str] = []
        self._proof: str | None = None
        self._item = ""
        self._details: list[JsonObject] = []
        self._calls: dict[Any, _Call] = {}
        self._last_call: Any = None
        self.repairs = Losses()
        self._audio: JsonObject = {}
        self._extra: JsonObject = {}
        self._reported: set[str] = set()
        self._called = False
        self._refused = False
        self._started = False
        self._counted = False  # usage without choices only follows a complete answer
        self._finished = False
        self._ended = False
        self._broken = False

    def feed(self, frame: Frame) -> list[Event]:
        if frame.data == DONE:
            return self._done(frame)
        raw = read_frame(frame)
        if raw is None:
            self._broken = True
            return [Fail(unreadable(frame), "frame")]
        try:
            return self._events(raw, frame)
        except MALFORMED as error:
            self._broken = True
            return [Fail(malformed(frame, error), "frame")]

    def _events(self, raw: JsonObject, frame: Frame) -> list[Event]:
        events: list[Event] = []
        if raw.get("error"):
            self._ended = True
            return [Chunk(frame=frame), Fail(decode_error(raw, 0))]
        if not self._started:
            self._started = True
            events.append(self._start(raw))
        events.append(Chunk(frame=frame))
        self._keep(raw, ENVELOPE, "", events)
        for choice in cast(list[JsonObject], raw.get("choices") or ()):
            self._choice(choice, events)
        usage = decode_usage(raw.get("usage"))
        if usage is not None:
            events.append(Finish(usage=usage))
            self._counted = self._counted or not raw.get("choices")
        return events

    def close(self) -> list[Event]:
        if self._ended or self._broken:
            return []
        self._ended = True
        return [Fail(cut_off("[DONE]" if self._finished else "a finish_reason"), "end")]

    def _done(self, frame: Frame) -> list[Event]:
        if self._ended:
            return [Chunk(frame=frame)]
        self._ended = True
        if not self._finished and not self._counted:
            return [Fail(cut_off("a finish_reason"), "end")]
        events: list[Event] = []
        self._close_all(events)
        if not self._finished:
            events.append(Finish(self._stopped(None)))
        if self._extra:
            events.append(Finish(ext={PROTOCOL: settle(self._extra)}))
        return [*events, End()]

    def _stopped(self, reason: Any) -> Stop:
        return decode_stop(reason, calls=self._called, refused=self._refused)

    def _start(self, raw: JsonObject) -> Start:
        extra = {key: value for key, value in raw.items() if key not in ENVELOPE}
        return Start(
            optional_text(raw.get("id")), optional_text(raw.get("model")), ext={PROTOCOL: extra}
        )

    def _choice(self, choice: JsonObject, events: list[Event]) -> None:
        number = choice.get("index") or 0
        if number:
            self._other(f"choices[{number}]", choice, events)
            return
        self._keep(choice, CHOICE, "choices[0].", events)
        delta = members(choice.get("delta"))
        if delta:
            self._delta(delta, events)
        reason = choice.get("finish_reason")
        error = failed_choice(choice)
        if error is not None:
            self._ended = True
            events.append(Fail(error, "stop"))
        elif reason is not None:
            self._finished = True
            self._close_all(events)
            events.append(Finish(self._stopped(reason)))

    def _delta(self, delta: JsonObject, events: list[Event]) -> None:
        self._thinking(delta, events)
        for member, kind in PROSE.items():
            text = delta.get(member)
            if isinstance(text, list):
                text = self._parts(cast(list[Any], text), events)
            if text and not isinstance(text, str):
                raise wrong(member, text, "a string")
            if text:
                self._refused = self._refused or kind is Refusal
                self._grow(member, kind(""), "text", text, events)
        for entry in cast(list[JsonObject], delta.get("tool_calls") or ()):
            self._call(entry, events)
        legacy = members(delta.get("function_call"))
        if legacy is not None:
            call = self._calls.setdefault("function_call", _Call(legacy=True))
            call.id = "function_call_0"
            self._called = True
            self._add_delta(call, legacy, "arguments", events)
        audio = members(delta.get("audio"))
        if audio is not None:
            _join(self._audio, audio)
        if not delta.keys() <= DELTA:
            self._keep(delta, DELTA, "choices[0].message.", events)

    def _thinking(self, delta: JsonObject, events: list[Event]) -> None:
        item = next((name for name in REASONING if delta.get(name)), None)
        details = delta.get(REASONING_DETAILS)
        proof = delta.get(REASONING_PROOF)
        if item is None and not details and not proof:
            return
        block_members: JsonObject = {} if item is None else {"item": item}
        block = Thinking("", ext={PROTOCOL: block_members} if block_members else None)
        self._grow("thinking", block, "thinking", str(delta[item]) if item else "", events)
        index = cast("tuple[str, int]", self._prose)[1]
        if item is not None:
            self._thought.append(str(delta[item]))
            self._item = item
        if proof:
            events.append(Delta(index, "signature", str(proof)))
            self._proof = str(proof)
        if isinstance(details, list):
            _join_details(self._details, cast(list[JsonObject], details))

    def _parts(self, parts: list[Any], events: list[Event]) -> str:
        """The text of content that arrives as a list of parts, as some servers send it."""
        texts: list[str] = []
        for part in parts:
            fields = members(part) or {}
            if fields.get("type") == "text":
                texts.append(str(fields.get("text", "")))
            else:
                self._other(f"content {fields.get('type')}", part, events)
        return "".join(texts)

    def _grow(
        self,
        member: str,
        block: Block,
        kind: Literal["text", "thinking"],
        text: str,
        events: list[Event],
    ) -> None:
        if self._prose is None or self._prose[0] != member:
            self._close_prose(events)
            self._prose = member, self._open(block, events)
        if text:
            events.append(Delta(self._prose[1], kind, text))

    def _open(self, block: Block, events: list[Event]) -> int:
        index = self._count
        self._count += 1
        events.append(Open(index, block))
        return index

    def _call(self, entry: JsonObject, events: list[Event]) -> None:
        custom = members(entry.get("custom"))
        inner = custom or members(entry.get("function")) or {}
        call_id = entry.get("id")
        key = self._call_key(entry, call_id, inner)
        call = self._calls.get(key)
        if call is not None and call_id and call.id and call_id != call.id and inner.get("name"):
            # Some servers number all parallel calls 0.
            self._calls[f"{key} {call.id}"] = self._calls.pop(key)
            call = None
        if call is None:
            call = self._calls[key] = _Call(custom=custom is not None)
        self._called = True
        call.id = call.id or str(call_id or "")
        self._add_delta(call, inner, "input" if call.custom else "arguments", events)

    def _call_key(self, entry: JsonObject, call_id: Any, inner: JsonObject) -> Any:
        """The key of a call in this stream: its index, which some servers leave out. Then a
        piece with a name or another id begins a call, and any other piece continues the last."""
        key = entry.get("index")
        if key is None:
            last = self._calls.get(self._last_call)
            new_id = last is not None and call_id and call_id != last.id
            begins = (
                last is None
                or new_id
                or (inner.get("name") and not (call_id and call_id == last.id))
            )
            key = ("unnumbered", len(self._calls)) if begins else self._last_call
            if begins:
                self.repairs.add(
                    f"{MESSAGE}.tool_calls[{len(self._calls)}].index",
                    "missing_value_added",
                    "index",
                )
        self._last_call = key
        return key

    def _add_delta(self, call: _Call, inner: JsonObject, key: str, events: list[Event]) -> None:
        """Add a delta to a call, and open its block once its id and name are known."""
        if call.index is None:
            call.name += str(inner.get("name") or "")
        text = piece_of(inner.get(key) or None)
        call.has_arguments = call.has_arguments or inner.get(key) is not None
        if text and call.index is None:
            call.early.append(text)
        elif text and call.index is not None:
            events.append(Delta(call.index, "arguments", text))
        if call.index is None and call.id and call.name:
            self._open_call(call, events)

    def _open_call(self, call: _Call, events: list[Event]) -> None:
        self._close_prose(events)
        ext = {PROTOCOL: {"item": "function_call"}} if call.legacy else None
        call_id = call.id
        if not call_id:
            path = f"{MESSAGE}.tool_calls[{len(self._calls) - 1}]"
            call_id = made_call_id({}, "id", self._count, path, self.repairs)
        call.index = self._open(
            ToolCall(call_id, call.name, "", custom=call.custom, ext=ext), events
        )
        events += [Delta(call.index, "arguments", text) for text in call.early]

    def _close_prose(self, events: list[Event]) -> None:
        if self._prose is None:
            return
        member, index = self._prose
        self._prose = None
        if member == "thinking" and self._details:
            block_members: JsonObject = {"item": self._item} if self._item else {}
            block_members[REASONING_DETAILS] = settle(self._details)
            block = Thinking("".join(self._thought), self._proof, {PROTOCOL: block_members})
            events.append(Close(index, block))
        else:
            events.append(Close(index))
        if member == "thinking":
            self._thought, self._details, self._proof, self._item = [], [], None, ""

    def _close_all(self, events: list[Event]) -> None:
        self._close_prose(events)
        for number, call in enumerate(self._calls.values()):
            if call.index is None:
                self._open_call(call, events)
            index = cast(int, call.index)
            if not call.has_arguments and not call.custom:
                path = f"{MESSAGE}.tool_calls[{number}].function.arguments"
                events.append(Delta(index, "arguments", arguments_text(None, path, self.repairs)))
            events.append(Close(index))
        self._calls = {}
        if self._audio.get("id"):
            block: Audio = decode_audio_answer(settle(self._audio))
            events.append(Close(self._open(block, events)))
            self._audio = {}

    def _keep(self, raw: JsonObject, known: frozenset[str], path: str, events: list[Event]) -> None:
        """Keep members without a field in the model; the last value of each counts."""
        for key, value in raw.items():
            if key in known or value in (None, "", [], {}):
                continue
            _join(self._extra, {f"{path}{key}": value})
            if key not in QUIET:
                self._other(f"{path}{key}", value, events)

    def _other(self, kind: str, raw: Any, events: list[Event]) -> None:
        if kind not in self._reported:
            self._reported.add(kind)
            events.append(Other(PROTOCOL, kind, raw))


def _join_details(old: list[JsonObject], new: list[JsonObject]) -> None:
    """Join the pieces of one detail, which repeat its type and index."""
    for piece in new:
        last = old[-1] if old else None
        if last is None or any(last.get(key) != piece.get(key) for key in ("type", "index", "id")):
            old.append(dict(piece))
            continue
        for key, value in piece.items():
            was = last.get(key) if key in ("text", "summary", "data") else None
            grows = isinstance(was, str | Pieces) and isinstance(value, str)
            last[key] = grow(was, value) if grows else value


def _join(old: JsonObject, new: JsonObject) -> None:
    """Join partial members: text and lists are appended, objects joined member by member."""
    for key, value in new.items():
        was = old.get(key)
        grows = key in ("data", "transcript") and isinstance(was, str | Pieces)
        if grows and isinstance(value, str):
            old[key] = grow(was, value)
        elif isinstance(was, list) and isinstance(value, list):
            cast(list[Any], was).extend(cast(list[Any], value))
        elif isinstance(was, dict) and isinstance(value, dict):
            _join(cast(JsonObject, was), cast(JsonObject, value))
        elif value is not None:
            old[key] = _copy(value)


def _copy(value: Any) -> Any:
    """A copy of the value, because its lists and objects grow and the frame's must not change."""
    if isinstance(value, dict):
        return {key: _copy(member) for key, member in cast(JsonObject, value).items()}
    return list(cast(list[Any], value)) if isinstance(value, list) else value


class _OpenBlock:
    """An open block, the number of its call, and the length of the text sent so far."""

    def __init__(self, block: Block, number: int) -> None:
        self.block = block
        self.number = number
        self.length = 0


class StreamEncoder:
    """Turns events into frames."""

    def __init__(self, created: int) -> None:
        self.losses = Losses()
        self._created = created
        self._native = False
        self._started = False
        self._id = "chatcmpl-weft"
        self._model = ""
        self._open: dict[int, _OpenBlock] = {}
        self._calls = 0
        self._refused = False
        self._stop: Stop | None = None
        self._usage: Usage | None = None
        self._lost: set[str] = set()
        self._unsigned: set[int] = set()
        self._thoughts: list[int] = []
        self._head = self._make_head()

    def send(self, event: Event) -> list[Frame]:
        if type(event) is Delta and not self._native:  # nearly all events
            if event.kind != "signature":
                return self._grow(event.index, event.text)
            self._report_signature(event.index)
            return []
        if isinstance(event, Chunk):
            self._native = True
            return [event.frame]
        if isinstance(event, Fail):
            relayed = self._native and event.cause == "event" and _is_native(event.error)
            return [] if relayed else [json_frame(encode_error(event.error)[1])]
        if self._native:
            return [Frame(DONE)] if isinstance(event, End) else []
        return self._write(event)

    def _write(self, event: Event) -> list[Frame]:
        match event:
            case Open(index=index, block=block):
                return self._opened(index, block)
            case Close(index=index, block=block):
                return self._closed(index, block)
            case Start():
                return self._start(event)
            case Finish(stop=stop, usage=usage):
                self._stop = stop or self._stop
                self._usage = merge_usage(self._usage, usage)
                return []
            case End():
                return self._end()
            case Other(protocol=protocol, kind=kind, covers=covers):
                if covers is None:
                    self._report_event(protocol, kind)
                return []
            case _:
                return []

    def _start(self, event: Start) -> list[Frame]:
        if event.ext is not None and PROTOCOL in event.ext:
            self._native = True
            return []
        self._started = True
        self._id = event.id or self._id
        self._model = event.model or ""
        self._usage = event.usage
        self._head = self._make_head()
        return [self._chunk({"role": "assistant"})]

    def _begin(self) -> list[Frame]:
        """Start the stream if its source sent no `Start`."""
        return [] if self._started else self._start(Start())

    def _opened(self, index: int, block: Block) -> list[Frame]:
        if not is_supported(block, None, (0, index), self.losses):
            return []
        if isinstance(block, Thinking) and block.signature is not None:
            self._report_signature(index)
        if isinstance(block, Thinking):
            self._report_boundaries(index)
        frames = self._begin()
        open_block = self._open[index] = _OpenBlock(block, self._calls)
        self._refused = self._refused or isinstance(block, Refusal)
        if not isinstance(block, ToolCall):
            return frames + self._grow(index, streamed_text(block))
        self._calls += 1
        call = write_call(ToolCall(block.id, block.name, "", block.custom, block.namespace))
        frames.append(self._chunk({"tool_calls": [{"index": open_block.number, **call}]}))
        return frames + self._grow(index, block.arguments)

    def _grow(self, index: int, text: str) -> list[Frame]:
        open_block = self._open.get(index)
        if open_block is None or not text:
            return []
        open_block.length += len(text)
        if type(open_block.block) is Text:
            return [self._chunk({"content": text})]
        match open_block.block:
            case ToolCall(custom=custom):
                inner = {"custom": {"input": text}} if custom else {"function": {"arguments": text}}
                return [self._chunk({"tool_calls": [{"index": open_block.number, **inner}]})]
            case Refusal():
                return [self._chunk({"refusal": text})]
            case Thinking():
                return [self._chunk({thinking_member(open_block.block): text})]
            case _:
                return [self._chunk({"content": text})]

    def _closed(self, index: int, block: Block | None) -> list[Frame]:
        """Write the end of a text that the deltas lacked; a call without arguments gets `{}`."""
        open_block = self._open.get(index)
        if open_block is None:
            return []
        text = streamed_text(block) if block is not None else ""
        frames = self._grow(index, text[open_block.length :])
        if isinstance(open_block.block, Thinking) and not open_block.length:
            self.losses.add((0, index), "empty_thinking_dropped")
        if (
            isinstance(open_block.block, ToolCall)
            and not open_block.length
            and not open_block.block.custom
        ):
            frames += self._grow(index, "{}")
        del self._open[index]
        return frames

    def _report_boundaries(self, index: int) -> None:
        """Report that several thinking blocks become one text; the first is reported late."""
        self._thoughts.append(index)
        if len(self._thoughts) > 1:
            for number in self._thoughts[-1:] if len(self._thoughts) > 2 else self._thoughts:
                self.losses.add((0, number), "text_boundary_dropped", "thinking blocks")

    def _report_signature(self, index: int) -> None:
        if index not in self._unsigned:
            self._unsigned.add(index)
            self.losses.add((0, index), "thinking_signature_dropped")

    def _end(self) -> list[Frame]:
        frames = self._begin()
        for index in list(self._open):
            frames += self._closed(index, None)
        calls, refused = self._calls > 0, self._refused
        reason = finish_reason(self._stop, self.losses, calls=calls, refused=refused)
        frames.append(self._chunk({}, reason))
        usage = encode_usage(self._usage)
        if usage is not None:
            frames.append(json_frame({**self._envelope(), "choices": [], "usage": usage}))
        return [*frames, Frame(DONE)]

    def _report_event(self, protocol: str, kind: str) -> None:
        if protocol != PROTOCOL and kind != "ping" and kind not in self._lost:
            self._lost.add(kind)
            self.losses.add("", "vendor_event_dropped", kind)

    def _chunk(self, delta: JsonObject, finish: str | None = None) -> Frame:
        written, reason = orjson.dumps(delta).decode(), orjson.dumps(finish).decode()
        return Frame(f'{self._head}{written},"logprobs":null,"finish_reason":{reason}}}]}}')

    def _make_head(self) -> str:
        """The beginning of every chunk, which is written once: there is one chunk per token."""
        envelope = orjson.dumps(self._envelope()).decode()[:-1]
        return f'{envelope},"choices":[{{"index":0,"delta":'

    def _envelope(self) -> JsonObject:
        return {
            "id": self._id,
            "object": CHUNK,
            "created": self._created,
            "model": self._model,
        }


def _is_native(error: ApiError) -> bool:
    return error.ext is not None and PROTOCOL in error.ext
