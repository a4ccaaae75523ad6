"""A library error gives advice for the library, not for the command line."""

import pytest

import weft
from weft.errors import ThreadError


def test_a_library_error_names_arguments_and_no_flags(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "GEMINI_API_KEY", "GOOGLE_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    with weft.open() as thread:
        thread.user("a")
        with pytest.raises(
            ThreadError, match=r"^the model 'gpt-5' is not available.*models="
        ) as raised:
            thread.compact(model="gpt-5")
        assert "--" not in str(raised.value)
        with pytest.raises(ThreadError, match="would save nothing"):
            thread.compact()
