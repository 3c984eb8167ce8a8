"""A file of which what was synced is kept, and of all else whatever chance has the disk keep.

Pages are written back one by one, at any time after the write, in any order: so of a page that was
written several times since its last sync any of its contents may be there, and now and then a mix
of two, by sectors. The size of the file is such a content too.
"""

import random
from collections.abc import Iterable
from typing import Final, NamedTuple

PAGE_BYTES: Final = 4096
SECTOR_BYTES: Final = 512
_NO_PAGE: Final = bytes(PAGE_BYTES)
_TORN: Final = 0.05
"""The share of the unsynced pages that are torn, if only some survive."""


class _Change(NamedTuple):
    """One operation: whole pages after it, and the size."""

    order: int
    pages: dict[int, bytes]
    size: int


class RecordedFile:
    """The durable content, and every change since. Operations are known by number."""

    def __init__(self, content: bytes = b"") -> None:
        self._durable = bytearray(content)
        self._durable_order = 0
        self._changes: dict[int, _Change] = {}
        self._newest: dict[int, bytes] = {}
        self._size = len(content)
        self._order = 0
        self._unfinished: set[int] = set()

    @property
    def is_being_written(self) -> bool:
        """Whether a write has begun and not ended."""
        return bool(self._unfinished)

    def begin_write(self, operation: int, offset: int, data: bytes) -> None:
        """Note that some of ``data`` may be on disk from now on."""
        pages: dict[int, bytes] = {}
        end = offset + len(data)
        for page in range(offset // PAGE_BYTES, -(-end // PAGE_BYTES)):
            first = max(offset, page * PAGE_BYTES)
            piece = data[first - offset : min(end, (page + 1) * PAGE_BYTES) - offset]
            if len(piece) < PAGE_BYTES:
                old, begin = self._page(page), first - page * PAGE_BYTES
                piece = old[:begin] + piece + old[begin + len(piece) :]
            pages[page] = piece
        self._unfinished.add(operation)
        self._change(operation, pages, max(self._size, end))

    def end_write(self, operation: int) -> None:
        """Note that from now on a sync makes it durable."""
        self._unfinished.discard(operation)

    def truncate(self, operation: int, size: int) -> None:
        """Cut or lengthen the file."""
        beyond = range(-(-size // PAGE_BYTES), -(-self._size // PAGE_BYTES))
        pages = dict.fromkeys(beyond, _NO_PAGE)
        if rest := size % PAGE_BYTES:
            last = size // PAGE_BYTES
            pages[last] = self._page(last)[:rest].ljust(PAGE_BYTES, b"\0")
        self._change(operation, pages, size)

    def settle(self, actual: bytes) -> None:
        """The writer was killed, which may have cut writes short: the file is ``actual`` now."""
        for operation in self._unfinished:
            change = self._changes[operation]
            for page in change.pages:
                piece = actual[page * PAGE_BYTES : (page + 1) * PAGE_BYTES]
                change.pages[page] = self._newest[page] = piece.ljust(PAGE_BYTES, b"\0")
            self._size = len(actual)
            self._changes[operation] = change._replace(size=self._size)
        self._unfinished.clear()

    def complete(self) -> list[int]:
        """The changes that a sync which begins now makes durable."""
        return [operation for operation in self._changes if operation not in self._unfinished]

    def make_durable(self, operations: Iterable[int]) -> None:
        """These changes are on disk, and with their pages what was in them before."""
        for operation in operations:
            change = self._changes.pop(operation, None)
            if change is None:
                continue
            for earlier in self._changes.values():
                if earlier.order > change.order:
                    break
                for page in change.pages:
                    earlier.pages.pop(page, None)
            is_newest = change.order > self._durable_order
            size = change.size if is_newest else len(self._durable)
            _apply(self._durable, change.pages, size)
            self._durable_order = max(self._durable_order, change.order)
        if not self._changes:
            self._newest.clear()

    def visible(self) -> bytes:
        """Return the content as a process sees it."""
        content = bytearray(self._durable)
        for change in self._changes.values():
            _apply(content, change.pages, change.size)
        return bytes(content)

    def crashed(self, survival: float, chance: random.Random) -> bytes:
        """Return what is left when the power goes. ``survival`` is the chance of an unsynced
        change."""
        content = bytearray(self._durable)
        size = len(content)
        versions: dict[int, list[bytes]] = {}
        for change in self._changes.values():
            for page, data in change.pages.items():
                versions.setdefault(page, []).append(data)
            if chance.random() < survival:
                size = change.size
        kept = {
            page: _some_version([self._durable_page(page), *contents], survival, chance)
            for page, contents in versions.items()
        }
        _apply(content, kept, size)
        return bytes(content)

    def _change(self, operation: int, pages: dict[int, bytes], size: int) -> None:
        self._order += 1
        self._changes[operation] = _Change(self._order, pages, size)
        self._newest.update(pages)
        self._size = size

    def _page(self, page: int) -> bytes:
        return self._newest[page] if page in self._newest else self._durable_page(page)

    def _durable_page(self, page: int) -> bytes:
        piece = bytes(self._durable[page * PAGE_BYTES : (page + 1) * PAGE_BYTES])
        return piece.ljust(PAGE_BYTES, b"\0")


def _apply(content: bytearray, pages: dict[int, bytes], size: int) -> None:
    """Write ``pages``, as far as a file of ``size`` bytes has room for them."""
    whole = -(-size // PAGE_BYTES) * PAGE_BYTES
    content.extend(bytes(max(0, whole - len(content))))
    for page, data in pages.items():
        if page * PAGE_BYTES < whole:
            content[page * PAGE_BYTES : (page + 1) * PAGE_BYTES] = data
    del content[size:]


def _some_version(contents: list[bytes], survival: float, chance: random.Random) -> bytes:
    """One of what a page held since it was last synced, the oldest first."""
    at = len(contents) - 1 if chance.random() < survival else 0
    if 0 < survival < 1:
        if chance.random() < survival:
            at = chance.randrange(at + 1)
        if chance.random() < _TORN:
            cut = chance.randrange(1, PAGE_BYTES // SECTOR_BYTES) * SECTOR_BYTES
            return contents[at][:cut] + chance.choice(contents)[cut:]
    return contents[at]
