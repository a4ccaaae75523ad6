"""Rules about the source tree."""

import ast
import re
import subprocess
import tomllib
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

import weft

ROOT = Path(__file__).parents[1]
SOURCES = sorted((ROOT / "src" / "weft").rglob("*.py"))


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_module_has_a_docstring(path):
    assert path.read_text().startswith('"""')


def test_the_version_matches_the_package():
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert weft.__version__ == declared


def test_documents_cite_only_existing_documents():
    """A stranger must be able to open what a page refers to."""
    for page in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]:
        text = page.read_text()
        assert not re.search(r"\b(?:DESIGN|SEEDS|STYLE)(?:\.md| \d)", text), page
        for target in re.findall(r"\]\((?!https?:|#)([^)#]+)", text):
            assert (page.parent / target).exists(), (page, target)


def test_every_public_name_exists():
    assert sorted(weft.__all__) == dir(weft)
    for name in weft.__all__:
        assert getattr(weft, name) is not None


@pytest.mark.parametrize("layer", ["model", "codec", "history", "compact", "tokens.py"])
def test_the_core_reads_no_clock_no_randomness_no_files(layer):
    banned = re.compile(
        r"^\s*(?:import|from) (time|random|secrets|os|pathlib|asyncio|uuid)\b", re.M
    )
    paths = [path for path in SOURCES if path.relative_to(ROOT / "src" / "weft").parts[0] == layer]
    assert paths
    for path in paths:
        assert not banned.search(path.read_text()), path


def test_only_the_outer_layers_use_async():
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


TESTS = sorted({*(ROOT / "tests").rglob("*.py")} - {Path(__file__)})
PUBLIC_MODULES = {
    "weft.agent.claude",  # the interface of an optional extra: `claude.query(...)`
    "weft.cli.main",  # of the console script, in pyproject.toml
}
PRIVATE_ATTRIBUTES = {
    "_exit",  # of the standard library
    "_replace",
    "_calculate_nonstreaming_timeout",  # of Anthropic's SDK
}
READS_INSIDE = {
    "tests/gateway/test_recording_cost.py",  # counts the steps of the store's own connection
    "tests/gateway/test_stateless.py",  # measures the size of the store's file
    "tests/laws/history_machine.py",  # compares the views that a handle has cached
}
IMPORT = re.compile(r"^\s*(?:from (weft[\w.]*) import \(?([\w, ]+)|import (weft[\w.]*))", re.M)


