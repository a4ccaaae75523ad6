"""A local append-only file for records that the store cannot take now.

The journal stores bytes and does not know what they mean. Nothing else in the gateway writes to
the file.

File format (all numbers are big-endian):

| offset | content |
| --- | --- |
| 0 and 4096 | two copies of the file header, written in turn; the newer valid copy counts |
| from 8192 | records, each a frame header of 36 bytes and then the payload |
| after the last record | reserved space |

- File header: magic, marker, generation, start (offset of the first record that is not drained),
  its sequence number, the end of the part that was overwritten with zeros, CRC-32.
- Frame header: marker, sequence number, payload length, CRC-32 of the payload, CRC-32 of the frame
  header.
- The marker is 16 random bytes, new after every reset. With it, the next record after a
  damaged one is found. Clients write the payloads but cannot know the marker, so no payload can
  pass for a record.

What always holds:

- A record is on disk (`fdatasync`) when `append` returns. Threads that append at the same time
  share one sync.
- `reserve` bytes are allocated when the file is opened, so that appends work on a full disk. More
  is allocated ahead of use while the disk has room. (File systems that copy on write, such as
  btrfs and ZFS, give no such guarantee.)
- Records are read in the order of their sequence numbers, each at most once per `read()`.
- A record that was cut off at the end of the file by a crash is ignored: its `append` never
  returned. A damaged record is skipped and counted in `damaged`; the others are still read.
- A record whose `append` raised may still be read later, if its bytes reached the disk.
- Drained records are overwritten with zeros. When all are drained, the file starts again at its
  beginning and keeps its reserved space.
- One process at a time uses a file (`flock`). The lock ends with the process, so that another one
  can replay what a killed process left behind.
"""

import os
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager, suppress
from errno import EINVAL, ENOSYS, ENOTSUP, EOPNOTSUPP
from fcntl import LOCK_EX, LOCK_NB, flock
from pathlib import Path
from secrets import token_bytes
from struct import Struct
from threading import Condition, Lock
from typing import NamedTuple
from zlib import crc32

from weft.errors import JournalError, JournalInUse

RESERVE = 32 << 20
"""How many bytes are allocated ahead of use."""
MAGIC = b"WEFTJRN1"
HEADER = Struct(">8s16sQQQQ")
FRAME = Struct(">16sQII")
CHECKSUM = Struct(">I")
HEADER_OFFSETS = (0, 4096)  # in different pages, so that one torn write cannot damage both
FIRST_RECORD = 8192
FRAME_BYTES = FRAME.size + CHECKSUM.size
MARKER_BYTES = 16
MAX_RECORD = (1 << 32) - 1
CHUNK = 1 << 20
ZEROS = bytes(CHUNK)
MAX_JOURNALS = 64
"""How many processes can have a journal beside the same store."""
NOT_SUPPORTED = frozenset({EINVAL, ENOSYS, ENOTSUP, EOPNOTSUPP})


class Position(NamedTuple):
    """The position of a record: its sequence number, and the offset after its last byte."""

    sequence: int
    end: int


class _Start(NamedTuple):
    """The file header, without its magic and checksum."""

    marker: bytes
    generation: int
    offset: int
    sequence: int
    zeroed: int


class _Append:
    """The records of one `append` call, waiting to be written."""

    def __init__(self, records: Sequence[bytes]) -> None:
        self.records = records
        self.size = sum(FRAME_BYTES + len(record) for record in records)
        self.sequence = 0
        self.done = False
        self.error: BaseException | None = None


