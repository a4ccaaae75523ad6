"""Custom content types, and members that the message text does not show."""

import json
from dataclasses import dataclass

import msgspec
import pydantic
import pytest

import weft

REPORT = {"content_type": "test_report", "passed": 12, "failed": 1}


@pytest.fixture(params=["memory", "sqlite"])
def store(request, tmp_path):
    return None if request.param == "memory" else str(tmp_path / "t.db")


@pytest.fixture(autouse=True)
def _types():
    weft.register_content_type(
        "test_report", role="user", text=lambda c: f"{c['passed']} passed, {c['failed']} failed"
    )
    yield
    weft.unregister_content_type("test_report")


def test_a_registered_type_is_committed_and_keeps_its_members(store):
    with weft.open(store) as thread:
        info = thread.commit(REPORT)
        assert thread.compile().to_dicts() == [{"role": "user", "content": "12 passed, 1 failed"}]
        assert thread.show(info).message == "test_report: 12 passed, 1 failed"
        assert thread.show(info).metadata == {"content": REPORT}
        again = thread.commit(REPORT, "nightly", metadata={"run": 7})
        assert again.message == "nightly"
        assert again.metadata == {"run": 7, "content": REPORT}
        assert weft.extract_text_from_content(REPORT) == "12 passed, 1 failed"


def test_a_thread_can_be_read_without_the_registration(tmp_path):
    with weft.open(tmp_path / "t.db") as thread:
        thread.commit(REPORT)
    weft.unregister_content_type("test_report")
    with weft.open(tmp_path / "t.db") as thread:
        assert thread.compile().messages[0].text == "12 passed, 1 failed"
        assert thread.log()[0].metadata["content"] == REPORT
        with pytest.raises(weft.ThreadError, match="register_content_type"):
            thread.commit(REPORT)
    weft.register_content_type("test_report")  # for the fixture


@pytest.mark.parametrize(
    ("members", "text"),
    [
        ({"text": "hello", "level": 1}, "hello"),
        ({"content": "hello"}, "hello"),
        ({"summary": "hello"}, "hello"),
        ({"b": 1, "a": [2]}, '{"b":1,"a":[2]}'),  # in the order it was written
    ],
)
def test_without_a_text_function_the_text_is_the_default_member_or_the_json(members, text):
    weft.register_content_type("test_report")
    with weft.open() as thread:
        thread.commit({"content_type": "test_report", **members})
        assert thread.compile().to_dicts() == [{"role": "assistant", "content": text}]


class StructReport(msgspec.Struct):
    passed: int
    failed: int = 0


@dataclass
class DataReport:
    passed: int
    failed: int = 0


class ModelReport(pydantic.BaseModel):
    passed: int
    failed: int = 0


@pytest.mark.parametrize("schema", [StructReport, DataReport, ModelReport])
def test_a_class_validates_the_members_and_its_instances_are_content(schema):
    weft.register_content_type(
        "test_report", schema=schema, text=lambda content: f"{content['passed']} passed"
    )
    with weft.open() as thread:
        thread.commit({"content_type": "test_report", "passed": 3})
        info = thread.commit(schema(passed=4, failed=2))
        assert [m.text for m in thread.compile().messages] == ["3 passed", "4 passed"]
        assert info.metadata["content"] == {"content_type": "test_report", "passed": 4, "failed": 2}
        with pytest.raises(weft.ThreadError, match="test_report"):
            thread.commit({"content_type": "test_report", "passed": "many"})
        assert len(thread.compile()) == 2


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"name": "dialogue"}, "built-in"),
        ({"name": ""}, "name"),
        ({"name": "x", "role": "assistan"}, "role"),
        ({"name": "x", "text": "no function"}, "text"),
    ],
)
def test_a_wrong_registration_is_refused(arguments, says):
    with pytest.raises(weft.WeftError, match=says):
        weft.register_content_type(**arguments)


def test_a_failing_text_function_is_named():
    with weft.open() as thread:
        for text in (lambda content: content["missing"], len):
            weft.register_content_type("test_report", text=text)
            with pytest.raises(weft.ThreadError, match="test_report"):
                thread.commit(REPORT)
        assert len(thread.compile()) == 0


def test_custom_metadata_is_not_overwritten():
    with weft.open() as thread, pytest.raises(weft.ThreadError, match="metadata"):
        thread.commit(REPORT, metadata={"content": "mine"})


@pytest.mark.parametrize(
    ("content", "members"),
    [
        (
            weft.ArtifactContent("x = 1", "code", "python"),
            {"artifact_type": "code", "language": "python"},
        ),
        (weft.OutputContent("done", "markdown"), {"format": "markdown"}),
        (weft.SessionContent("s", "review"), {"session_type": "review"}),
        (
            weft.ToolIOContent("grep", "hit", "call", "ok"),
            {"tool_name": "grep", "direction": "call", "status": "ok"},
        ),
        (weft.ArtifactContent("x = 1"), None),  # nothing but its text
        (weft.SessionContent("s", decisions=("a",)), None),  # the lists are in the text
        (weft.FreeformContent({"a": 1}), None),
    ],
)
def test_members_without_text_are_stored(content, members):
    with weft.open() as thread:
        info = thread.commit(content)
        stored = info.metadata.get("content")
        if members is None:
            assert stored is None
        else:
            assert members.items() <= stored.items()
            assert stored["content_type"] in ("artifact", "output", "session", "tool_io")


def test_an_imported_list_keeps_them():
    rows = [{"content_type": "artifact", "content": "x = 1", "language": "python"}, REPORT]
    with weft.open() as thread:
        thread.import_bytes(json.dumps(rows).encode())
        members = [info.metadata["content"] for info in reversed(thread.log())]
    assert members[0]["language"] == "python"
    assert members[1] == REPORT
