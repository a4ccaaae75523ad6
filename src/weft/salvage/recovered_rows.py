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
FILE_HEADER_BYTES = 100  # before the b-tree of page 1
PAGE_SIZES = (2048, 4096, 1024, 8192, 16384, 32768, 512)  # a guess prefers the first ones
LARGEST_PAGE_SIZE = 65536  # written as 1, because the field has two bytes
INDEX_INNER, TABLE_INNER, INDEX_LEAF, TABLE_LEAF = 2, 5, 10, 13
PAGE_HEADER_BYTES = {INDEX_INNER: 12, TABLE_INNER: 12, INDEX_LEAF: 8, TABLE_LEAF: 8}
MIN_CELL_BYTES = 4
INTEGER_BYTES = (0, 1, 2, 3, 4, 6, 8)  # by the serial type of a value
REAL = 7  # a serial type
CONSTANT_VALUES = {0: None, 8: 0, 9: 1}  # by serial type: values without bytes
WAL_MAGIC = 0x377F0682  # its last bit is the byte order
WAL_HEADER_BYTES = 32
WAL_FRAME_HEADER_BYTES = 24
SAMPLED_PAGES = 64  # to guess the page size

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
    """One page of a b-tree; `is_sound` is whether its cells are readable and fill it exactly."""

    has_rowid: bool
    cells: tuple[Cell, ...]
    children: tuple[int, ...]
    is_sound: bool


class Unreadable(ValueError):
    """A length or an offset points outside the file. Never raised to callers of this module."""