class Journal:
    """One journal file, opened for this process alone. All methods are thread-safe."""

    def __init__(self, path: str | Path, *, reserve: int = RESERVE, create: bool = True) -> None:
        self._path = Path(path)
        self._reserve = reserve
        self._closed = False
        self._lost: dict[int, int] = {}  # first sequence number of each gap: how many are missing
        self._queue: list[_Append] = []
        self._writing = False
        self._state = Condition()  # guards the queue and the file's end
        self._reading = Lock()  # guards the file's start
        with _io("opened"):
            self._fd = _open_locked(self._path, create=create)
            try:
                self._load()
            except BaseException:
                os.close(self._fd)
                raise

    @property
    def pending(self) -> int:
        """How many records are not drained; damaged ones count until a later one is drained."""
        with self._state:
            return (
                0
                if self._tail == self._start.offset
                else self._next_sequence - self._start.sequence
            )

    @property
    def pending_bytes(self) -> int:
        """The size of the records that are not drained, in bytes of the file."""
        with self._state:
            return self._tail - self._start.offset

    @property
    def damaged(self) -> int:
        """How many records this process found damaged and skipped."""
        return sum(self._lost.values())

    @property
    def reserved(self) -> int:
        """How many more bytes can be appended without new disk space."""
        with self._state:
            return self._allocated - self._tail

    def append(self, record: bytes) -> int:
        """Append one record; returns its sequence number. Then the record is on disk."""
        return self.append_many((record,))

    def append_many(self, records: Sequence[bytes]) -> int:
        """Append records in this order, all or none; returns the last one's sequence number."""
        if not records or any(len(record) > MAX_RECORD for record in records):
            raise JournalError("the journal takes records of up to 4 GiB, at least one at a time")
        append = _Append(records)
        group: list[_Append] = []
        with self._state:
            self._queue.append(append)
            while self._writing and not append.done:
                self._state.wait()
            if not append.done:  # no OS thread is writing: this one writes for all that wait
                group, self._queue = self._queue, []
                self._writing = True
        if group:
            self._write_group(group)
        if append.error is not None:
            raise JournalError(_reason("written", append.error)) from append.error
        self._reserve_ahead()
        return append.sequence

    def read(self) -> Iterator[tuple[Position, bytes]]:
        """The records that are not drained, in order; includes those appended meanwhile.

        One record at a time is in memory. Only one reader may be active.
        """
        with self._reading:
            offset, sequence = self._start.offset, self._start.sequence
        while True:
            with self._reading, _io("read"):
                if self._closed:
                    raise JournalError("the journal is closed")
                with self._state:
                    tail, next_sequence = self._tail, self._next_sequence
                if offset >= tail:
                    return
                record_read = self._next_record(offset, sequence, tail)
                if record_read is None:
                    # Everything up to the end is damaged, so no later record would drain it.
                    self._count_gap(sequence, next_sequence)
                    self._cut_tail(offset, tail)
                    continue
            position, record = record_read
            self._count_gap(sequence, position.sequence)
            yield position, record
            offset, sequence = position.end, position.sequence + 1

    def mark_drained(self, position: Position) -> None:
        """Mark the record at this position and all before it as done, on disk."""
        with self._reading, _io("written"):
            if self._closed:
                raise JournalError("the journal is closed")
            if position.sequence < self._start.sequence:
                return
            with self._state:
                if position.sequence >= self._next_sequence or position.end > self._tail:
                    raise JournalError("the journal has no record at this position")
            self._write_start(
                self._start._replace(offset=position.end, sequence=position.sequence + 1)
            )
            self._zero_drained()
            with self._exclusive():
                if self._tail == self._start.offset:
                    self._reset()

    def close(self) -> None:
        """Close the file; records that are not drained stay in it."""
        with self._reading, self._exclusive():
            self._close()

    def remove(self) -> None:
        """Close the journal and delete its file; refused while records are not drained."""
        with self._reading, self._exclusive(), _io("deleted"):
            if self._tail != self._start.offset:
                raise JournalError("the journal has records that are not drained")
            if not self._closed:  # deleted while it is locked: nobody else has it open
                self._path.unlink(missing_ok=True)
                self._close()

    def _close(self) -> None:
        if not self._closed:
            self._closed = True
            os.close(self._fd)

    def __enter__(self) -> "Journal":
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()

    def _load(self) -> None:
        """Read the header, find the end of the records, and allocate the reserve."""
        self._allocated = os.fstat(self._fd).st_size
        self._start = self._read_start() or self._first_start()
        offset, sequence = self._start.offset, self._start.sequence
        while (record_read := self._next_record(offset, sequence, self._allocated)) is not None:
            position, _ = record_read
            self._count_gap(sequence, position.sequence)
            offset, sequence = position.end, position.sequence + 1
        self._tail, self._next_sequence = offset, sequence
        self._zero_drained()
        if self._tail == self._start.offset != FIRST_RECORD:
            self._reset()  # a crash came between the last `drained` and its reset
        size = FIRST_RECORD + self._reserve
        while size > self._tail + FRAME_BYTES:
            try:
                return self._allocate(0, size)  # from 0: a copied file may have holes
            except OSError:
                size = (self._tail + size) // 2  # a disk that is nearly full: take what it has

    def _read_start(self) -> _Start | None:
        size = HEADER.size + CHECKSUM.size
        copies = [os.pread(self._fd, size, offset) for offset in HEADER_OFFSETS]
        starts: list[_Start] = []
        for copy in copies:
            body, checksum = copy[: HEADER.size], copy[HEADER.size :]
            if checksum == CHECKSUM.pack(crc32(body)) and body.startswith(MAGIC):
                starts.append(_Start(*HEADER.unpack(body)[1:]))
        if starts:
            return max(starts, key=lambda start: start.generation)
        # Zeros: a crash came between the file's creation and its first header.
        if copies[0][:8] not in (MAGIC, bytes(8), b"") and copies[1][:8] != MAGIC:
            raise JournalError("the file is not a journal")
        return None

    def _first_start(self) -> _Start:
        """The header of a new file, or of one whose two headers are damaged.

        In a damaged file, the marker is read from the first record. Some records may have been
        drained before; reading them again is better than losing them.
        """
        frame = os.pread(self._fd, FRAME_BYTES, FIRST_RECORD)
        marker, sequence = frame[:MARKER_BYTES], 1
        if _is_valid_header(frame) and any(marker):
            sequence = FRAME.unpack(frame[: FRAME.size])[1]
        else:
            marker = token_bytes(MARKER_BYTES)
        start = _Start(marker, 0, FIRST_RECORD, sequence, FIRST_RECORD)
        self._write_start(start)
        self._write_start(start._replace(generation=1))
        _sync_folder(self._path.parent)
        self._allocated = os.fstat(self._fd).st_size
        return self._start

    def _write_group(self, group: list[_Append]) -> None:
        error: BaseException = JournalError("the journal is closed")
        try:
            if not self._closed:
                self._write_fitting(group)
        except BaseException as raised:
            error = raised
            raise
        finally:
            with self._state:
                for each in group:
                    if not each.sequence and each.error is None:
                        each.error = error
                    each.done = True
                self._writing = False
                self._state.notify_all()

    def _write_fitting(self, group: list[_Append]) -> None:
        """Write the calls of a group that fit on the disk, with one sync."""
        offset, sequence = self._tail, self._next_sequence
        frames: list[bytes] = []
        fitting: list[tuple[_Append, int]] = []
        for each in group:
            try:
                self._allocate_until(offset + each.size)
            except OSError as error:  # too long for the space that is left; others may fit
                each.error = error
                continue
            for record in each.records:
                frames += (_frame_header(self._start.marker, sequence, record), record)
                sequence += 1
            offset += each.size
            fitting.append((each, sequence - 1))
        try:
            _write(self._fd, b"".join(frames), self._tail)
            _sync(self._fd)
        except OSError as error:
            # The next group overwrites these bytes: after a failed sync it is unknown which of
            # them are on disk.
            for each, _ in fitting:
                each.error = error
            return
        with self._state:
            self._tail, self._next_sequence = offset, sequence
            for each, last in fitting:
                each.sequence = last

    def _allocate_until(self, end: int) -> None:
        """Allocate space up to this offset, and the reserve after it if the disk has room."""
        if end <= self._allocated:
            return
        try:
            self._allocate(self._allocated, max(end, self._allocated + self._reserve))
        except OSError:
            self._allocate(self._allocated, end)

    def _reserve_ahead(self) -> None:
        """Allocate the next step before the space runs out: the disk may be full by then."""
        if self.reserved < self._reserve // 4:
            with self._exclusive(), suppress(OSError):
                if not self._closed and self._allocated - self._tail < self._reserve // 4:
                    self._allocate(self._allocated, self._allocated + self._reserve)

    def _allocate(self, begin: int, end: int) -> None:
        try:
            if end > begin:
                _allocate(self._fd, begin, max(end, self._allocated), self._allocated)
        finally:
            self._allocated = os.fstat(self._fd).st_size

    def _write_start(self, start: _Start) -> None:
        """Write the header over its older copy."""
        start = start._replace(generation=start.generation + 1)
        body = HEADER.pack(MAGIC, *start)
        body += CHECKSUM.pack(crc32(body))
        _write(self._fd, body, HEADER_OFFSETS[start.generation % 2])
        _sync(self._fd)
        with self._state:
            self._start = start

    def _zero_drained(self) -> None:
        """Overwrite the drained records with zeros."""
        end = min(self._start.offset, self._allocated)
        for offset in range(self._start.zeroed, end, CHUNK):
            _write(self._fd, ZEROS[: min(CHUNK, end - offset)], offset)
        with self._state:
            self._start = self._start._replace(zeroed=self._start.offset)

    def _reset(self) -> None:
        """Start again at the beginning of the file, when everything is drained."""
        marker = token_bytes(MARKER_BYTES)
        generation = self._start.generation
        start = _Start(marker, generation, FIRST_RECORD, self._next_sequence, FIRST_RECORD)
        self._write_start(start)
        with self._state:
            self._tail = FIRST_RECORD
        # The other copy too: it names the old marker, under which no new record would be found.
        self._write_start(start._replace(generation=generation + 1))
        size = FIRST_RECORD + self._reserve
        if self._allocated > size:
            os.ftruncate(self._fd, size)
            self._allocated = size

    @contextmanager
    def _exclusive(self) -> Generator[None]:
        """A context without writers; other OS threads wait until it ends."""
        with self._state:
            while self._writing:
                self._state.wait()
            self._writing = True
        try:
            yield
        finally:
            with self._state:
                self._writing = False
                self._state.notify_all()

    def _next_record(self, offset: int, sequence: int, limit: int) -> tuple[Position, bytes] | None:
        """The first valid record at or after the offset, with at least this sequence number."""
        while offset >= 0:
            frame = os.pread(self._fd, FRAME_BYTES, offset)
            if frame.startswith(self._start.marker) and _is_valid_header(frame):
                _, number, length, checksum = FRAME.unpack(frame[: FRAME.size])
                end = offset + FRAME_BYTES + length
                if number >= sequence and end <= limit:
                    record = _read(self._fd, length, offset + FRAME_BYTES)
                    if len(record) == length and crc32(record) == checksum:
                        return Position(number, end), record
            offset = self._find_marker(offset + 1, limit)
        return None

    def _find_marker(self, offset: int, limit: int) -> int:
        """The offset of the next marker, or -1."""
        marker = self._start.marker
        while offset + FRAME_BYTES <= limit:
            chunk = os.pread(self._fd, CHUNK, offset)
            if (index := chunk.find(marker)) >= 0:
                return offset + index
            if len(chunk) < MARKER_BYTES:
                break
            offset += len(chunk) - MARKER_BYTES + 1
        return -1

    def _count_gap(self, expected: int, following: int) -> None:
        if following > expected:
            self._lost[expected] = following - expected

    def _cut_tail(self, offset: int, tail: int) -> None:
        """Drop the damaged bytes from this offset on, unless a record was appended meanwhile."""
        with self._exclusive(), self._state:
            if self._tail == tail:
                self._tail = offset


