"""What is left of a store's tables, gathered from all pages of its file.

Trees are walked from their roots, as the schema names them. Where a page in the middle is gone,
what hung below it is found among the pages that no root leads to, and known by its shape: how
many columns, of which types. Pages on the free list are left out, because they hold rows that
were once deleted. A row on a walked page goes before one that was found; what no hash and no
checksum covers is best taken from a table that is not `torn`.

Indexes are read too: they know the ids and the names of rows whose own page is gone.
"""

from collections.abc import Callable, Iterator

from msgspec import Struct, field

from weft.ids import SIZE, Id

from .pages import Cell, Node, Pages, Value

Row = tuple[Value, ...]
Entry = Callable[[int, Id, bytes], None]
"""Told of every entry that can be read: its key, its id, its bytes."""

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
"""What may stand in a column; a rowid's own column is empty, a whole number may be kept as one."""


class Shape(Struct, frozen=True):
    """A tree of the store: its name, whether rows have a rowid, its columns, how many it needs."""

    name: str
    keyed: bool
    columns: tuple[str, ...]
    least: int


def _shape(name: str, columns: str, *, keyed: bool = False, least: int | None = None) -> Shape:
    types = tuple(columns.split())
    return Shape(name, keyed, types, len(types) if least is None else least)


SHAPES = (
    _shape("thread", "n t t i t? r i? i? t? t?", keyed=True, least=6),
    _shape("entry", "n id b", keyed=True),
    _shape("line", "n i? i?", keyed=True),
    _shape("commits", "n i id i i t i? i? i? b r b? b? i?", keyed=True, least=13),
    _shape("ref", "n i t i?", keyed=True),
    _shape("operation", "i i t i i? i? t? r? i?"),
    _shape("commit_entry", "i i i"),
    _shape("checkpoint", "i t"),
    _shape("tombstone", "t id t i r"),
    _shape("attempt", "n i t b r i", keyed=True),
    _shape("sqlite_autoindex_thread_1", "t i"),
    _shape("sqlite_autoindex_entry_1", "id i"),
    _shape("sqlite_autoindex_commits_1", "i id i"),
    _shape("sqlite_autoindex_commits_2", "i i i"),
    _shape("sqlite_autoindex_ref_1", "i t i"),
)
BY_NAME = {shape.name: shape for shape in SHAPES}
THREAD_NAMES, ENTRY_IDS, COMMIT_IDS, PLACES, REF_NAMES = (shape.name for shape in SHAPES[-5:])
BY_SHAPE = (*SHAPES[:-5], BY_NAME[COMMIT_IDS])
"""What is known by its shape alone, or judged by a hash that covers it."""


class RecoveredRows(Struct):
    """Rows by table and key; entries are not kept here, only their ids."""

    rows: dict[str, dict[object, Row]] = field(default_factory=dict[str, dict[object, Row]])
    torn: set[str] = field(default_factory=set[str])

    def table(self, name: str) -> dict[object, Row]:
        return self.rows.setdefault(name, {})

    def ids(self, name: str) -> dict[int, Row]:
        """An index of a table, by the key of the row that it leads to."""
        rows_by_key: dict[int, Row] = {}
        for row in self.table(name).values():
            key = row[-1]
            assert isinstance(key, int)
            rows_by_key.setdefault(key, row[:-1])
        return rows_by_key


def gather(pages: Pages, on_entry: Entry) -> RecoveredRows:
    """Everything that can still be read."""
    recovered = RecoveredRows()
    roots, visited = _roots(pages, recovered)
    for name, root in roots.items():
        shape = BY_NAME.get(name)
        for node in _walk(pages, root, visited):
            if node is None or not node.sound:
                recovered.torn.add(name)
            if shape is not None and node is not None and node.keyed == shape.keyed:
                for cell in node.cells:
                    if not _take(recovered, shape, cell, on_entry):
                        recovered.torn.add(name)
    if recovered.torn or len(roots) < len(SHAPES):
        for number in sorted(set(range(1, pages.count + 1)) - visited - pages.free()):
            node = pages.node(number)
            if node is not None and node.cells:
                _take_lost(recovered, node, on_entry)
    recovered.torn.update(BY_NAME.keys() - roots.keys())
    return recovered


def _roots(pages: Pages, recovered: RecoveredRows) -> tuple[dict[str, int], set[int]]:
    """The root of every tree that the schema names, and the pages of the schema."""
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
    """The pages of a tree, in order; `None` for one that cannot be read."""
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


def _take_lost(recovered: RecoveredRows, node: Node, on_entry: Entry) -> None:
    """The rows of a page that no root leads to; all must be of one shape, and of one only."""
    for shape in BY_SHAPE:
        fitting = [cell for cell in node.cells if _fit(shape, cell) is not None]
        if node.keyed == shape.keyed and len(fitting) == len(node.cells):
            for cell in fitting:
                _take(recovered, shape, cell, on_entry)
            return


def _take(recovered: RecoveredRows, shape: Shape, cell: Cell, on_entry: Entry) -> bool:
    """Keep the row of a cell, unless one of its key is there; whether it has the table's shape."""
    row = _fit(shape, cell)
    if row is None:
        return False
    if shape.name == "entry":
        _, id, data = row
        assert isinstance(cell.key, int)
        assert isinstance(id, bytes)
        assert isinstance(data, bytes)
        on_entry(cell.key, id, data)
        return True
    key = cell.key if shape.keyed else row[-1] if "index" in shape.name else row[:2]
    recovered.table(shape.name).setdefault(key, row)
    return True


def _fit(shape: Shape, cell: Cell) -> Row | None:
    """The values as those of a table's row, in full length; `None` where they cannot be."""
    values = cell.values
    if not shape.least <= len(values) <= len(shape.columns):
        return None
    if shape.keyed and (cell.key is None or cell.key < 1):
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