def imports_of(tree: ast.AST) -> Iterator[tuple[str, list[str]]]:
    """Modules of ours and the names taken from them, in code and in scripts that tests run."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and not node.level:
            yield node.module or "", [alias.name for alias in node.names]
        elif isinstance(node, ast.Import):
            yield from ((alias.name, []) for alias in node.names)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            for line in IMPORT.finditer(node.value.replace(";", "\n")):
                names = re.findall(r"\w+", (line[2] or "").partition(" as ")[0])
                yield line[1] or line[3], names


def is_public(module: str, names: list[str]) -> bool:
    """Whether these are public names, or the interface of one of our packages."""
    if module.partition(".")[0] != "weft" or module in PUBLIC_MODULES:
        return True
    if any(part.startswith("_") for part in [*module.split("."), *names]):
        return names == ["__version__"]
    loaded = import_module(module)
    if not hasattr(loaded, "__path__"):
        return module.count(".") == 1  # a module beside the packages, like `weft.errors`
    return set(names) <= set(loaded.__all__) if names else True


@pytest.mark.parametrize("path", TESTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_tests_import_only_interfaces(path):
    """So that the inside of a package can change without its tests."""
    tree = ast.parse(path.read_text())
    assert [imported for imported in imports_of(tree) if not is_public(*imported)] == []
    attributes = [
        (isinstance(node.value, ast.Name) and node.value.id in ("self", "cls"), node.attr)
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and re.match("_[^_]", node.attr)
    ]
    own = {name for is_own, name in attributes if is_own}  # of classes in this file
    others = {name for is_own, name in attributes if not is_own}
    assert str(path.relative_to(ROOT)) in READS_INSIDE or others <= own | PRIVATE_ATTRIBUTES


@pytest.mark.parametrize(
    ("source", "public"),
    [
        ("from weft.codec import CODECS", True),
        ("from weft.codec.base import Codec", False),
        ("from weft.codec import base", False),
        ("import weft.codec.base", False),
        ("from weft.errors import Refused", True),
        ("from weft._open import open", False),
        ("run('import sys; from weft.codec.base import Codec')", False),
        ("run('from weft.cli import entry; entry()')", True),
    ],
)
def test_the_rule_for_imports_finds_each_kind(source, public):
    assert all(is_public(*imported) for imported in imports_of(ast.parse(source))) is public


PACKAGES = sorted(path.parent for path in SOURCES if path.name == "__init__.py")


@pytest.mark.parametrize("folder", PACKAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_module_shadows_an_exported_name(folder):
    """A name that is imported when it is used is lost if a module of the package has it too."""
    package = import_module(".".join(folder.relative_to(ROOT / "src").parts))
    exported = set(getattr(package, "__all__", ()))
    for name in sorted(exported & {path.stem for path in folder.glob("*.py")}):
        import_module(f"{package.__name__}.{name}")
        assert not isinstance(getattr(package, name), ModuleType), name


PAGE_READS = {
    *("inner_text", "text_content", "inner_html", "all_inner_texts", "all_text_contents"),
    *("input_value", "get_attribute", "bounding_box", "query_selector", "query_selector_all"),
    *("is_visible", "is_hidden", "is_enabled", "is_disabled", "is_checked", "is_editable"),
    *("evaluate", "evaluate_all", "eval_on_selector", "eval_on_selector_all"),
}
PLAIN_READS = {"count", "all", "title"}  # without an argument: strings and lists have them too
NODE_MEMBER = re.compile(r"querySelector\((?:[^()]|\([^()]*\))*\)\s*\.")


def is_page_test(tree: ast.AST) -> bool:
    modules = {module.partition(".")[0] for module, _ in imports_of(tree)}
    arguments = {node.arg for node in ast.walk(tree) if isinstance(node, ast.arg)}
    return bool(modules & {"pages", "playwright"} or arguments & {"browser", "new_tab"})


def once(node: ast.AST) -> Iterator[ast.AST]:
    """The nodes below a node, without what `wait_until` reads again and again."""
    if isinstance(node, ast.Call) and ast.unparse(node.func) == "wait_until":
        return
    yield node
    for child in ast.iter_child_nodes(node):
        yield from once(child)


def reads_page(node: ast.AST, readers: set[str]) -> bool:
    """Whether an expression looks at the page once; `readers` are names of what does."""
    for part in once(node):
        if isinstance(part, ast.Name) and part.id in readers:
            return True
        if isinstance(part, ast.Attribute) and ast.unparse(part) == "page.url":
            return True
        if isinstance(part, ast.Call) and isinstance(part.func, ast.Attribute):
            is_plain = not part.args and not part.keywords
            name = part.func.attr
            if name in PAGE_READS | readers or (name in PLAIN_READS and is_plain):
                return True
    return False


def names_in(target: ast.AST) -> set[str]:
    return {node.id for node in ast.walk(target) if isinstance(node, ast.Name)}


def asserted_reads(tree: ast.Module) -> list[str]:
    """Asserts of what was read from the page once, directly or through a name."""
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    readers = {
        function.name
        for function in functions
        for node in ast.walk(function)
        if isinstance(node, ast.Return) and node.value and reads_page(node.value, set())
    }
    asserted: list[str] = []
    for function in functions:
        names = set(readers)
        for node in ast.walk(function):  # top down, so mostly in the order of the lines
            if isinstance(node, ast.Assign) and reads_page(node.value, names):
                names |= set().union(*map(names_in, node.targets))
            elif isinstance(node, (ast.For, ast.comprehension)) and reads_page(node.iter, names):
                names |= names_in(node.target)
        asserted += [
            ast.unparse(node)
            for node in ast.walk(function)
            if isinstance(node, ast.Assert) and reads_page(node.test, names)
        ]
    return asserted


def breakable_predicates(tree: ast.Module) -> list[str]:
    """Predicates of `wait_for_function` that raise while an element is missing."""
    constants = {
        node.targets[0].id: ast.unparse(node.value)
        for node in tree.body
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)
    }
    predicates = [
        " ".join(
            [ast.unparse(node.args[0]), *map(constants.get, names_in(node.args[0]) & {*constants})]
        )
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "wait_for_function"
    ]
    return [each for each in predicates if NODE_MEMBER.search(each)]


PAGE_TESTS = [
    path
    for path in TESTS
    if path.name.startswith("test_") and is_page_test(ast.parse(path.read_text()))
]


@pytest.mark.parametrize("path", PAGE_TESTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_page_tests_wait_for_what_they_assert(path):
    """A slow page is not wrong: see `tests/pages.py`."""
    tree = ast.parse(path.read_text())
    assert asserted_reads(tree) == []
    assert breakable_predicates(tree) == []
    assert [line for line in path.read_text().splitlines() if "wait_for_timeout" in line] == []


@pytest.mark.parametrize(
    ("source", "is_found"),
    [
        ("assert page.inner_text('#a') == 'b'", True),
        ("assert page.locator('a').count() == 0", True),
        ("assert 'a b'.count('a') == 1", False),
        ("text = page.inner_text('#a')\n  assert text == 'b'", True),
        ("shown = read(page)\n  assert 'a' in shown", True),
        ("for link in page.locator('a').all():\n    assert link", True),
        ("assert 'at=' in page.url", True),
        ("top = wait_until(page, lambda: page.evaluate('top'), 3)\n  assert top", False),
        ("page.evaluate('f()')\n  expect(page.locator('a')).to_have_count(0)", False),
    ],
)
def test_the_rule_for_page_tests_finds_each_kind(source, is_found):
    module = f"def read(page):\n  return page.inner_text('#a')\ndef test_a(page):\n  {source}"
    assert bool(asserted_reads(ast.parse(module))) is is_found


@pytest.mark.parametrize(
    ("source", "is_found"),
    [
        ("page.wait_for_function(\"() => document.querySelector('.a').value\")", True),
        ("page.wait_for_function(\"() => document.querySelector('.a')?.value\")", False),
        ("page.wait_for_function(f'() => ({READ})()')", True),
    ],
)
def test_the_rule_for_predicates_finds_each_kind(source, is_found):
    tree = ast.parse(f"READ = \"() => document.querySelector('a').value\"\n{source}")
    assert bool(breakable_predicates(tree)) is is_found
