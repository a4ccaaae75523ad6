"""Files that belong to a store (the gateway's journal, the file of its server), and safe writing.

They are beside the file of a SQLite store. Stores of other kinds have them in the state directory:
https://specifications.freedesktop.org/basedir-spec/latest/

The file of a server has its URL and process id, so that commands on the same store find it.
"""

import os
from collections.abc import Generator, Mapping
from contextlib import contextmanager, suppress
from hashlib import sha256
from pathlib import Path
from typing import Any, cast

from weft import exact_json

JOURNAL_SUFFIX = ".pending"
SERVER_SUFFIX = ".server"


def companion_path(store: str, suffix: str, environ: Mapping[str, str]) -> Path:
    """The path of a file that belongs to the store at this address."""
    if "://" not in store or store.startswith("sqlite://"):
        return Path(f"{store.removeprefix('sqlite://')}{suffix}").expanduser()
    name = sha256(store.encode()).hexdigest()[:16]
    folder = environ.get("XDG_STATE_HOME") or str(Path("~/.local/state").expanduser())
    return Path(folder) / "weft" / f"{name}{suffix}"


def write_private(path: Path, data: bytes) -> None:
    """Write a file as a whole, or not at all; a new file is readable by its owner only.

    The data is written to a temporary file, which then replaces the old one, so a full disk leaves
    the old file unchanged. A device, a pipe, and a file in a folder that cannot be written are
    written in place. An `OSError` has the name of the file.
    """
    target = Path(os.path.realpath(path))
    temporary = target.with_name(f".{target.name[:100]}.{os.urandom(6).hex()}.tmp")
    try:
        mode = target.stat().st_mode if target.exists() else 0o600
        is_replaceable = target.is_file() and os.access(target.parent, os.W_OK | os.X_OK)
        if target.exists() and not is_replaceable:
            target.write_bytes(data)
            return
        try:
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
            with open(os.open(temporary, flags, 0o600), "wb") as file:
                file.write(data)
            temporary.chmod(mode & 0o777)
            temporary.replace(target)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from None


@contextmanager
def announce_server(server_file: Path | None, url: str) -> Generator[None]:
    """Write the file of a server, and remove it at the end.

    In a read-only folder nothing is written.
    """
    body = exact_json.dumps({"url": url, "pid": os.getpid()})
    if server_file is not None:
        with suppress(OSError):
            server_file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            write_private(server_file, body)
    try:
        yield
    finally:
        if server_file is not None:
            with suppress(OSError):
                if server_file.read_bytes() == body:  # another server may have replaced it
                    server_file.unlink()


def read_server(server_file: Path) -> str | None:
    """The URL in the file of a server, if this user wrote it. The server may be gone by now."""
    try:
        if server_file.stat().st_uid != os.getuid():
            return None
        body: Any = exact_json.loads(server_file.read_bytes())
    except (OSError, exact_json.JSONDecodeError):
        return None
    url = cast(dict[str, Any], body).get("url") if isinstance(body, dict) else None
    return url if isinstance(url, str) else None