class Pages:
    """A file's pages by number, counted from 1, as the last transaction in the log left them."""

    def __init__(self, data: Bytes, wal: bytes = b"", size: int | None = None) -> None:
        self._data = data
        self.size, reserved = _page_size(data, wal) if size is None else (size, 0)
        self.usable = self.size - reserved
        self._wal_pages = read_wal(wal, self.size)
        self.count = max([-(-len(data) // self.size), *self._wal_pages])

    def read(self, number: int) -> bytes | None:
        """The bytes of a page; `None` if it is beyond the end of the file or truncated."""
        newer = self._wal_pages.get(number)
        if newer is not None:
            return newer
        start = (number - 1) * self.size
        page = self._data[start : start + self.size] if number > 0 else b""
        return page if len(page) == self.size else None

    def node(self, number: int) -> Node | None:
        """The page as part of a b-tree; `None` if it is not one, or nothing on it is readable."""
        page = self.read(number)
        start = FILE_HEADER_BYTES if number == 1 else 0
        if page is None or page[start] not in PAGE_HEADER_BYTES:
            return None
        kind = page[start]
        count = unpack_from(">H", page, start + 3)[0]
        cell_offsets = start + PAGE_HEADER_BYTES[kind]
        offsets_end = cell_offsets + 2 * count
        if offsets_end > self.usable:
            return None
        cells: list[Cell] = []
        children: list[int] = []
        cell_bytes = 0
        is_sound = True
        for offset in unpack_from(f">{count}H", page, cell_offsets):
            try:
                size = self._read_cell(page, offset, kind, cells, children)
            except Unreadable:
                is_sound = False
            else:
                cell_bytes += max(MIN_CELL_BYTES, size)
        if kind in (INDEX_INNER, TABLE_INNER):
            children.append(unpack_from(">I", page, start + 8)[0])
        is_sound = is_sound and self._is_filled(page, start, offsets_end, cell_bytes)
        has_rowid = kind in (TABLE_INNER, TABLE_LEAF)
        return Node(has_rowid, tuple(cells), tuple(children), is_sound)

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
            count = min(count, self.size // 4 - 2)  # more do not fit on a page
            pages.update(unpack_from(f">{count}I", page, 8))
        return pages

    def _is_filled(self, page: bytes, start: int, offsets_end: int, cell_bytes: int) -> bool:
        """Whether cells, free blocks and fragments account for the whole content area."""
        free_block, _, content, fragment_bytes = unpack_from(">HHHB", page, start + 1)
        content = content or LARGEST_PAGE_SIZE
        free_bytes = previous = 0
        while free_block:
            if free_block < previous + MIN_CELL_BYTES or free_block + MIN_CELL_BYTES > self.usable:
                return False
            previous = free_block
            free_block, size = unpack_from(">HH", page, free_block)
            free_bytes += size
        used_bytes = cell_bytes + free_bytes + fragment_bytes
        return offsets_end <= content and used_bytes == self.usable - content

    def _read_cell(
        self, page: bytes, offset: int, kind: int, cells: list[Cell], children: list[int]
    ) -> int:
        """Read the cell at an offset into the lists; returns its size on the page in bytes."""
        at = offset
        if kind in (INDEX_INNER, TABLE_INNER):
            if at + 4 > self.usable:
                raise Unreadable
            children.append(unpack_from(">I", page, at)[0])
            at += 4
        if kind == TABLE_INNER:
            _, at = read_varint(page, at)
            return at - offset
        length, at = read_varint(page, at)
        key = None
        if kind == TABLE_LEAF:
            key, at = read_varint(page, at)
            key -= (key >> 63) << 64  # the varint is a signed 64-bit number
        local = self._local_bytes(length, kind == TABLE_LEAF)
        if at + local + (4 if local < length else 0) > self.usable:
            raise Unreadable
        payload = page[at : at + local]
        at += local
        if local < length:
            payload += self._read_overflow(unpack_from(">I", page, at)[0], length - local)
            at += 4
        cells.append(Cell(key, read_record(payload)))
        return at - offset

    def _local_bytes(self, length: int, is_table: bool) -> int:
        """How many bytes of a payload are on its own page; the others are on overflow pages.

        The numbers are those of https://www.sqlite.org/fileformat2.html#cell_payload_overflow_pages
        """
        max_local = self.usable - 35 if is_table else (self.usable - 12) * 64 // 255 - 23
        if length <= max_local:
            return length
        min_local = (self.usable - 12) * 32 // 255 - 23
        local = min_local + (length - min_local) % (self.usable - 4)
        return local if local <= max_local else min_local

    def _read_overflow(self, number: int, remaining: int) -> bytes:
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
    for offset in range(at, min(at + 8, len(data))):
        value = value << 7 | data[offset] & 0x7F
        if data[offset] < 0x80:
            return value, offset + 1
    if at + 9 > len(data):
        raise Unreadable
    return value << 8 | data[at + 8], at + 9


def read_record(payload: bytes) -> tuple[Value, ...]:
    """The values of a row; a header with the serial type of each value comes before them."""
    header_end, type_at = read_varint(payload, 0)
    if header_end > len(payload):
        raise Unreadable
    values: list[Value] = []
    value_at = header_end
    while type_at < header_end:
        serial_type, type_at = read_varint(payload, type_at)
        value, value_at = _read_value(payload, serial_type, value_at)
        values.append(value)
    if type_at != header_end or value_at != len(payload):
        raise Unreadable
    return tuple(values)


def _read_value(payload: bytes, serial_type: int, at: int) -> tuple[Value, int]:
    """The value of a serial type at an offset, and the offset after it."""
    if serial_type in CONSTANT_VALUES:
        return CONSTANT_VALUES[serial_type], at
    if serial_type in (10, 11):  # reserved
        raise Unreadable
    if serial_type >= 12:
        size = (serial_type - 12) // 2
    else:
        size = 8 if serial_type == REAL else INTEGER_BYTES[serial_type]
    raw = payload[at : at + size]
    if len(raw) != size:
        raise Unreadable
    if serial_type == REAL:
        return unpack(">d", raw)[0], at + size
    if serial_type < REAL:
        return int.from_bytes(raw, "big", signed=True), at + size
    if serial_type % 2 == 0:  # a blob; odd types are texts
        return raw, at + size
    try:
        return raw.decode(), at + size
    except UnicodeDecodeError:
        raise Unreadable from None


def read_wal(wal: bytes, size: int) -> dict[int, bytes]:
    """The newer versions of pages in the write-ahead log, up to its last complete transaction."""
    if len(wal) < WAL_HEADER_BYTES or unpack_from(">I", wal)[0] & ~1 != WAL_MAGIC:
        return {}
    byte_order = ">" if wal[3] & 1 else "<"  # of the checksums
    if unpack_from(">I", wal, 8)[0] != size:
        return {}
    salts = wal[16:24]  # frames with other salts are of an earlier log
    sums = _add_checksum(byte_order, wal[:24], (0, 0))
    if sums != unpack_from(">II", wal, 24):
        return {}
    committed: dict[int, bytes] = {}
    uncommitted: dict[int, bytes] = {}
    for start, page in _wal_frames(wal, size):
        number, is_commit = unpack_from(">II", wal, start)
        sums = _add_checksum(
            byte_order, page, _add_checksum(byte_order, wal[start : start + 8], sums)
        )
        if wal[start + 8 : start + 16] != salts or sums != unpack_from(">II", wal, start + 16):
            break
        uncommitted[number] = page
        if is_commit:
            committed.update(uncommitted)
            uncommitted.clear()
    return committed


def _wal_frames(wal: bytes, size: int) -> Iterator[tuple[int, bytes]]:
    """The offset of each frame, and the page in it."""
    frame_bytes = WAL_FRAME_HEADER_BYTES + size
    for start in range(WAL_HEADER_BYTES, len(wal) - frame_bytes + 1, frame_bytes):
        yield start, wal[start + WAL_FRAME_HEADER_BYTES : start + frame_bytes]


def _add_checksum(byte_order: str, data: bytes, sums: tuple[int, int]) -> tuple[int, int]:
    """The two checksums of the log so far, continued over more bytes."""
    first, second = sums
    numbers = unpack(f"{byte_order}{len(data) // 4}I", data)
    for index in range(0, len(numbers), 2):
        first = first + numbers[index] + second & 0xFFFFFFFF
        second = second + numbers[index + 1] + first & 0xFFFFFFFF
    return first, second


def _page_size(data: Bytes, wal: bytes) -> tuple[int, int]:
    """The page size, and how many bytes at the end of each page are reserved for extensions."""
    head = data[:FILE_HEADER_BYTES]
    if head.startswith(MAGIC) and len(head) == FILE_HEADER_BYTES:
        size = unpack_from(">H", head, 16)[0]
        size = LARGEST_PAGE_SIZE if size == 1 else size
        if size in (*PAGE_SIZES, LARGEST_PAGE_SIZE) and head[20] <= size - 480:
            return size, head[20]
    if len(wal) >= WAL_HEADER_BYTES and unpack_from(">I", wal, 8)[0] in (
        *PAGE_SIZES,
        LARGEST_PAGE_SIZE,
    ):
        return unpack_from(">I", wal, 8)[0], 0
    return max(PAGE_SIZES, key=lambda size: _count_valid_bytes(data, size)), 0


def _count_valid_bytes(data: Bytes, size: int) -> int:
    """How many bytes of a sample are sound pages, if pages have this size."""
    pages = Pages(data, size=size)
    step = max(1, pages.count // SAMPLED_PAGES)
    nodes = map(pages.node, range(2, pages.count + 1, step))
    return size * sum(node is not None and node.is_sound and bool(node.cells) for node in nodes)


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
THREAD_NAMES, ENTRY_IDS, COMMIT_IDS, COMMIT_POSITIONS, REF_NAMES = (
    shape.name for shape in SHAPES[-5:]
)
ORPHAN_SHAPES = (*SHAPES[:-6], BY_NAME[COMMIT_IDS])  # a batch looks like a `commit_entry`
"""The shapes that no other table or index has, or whose rows a hash verifies."""


class RecoveredRows(Struct):
    """The recovered rows, by table and key; entries are passed to `on_entry` instead.

    `damaged` are the tables and indexes of which a page or a row was unreadable.
    """

    rows: dict[str, dict[object, Row]] = field(default_factory=dict[str, dict[object, Row]])
    damaged: set[str] = field(default_factory=set[str])

    def table(self, name: str) -> dict[object, Row]:
        return self.rows.setdefault(name, {})

    def index(self, name: str) -> dict[int, Row]:
        """The entries of an index, by the key of the row that each one points to."""
        rows_by_key: dict[int, Row] = {}
        for row in self.table(name).values():
            key = row[-1]
            assert isinstance(key, int)
            rows_by_key.setdefault(key, row[:-1])
        return rows_by_key


def recover_rows(pages: Pages, on_entry: OnEntry) -> RecoveredRows:
    """Every row that can still be read."""
    recovered = RecoveredRows()
    roots, visited = _find_roots(pages, recovered)
    for name, root in roots.items():
        shape = BY_NAME.get(name)
        for node in _walk(pages, root, visited):
            if node is None or not node.is_sound:
                recovered.damaged.add(name)
            if shape is not None and node is not None and node.has_rowid == shape.has_rowid:
                for cell in node.cells:
                    if not _add_row(recovered, shape, cell, on_entry):
                        recovered.damaged.add(name)
    if recovered.damaged or len(roots) < len(SHAPES):
        for number in sorted(set(range(1, pages.count + 1)) - visited - pages.free()):
            node = pages.node(number)
            if node is not None and node.cells:
                _add_orphan_page(recovered, node, on_entry)
    recovered.damaged.update(BY_NAME.keys() - roots.keys())
    return recovered


def _find_roots(pages: Pages, recovered: RecoveredRows) -> tuple[dict[str, int], set[int]]:
    """The root page of every table and index in the schema, and the pages of the schema itself."""
    roots: dict[str, int] = {}
    visited: set[int] = set()
    for node in _walk(pages, 1, visited):
        if node is None or not node.is_sound:
            recovered.damaged.add("sqlite_master")
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
