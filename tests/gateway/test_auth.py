"""Which callers are accepted."""

from base64 import b64encode
from hashlib import sha256

import pytest

from weft.errors import Refused
from weft.gateway import Settings, admit

OPEN = Settings()
KEYED = Settings(keys=frozenset({sha256(b"good").hexdigest()}))
BASIC = b64encode(b"me:good").decode()
LOCAL = {"host": "127.0.0.1:8787"}


@pytest.mark.parametrize(
    ("settings", "headers", "status"),
    [
        (OPEN, LOCAL, None),
        (OPEN, {"host": "localhost:8787", "origin": "http://localhost:8787"}, None),
        (OPEN, {"host": "[::1]:8787"}, None),
        (OPEN, {}, None),  # HTTP/1.0 has no host
        (OPEN, {**LOCAL, "origin": "https://evil.example"}, 403),  # somebody else's page
        (OPEN, {"host": "evil.example"}, 403),  # DNS rebinding
        (OPEN, {**LOCAL, "origin": "null"}, 403),  # a sandboxed frame
        (KEYED, LOCAL, 401),
        (KEYED, {**LOCAL, "x-api-key": "bad"}, 401),
        (KEYED, {**LOCAL, "x-api-key": "good"}, None),
        (KEYED, {**LOCAL, "authorization": "Bearer good"}, None),
        (KEYED, {**LOCAL, "authorization": f"Basic {BASIC}"}, None),  # a browser
        (KEYED, {**LOCAL, "authorization": "Basic !!"}, 401),
        (KEYED, {**LOCAL, "authorization": "Digest good"}, 401),
        (KEYED, {"host": "weft.example", "x-api-key": "good"}, None),
    ],
)
def test_a_caller_is_accepted_or_refused(settings, headers, status):
    if status is None:
        admit(headers, settings)
        return
    with pytest.raises(Refused) as refused:
        admit(headers, settings)
    assert refused.value.status == status


def test_threads_of_different_keys_are_separate():
    keys = frozenset(sha256(key).hexdigest() for key in (b"a", b"b"))
    settings = Settings(keys=keys)
    assert admit({"x-api-key": "a"}, settings) != admit({"x-api-key": "b"}, settings)