def open_journal(base: str | Path, *, reserve: int = RESERVE) -> Journal:
    """The first journal of `base`, `base.2`, `base.3`, ... that no other process uses."""
    first_error: JournalError | None = None
    for number in range(1, MAX_JOURNALS + 1):
        try:
            return Journal(_numbered(Path(base), number), reserve=reserve)
        except JournalError as error:
            first_error = first_error or error
    raise first_error or JournalError("no journal is free")


def leftover_journals(base: str | Path) -> Iterator[Journal]:
    """Open each journal of `base` that has records and that no process uses any more.

    The caller replays each one and then calls `remove()`. Empty journals are removed here.
    """
    base = Path(base)
    for path in _existing(base):
        try:
            journal = Journal(path, reserve=0, create=False)
        except JournalError:
            continue  # in use, or not readable: a process that can open it replays it
        if journal.pending:
            yield journal
        elif path != base:
            journal.remove()
        else:
            journal.close()


def _numbered(base: Path, number: int) -> Path:
    return base if number == 1 else base.with_name(f"{base.name}.{number}")


def _existing(base: Path) -> list[Path]:
    try:
        names = set(os.listdir(base.parent))
    except OSError:
        return []
    paths = (_numbered(base, number) for number in range(1, MAX_JOURNALS + 1))
    return [path for path in paths if path.name in names]


