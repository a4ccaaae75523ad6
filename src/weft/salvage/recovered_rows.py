"""Recovers the rows of a damaged store from all pages of its file, without SQLite.

SQLite gives up a whole tree if one page of it is damaged. Here a damaged page only loses its own
cells: every length and every offset is checked before it is used. The result is not trusted;
callers verify it. https://www.sqlite.org/fileformat2.html has the format: pages, b-trees, records,
the log.

1. Every table and index is walked from its root page, which the schema names.
2. If a page is unreadable, the pages below it cannot be reached: they are *orphans*. The table of
   an orphan is recognised by its shape, the number and types of its columns.

Pages on the free list are skipped, because they hold deleted rows. If two pages have a row with the
same key, the one reached from the root wins.

Indexes are read as well: they have the ids and names of rows whose own page is lost.
"""

from collections.abc import Callable, Iterator
from struct import unpack, unpack_from
from typing import Protocol

from msgspec import Struct, field

from weft.ids import SIZE, Id

MAGIC = b"SQLite format 3\0"
HEADER = 100  # bytes before the b-tree of page 1
SIZES = (2048, 4096, 1024, 8192, 16384, 32768, 512)
INDEX_INNER, TABLE_INNER, INDEX_LEAF, TABLE_LEAF = 2, 5, 10, 13
HEADS = {INDEX_INNER: 12, TABLE_INNER: 12, INDEX_LEAF: 8, TABLE_LEAF: 8}
LEAST_CELL = 4
WIDTHS = (0, 1, 2, 3, 4, 6, 8)
GUESSED_FROM = 64  # pages that are sampled to guess the page size

Value = int | float | bytes | str | None
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


class Bytes(Protocol):
    """A file's bytes, in memory or mapped."""

    def __len__(self) -> int: ...
    def __getitem__(self, part: slice, /) -> bytes: ...


class Cell(Struct, frozen=True, gc=False):
    """One row on a page; `key` is its rowid, if its tree has rowids."""

    key: int | None
    values: tuple[Value, ...]


class Node(Struct, frozen=True, gc=False):
    """One page of a b-tree. It is `sound` if its cells are readable and fill it exactly."""

    has_rowid: bool
    cells: tuple[Cell, ...]
    children: tuple[int, ...]
    sound: bool


class Unreadable(ValueError):
    """A length or an offset points outside the file. Never raised to callers of this module."""


