"""Credentials of a call, and their removal from what an upstream answers.

Some servers quote the key in their errors (`Incorrect API key provided: sk-...`). A client of the
gateway must not see the operator's key, and nobody's key is stored. So a key is removed from error
bodies, error events and headers, however the server writes it: plain, escaped for JSON, HTML or a
URL, in base64 or hexadecimal. So is its beginning or end, if that is at least a third of it and
eight characters. A key that the server has masked itself stays as it is. Answers that are no errors
are not changed.
"""

import re
from base64 import b64encode
from collections.abc import Iterable, Mapping
from functools import lru_cache

from msgspec import Struct, convert, to_builtins

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

MASK = b"***"
"""What servers put in the place of the rest of a key. Beside it, less than half a key may stay."""

LONGEST_ESCAPE = 40
"""How many bytes an escaped character has at most."""

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
            for spelling in _spellings(key):
                data = spelling.redact_ends(data)
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


class _Spelling(Struct, frozen=True):
    """One form of a key: a pattern for each character, and how many of them are too many."""

    characters: tuple[str, ...]
    minimum: int

    def redact_ends(self, data: bytes) -> bytes:
        """The bytes without the beginning and the end of the key."""
        size = len(self.characters)
        spans: list[tuple[int, int]] = []
        for match in _compile("".join(self.characters[: self.minimum])).finditer(data):
            begin, end, count = match.start(), match.end(), self.minimum
            while count < size and (more := _compile(self.characters[count]).match(data, end)):
                end, count = more.end(), count + 1
            if not (data.startswith(MASK, end) and count * 2 < size):
                spans.append((begin, end))
        for match in _compile("".join(self.characters[-self.minimum :])).finditer(data):
            begin, end, count = match.start(), match.end(), self.minimum
            while count < size:
                before = _compile(self.characters[-count - 1] + r"\Z")
                more = before.search(data, max(0, begin - LONGEST_ESCAPE), begin)
                if more is None:
                    break
                begin, count = more.start(), count + 1
            if not (data.endswith(MASK, 0, begin) and count * 2 < size):
                spans.append((begin, end))
        pieces: list[bytes] = []
        done = 0
        for begin, end in sorted(spans):
            if begin >= done:
                pieces += [data[done:begin], REDACTED.encode()]
            done = max(done, end)
        return b"".join([*pieces, data[done:]])


@lru_cache(maxsize=256)
def _spellings(key: str) -> tuple[_Spelling, ...]:
    """The forms of a key of which a part may be quoted."""
    data = key.encode()
    share = max(SHORTEST, -(-len(data) // 3))
    digits = max(SHORTEST, share * 8 // 6 - 2)
    forms = [
        (tuple(map(_character_pattern, key)), max(SHORTEST, -(-len(key) // 3))),
        (tuple(f"{byte:02x}" for byte in data), share),
        *((tuple(_base64_characters(offset, data)), digits) for offset in range(3)),
    ]
    return tuple(_Spelling(*form) for form in forms if form[1] <= len(form[0]))


@lru_cache(maxsize=4096)
def _compile(pattern: str) -> re.Pattern[bytes]:
    return re.compile(pattern.encode(), re.IGNORECASE)


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
    return "".join(_base64_characters(offset, data)) + "[A-Za-z0-9]?=*"


def _base64_characters(offset: int, data: bytes) -> list[str]:
    """The base64 of bytes that begin `offset` bytes after a multiple of three, in a longer text.

    The first and last characters also depend on the bytes beside them, so they are left out.
    """
    encoded = b64encode(b"\0" * offset + data).rstrip(b"=").decode()
    first = (0, 2, 3)[offset]
    last = len(encoded) if (offset + len(data)) % 3 == 0 else -1
    core = encoded[first:last]
    classes = {"+": r"(?:\\*[+]|-|%2b)", "/": r"(?:\\*/|_|%2f)"}
    return [classes.get(character, character) for character in core]
