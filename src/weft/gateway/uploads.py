"""Files that the page attaches to messages, and the media of stored messages.

An upload is stored by its SHA-256 hash in a folder that lives as long as the server, so the same
file is stored once. A message that is sent names its files by hash (`attach`), and then contains
them. Uploads are limited in size and in total; the oldest ones are removed.

Media are untrusted. Only raster images are shown by the browser, and their type is detected from
their bytes; everything else is a download.
"""

import shutil
from collections import OrderedDict
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path
from tempfile import mkdtemp
from threading import Lock
from urllib.parse import quote
from weakref import finalize

from msgspec import Struct
from starlette.responses import Response

from weft.errors import Refused, WrongValue
from weft.model import Audio, File, Image, Inline, JsonObject
from weft.store import write_private
from weft.thread import Media, detect_type, make_media

MEGABYTE = 1024 * 1024
MESSAGE_LIMIT = 22 * MEGABYTE
"""The total size of one message's files. In base64 they have 31 MB; `MAX_FILE_BYTES` says why."""
FILES_PER_MESSAGE = 10
STORED_LIMIT = 400 * MEGABYTE
NAME_LENGTH = 200
SHOWN_TYPES = ("image/png", "image/jpeg", "image/gif", "image/webp")
"""The types that a browser may show: none of them can contain a script."""
DOWNLOAD = "application/octet-stream"
MEDIA_HEADERS = {
    "content-security-policy": "default-src 'none'; sandbox",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cache-control": "private, max-age=3600",
}


class Upload(Struct, frozen=True):
    """A file that was uploaded: its hash, its name, its type and its size in bytes."""

    id: str
    name: str
    media_type: str
    size: int

    def to_json(self) -> JsonObject:
        return {
            "id": self.id,
            "name": self.name,
            "media_type": self.media_type,
            "size": self.size,
            "shown": self.media_type in SHOWN_TYPES,
        }


class Uploads:
    """The uploaded files of all callers. A caller reaches only the files of its own scope."""

    def __init__(self) -> None:
        self._files: OrderedDict[tuple[str | None, str], Upload] = OrderedDict()
        self._folder: Path | None = None
        self._lock = Lock()

    def add(self, scope: str | None, name: str, data: bytes) -> Upload:
        """Store a file; raises `Refused` if its type is unsupported."""
        name = clean_name(name)
        try:
            make_media("file", name, data)
        except WrongValue as error:
            raise Refused(str(error), param="file", status=415) from None
        upload = Upload(
            sha256(data).hexdigest(), name, detect_type(name, data) or DOWNLOAD, len(data)
        )
        with self._lock:
            self._write(upload.id, data)
            self._files[scope, upload.id] = upload
            self._files.move_to_end((scope, upload.id))
            self._remove_oldest()
        return upload

    def read(self, scope: str | None, id: str) -> tuple[Upload, bytes]:
        """A file and its content; raises `Refused` if the server does not have it any more."""
        with self._lock:
            upload = self._files.get((scope, id))
            if upload is None or self._folder is None:
                message = "this file is not on the server any more: attach it again"
                raise Refused(message, param="attach", status=404)
            return upload, (self._folder / upload.id).read_bytes()

    def _write(self, id: str, data: bytes) -> None:
        if self._folder is None:
            self._folder = Path(mkdtemp(prefix="weft-uploads-"))
            finalize(self, shutil.rmtree, self._folder, ignore_errors=True)
        path = self._folder / id
        if not path.exists():
            write_private(path, data)

    def _remove_oldest(self) -> None:
        sizes = {upload.id: upload.size for upload in self._files.values()}
        while sum(sizes.values()) > STORED_LIMIT and len(self._files) > 1:
            _, oldest = self._files.popitem(last=False)
            if all(upload.id != oldest.id for upload in self._files.values()):
                del sizes[oldest.id]
                if self._folder is not None:
                    (self._folder / oldest.id).unlink(missing_ok=True)


def clean_name(name: str) -> str:
    """The last part of a file name, without control characters."""
    last = name.replace("\\", "/").rpartition("/")[2]
    return "".join(c for c in last if c.isprintable())[:NAME_LENGTH] or "file"


def media_response(name: str, data: bytes) -> Response:
    """A file for the browser; it shows raster images, and downloads everything else."""
    media_type = detect_type(name, data)
    headers = dict(MEDIA_HEADERS)
    if media_type not in SHOWN_TYPES:
        media_type = DOWNLOAD
        headers["content-disposition"] = f"attachment; filename*=UTF-8''{quote(clean_name(name))}"
    return Response(data, 200, headers, media_type)


def media_blocks(blocks: Sequence[object]) -> list[Media]:
    """The images, files and recordings among these blocks."""
    return [block for block in blocks if isinstance(block, Image | File | Audio)]


def media_name(block: Media) -> str:
    """The name under which media are shown."""
    name = block.name if isinstance(block, File) else None
    return clean_name(name) if name else str(block.__struct_config__.tag)


def media_json(block: Media, address: JsonObject) -> JsonObject:
    """Media as a part of a row. `address` names them in `GET /api/media`.

    Media at an address of the web are not fetched: only their address is shown.
    """
    source = block.source
    is_inline = isinstance(source, Inline)
    return {
        "type": "media",
        "kind": block.__struct_config__.tag,
        "name": media_name(block),
        "media_type": source.media_type,
        "size": len(source.data) * 3 // 4 - source.data[-2:].count("=") if is_inline else None,
        "shown": is_inline and source.media_type in SHOWN_TYPES,
        "source": None if is_inline else getattr(source, "url", getattr(source, "id", "")),
        "address": address if is_inline else None,
    }
