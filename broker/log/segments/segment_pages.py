"""Reads LMDB's pages without LMDB, to find the position of each value in the file.

A sealed segment is read at these positions by ``pread``. LMDB would fault its pages in one by one,
and a truncated or damaged file would end the process that maps it. Everything that can be checked
is therefore checked: magic, bounds, kinds and numbers of pages, and that the two roots are
successive commits. Integers are in the byte order of the machine, as LMDB writes them.

    page      number u64 | pad u16 | kind u16 | lower u16, upper u16; overflow: pages u32
    leaf      offsets u16 for each 2 bytes of (lower - 16), each of a node in the page
    node      size u32 | flags u16 | key size u16 | key | value, or number u64 of its first overflow
              page; in a branch, size and flags are the number of the child
    overflow  the page's header, then the value, over as many pages as it takes
    root      magic, version u32 | address, map size u64 | two trees | last page, transaction u64
    tree      page size (of the first one) u32 | flags, depth u16 | 4 counts u64 | root page u64
"""

import struct
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

PAGE_HEADER_BYTES: Final = 16
"""The bytes before the value in the first of its overflow pages."""

ReadAt = Callable[[int, int], bytes]
"""(position, size) → that many bytes of the file, fewer only at its end."""

_PAGE: Final = struct.Struct("=QHHHH")
_OVERFLOW_PAGE: Final = struct.Struct("=QHHI")
_NODE: Final = struct.Struct("=IHH")
_PAGE_NUMBER: Final = struct.Struct("=Q")
_ROOT: Final = struct.Struct("=IIQQI44xIHH32xQQQ")
_MAGIC: Final = 0xBEEFC0DE
_VERSION: Final = 1
_LEAST_PAGE_BYTES: Final = 512
_LARGEST_PAGE_BYTES: Final = 1 << 16
_BRANCH: Final = 0x01
_LEAF: Final = 0x02
_OVERFLOW: Final = 0x04
_IS_OVERFLOWING: Final = 0x01
_DEPTH_MAX: Final = 32
_NO_PAGE: Final = 2**64 - 1


class PagesDamaged(Exception):
    """Raised when the file is not what LMDB writes."""


class DatabaseRoot(NamedTuple):
    """The root of the newest commit."""

    page_bytes: int
    depth: int
    tree: int
    """The page number of the root of the one database."""
    last_page: int
    """The number of the last page. The file may end before it, because LMDB does not write pages
    that one transaction allocates and frees."""
    transaction: int
    file_bytes: int = 0

    @property
    def used_bytes(self) -> int:
        """The bytes of the file that LMDB has ever used."""
        return (self.last_page + 1) * self.page_bytes


class StoredValue(NamedTuple):
    """A key, and the position of its value. ``start`` has the first bytes of the value, or is empty
    if the value is on another page."""

    key: bytes
    position: int
    size: int
    start: bytes


def read_root(read_at: ReadAt, file_bytes: int) -> DatabaseRoot:
    """Return the newer of the two roots.

    Raises:
        PagesDamaged: There is no valid root, or the two are not of successive commits.
    """
    first = _root(read_at(0, PAGE_HEADER_BYTES + _ROOT.size))
    second = _root(read_at(first.page_bytes, PAGE_HEADER_BYTES + _ROOT.size))
    if abs(first.transaction - second.transaction) != 1:
        raise PagesDamaged(
            f"its two roots are of commits {first.transaction} and {second.transaction}, not of "
            "one and the next"
        )
    newer = max(first, second, key=lambda root: root.transaction)
    if newer.page_bytes != first.page_bytes:
        raise PagesDamaged(
            f"its roots say that pages have {first.page_bytes} and {newer.page_bytes} bytes"
        )
    return newer._replace(file_bytes=file_bytes)


def walk(read_at: ReadAt, root: DatabaseRoot, start_bytes: int) -> Iterator[StoredValue]:
    """Yield every value, by key, with its first ``start_bytes`` bytes.

    Raises:
        PagesDamaged: A page does not match what its parent page says.
    """
    if root.tree != _NO_PAGE:
        yield from _walk_page(read_at, root, start_bytes, root.tree, root.depth)


