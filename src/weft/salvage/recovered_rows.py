"""Recovers the rows of a damaged store from all pages of its file.

1. Every table and index is walked from its root page, which the schema names.
2. If a page is unreadable, the pages below it cannot be reached: they are *orphans*. The table of
   an orphan is recognised by its shape, the number and types of its columns.

Pages on the free list are skipped, because they hold deleted rows. If two pages have a row with the
same key, the one reached from the root wins.

Indexes are read as well: they have the ids and names of rows whose own page is lost.
"""

from collections.abc import Callable, Iterator

from msgspec import Struct, field

from weft.ids import SIZE, Id

from .pages import Cell, Node, Pages, Value

Row = tuple[Value, ...]
OnEntry = Callable[[int, Id, bytes], None]
"""Called with the key, id and bytes of every readable entry, so that they need not be kept here."""

TYPES: dict[str, tuple[type, ...]] = {
    "n": (type(None),),
    "i": (int,),
    "i?": (int, type(None)),
    "r": (float, int),
    "r?": (float, int, type(None)),
    "t": (str,),
    "t?": (str, type(None)),
    "b": (bytes,),
    "b?": (bytes, type(None)),
    "id": (bytes,),
}
"""The types that a column may have in the file. SQLite stores a rowid column as NULL, and a real
number without fraction as an integer."""


class Shape(Struct, frozen=True):
    """The columns of a table or an index. Rows of older versions may lack the columns after the
    first `required` ones."""

    name: str
    has_rowid: bool
    columns: tuple[str, ...]
    required: int


def _shape(
    name: str, columns: str, *, has_rowid: bool = False, required: int | None = None
) -> Shape:
    types = tuple(columns.split())
    return Shape(name, has_rowid, types, len(types) if required is None else required)


SHAPES = (
    _shape("thread", "n t t i t? r i? i? t? t?", has_rowid=True, required=6),
    _shape("entry", "n id b", has_rowid=True),
    _shape("line", "n i? i?", has_rowid=True),
    _shape("commits", "n i id i i t i? i? i? b r b? b? i?", has_rowid=True, required=13),
    _shape("ref", "n i t i?", has_rowid=True),
    _shape("operation", "i i t i i? i? t? r? i?"),
    _shape("commit_entry", "i i i"),
    _shape("checkpoint", "i t"),
    _shape("tombstone", "t id t i r"),
    _shape("attempt", "n i t b r i", has_rowid=True),
    _shape("batch", "i i i"),
    _shape("sqlite_autoindex_thread_1", "t i"),
    _shape("sqlite_autoindex_entry_1", "id i"),
    _shape("sqlite_autoindex_commits_1", "i id i"),
    _shape("sqlite_autoindex_commits_2", "i i i"),
    _shape("sqlite_autoindex_ref_1", "i t i"),
)
BY_NAME = {shape.name: shape for shape in SHAPES}
THREAD_NAMES, ENTRY_IDS, COMMIT_IDS, PLACES, REF_NAMES = (shape.name for shape in SHAPES[-5:])
ORPHAN_SHAPES = (*SHAPES[:-6], BY_NAME[COMMIT_IDS])  # a batch looks like a `commit_entry`
"""The shapes that no other table or index has, or whose rows a hash verifies."""


class RecoveredRows(Struct):
    """The recovered rows, by table and key; entries are passed to `on_entry` instead.

    `torn` are the tables and indexes of which a page or a row was unreadable.
    """

    rows: dict[str, dict[object, Row]] = field(default_factory=dict[str, dict[object, Row]])
    torn: set[str] = field(default_factory=set[str])

    def table(self, name: str) -> dict[object, Row]:
        return self.rows.setdefault(name, {})

    def ids(self, name: str) -> dict[int, Row]:
        """The columns of an index, by the key of the row that each entry points to."""
        rows_by_key: dict[int, Row] = {}
        for row in self.table(name).values():
            key = row[-1]
            assert isinstance(key, int)
            rows_by_key.setdefault(key, row[:-1])
        return rows_by_key


