"""Rules about the tree itself, so that they need no reviewer."""

import re
import subprocess
import tomllib
from pathlib import Path

import pytest

import weft

ROOT = Path(__file__).parents[1]
SOURCES = sorted((ROOT / "src" / "weft").rglob("*.py"))


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_module_says_what_it_is(path):
    assert path.read_text().startswith('"""')


def test_the_version_is_the_packages_own():
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert weft.__version__ == declared


def test_documents_cite_only_documents_that_are_here():
    """A stranger must be able to open what a page refers to."""
    for page in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]:
        text = page.read_text()
        assert not re.search(r"\b(?:DESIGN|SEEDS|STYLE)(?:\.md| \d)", text), page
        for target in re.findall(r"\]\((?!https?:|#)([^)#]+)", text):
            assert (page.parent / target).exists(), (page, target)


def test_every_public_name_is_there():
    assert sorted(weft.__all__) == dir(weft)
    for name in weft.__all__:
        assert getattr(weft, name) is not None


@pytest.mark.parametrize("layer", ["model", "codec", "history", "compact", "tokens"])
def test_the_core_reads_no_clock_no_randomness_no_files(layer):
    banned = re.compile(
        r"^\s*(?:import|from) (time|random|secrets|os|pathlib|asyncio|uuid)\b", re.M
    )
    for path in (ROOT / "src" / "weft" / layer).rglob("*.py"):
        assert not banned.search(path.read_text()), path


def test_async_lives_at_the_rim():
    rim = {"client", "agent", "gateway", "cli"}  # a command drives the loop it starts
    rim.add("checked.py")  # wraps functions of the others
    for path in SOURCES:
        layer = path.relative_to(ROOT / "src" / "weft").parts[0]
        assert layer in rim or "async def" not in path.read_text(), path


def test_nothing_in_the_tree_names_a_machine():
    listed = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if listed.returncode:
        pytest.skip("not a git checkout")
    banned = re.compile(r"/work/|/root/")
    for name in listed.stdout.splitlines():
        path = ROOT / name
        if path.suffix in {".py", ".md", ".toml", ".js", ".html", ".css", ""} and path.is_file():
            text = path.read_text(errors="ignore")
            assert name == "tests/test_layout.py" or not banned.search(text), name


def test_make_names_only_tests_that_exist():
    named = re.findall(r"\btests/[\w/.]+", (ROOT / "Makefile").read_text())
    assert named
    assert [path for path in named if not (ROOT / path).exists()] == []
