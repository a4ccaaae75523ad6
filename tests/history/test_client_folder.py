"""The project folder that a client states in its requests."""

import pytest

from weft.history import find_folder
from weft.model import Message, Text

ENVIRONMENT = (
    "# Environment\nYou have been invoked in the following environment: \n"
    " - Primary working directory: /srv/my project\n - Is a git repository: true"
)
CODEX = "<environment_context>\n  <cwd>/srv/app</cwd>\n  <shell>bash</shell>\n"
GEMINI = (
    "<session_context>\nThis is the Gemini CLI. We are setting up the context for our chat.\n"
    "My operating system is: linux\n- **Workspace Directories:**\n  - /srv/one\n  - /srv/two\n"
)
OPENCODE = (
    "You are opencode.\nHere is some useful information about the environment you are running in:\n"
    "<env>\n  Working directory: /srv/app\n  Workspace root folder: /srv\n</env>"
)


@pytest.mark.parametrize(
    ("role", "text", "folder"),
    [
        ("system", ENVIRONMENT, "/srv/my project"),  # Claude Code with newer models
        ("system", f"You are Claude.\n\n{ENVIRONMENT}", "/srv/my project"),
        ("user", f"<system-reminder>\n{ENVIRONMENT}\n</system-reminder>", "/srv/my project"),
        ("user", CODEX, "/srv/app"),
        ("user", GEMINI, "/srv/one"),  # the first of several
        ("system", OPENCODE, "/srv/app"),
        ("system", "You code.\nCurrent working directory: /home/me/x\n", "/home/me/x"),
        ("system", "<env>\r\nWorking directory: C:\\work\\app\r\n</env>", "C:\\work\\app"),
        ("user", f"Why does it say:\n{ENVIRONMENT}", None),  # a person quotes it
        ("user", "Working directory: /tmp", None),
        ("tool", CODEX, None),  # a file that was read
        ("assistant", CODEX, None),
        ("system", "Working directory: unknown", None),
        ("user", "# Environments\n - Primary working directory: /srv", None),
        ("system", "Ask for the working directory.", None),
        ("user", "", None),
    ],
)
def test_a_folder_is_read_only_where_a_client_states_it(
    role: str, text: str, folder: str | None
) -> None:
    assert find_folder([Message(role, (Text(text),)), Message("user", (Text("hi"),))]) == folder


def test_the_first_statement_counts() -> None:
    later = ENVIRONMENT.replace("/srv/my project", "/elsewhere")
    messages = [Message("system", (Text(text),)) for text in (ENVIRONMENT, later)]
    assert find_folder(messages) == "/srv/my project"