def _open_locked(path: Path, *, create: bool) -> int:
    if create:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    flags = os.O_RDWR | os.O_NOFOLLOW | (os.O_CREAT if create else 0)
    while True:
        descriptor = os.open(path, flags, 0o600)
        try:
            try:
                flock(descriptor, LOCK_EX | LOCK_NB)
            except BlockingIOError:
                raise JournalInUse("another process uses the journal") from None
            if _is_same_file(descriptor, path):
                os.fchmod(descriptor, 0o600)
                return descriptor
        except BaseException:
            os.close(descriptor)
            raise
        # Its last user deleted the file between our open and our lock.
        os.close(descriptor)


def _is_same_file(descriptor: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), os.lstat(path))
    except FileNotFoundError:
        return False


@contextmanager
def _io(action: str) -> Generator[None]:
    """A context in which an `OSError` becomes a `JournalError` that names the action."""
    try:
        yield
    except OSError as error:
        raise JournalError(_reason(action, error)) from error


def _reason(action: str, error: BaseException) -> str:
    """The message for any user: the system's error text, without the path."""
    if isinstance(error, OSError):
        return f"the journal could not be {action}: {error.strerror or 'input/output error'}"
    return str(error) if isinstance(error, JournalError) else f"the journal was not {action}"


def _frame_header(marker: bytes, sequence: int, record: bytes) -> bytes:
    frame = FRAME.pack(marker, sequence, len(record), crc32(record))
    return frame + CHECKSUM.pack(crc32(frame))


