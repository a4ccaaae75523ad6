"""Keys are removed from errors, however a server writes them."""

import html
import json
from base64 import b64encode, urlsafe_b64encode
from urllib.parse import quote

import pytest

from weft.client import Secrets, read_secrets
from weft.model import ApiError

KEY = "sk-ant-Ab9+/x=_y&z.\"q'<~>ü1234567890"
FORMS = {
    "plain": KEY,
    "JSON": json.dumps(KEY)[1:-1],
    "JSON with escaped slashes": json.dumps(KEY)[1:-1].replace("/", "\\/"),
    "JSON in JSON": json.dumps(json.dumps({"a": KEY})),
    "JSON in JSON in JSON": json.dumps(json.dumps(json.dumps({"a": KEY}))),
    "every character escaped": "".join(f"\\u{ord(character):04X}" for character in KEY),
    "HTML": html.escape(KEY),
    "HTML with numbers": "".join(f"&#{ord(character)};" for character in KEY),
    "HTML in hexadecimal": "".join(f"&#x{ord(character):x};" for character in KEY),
    "URL": quote(KEY, safe=""),
    "URL twice": quote(quote(KEY, safe=""), safe=""),
    "lower case": KEY.lower(),
    "base64": b64encode(KEY.encode()).decode(),
    "basic": b64encode(f"user:{KEY}".encode()).decode(),
    "basic with another user": b64encode(f"me:{KEY}".encode()).decode(),
    "base64 in a longer text": b64encode(f"the key is {KEY}, sorry".encode()).decode(),
    "base64 for URLs": urlsafe_b64encode(KEY.encode()).decode(),
    "hexadecimal": KEY.encode().hex(),
    "Python's repr": repr(KEY)[1:-1],
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("header", ["authorization", "x-api-key", "api-key", "x-goog-api-key"])
def test_a_key_is_removed_in_every_form(form, header):
    value = f"Bearer {KEY}" if header == "authorization" else KEY
    secrets = read_secrets({header: value, "accept": "application/json"})
    redacted = secrets.redact_text(f"Incorrect API key: {FORMS[form]} was sent")
    assert redacted.startswith("Incorrect API key: ")
    assert redacted.endswith(" was sent")
    assert "[redacted]" in redacted
    assert "1234" not in redacted
    assert "Ab9" not in redacted


LONG = "sk-proj-Zx81kQp0Rt5vYw2LmN7bHs9dGf4cJa6eUi3o"
PARTS = {
    "half": LONG[:22],
    "most of it": LONG[:-1],
    "a third": LONG[:15],
    "the end": LONG[-15:],
    "all but the first": LONG[1:],
    "with dots": LONG[:20] + "...",
    "the end with dots": "..." + LONG[-20:],
    "half behind stars": "*****" + LONG[-30:],
    "half before stars": LONG[:30] + "*****",
    "base64": b64encode(LONG[:22].encode()).decode(),
    "base64 of the end": b64encode(LONG[-21:].encode()).decode(),
    "basic": b64encode(f"user:{LONG[:24]}".encode()).decode(),
    "basic with another user": b64encode(f"me:{LONG[:24]}".encode()).decode(),
    "cut base64": b64encode(LONG.encode()).decode()[:24],
    "base64 for URLs": urlsafe_b64encode(LONG[:24].encode()).decode(),
    "hexadecimal": LONG[:20].encode().hex(),
    "escaped": "".join(f"\\u{ord(character):04x}" for character in LONG[:20]),
    "the end escaped": "".join(f"%{ord(character):02X}" for character in LONG[-20:]),
}


@pytest.mark.parametrize("form", PARTS)
def test_a_quoted_part_of_a_key_is_removed(form):
    redacted = Secrets([LONG]).redact_text(f"bad key '{PARTS[form]}' was sent, {PARTS[form]}")
    assert redacted.count("[redacted]") == 2
    left = redacted.replace("[redacted]", "")
    quoted = PARTS[form].strip("*.")
    assert quoted[8:13] not in left
    assert quoted[-9:-4] not in left


@pytest.mark.parametrize(
    "text",
    [
        f"{LONG[:11]}*****{LONG[-4:]}",
        f"{LONG[:16]}**********{LONG[-4:]}",
        f"{LONG[:4]}**********{LONG[-16:]}",
        f"{LONG[:8]}...{LONG[-4:]}",
        "a key begins with sk-proj- and has 44 characters",
        LONG[10:20],
    ],
)
def test_a_masked_key_stays_readable(text):
    assert Secrets([LONG]).redact_text(text) == text


def test_what_is_no_key_stays():
    masked = "Incorrect API key provided: sk-ant-A*******7890. You can find it at x."
    assert read_secrets({"authorization": f"Bearer {KEY}"}).redact_text(masked) == masked
    short = Secrets(["dummy", "ollama"])  # placeholders for servers without keys
    assert short.redact_text("ollama: no such model") == "ollama: no such model"


def test_every_member_of_an_error_is_redacted():
    error = ApiError("authentication", f"bad {KEY}", 401, code=KEY, ext={"x": {"deep": [KEY]}})
    redacted = Secrets([KEY]).redact_error(error)
    assert (redacted.kind, redacted.status, redacted.code) == ("authentication", 401, "[redacted]")
    assert redacted.ext == {"x": {"deep": ["[redacted]"]}}


def test_a_representation_shows_no_key():
    assert KEY not in repr(Secrets([KEY]))