def _root(page: bytes) -> DatabaseRoot:
    if len(page) < PAGE_HEADER_BYTES + _ROOT.size:
        raise PagesDamaged(f"truncated: {len(page)} bytes of a root are left")
    magic, version, _, _, page_bytes, _, _, depth, tree, last_page, transaction = _ROOT.unpack_from(
        page, PAGE_HEADER_BYTES
    )
    if (magic, version) != (_MAGIC, _VERSION):
        raise PagesDamaged("it does not begin as LMDB files do")
    is_power = page_bytes & (page_bytes - 1) == 0
    if not _LEAST_PAGE_BYTES <= page_bytes <= _LARGEST_PAGE_BYTES or not is_power:
        raise PagesDamaged(f"its pages are said to have {page_bytes} bytes")
    if depth > _DEPTH_MAX:
        raise PagesDamaged(f"its tree is said to be {depth} levels deep")
    return DatabaseRoot(page_bytes, depth, tree, last_page, transaction)


def _walk_page(
    read_at: ReadAt, root: DatabaseRoot, start_bytes: int, number: int, levels: int
) -> Iterator[StoredValue]:
    """Yield the values below a page. ``levels`` is the depth of the tree from this page on, so a
    damaged tree cannot cause an endless walk."""
    kind = _LEAF if levels == 1 else _BRANCH
    page = _read_page(read_at, root, number, kind)
    page_bytes = root.page_bytes
    for at in _node_offsets(page, number):
        size, flags, key_bytes = _NODE.unpack_from(page, at)
        value_at = at + _NODE.size + key_bytes
        if kind == _BRANCH:
            child = size | flags << 32
            yield from _walk_page(read_at, root, start_bytes, child, levels - 1)
            continue
        key = page[at + _NODE.size : value_at]
        if flags & _IS_OVERFLOWING:
            if value_at + _PAGE_NUMBER.size > len(page):
                raise PagesDamaged(f"page {number}: a node reaches beyond it")
            (first,) = _PAGE_NUMBER.unpack_from(page, value_at)
            pages = -(-(PAGE_HEADER_BYTES + size) // page_bytes)
            _check_bounds(root, first, pages)
            head = read_at(first * page_bytes, PAGE_HEADER_BYTES + min(size, start_bytes))
            start = head[PAGE_HEADER_BYTES:] if _is_overflow(root, head, first, pages) else b""
            yield StoredValue(key, first * page_bytes + PAGE_HEADER_BYTES, size, start)
        else:
            if value_at + size > len(page):
                raise PagesDamaged(f"page {number}: a value reaches beyond it")
            start = page[value_at : value_at + min(size, start_bytes)]
            yield StoredValue(key, number * page_bytes + value_at, size, start)


def _read_page(read_at: ReadAt, root: DatabaseRoot, number: int, kind: int) -> bytes:
    _check_bounds(root, number, 1)
    page = read_at(number * root.page_bytes, root.page_bytes)
    if len(page) < root.page_bytes:
        raise PagesDamaged(f"truncated: page {number} is not there")
    found, _, flags, _, _ = _PAGE.unpack_from(page)
    if found != number or not flags & kind:
        raise PagesDamaged(f"page {number} says that it is page {found} of kind {flags:#x}")
    return page


def _check_bounds(root: DatabaseRoot, first: int, pages: int) -> None:
    if first < 2 or first + pages > root.last_page + 1:
        raise PagesDamaged(f"pages {first} to {first + pages - 1} of {root.last_page + 1}")
    end_bytes = (first + pages) * root.page_bytes
    if end_bytes > root.file_bytes:
        raise PagesDamaged(f"truncated: {root.file_bytes} of {end_bytes} bytes or more are left")


def _is_overflow(root: DatabaseRoot, head: bytes, first: int, pages: int) -> bool:
    """Return whether ``head`` begins at least ``pages`` overflow pages with that page number.

    There are more where a value was replaced by a shorter one in one transaction, because LMDB
    keeps the pages.
    """
    if len(head) < PAGE_HEADER_BYTES:
        return False
    number, _, flags, found = _OVERFLOW_PAGE.unpack_from(head)
    is_enough = pages <= found <= root.last_page + 1 - first
    return number == first and bool(flags & _OVERFLOW) and is_enough


def _node_offsets(page: bytes, number: int) -> tuple[int, ...]:
    _, _, _, lower, upper = _PAGE.unpack_from(page)
    count = (lower - PAGE_HEADER_BYTES) // 2
    if not PAGE_HEADER_BYTES <= lower <= upper <= len(page):
        raise PagesDamaged(f"page {number} is said to be filled to {lower} and from {upper}")
    offsets: tuple[int, ...] = struct.unpack_from(f"={count}H", page, PAGE_HEADER_BYTES)
    if offsets and not upper <= min(offsets) <= max(offsets) <= len(page) - _NODE.size:
        raise PagesDamaged(f"page {number}: a node begins outside of it")
    return offsets