def _is_valid_header(frame: bytes) -> bool:
    return len(frame) == FRAME_BYTES and frame[FRAME.size :] == CHECKSUM.pack(
        crc32(frame[: FRAME.size])
    )


def _read(descriptor: int, length: int, offset: int) -> bytes:
    """Read in a loop, because `pread` may return less than asked: Linux stops at 2 GiB."""
    chunks: list[bytes] = []
    while length > 0 and (part := os.pread(descriptor, length, offset)):
        chunks.append(part)
        length -= len(part)
        offset += len(part)
    return chunks[0] if len(chunks) == 1 else b"".join(chunks)


def _write(descriptor: int, data: bytes, offset: int) -> None:
    view = memoryview(data)
    while view:
        written = os.pwrite(descriptor, view, offset)
        view = view[written:]
        offset += written


def _sync(descriptor: int) -> None:
    if hasattr(os, "fdatasync"):  # macOS has only `fsync`
        os.fdatasync(descriptor)
    else:
        os.fsync(descriptor)


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _allocate(descriptor: int, begin: int, end: int, size: int) -> None:
    """Allocate disk space from `begin` to `end`, for a file that is `size` bytes long."""
    if hasattr(os, "posix_fallocate"):
        try:
            return os.posix_fallocate(descriptor, begin, end - begin)
        except OSError as error:
            if error.errno not in NOT_SUPPORTED:
                raise
    for offset in range(size, end, CHUNK):
        _write(descriptor, ZEROS[: min(CHUNK, end - offset)], offset)
