"""Credentials of a call, and their removal from what an upstream answers.

Some servers quote the key in their errors (`Incorrect API key provided: sk-...`). A client of the
gateway must not see the operator's key, and nobody's key is stored. So a key is removed from error
bodies, error events and headers, however the server writes it: plain, escaped for JSON, HTML or a
URL, in base64 or hexadecimal. A key that the server has masked itself stays as it is. Answers that
are no errors are not changed.
"""

import re
from base64 import b64encode
from collections.abc import Iterable, Mapping
from functools import lru_cache

from msgspec import convert, to_builtins

from weft import exact_json
from weft.model import ApiError

SECRET_WORDS = frozenset(
    [
        *("apikey", "auth", "authorization", "cookie", "credential", "credentials"),
        *("bearer", "csrf", "jwt", "passwd", "password", "pwd", "secret", "sid", "token"),
    ]
)
"""A header or query parameter with one of these words in its name is treated as a secret."""

SECRET_SUFFIXES = ("-key", "-access", "-client-id")
"""Endings of other names with secrets. Access proxies have credentials of two parts, an id and a
secret, and the id is withheld too, such as Cloudflare's `cf-access-client-id`:
https://developers.cloudflare.com/cloudflare-one/identity/service-tokens/"""

SHORTEST = 8
"""Shorter keys are placeholders (`dummy`, `ollama`): removing them would garble error messages."""

REDACTED = "[redacted]"

_HTML_NAMES = {"&": "amp", "<": "lt", ">": "gt", '"': "quot", "'": "apos"}


def is_secret(name: str) -> bool:
    """Whether a header or query parameter of this name may carry a secret."""
    lowered = name.lower().replace("_", "-")
    return (
        lowered.endswith(SECRET_SUFFIXES)
        or lowered == "key"
        or "api-key" in lowered
        or not SECRET_WORDS.isdisjoint(lowered.split("-"))
    )


class Secrets:
    """The credentials that a request was sent with."""

    def __init__(self, keys: Iterable[str] = ()) -> None:
        self._keys = tuple(key for key in keys if len(key) >= SHORTEST)

    def __repr__(self) -> str:
        return "Secrets()"

    def redact(self, data: bytes) -> bytes:
        """The bytes without the credentials."""
        for key in self._keys:
            data = _pattern(key).sub(REDACTED.encode(), data)
        return data

    def redact_text(self, text: str) -> str:
        """The text without the credentials."""
        if not self._keys:
            return text
        return self.redact(text.encode("utf-8", "surrogatepass")).decode("utf-8", "surrogatepass")

    def redact_error(self, error: ApiError) -> ApiError:
        """The error without the credentials."""
        if not self._keys:
            return error
        data = exact_json.dumps(to_builtins(error))
        redacted = self.redact(data)
        return error if redacted == data else convert(exact_json.loads(redacted), ApiError)

    def redact_headers(self, headers: Mapping[str, str]) -> Mapping[str, str]:
        """The headers without the credentials; unchanged if there are none in them."""
        redacted = {name: self.redact_text(value) for name, value in headers.items()}
        return headers if all(redacted[name] == headers[name] for name in redacted) else redacted


def read_secrets(headers: Mapping[str, str], others: Iterable[str] = ()) -> Secrets:
    """The credentials in the headers of a request, and others that it was sent with."""
    values = (value for name, value in headers.items() if is_secret(name))
    return Secrets(dict.fromkeys((*map(_without_scheme, values), *others)))


def _without_scheme(value: str) -> str:
    """`Bearer KEY` and `Basic KEY` without the first word."""
    scheme, space, rest = value.strip().partition(" ")
    return rest.strip() if space and scheme.isalpha() else value.strip()


@lru_cache(maxsize=256)
def _pattern(key: str) -> re.Pattern[bytes]:
    """Matches a key in every form in which a server may write it."""
    data = key.encode()
    forms = [
        "".join(map(_character_pattern, key)),
        "".join(f"{byte:02x}" for byte in data),
        *map(_base64_pattern, range(3), [data] * 3),
    ]
    return re.compile("|".join(forms).encode(), re.IGNORECASE)


def _character_pattern(character: str) -> str:
    """A character, plain or escaped; JSON within JSON doubles the backslashes."""
    code = ord(character)
    forms = [rf"\\+u{code:04x}", rf"&#0*{code};", rf"&#x0*{code:x};"]
    forms.append("".join(f"%(?:25)*{byte:02x}" for byte in character.encode()))
    if character in _HTML_NAMES:
        forms.append(f"&{_HTML_NAMES[character]};")
    plain = re.escape(character)
    forms.append(plain if character.isalnum() else rf"\\*{plain}")
    return f"(?:{'|'.join(forms)})"


def _base64_pattern(offset: int, data: bytes) -> str:
    """The base64 of bytes that begin `offset` bytes after a multiple of three, in a longer text.

    The first and last characters also depend on the bytes beside them, so they are left out.
    """
    encoded = b64encode(b"\0" * offset + data).rstrip(b"=").decode()
    first = (0, 2, 3)[offset]
    last = len(encoded) if (offset + len(data)) % 3 == 0 else -1
    core = encoded[first:last]
    classes = {"+": r"(?:\\*[+]|-|%2b)", "/": r"(?:\\*/|_|%2f)"}
    return "".join(classes.get(character, character) for character in core) + "[A-Za-z0-9]?=*"
