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