class Pages:
    """A file's pages by number, counted from 1, as the last transaction in the log left them."""

    def __init__(self, data: Bytes, log: bytes = b"", size: int | None = None) -> None:
        self._data = data
        self.size, reserved = _page_size(data, log) if size is None else (size, 0)
        self.usable = self.size - reserved
        self._newer = read_log(log, self.size)
        self.count = max([-(-len(data) // self.size), *self._newer])

    def read(self, number: int) -> bytes | None:
        """The bytes of a page; `None` if it is beyond the end of the file or truncated."""
        newer = self._newer.get(number)
        if newer is not None:
            return newer
        start = (number - 1) * self.size
        page = self._data[start : start + self.size] if number > 0 else b""
        return page if len(page) == self.size else None

    def node(self, number: int) -> Node | None:
        """The page as part of a b-tree; `None` if it is not one, or nothing on it is readable."""
        page = self.read(number)
        start = HEADER if number == 1 else 0
        if page is None or page[start] not in HEADS:
            return None
        kind = page[start]
        count = unpack_from(">H", page, start + 3)[0]
        first = start + HEADS[kind]
        if first + 2 * count > self.usable:
            return None
        cells: list[Cell] = []
        children: list[int] = []
        filled = 0
        sound = True
        for place in unpack_from(f">{count}H", page, first):
            try:
                size = self._cell(page, place, kind, cells, children)
            except Unreadable:
                sound = False
            else:
                filled += max(LEAST_CELL, size)
        if kind in (INDEX_INNER, TABLE_INNER):
            children.append(unpack_from(">I", page, start + 8)[0])
        sound = sound and self._is_filled(page, start, first + 2 * count, filled)
        has_rowid = kind in (TABLE_INNER, TABLE_LEAF)
        return Node(has_rowid, tuple(cells), tuple(children), sound)

    def free(self) -> set[int]:
        """The unused pages, as far as the free list is readable."""
        page = self.read(1)
        pages: set[int] = set()
        trunk = 0 if page is None or not page.startswith(MAGIC) else unpack_from(">I", page, 32)[0]
        while trunk and trunk not in pages:
            page = self.read(trunk)
            if page is None:
                break
            pages.add(trunk)
            trunk, count = unpack_from(">II", page)
            fits = min(count, self.size // 4 - 2)
            pages.update(unpack_from(f">{fits}I", page, 8))
        return pages

    def _is_filled(self, page: bytes, start: int, end: int, filled: int) -> bool:
        """Whether cells, free blocks and fragments account for the whole content area."""
        block, _, content, fragments = unpack_from(">HHHB", page, start + 1)
        content = content or 65536
        previous = 0
        while block:
            if block < previous + LEAST_CELL or block + LEAST_CELL > self.usable:
                return False
            previous = block
            block, size = unpack_from(">HH", page, block)
            filled += size
        return end <= content and filled + fragments == self.usable - content

    def _cell(
        self, page: bytes, place: int, kind: int, cells: list[Cell], children: list[int]
    ) -> int:
        """Read the cell at an offset into the lists; returns its size on the page in bytes."""
        at = place
        if kind in (INDEX_INNER, TABLE_INNER):
            if at + 4 > self.usable:
                raise Unreadable
            children.append(unpack_from(">I", page, at)[0])
            at += 4
        if kind == TABLE_INNER:
            _, at = read_varint(page, at)
            return at - place
        length, at = read_varint(page, at)
        key = None
        if kind == TABLE_LEAF:
            key, at = read_varint(page, at)
            key -= (key >> 63) << 64
        local = self._local(length, kind == TABLE_LEAF)
        if at + local + (4 if local < length else 0) > self.usable:
            raise Unreadable
        payload = page[at : at + local]
        at += local
        if local < length:
            payload += self._overflow(unpack_from(">I", page, at)[0], length - local)
            at += 4
        cells.append(Cell(key, read_record(payload)))
        return at - place

    def _local(self, length: int, is_table: bool) -> int:
        """How many bytes of a payload are on its own page; the rest is on overflow pages."""
        max_local = self.usable - 35 if is_table else (self.usable - 12) * 64 // 255 - 23
        if length <= max_local:
            return length
        min_local = (self.usable - 12) * 32 // 255 - 23
        local = min_local + (length - min_local) % (self.usable - 4)
        return local if local <= max_local else min_local

    def _overflow(self, number: int, remaining: int) -> bytes:
        """The rest of a payload. Unreadable parts become zeros, so that the row itself survives."""
        parts: list[bytes] = []
        if remaining > self.count * self.usable:
            raise Unreadable
        while remaining > 0:
            page = self.read(number)
            if page is None:
                parts.append(bytes(remaining))
                break
            part = page[4 : min(self.usable, 4 + remaining)]
            parts.append(part)
            remaining -= len(part)
            number = unpack_from(">I", page)[0]
        return b"".join(parts)


def read_varint(data: bytes, at: int) -> tuple[int, int]:
    """A variable-length integer of one to nine bytes, and the offset after it."""
    value = 0
    for place in range(at, min(at + 8, len(data))):
        value = value << 7 | data[place] & 0x7F
        if data[place] < 0x80:
            return value, place + 1
    if at + 9 > len(data):
        raise Unreadable
    return value << 8 | data[at + 8], at + 9


def read_record(payload: bytes) -> tuple[Value, ...]:
    """The values of a row."""
    end, at = read_varint(payload, 0)
    if end > len(payload):
        raise Unreadable
    values: list[Value] = []
    body = end
    while at < end:
        kind, at = read_varint(payload, at)
        value, body = _value(payload, kind, body)
        values.append(value)
    if at != end or body != len(payload):
        raise Unreadable
    return tuple(values)


def _value(payload: bytes, kind: int, at: int) -> tuple[Value, int]:
    if kind in (0, 8, 9):
        return (None, 0, 1)[max(0, kind - 7)], at
    if kind in (10, 11):
        raise Unreadable
    size = (kind - 12) // 2 if kind >= 12 else 8 if kind == 7 else WIDTHS[kind]
    raw = payload[at : at + size]
    if len(raw) != size:
        raise Unreadable
    if kind == 7:
        return unpack(">d", raw)[0], at + size
    if kind < 7:
        return int.from_bytes(raw, "big", signed=True), at + size
    if kind % 2 == 0:
        return raw, at + size
    try:
        return raw.decode(), at + size
    except UnicodeDecodeError:
        raise Unreadable from None


def read_log(log: bytes, size: int) -> dict[int, bytes]:
    """The newer versions of pages in the write-ahead log, up to its last complete transaction."""
    if len(log) < 32 or unpack_from(">I", log)[0] & ~1 != 0x377F0682:
        return {}
    order = ">" if log[3] & 1 else "<"
    if unpack_from(">I", log, 8)[0] != size:
        return {}
    salts = log[16:24]
    sums = _add(order, log[:24], (0, 0))
    if sums != unpack_from(">II", log, 24):
        return {}
    committed: dict[int, bytes] = {}
    waiting: dict[int, bytes] = {}
    for start, page in _frames(log, size):
        number, last = unpack_from(">II", log, start)
        sums = _add(order, page, _add(order, log[start : start + 8], sums))
        if log[start + 8 : start + 16] != salts or sums != unpack_from(">II", log, start + 16):
            break
        waiting[number] = page
        if last:
            committed.update(waiting)
            waiting.clear()
    return committed


def _frames(log: bytes, size: int) -> Iterator[tuple[int, bytes]]:
    for start in range(32, len(log) - size - 23, size + 24):
        yield start, log[start + 24 : start + 24 + size]


def _add(order: str, data: bytes, sums: tuple[int, int]) -> tuple[int, int]:
    one, two = sums
    numbers = unpack(f"{order}{len(data) // 4}I", data)
    for place in range(0, len(numbers), 2):
        one = one + numbers[place] + two & 0xFFFFFFFF
        two = two + numbers[place + 1] + one & 0xFFFFFFFF
    return one, two


def _page_size(data: Bytes, log: bytes) -> tuple[int, int]:
    """The page size, and how many bytes at the end of each page are reserved for extensions."""
    head = data[:HEADER]
    if head.startswith(MAGIC) and len(head) == HEADER:
        size = unpack_from(">H", head, 16)[0]
        size = 65536 if size == 1 else size
        if size in (*SIZES, 65536) and head[20] <= size - 480:
            return size, head[20]
    if len(log) >= 32 and unpack_from(">I", log, 8)[0] in (*SIZES, 65536):
        return unpack_from(">I", log, 8)[0], 0
    return max(SIZES, key=lambda size: _count_valid_bytes(data, size)), 0


def _count_valid_bytes(data: Bytes, size: int) -> int:
    """How many bytes of a sample are sound pages, if pages have this size."""
    pages = Pages(data, size=size)
    step = max(1, pages.count // GUESSED_FROM)
    nodes = map(pages.node, range(2, pages.count + 1, step))
    return size * sum(node is not None and node.sound and bool(node.cells) for node in nodes)


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
