"""A codec is imported at first use, and does not import other codecs."""

import subprocess
import sys

import pytest

HOMES = {
    "anthropic": "anthropic",
    "openai-chat": "chat",
    "openai-responses": "responses",
    "gemini": "gemini",
}


@pytest.mark.parametrize("protocol", HOMES)
def test_a_codec_imports_no_other_codec(protocol):
    program = (
        "import sys; from weft.codec import CODECS; CODECS[sys.argv[1]];"
        "print(*{name.split('.')[2] for name in sys.modules if name.count('.') >= 2"
        " and name.startswith('weft.codec.')})"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, protocol], capture_output=True, text=True, check=True
    )
    assert set(done.stdout.split()) & set(HOMES.values()) == {HOMES[protocol]}
