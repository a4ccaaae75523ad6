"""Keys that a command prints, such as `gcloud auth print-access-token`.

A command runs in a thread, without a shell, and only once at a time. Its token is kept for the
whole process until it expires, or until an upstream answers 401. The command prints the token on a
line of its own, or a JSON object such as `az account get-access-token` prints it. The expiry is
the one in that object or in the token itself, if it is a JWT; otherwise it is not known.

What the command writes to stderr is dropped, and no error contains what it printed.
"""

import asyncio
import os
import re
import shlex
import signal
import subprocess
import time
from base64 import urlsafe_b64decode
from binascii import Error as Base64Error
from collections.abc import Sequence
from concurrent.futures import Future
from contextlib import suppress
from datetime import datetime
from threading import Lock, Thread, Timer
from typing import Any, cast

from msgspec import Struct

from weft import exact_json
from weft.errors import UpstreamFailed
from weft.model import JsonObject

from .address import WrongSetting

SECONDS = 30.0
"""How long a command may run. Commands that ask a cloud for a token take one to five seconds."""

EARLY = 60.0
"""A token is replaced this many seconds before it expires: a request may take a while to arrive."""

LIMIT = 64 * 1024
"""The longest output of a command, in bytes. Tokens have at most a few thousand characters."""

TOKEN_MEMBERS = ("access_token", "accessToken", "token", "id_token")
EXPIRY_MEMBERS = ("expires_on", "expires_at", "expiry", "expiration", "expiresOn")
"""Members of the output of `az`, OAuth's token endpoints and the credential plugins of clouds."""

_PRINTABLE = re.compile(r"[\x21-\x7e]+")


class Token(Struct, frozen=True):
    """A token, and when it expires in seconds since 1970, if that is known."""

    text: str
    expires: float | None = None

    def __repr__(self) -> str:
        return "Token()"


class KeyCommandFailed(Exception):
    """Why a command gave no token, without anything that it printed."""


class _Entry:
    """The token of one command, and the run that is in progress."""

    def __init__(self) -> None:
        self.token: Token | None = None
        self.run: Future[Token] | None = None


_lock = Lock()
_entries: dict[tuple[str, ...], _Entry] = {}


def read_command(command: Sequence[str] | str) -> tuple[str, ...]:
    """The words of the setting `key_command`; raises `WrongSetting`."""
    try:
        words = tuple(shlex.split(command) if isinstance(command, str) else command)
    except ValueError as error:
        raise WrongSetting("key_command", f"is not a command: {str(error).lower()}") from None
    if command != () and (not words or not words[0]):
        raise WrongSetting("key_command", "is empty")
    if any("\0" in word for word in words):
        raise WrongSetting("key_command", "has a character that a command cannot have")
    return words


async def read_token(command: tuple[str, ...], upstream: str, *, refused: str = "") -> str:
    """The token of a command; raises `UpstreamFailed`.

    `refused` is a token that the upstream has refused, and that is not used again.
    """
    with _lock:
        entry = _entries.setdefault(command, _Entry())
        token = entry.token
        is_fresh = token is not None and (
            token.expires is None or time.time() < token.expires - EARLY
        )
        if token is not None and is_fresh and token.text != refused:
            return token.text
        run = entry.run
        if run is None:
            run = entry.run = Future()
            Thread(
                target=_run, args=(command, entry, run), name="weft-key-command", daemon=True
            ).start()
    try:
        return (await asyncio.shield(asyncio.wrap_future(run))).text
    except KeyCommandFailed as failed:
        raise UpstreamFailed(f"the key_command of upstream {upstream!r} {failed}") from None


def _run(command: tuple[str, ...], entry: _Entry, run: "Future[Token]") -> None:
    try:
        token = run_key_command(command)
    except BaseException as error:
        with _lock:
            entry.run = None
        run.set_exception(
            error if isinstance(error, KeyCommandFailed) else KeyCommandFailed("failed")
        )
        return
    with _lock:
        entry.token, entry.run = token, None
    run.set_result(token)


def run_key_command(command: tuple[str, ...], seconds: float = SECONDS) -> Token:
    """Run a command and read its token; raises `KeyCommandFailed`."""
    try:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # so that its own children end with it
        )
    except OSError as error:
        raise KeyCommandFailed(f"cannot be started: {os.strerror(error.errno or 0)}") from None
    expired: list[bool] = []

    def kill() -> None:
        with suppress(OSError):
            os.killpg(process.pid, signal.SIGKILL)

    def expire() -> None:
        expired.append(True)
        kill()

    timer = Timer(seconds, expire)
    timer.daemon = True
    timer.start()
    try:
        with process:
            assert process.stdout is not None
            output = process.stdout.read(LIMIT + 1)
            if len(output) > LIMIT:
                kill()
    finally:
        timer.cancel()
    if expired:
        raise KeyCommandFailed(f"did not end within {seconds:g} seconds")
    if process.returncode != 0 and len(output) <= LIMIT:
        raise KeyCommandFailed(f"ended with status {process.returncode}")
    return read_key_output(output)


def read_key_output(output: bytes) -> Token:
    """The token that a command printed; raises `KeyCommandFailed`."""
    text = output.decode("utf-8", "replace").strip()
    expires = None
    if text.startswith("{"):
        text, expires = _read_object(text)
    if not text:
        raise KeyCommandFailed("printed no token")
    if len(text) > LIMIT or not _PRINTABLE.fullmatch(text):
        raise KeyCommandFailed("printed something that is not a token on one line")
    return Token(text, _read_jwt_expiry(text) if expires is None else expires)


def _read_object(text: str) -> tuple[str, float | None]:
    try:
        members: JsonObject = exact_json.loads(text)
    except exact_json.JSONDecodeError:
        raise KeyCommandFailed("printed something that is not a token on one line") from None
    status: Any = members.get("status")  # of a Kubernetes credential plugin
    if isinstance(status, dict):
        members = {**members, **cast(JsonObject, status)}
    values = [members[name] for name in TOKEN_MEMBERS if isinstance(members.get(name), str)]
    expiry = [
        seconds for name in EXPIRY_MEMBERS if (seconds := _read_time(members.get(name))) is not None
    ]
    lifetime = members.get("expires_in")
    if not expiry and isinstance(lifetime, int | float):
        expiry = [time.time() + lifetime]
    return (values[0].strip() if values else ""), (expiry[0] if expiry else None)


def _read_time(value: Any) -> float | None:
    """Seconds since 1970, from a number, a number as text, or an ISO time."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int | float):
        return float(value)
    if not isinstance(value, str):
        return None
    with suppress(ValueError):
        return float(value)
    with suppress(ValueError):
        return datetime.fromisoformat(value).timestamp()
    return None


def _read_jwt_expiry(token: str) -> float | None:
    """The expiry in a JSON web token: https://www.rfc-editor.org/rfc/rfc7519#section-4.1.4"""
    parts = token.split(".")
    if len(parts) != 3:
        return None
    try:
        claims = exact_json.loads(urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
    except (Base64Error, ValueError):
        return None
    return _read_time(cast(JsonObject, claims).get("exp")) if isinstance(claims, dict) else None
