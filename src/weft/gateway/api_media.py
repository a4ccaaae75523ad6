"""Uploads of the page, the media of stored messages, and threads as documents.

POST /api/upload?name=     the file is the body (`application/octet-stream`); answers its `id`
GET  /api/upload?id=       an uploaded file, for its preview
GET  /api/media?thread=&branch=&until=&row=|call=&index=
                           media of a message or of a tool result, by position
GET  /api/media?thread=&branch=&until=&row=&block=
                           the whole text of a block that is too long to be shown
GET  /api/export?thread=&format=html|markdown
                           the thread as one document, to be downloaded
"""

from base64 import b64decode
from binascii import Error as Base64Error
from typing import Any, cast

from starlette.requests import Request
from starlette.responses import Response

from weft.errors import Refused
from weft.model import Inline, JsonObject, Text
from weft.thread import MAX_FILE_BYTES, Media, export_bytes, make_media

from .api_call import ApiCall
from .render import render
from .uploads import (
    DOWNLOAD,
    FILES_PER_MESSAGE,
    MEGABYTE,
    MESSAGE_LIMIT,
    media_blocks,
    media_name,
    media_response,
)

DOCUMENTS = {"html": "html", "markdown": "md"}
"""The formats of a document, and their file name extensions."""


async def read_upload(request: Request) -> JsonObject:
    """The fields of an upload: its name, and its content as `file`."""
    # A page of another origin may not send this type without asking the server first.
    if request.headers.get("content-type", "").partition(";")[0].strip() != DOWNLOAD:
        raise Refused(f"the body must be {DOWNLOAD}", param="content-type", status=415)
    body = bytearray()
    async for piece in request.stream():
        body += piece
        if len(body) > MAX_FILE_BYTES:
            message = (
                f"the file is larger than the {MAX_FILE_BYTES // MEGABYTE} MB that can be sent"
            )
            raise Refused(message, param="file", status=413)
    return {"name": request.query_params.get("name"), "file": bytes(body)}


def store_upload(call: ApiCall) -> JsonObject:
    """Store a file, to be attached to a message by its `id`."""
    name = call.text_or_none("name") or "file"
    return call.state.uploads.add(call.scope, name, call.fields["file"]).to_json()


def show_upload(call: ApiCall) -> Response:
    """An uploaded file."""
    upload, data = call.state.uploads.read(call.scope, call.text("id"))
    return media_response(upload.name, data)


def show_media(call: ApiCall) -> Response:
    """Media of a message or of a tool result, or the text of a block."""
    thread = call.read_view()
    if call.text_or_none("call") is not None:
        result = thread.results.get(call.text("call"))
        media = [] if result is None else media_blocks(result.content)
    else:
        row = thread.view.find(_row_id(call))
        if row is not None and call.fields.get("block") is not None:
            block = row.message.blocks[_position(call, "block", len(row.message.blocks))]
            text = block.text if isinstance(block, Text) else ""
            return media_response("message.txt", text.encode("utf-8", "replace"))
        media = [] if row is None else media_blocks(row.message.blocks)
    block = media[_position(call, "index", len(media))]
    return media_response(media_name(block), _decode_content(block))


def export_thread(call: ApiCall) -> Response:
    """The thread with its branches as one document; `html` is self-contained and safe to open."""
    format = call.text("format")
    if format not in DOCUMENTS:
        choices = " or ".join(DOCUMENTS)
        raise Refused(f"{format!r} is not a document; use {choices}", param="format")
    thread = call.thread()
    data, _ = export_bytes(call.store, thread.name, format, branch=thread.current, render=render)
    return media_response(f"{thread.name}.{DOCUMENTS[format]}", data)


def _position(call: ApiCall, name: str, count: int) -> int:
    """The index in the field `name`, among `count` items."""
    value = str(call.fields.get(name, "0"))
    index = int(value) if value.isascii() and value.isdigit() else -1
    if not 0 <= index < count:
        raise Refused("there is no such image or file", param=name, status=404)
    return index


def _row_id(call: ApiCall) -> bytes:
    try:
        return bytes.fromhex(call.text("row"))
    except ValueError:
        raise Refused("is not the id of a message", param="row") from None


def _decode_content(block: Media) -> bytes:
    if not isinstance(block.source, Inline):
        raise Refused("this file is not in the thread", param="index", status=404)
    try:
        return b64decode(block.source.data)
    except (Base64Error, ValueError):
        raise Refused("this file is not valid base64", param="index", status=422) from None


def read_attached(call: ApiCall) -> tuple[Media, ...]:
    """The blocks of the files that a frame attaches; raises `Refused` if they are too large."""
    value = call.fields.get("attach")
    if value in (None, []):
        return ()
    if not isinstance(value, list) or not all(isinstance(id, str) for id in cast(list[Any], value)):
        raise Refused("must be a list of the ids of uploaded files", param="attach")
    ids = cast(list[str], value)
    if len(ids) > FILES_PER_MESSAGE:
        message = f"a message takes at most {FILES_PER_MESSAGE} files, not {len(ids)}"
        raise Refused(message, param="attach", status=413)
    files = [call.state.uploads.read(call.scope, id) for id in ids]
    if sum(len(data) for _, data in files) > MESSAGE_LIMIT:
        message = f"the files of a message are limited to {MESSAGE_LIMIT // MEGABYTE} MB together"
        raise Refused(message, param="attach", status=413)
    return tuple(make_media("attach", upload.name, data) for upload, data in files)