def recover_rows(pages: Pages, on_entry: OnEntry) -> RecoveredRows:
    """Every row that can still be read."""
    recovered = RecoveredRows()
    roots, visited = _roots(pages, recovered)
    for name, root in roots.items():
        shape = BY_NAME.get(name)
        for node in _walk(pages, root, visited):
            if node is None or not node.sound:
                recovered.torn.add(name)
            if shape is not None and node is not None and node.has_rowid == shape.has_rowid:
                for cell in node.cells:
                    if not _add_row(recovered, shape, cell, on_entry):
                        recovered.torn.add(name)
    if recovered.torn or len(roots) < len(SHAPES):
        for number in sorted(set(range(1, pages.count + 1)) - visited - pages.free()):
            node = pages.node(number)
            if node is not None and node.cells:
                _add_orphan_page(recovered, node, on_entry)
    recovered.torn.update(BY_NAME.keys() - roots.keys())
    return recovered


def _roots(pages: Pages, recovered: RecoveredRows) -> tuple[dict[str, int], set[int]]:
    """The root page of every table and index in the schema, and the pages of the schema itself."""
    roots: dict[str, int] = {}
    visited: set[int] = set()
    for node in _walk(pages, 1, visited):
        if node is None or not node.sound:
            recovered.torn.add("sqlite_master")
        for cell in () if node is None else node.cells:
            match cell.values:
                case (str(), str(name), str(), int(root), _) if root:
                    roots.setdefault(name, root)
                case _:
                    pass
    return roots, visited


def _walk(pages: Pages, root: int, visited: set[int]) -> Iterator[Node | None]:
    """The pages of one table or index, in order; `None` for an unreadable one."""
    waiting = [root]
    while waiting:
        number = waiting.pop()
        if number in visited:
            yield None  # two trees cannot share a page
            continue
        node = pages.node(number)
        if node is not None:
            visited.add(number)
            waiting.extend(reversed(node.children))
        yield node


def _add_orphan_page(recovered: RecoveredRows, node: Node, on_entry: OnEntry) -> None:
    """Add the rows of an orphan to the first table whose shape fits all of them."""
    for shape in ORPHAN_SHAPES:
        fitting = [cell for cell in node.cells if _match_row(shape, cell) is not None]
        if node.has_rowid == shape.has_rowid and len(fitting) == len(node.cells):
            for cell in fitting:
                _add_row(recovered, shape, cell, on_entry)
            return


def _add_row(recovered: RecoveredRows, shape: Shape, cell: Cell, on_entry: OnEntry) -> bool:
    """Add the row of a cell, unless the key has one already; returns whether the shape fits."""
    row = _match_row(shape, cell)
    if row is None:
        return False
    if shape.name == "entry":
        _, id, data = row
        assert isinstance(cell.key, int)
        assert isinstance(id, bytes)
        assert isinstance(data, bytes)
        on_entry(cell.key, id, data)
        return True
    key = cell.key if shape.has_rowid else row[-1] if "index" in shape.name else row[:2]
    recovered.table(shape.name).setdefault(key, row)
    return True


def _match_row(shape: Shape, cell: Cell) -> Row | None:
    """The values of a cell as a row with all columns; `None` if they do not fit the shape."""
    values = cell.values
    if not shape.required <= len(values) <= len(shape.columns):
        return None
    if shape.has_rowid and (cell.key is None or cell.key < 1):
        return None
    row = values + (None,) * (len(shape.columns) - len(values))
    for value, column in zip(row, shape.columns, strict=True):
        if not isinstance(value, TYPES[column]):
            return None
        if column == "id" and isinstance(value, bytes) and len(value) != SIZE:
            return None
    return tuple(
        float(value) if column[0] == "r" and isinstance(value, int) else value
        for value, column in zip(row, shape.columns, strict=True)
    )
