"""The README's recipes, pasted and run."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

README = Path(__file__).parents[1] / "README.md"
RECIPES = dict(
    re.findall(r"^## (Recipe: [^\n]+)\n+```python\n(.*?)```", README.read_text(), re.M | re.S)
)


def test_there_are_three_recipes():
    assert list(RECIPES) == [
        "Recipe: a thread in Python, for any vendor",
        "Recipe: an agent with tools",
        "Recipe: it got too long",
    ]


@pytest.mark.parametrize("name", RECIPES)
def test_a_recipe_runs_as_it_stands(name, tmp_path):
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", RECIPES[name]],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()


def test_the_translation_snippet_is_true(tmp_path):
    snippet = re.search(r"## Translate a body.*?```python\n(.*?)```", README.read_text(), re.S)
    assert snippet is not None
    subprocess.run([sys.executable, "-W", "error", "-c", snippet[1]], cwd=tmp_path, check=True)


@pytest.mark.parametrize("name", ["compaction.md", "attempts.md"])
def test_a_guide_is_true(name, tmp_path):
    guide = README.parent / "docs" / "guide" / name
    snippet = re.search(r"```python\n(.*?)```", guide.read_text(), re.S)
    assert snippet is not None
    subprocess.run([sys.executable, "-W", "error", "-c", snippet[1]], cwd=tmp_path, check=True)
