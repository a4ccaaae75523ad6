"""Turns of another wire, written as Gemini's contents.

What Gemini demands of a list: a function call directly follows a turn of the user's, so what the
model says in several messages is one content; the results of a turn's calls are one content with
nothing else in it, in the order of the calls; and some models want every call signed, or media
outside of results: https://ai.google.dev/gemini-api/docs/function-calling
"""

from msgspec import structs

from weft.codec.base import Losses, Target
from weft.codec.repair import Turn
from weft.model import JsonObject, Place, Request, Text, ToolCall, ToolResult

from .blocks import noted
from .wire import UNSIGNED
from .write import Media, Writer, own_ext, sift_result

JOINED = "a turn of the model is one content here"


class Foreign:
    """Writes the turns of one request. `_order` numbers the calls that wait for results."""

    def __init__(self, request: Request, target: Target, writer: Writer, losses: Losses) -> None:
        self.request = request
        self.model = target.model
        self.writer = writer
        self.losses = losses
        self._order: dict[str, int] = {}

    def contents(self, turns: list[Turn]) -> list[JsonObject]:
        """The contents that these turns become."""
        contents: list[JsonObject] = []
        for turn in turns:
            if turn.role == "assistant":
                parts = self._model(turn)
                if contents and contents[-1]["role"] == "model":
                    contents[-1]["parts"] += parts
                    self.losses.add(turn.at, "the border to the message before", JOINED, "form")
                else:
                    contents.append({"parts": parts, "role": "model"})
            else:
                contents += self._user(turn)
            self._report_form(turn)
        return contents

    def _report_form(self, turn: Turn) -> None:
        """A string and a list of one text are written alike; so are null and nothing."""
        form = turn.message.form
        texts = [at for at, block in enumerate(turn.blocks) if isinstance(block, Text)]
        spoken = turn.role == "assistant" or len(turn.blocks) == 1
        if form == "absent":
            self.losses.add(turn.at, "that it had no content", "it is parts here", "form")
        for at in texts if form == "list" and spoken else ():
            self.losses.add(turn.places[at], "the list around a text", "it is parts here", "form")

    def _model(self, turn: Turn) -> list[JsonObject]:
        self._order = {}
        parts: list[JsonObject] = []
        for block, place in zip(turn.blocks, turn.places, strict=True):
            part = self.writer.part(block, place)
            if isinstance(block, ToolCall):
                self._report_call(block, place)
                if not self._order and self.model.signed_calls:
                    part.setdefault("thoughtSignature", UNSIGNED)
                self._order[block.id] = len(self._order)
            parts.append(part)
        return parts

    def _report_call(self, block: ToolCall, place: Place) -> None:
        if block.namespace is not None:
            self.losses.add(
                place, "a namespace, now part of the name", "names are flat here", "form"
            )
        if block.custom:
            self.losses.add(place, "a custom call, now a function's", "it has one input", "form")

    def _user(self, turn: Turn) -> list[JsonObject]:
        answers: list[tuple[ToolResult, Place]] = []
        others: list[JsonObject] = []
        for block, place in zip(turn.blocks, turn.places, strict=True):
            if isinstance(block, ToolResult):
                answers.append((block, place))
            else:
                others.append(self.writer.part(block, place))
        if not answers:
            return [{"parts": others, "role": "user"}]
        lifted: list[JsonObject] = []
        results = [self._result(block, place, lifted) for block, place in self._ordered(answers)]
        contents: list[JsonObject] = [{"parts": results, "role": "user"}]
        if lifted or others:
            contents.append({"parts": lifted + others, "role": "user"})
        for block, place in zip(turn.blocks, turn.places, strict=True) if others else ():
            if not isinstance(block, ToolResult):
                self.losses.add(place, "its place beside results", "results stand alone", "form")
        return contents

    def _ordered(self, answers: list[tuple[ToolResult, Place]]) -> list[tuple[ToolResult, Place]]:
        if len(answers) == 1:
            return answers
        ordered = sorted(answers, key=lambda pair: self._order.get(pair[0].call_id, 0))
        if ordered != answers:
            place = answers[0][1][:1]
            self.losses.add(place, "the order of results", "it is that of the calls", "form")
        return ordered

    def _result(self, block: ToolResult, place: Place, lifted: list[JsonObject]) -> JsonObject:
        """One result; media that the model does not take inside of it is put into `lifted`."""
        content = sift_result(block, place, self.request, self.losses)
        media = (
            () if self.model.media_results else tuple(b for b in content if isinstance(b, Media))
        )
        if media:
            content = tuple(part for part in content if not isinstance(part, Media))
            name = self.writer.name_of(block.call_id)
            lifted.append({"text": f"[from the result of {name}]"})
            lifted += [self.writer.part(part, place) for part in media]
            self.losses.add(
                place, "the place of its media: they follow the results", "they stand apart", "form"
            )
        answer = structs.replace(
            block,
            content=content,
            name=self.writer.name_of(block.call_id) or block.name,
            form="text" if block.form == "absent" else block.form,
        )
        call = self.writer.calls.get(block.call_id)
        if call is not None and "id" in own_ext(call.ext):
            answer = structs.replace(answer, ext=noted(block.ext, "id", None))
        return self.writer.part(answer, place)
