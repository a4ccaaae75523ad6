"""Decodes and encodes streams: https://platform.openai.com/docs/api-reference/chat-streaming

A chunk has no blocks, only members that grow. The decoder makes blocks of them:

- Thinking, content and refusal are one block each, which ends when another member arrives.
- A tool call becomes a block as soon as its id and name are known. All calls stay open until the
  finish reason, because their arguments may interleave.

A chunk may have several members, and servers differ in which ones they use. So each chunk is also
passed on unchanged, before its events: a client of the same protocol gets exactly what was sent.

The `finish_reason` ends the answer. Chunks with token counts may follow it. `[DONE]` only says that
no more bytes come, and some servers leave it out (Perplexity, the router of Hugging Face).

The encoder writes a stream of the same protocol back chunk by chunk. Any other stream is written
from its events: text as it arrives, and calls numbered in the order in which they open. At the end
come the finish reason, the usage in a chunk without choices, and `[DONE]`. After a failure there is
no `[DONE]`.
"""

from itertools import pairwise
from typing import Any, Literal, cast

from msgspec import structs

from weft import exact_json
from weft.codec.base import Frame, Losses, as_object
from weft.codec.lenient import arguments_text, optional_text, read_call_id, text_piece
from weft.codec.openai import decode_error, encode_error
from weft.codec.read import json_text, optional_object, wrong
from weft.codec.stream import (
    DECODE_ERRORS,
    Pieces,
    append_piece,
    cut_off_error,
    join_pieces,
    json_frame,
    malformed_error,
    read_frame,
    unreadable_error,
)
from weft.model import (
    Alternative,
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

from .messages import decode_audio_answer, details_text, write_call
from .response import (
    CHOICE_PATH,
    MESSAGE_PATH,
    check_supported,
    decode_stop,
    decode_usage,
    encode_usage,
    failed_choice,
    finish_reason,
    is_json_value,
    thinking_member,
)
from .wire import (
    CHUNK_OBJECT,
    PROTOCOL,
    REASONING_DETAILS,
    REASONING_SIGNATURE,
    SOURCE_MEMBER,
    THINKING_MEMBERS,
)

DONE = "[DONE]"

MAPPED_MEMBERS = frozenset({"id", "model", "object", "choices", "usage", "error"})
"""Members of a chunk that have a field in an event, or always the same value."""
UNREPORTED = frozenset({"created", "obfuscation", "service_tier", "system_fingerprint"})
"""Members of every chunk that a client of another protocol does not need. They are not reported as
lost."""

CHOICE_MEMBERS = frozenset({"index", "delta", "message", "finish_reason"})
DELTA = frozenset(
    {
        "role",
        "content",
        "refusal",
        "tool_calls",
        "function_call",
        "audio",
        REASONING_SIGNATURE,
        REASONING_DETAILS,
        *THINKING_MEMBERS,
    }
)

TEXT_MEMBERS: dict[str, type[Text] | type[Refusal]] = {"content": Text, "refusal": Refusal}


CHUNK = "chunk"
"""The kind of `Other` for an original frame, before the events decoded from it."""

NO_REASON = frozenset({None, "", "null"})
"""Values of `finish_reason` in a chunk that does not end the answer. Some servers write the last
two instead of null."""


class Done(End, frozen=True, gc=False):
    """The end of an answer whose server sent `[DONE]`."""


def _original(frame: Frame) -> Other:
    return Other(PROTOCOL, CHUNK, frame, event_count=0)


class _Call:
    """A tool call that is arriving.

    `index` is the index of its block, once that is open. `early` has the arguments that arrive
    before that. `legacy` is a call of the deprecated `functions` API.
    """

    def __init__(self, *, custom: bool = False, legacy: bool = False) -> None:
        self.id = ""
        self.name = ""
        self.custom = custom
        self.legacy = legacy
        self.index: int | None = None
        self.early: list[str] = []
        self.has_arguments = False


class StreamDecoder:
    """Turns frames into events.

    - `_text`: the member and the index of the open block of text or thinking.
    - `_thought`, `_signature`, `_thinking_member`, `_details`: the open thinking block: its text,
      its signature, the member that it arrives in, and its `reasoning_details`.
    - `_calls`: the open calls, by a key of this stream (`_call_key`).
    - `_audio`: the audio so far.
    - `_extra`: the members without a field, by path.
    - `_reported`: the kinds of `Other` events so far; each is sent once.
    - `_reason`: the last finish reason.
    - `_has_blank_reason`: whether a chunk had an empty string for a finish reason. Servers that
      know no other one end their stream with `[DONE]`.
    - `_has_final_usage`: whether a chunk with usage and without choices came. Servers send it only
      after a complete answer.
    - `_alternatives`: the decoders of the other choices, by their numbers.
    - `_messages`: the messages of chunks. Some servers repeat the whole message beside the deltas
      (Perplexity), others send it in their place.
    """

    def __init__(self) -> None:
        self.repairs = Losses()
        self._block_count = 0
        self._text: tuple[str, int] | None = None
        self._thought: list[str] = []
        self._signature: str | None = None
        self._thinking_member = ""
        self._details: list[JsonObject] = []
        self._calls: dict[Any, _Call] = {}
        self._last_call: Any = None
        self._audio: JsonObject = {}
        self._extra: JsonObject = {}
        self._reported: set[str] = set()
        self._has_calls = False
        self._refused = False
        self._started = False
        self._has_final_usage = False
        self._reason: str | None = None
        self._has_blank_reason = False
        self._messages: list[JsonObject] = []
        self._alternatives: dict[int, StreamDecoder] = {}
        self._ended = False
        self._broken = False

    @property
    def is_complete(self) -> bool:
        if self._ended:
            return True
        return self._reason is not None and all(
            decoder.is_complete for decoder in self._alternatives.values()
        )

    def feed(self, frame: Frame) -> list[Event]:
        if frame.data.strip() == DONE:
            return self._done(frame)
        raw = read_frame(frame)
        if raw is None and self.is_complete:  # another spelling of the end mark, such as `null`
            return [_original(frame)]
        if raw is None:
            self._broken = True
            return [Fail(unreadable_error(frame), "frame")]
        try:
            return self._events(raw, frame)
        except DECODE_ERRORS as error:
            self._broken = True
            return [Fail(malformed_error(frame, error), "frame")]

    def _events(self, raw: JsonObject, frame: Frame) -> list[Event]:
        events: list[Event] = []
        if raw.get("error"):
            self._ended = True
            return [_original(frame), Fail(decode_error(raw, 0))]
        if not self._started:
            self._started = True
            events.append(self._start(raw))
        events.append(_original(frame))
        self._keep(raw, MAPPED_MEMBERS, "", events)
        for choice in cast(list[JsonObject], raw.get("choices") or ()):
            self._choice(choice, events)
        usage = decode_usage(raw.get("usage"))
        if usage is not None:
            events.append(Finish(usage=usage))
            self._has_final_usage = self._has_final_usage or not raw.get("choices")
        return events

    def close(self) -> list[Event]:
        if self._ended or self._broken:
            return []
        if not self.is_complete:
            self._ended = True
            return [Fail(cut_off_error("a finish_reason"), "end")]
        return [*self._finish(), End()]

    def _done(self, frame: Frame) -> list[Event]:
        if self._ended:
            return [_original(frame)]
        if self._reason is None and not self._has_final_usage and not self._has_blank_reason:
            self._ended = True
            return [Fail(cut_off_error("a finish_reason"), "end")]
        return [*self._finish(), Done()]

    def _finish(self) -> list[Event]:
        """The end of all blocks, and the stop reason with the members of the whole answer."""
        self._ended = True
        events: list[Event] = []
        if not self._block_count and not self._calls and not self._audio and self._messages:
            self._delta(_join_messages(self._messages), events)
        self._close_all(events)
        for number, decoder in self._alternatives.items():
            events += [Alternative(number, event) for event in decoder._finish()]
            self.repairs.items += [
                structs.replace(loss, path=loss.path.replace(CHOICE_PATH, f"choices[{number}]", 1))
                for loss in decoder.repairs.items
            ]
        extra: JsonObject = join_pieces(self._extra)
        stop = self._decode_stop(self._reason)
        return [*events, Finish(stop, ext={PROTOCOL: extra} if extra else None)]

    def _decode_stop(self, reason: Any) -> Stop:
        return decode_stop(reason, has_calls=self._has_calls, refused=self._refused)

    def _start(self, raw: JsonObject) -> Start:
        extra = {key: value for key, value in raw.items() if key not in MAPPED_MEMBERS}
        return Start(
            optional_text(raw.get("id")), optional_text(raw.get("model")), ext={PROTOCOL: extra}
        )

    def _choice(self, choice: JsonObject, events: list[Event]) -> None:
        number = int(choice.get("index") or 0)
        if number:
            self._alternative(number, choice, events)
            return
        self._keep(choice, CHOICE_MEMBERS, "choices[0].", events)
        delta, message = optional_object(choice, "delta"), as_object(choice.get("message"))
        if delta:
            self._delta(delta, events)
        if message and not self._block_count:
            self._messages.append(message)
        reason = choice.get("finish_reason")
        error = failed_choice(choice)
        if error is not None:
            self._ended = True
            events.append(Fail(error, "stop"))
        elif reason not in NO_REASON:
            self._reason = str(reason)
            events.append(Finish(self._decode_stop(reason)))
        elif reason is not None:
            self._has_blank_reason = True

    def _alternative(self, number: int, choice: JsonObject, events: list[Event]) -> None:
        """Decode a chunk of another choice, for itself."""
        decoder = self._alternatives.get(number)
        if decoder is None:
            decoder = self._alternatives[number] = StreamDecoder()
        inner: list[Event] = []
        decoder._choice({**choice, "index": 0}, inner)
        if any(isinstance(event, Fail) for event in inner):
            self._ended = True
            events += inner
            return
        events += [Alternative(number, event) for event in inner]

    def _delta(self, delta: JsonObject, events: list[Event]) -> None:
        self._thinking(delta, events)
        for member, kind in TEXT_MEMBERS.items():
            text = delta.get(member)
            if member == "content" and is_json_value(text):
                self.repairs.add(f"{MESSAGE_PATH}.content", "value_retyped", "value -> JSON text")
                text = json_text(text, "content")
            if isinstance(text, list):
                text = self._parts(cast(list[Any], text), events)
            if text and not isinstance(text, str):
                raise wrong(member, text, "a string")
            if text:
                self._refused = self._refused or kind is Refusal
                self._grow(member, kind(""), "text", text, events)
        for entry in cast(list[JsonObject], delta.get("tool_calls") or ()):
            self._call(entry, events)
        legacy = as_object(delta.get("function_call"))
        if legacy is not None:
            call = self._calls.setdefault("function_call", _Call(legacy=True))
            call.id = "function_call_0"
            self._has_calls = True
            self._add_delta(call, legacy, "arguments", events)
        audio = as_object(delta.get("audio"))
        if audio is not None:
            _merge(self._audio, audio)
        if not delta.keys() <= DELTA:
            self._keep(delta, DELTA, "choices[0].message.", events)

    def _thinking(self, delta: JsonObject, events: list[Event]) -> None:
        member = next((name for name in THINKING_MEMBERS if delta.get(name)), None)
        details = delta.get(REASONING_DETAILS)
        signature = delta.get(REASONING_SIGNATURE)
        if member is None and not details and not signature:
            return
        block_members: JsonObject = {} if member is None else {SOURCE_MEMBER: member}
        block = Thinking("", ext={PROTOCOL: block_members} if block_members else None)
        text = str(delta[member]) if member else details_text(details)
        self._grow("thinking", block, "thinking", text, events)
        index = cast("tuple[str, int]", self._text)[1]
        self._thought.append(text)
        if member is not None:
            self._thinking_member = member
        if signature:
            events.append(Delta(index, "signature", str(signature)))
            self._signature = str(signature)
        if isinstance(details, list):
            _join_details(self._details, cast(list[JsonObject], details))

    def _parts(self, parts: list[Any], events: list[Event]) -> str:
        """The text of content that arrives as a list of parts, as some servers send it."""
        texts: list[str] = []
        for part in parts:
            fields = as_object(part) or {}
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
        if self._text is None or self._text[0] != member:
            self._close_text(events)
            self._text = member, self._open(block, events)
        if text:
            events.append(Delta(self._text[1], kind, text))

    def _open(self, block: Block, events: list[Event]) -> int:
        index = self._block_count
        self._block_count += 1
        events.append(Open(index, block))
        return index

    def _call(self, entry: JsonObject, events: list[Event]) -> None:
        custom = as_object(entry.get("custom"))
        inner = custom or as_object(entry.get("function")) or {}
        call_id = entry.get("id")
        key = self._call_key(entry, call_id, inner)
        call = self._calls.get(key)
        if call is not None and call_id and call.id and call_id != call.id and inner.get("name"):
            # Another call with the same key: some servers number all parallel calls 0.
            self._calls[f"{key} {call.id}"] = self._calls.pop(key)
            call = None
        if call is None:
            call = self._calls[key] = _Call(custom=custom is not None)
        self._has_calls = True
        call.id = call.id or str(call_id or "")
        self._add_delta(call, inner, "input" if call.custom else "arguments", events)

    def _call_key(self, entry: JsonObject, call_id: Any, inner: JsonObject) -> Any:
        """The key of a call in this stream: its index, or a key of our own if the server sends
        none."""
        key = entry.get("index")
        if key is None and self._begins_call(call_id, inner):
            number = len(self._calls)
            key = ("unnumbered", number)
            path = f"{MESSAGE_PATH}.tool_calls[{number}].index"
            self.repairs.add(path, "missing_value_added", "index")
        elif key is None:
            key = self._last_call
        self._last_call = key
        return key

    def _begins_call(self, call_id: Any, inner: JsonObject) -> bool:
        """Whether a piece without an index begins a call: it has another id than the last call, or
        a name and no id."""
        last = self._calls.get(self._last_call)
        if last is None:
            return True
        return call_id != last.id if call_id else bool(inner.get("name"))

    def _add_delta(self, call: _Call, inner: JsonObject, key: str, events: list[Event]) -> None:
        """Add a delta to a call, and open its block once its id and name are known."""
        if call.index is None:
            call.name += str(inner.get("name") or "")
        text = text_piece(inner.get(key) or None)
        call.has_arguments = call.has_arguments or inner.get(key) is not None
        if text and call.index is None:
            call.early.append(text)
        elif text and call.index is not None:
            events.append(Delta(call.index, "arguments", text))
        if call.index is None and call.id and call.name:
            self._open_call(call, events)

    def _open_call(self, call: _Call, events: list[Event]) -> None:
        self._close_text(events)
        ext = {PROTOCOL: {SOURCE_MEMBER: "function_call"}} if call.legacy else None
        call_id = call.id
        if not call_id:
            path = f"{MESSAGE_PATH}.tool_calls[{len(self._calls) - 1}]"
            call_id = read_call_id({}, "id", self._block_count, path, self.repairs)
        call.index = self._open(
            ToolCall(call_id, call.name, "", custom=call.custom, ext=ext), events
        )
        events += [Delta(call.index, "arguments", text) for text in call.early]

    def _close_text(self, events: list[Event]) -> None:
        if self._text is None:
            return
        member, index = self._text
        self._text = None
        if member == "thinking" and self._details:
            block_members: JsonObject = (
                {SOURCE_MEMBER: self._thinking_member} if self._thinking_member else {}
            )
            block_members[REASONING_DETAILS] = join_pieces(self._details)
            block = Thinking("".join(self._thought), self._signature, {PROTOCOL: block_members})
            events.append(Close(index, block))
        else:
            events.append(Close(index))
        if member == "thinking":
            self._thought, self._details, self._signature, self._thinking_member = [], [], None, ""

    def _close_all(self, events: list[Event]) -> None:
        self._close_text(events)
        for number, call in enumerate(self._calls.values()):
            if call.index is None:
                self._open_call(call, events)
            index = cast(int, call.index)
            if not call.has_arguments and not call.custom:
                path = f"{MESSAGE_PATH}.tool_calls[{number}].function.arguments"
                events.append(Delta(index, "arguments", arguments_text(None, path, self.repairs)))
            events.append(Close(index))
        self._calls = {}
        if self._audio.get("id"):
            block: Audio = decode_audio_answer(join_pieces(self._audio))
            events.append(Close(self._open(block, events)))
            self._audio = {}

    def _keep(self, raw: JsonObject, known: frozenset[str], path: str, events: list[Event]) -> None:
        """Keep members without a field in the model, and pass each on once as `Other`."""
        for key, value in raw.items():
            if key in known or value in (None, "", [], {}):
                continue
            _merge(self._extra, {f"{path}{key}": value})
            if key not in UNREPORTED:
                self._other(f"{path}{key}", value, events)

    def _other(self, kind: str, raw: Any, events: list[Event]) -> None:
        if kind not in self._reported:
            self._reported.add(kind)
            events.append(Other(PROTOCOL, kind, raw))


def _join_messages(messages: list[JsonObject]) -> JsonObject:
    """The message of a stream without deltas: the last one, if each repeats the text before it."""
    last = messages[-1]
    texts = [str(message.get("content") or "") for message in messages]
    if all(text.startswith(before) for before, text in pairwise(texts)):
        return last
    return {**last, "content": "".join(texts)}


def _join_details(old: list[JsonObject], new: list[JsonObject]) -> None:
    """Add pieces of reasoning details. The pieces of one detail have the same type, index and
    id."""
    for piece in new:
        last = old[-1] if old else None
        if last is None or any(last.get(key) != piece.get(key) for key in ("type", "index", "id")):
            old.append(dict(piece))
            continue
        for key, value in piece.items():
            earlier = last.get(key) if key in ("text", "summary", "data") else None
            grows = isinstance(earlier, str | Pieces) and isinstance(value, str)
            last[key] = append_piece(earlier, value) if grows else value


def _merge(old: JsonObject, new: JsonObject) -> None:
    """Merge new members into `old`: audio text and lists are appended, objects merged member by
    member, and other values replaced."""
    for key, value in new.items():
        earlier = old.get(key)
        grows = key in ("data", "transcript") and isinstance(earlier, str | Pieces)
        if grows and isinstance(value, str):
            old[key] = append_piece(earlier, value)
        elif isinstance(earlier, list) and isinstance(value, list):
            cast(list[Any], earlier).extend(cast(list[Any], value))
        elif isinstance(earlier, dict) and isinstance(value, dict):
            _merge(cast(JsonObject, earlier), cast(JsonObject, value))
        elif value is not None:
            old[key] = _copy(value)


def _copy(value: Any) -> Any:
    """A copy of a value of a frame: the copy will grow, and the frame must not change."""
    if isinstance(value, dict):
        return {key: _copy(member) for key, member in cast(JsonObject, value).items()}
    return list(cast(list[Any], value)) if isinstance(value, list) else value


class _OpenBlock:
    """An open block, the number of its call, and the length of its text sent so far."""

    def __init__(self, block: Block, call_number: int) -> None:
        self.block = block
        self.call_number = call_number
        self.sent_length = 0


class StreamEncoder:
    """Turns events into frames.

    `_native` is whether the events come from a stream of this protocol, whose chunks are repeated.
    `_chunk_start` is the beginning of every chunk. `_number` is the number of the choice, and
    `_alternatives` are the encoders of the other ones.
    """

    def __init__(self, created: int, number: int = 0) -> None:
        self.losses = Losses()
        self._created = created
        self._number = number
        self._alternatives: dict[int, StreamEncoder] = {}
        self._native = False
        self._started = False
        self._id = "chatcmpl-weft"
        self._model = ""
        self._open: dict[int, _OpenBlock] = {}
        self._call_count = 0
        self._refused = False
        self._stop: Stop | None = None
        self._usage: Usage | None = None
        self._reported_kinds: set[str] = set()
        self._reported_signatures: set[int] = set()
        self._thinking_indices: list[int] = []
        self._chunk_start = self._make_chunk_start()

    def send(self, event: Event) -> list[Frame]:
        if type(event) is Delta and not self._native:  # nearly all events
            if event.kind != "signature":
                return self._grow(event.index, event.text)
            self._report_signature(event.index)
            return []
        if isinstance(event, Other) and event.kind == CHUNK and event.protocol == PROTOCOL:
            self._native = True
            return [event.raw]
        if isinstance(event, Fail):
            is_relayed = self._native and event.cause == "event" and _is_native(event.error)
            return [] if is_relayed else [json_frame(encode_error(event.error)[1])]
        if self._native:
            return [Frame(DONE)] if isinstance(event, Done) else []
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
            case Alternative(number=number, event=inner):
                return self._alternative(number, inner)
            case End():
                return self._end()
            case Other(protocol=protocol, kind=kind, event_count=event_count):
                if event_count is None:
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
        self._chunk_start = self._make_chunk_start()
        return [self._chunk({"role": "assistant"})]

    def _begin(self) -> list[Frame]:
        """Start the stream if its source sent no `Start`."""
        return [] if self._started else self._start(Start())

    def _opened(self, index: int, block: Block) -> list[Frame]:
        if not check_supported(block, None, (0, index), self.losses):
            return []
        if isinstance(block, Thinking) and block.signature is not None:
            self._report_signature(index)
        if isinstance(block, Thinking):
            self._report_boundaries(index)
        frames = self._begin()
        open_block = self._open[index] = _OpenBlock(block, self._call_count)
        self._refused = self._refused or isinstance(block, Refusal)
        if not isinstance(block, ToolCall):
            return frames + self._grow(index, streamed_text(block))
        self._call_count += 1
        call = write_call(ToolCall(block.id, block.name, "", block.custom, block.namespace))
        frames.append(self._chunk({"tool_calls": [{"index": open_block.call_number, **call}]}))
        return frames + self._grow(index, block.arguments)

    def _grow(self, index: int, text: str) -> list[Frame]:
        open_block = self._open.get(index)
        if open_block is None or not text:
            return []
        open_block.sent_length += len(text)
        if type(open_block.block) is Text:
            return [self._chunk({"content": text})]
        match open_block.block:
            case ToolCall(custom=custom):
                inner = {"custom": {"input": text}} if custom else {"function": {"arguments": text}}
                return [self._chunk({"tool_calls": [{"index": open_block.call_number, **inner}]})]
            case Refusal():
                return [self._chunk({"refusal": text})]
            case Thinking():
                return [self._chunk({thinking_member(open_block.block): text})]
            case _:
                return [self._chunk({"content": text})]

    def _closed(self, index: int, block: Block | None) -> list[Frame]:
        """Write the text that the deltas did not contain; a call without arguments gets `{}`."""
        open_block = self._open.get(index)
        if open_block is None:
            return []
        text = streamed_text(block) if block is not None else ""
        frames = self._grow(index, text[open_block.sent_length :])
        if isinstance(open_block.block, Thinking) and not open_block.sent_length:
            self.losses.add((0, index), "empty_thinking_dropped")
        if (
            isinstance(open_block.block, ToolCall)
            and not open_block.sent_length
            and not open_block.block.custom
        ):
            frames += self._grow(index, "{}")
        del self._open[index]
        return frames

    def _report_boundaries(self, index: int) -> None:
        """Report that several thinking blocks become one text.

        The first block is reported together with the second, when it is clear that there are
        several.
        """
        indices = self._thinking_indices
        indices.append(index)
        if len(indices) == 1:
            return
        for number in indices if len(indices) == 2 else [index]:
            self.losses.add((0, number), "text_boundary_dropped", "thinking blocks")

    def _report_signature(self, index: int) -> None:
        if index not in self._reported_signatures:
            self._reported_signatures.add(index)
            self.losses.add((0, index), "thinking_signature_dropped")

    def _alternative(self, number: int, event: Event) -> list[Frame]:
        """The frames for an event of another choice."""
        frames = self._begin()
        encoder = self._alternatives.get(number)
        if encoder is None:
            encoder = self._alternatives[number] = StreamEncoder(self._created, number)
            encoder.losses.items = self.losses.items
            encoder.losses.locate = lambda _position: self.losses.path(("alternative", number))
            frames += encoder.send(Start(self._id, self._model))
        return frames + encoder.send(event)

    def _end(self) -> list[Frame]:
        frames = self._end_choice()
        for encoder in self._alternatives.values():
            frames += encoder._end_choice()
        usage = encode_usage(self._usage)
        if usage is not None:
            frames.append(json_frame({**self._envelope(), "choices": [], "usage": usage}))
        return [*frames, Frame(DONE)]

    def _end_choice(self) -> list[Frame]:
        """The end of all open blocks, and the finish reason."""
        frames = self._begin()
        for index in list(self._open):
            frames += self._closed(index, None)
        has_calls = self._call_count > 0
        reason = finish_reason(self._stop, self.losses, has_calls=has_calls, refused=self._refused)
        return [*frames, self._chunk({}, reason)]

    def _report_event(self, protocol: str, kind: str) -> None:
        if protocol != PROTOCOL and kind != "ping" and kind not in self._reported_kinds:
            self._reported_kinds.add(kind)
            self.losses.add("", "vendor_event_dropped", kind)

    def _chunk(self, delta: JsonObject, finish: str | None = None) -> Frame:
        delta_json, reason = exact_json.dumps(delta).decode(), exact_json.dumps(finish).decode()
        return Frame(
            f'{self._chunk_start}{delta_json},"logprobs":null,"finish_reason":{reason}}}]}}'
        )

    def _make_chunk_start(self) -> str:
        """The beginning of every chunk. It is made once, because there is one chunk per token."""
        envelope = exact_json.dumps(self._envelope()).decode()[:-1]
        return f'{envelope},"choices":[{{"index":{self._number},"delta":'

    def _envelope(self) -> JsonObject:
        return {
            "id": self._id,
            "object": CHUNK_OBJECT,
            "created": self._created,
            "model": self._model,
        }


def _is_native(error: ApiError) -> bool:
    return error.ext is not None and PROTOCOL in error.ext
