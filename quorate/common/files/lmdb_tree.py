"""Walks a tree of LMDB's pages without LMDB, and checks them. The layout is in ``lmdb_pages``."""

import struct
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from quorate.common.files.lmdb_pages import (
    PAGE,
    PAGE_HEADER_BYTES,
    DatabaseRoot,
    OnProblem,
    PageMap,
    PagesDamaged,
    ReadAt,
    Tree,
    raise_problem,
)

IS_NAMED_TREE: Final = 0x02
"""The flag of a node whose value is the tree of a named database."""

OVERFLOW_PAGE: Final = struct.Struct("=QHHI")
"""Number, pad, kind, and how many pages the value takes."""
NODE: Final = struct.Struct("=IHH")
"""Size of the value, flags, size of the key, which follows."""
PAGE_NUMBER: Final = struct.Struct("=Q")
_BRANCH: Final = 0x01
_LEAF: Final = 0x02
OVERFLOW: Final = 0x04
"""The kind of an overflow page."""
IS_OVERFLOWING: Final = 0x01
"""The flag of a node whose value is on overflow pages."""


class StoredValue(NamedTuple):
    """A key, and the position of its value. ``start`` has the first bytes of the value, or is empty
    if the value is on another page that is damaged."""

    key: bytes
    position: int
    size: int
    start: bytes
    flags: int = 0


class Leaf(NamedTuple):
    """A leaf page: the offsets of its nodes in it, the least key that it may have, and the key that
    all of its are below."""

    number: int
    page: bytes
    offsets: tuple[int, ...]
    least: bytes | None
    beyond: bytes | None


_Pending = tuple[int, int, bytes | None, bytes | None]
"""Number of a page, levels from it down, least key of it, and key that all of its are below."""


class TreeWalk:
    """A walk over one tree, by key. Every page is read once at most, so damage cannot make it
    endless."""

    def __init__(
        self,
        read_at: ReadAt,
        root: DatabaseRoot,
        tree: Tree,
        pages: PageMap,
        *,
        start_bytes: int = 0,
        has_named: bool = False,
        on_problem: OnProblem = raise_problem,
    ) -> None:
        """``start_bytes`` of every value are read. ``has_named`` says that the values may be the
        trees of named databases. ``on_problem`` is called with problems after
        which the walk can go on."""
        self._read_at = read_at
        self._root = root
        self._tree = tree
        self._pages = pages
        self._start_bytes = start_bytes
        self._on_problem = on_problem
        self._branch_pages = self._leaf_pages = self._overflow_pages = self._entries = 0
        self._value_flags = (0, IS_NAMED_TREE) if has_named else (0,)
        self._is_reversed = tree.flags != 0 and sys.byteorder == "little"

    def values(self) -> Iterator[StoredValue]:
        """Yield every value, by key.

        Raises:
            PagesDamaged: A page does not match what its parent page says.
        """
        for leaf in self.leaves():
            ends: dict[int, int] = {}
            found = [self._value(leaf.number, leaf.page, at, ends) for at in leaf.offsets]
            self.check_leaf(leaf, ends, [value.key for value in found])
            yield from found

    def leaves(self) -> Iterator[Leaf]:
        """Yield every leaf page, by key. The nodes in it are the caller's to check, with
        ``check_leaf`` and ``use_overflow``.

        Raises:
            PagesDamaged: A page does not match what its parent page says.
        """
        pending: list[_Pending] = []
        if not self._tree.is_empty:
            pending.append((self._tree.root, self._tree.depth, None, None))
        while pending:
            number, levels, least, beyond = pending.pop()
            if levels > 1:
                pending += self._children(number, levels - 1, least, beyond)
            else:
                yield self._leaf(number, least, beyond)
        counted = self._branch_pages, self._leaf_pages, self._overflow_pages, self._entries
        said = self._tree[2:6]
        if counted != said:
            self._on_problem(
                f"a tree has {counted} branch, leaf and overflow pages and entries, not {said}"
            )

    def _children(
        self, number: int, levels: int, least: bytes | None, beyond: bytes | None
    ) -> list[_Pending]:
        """Return the children of a branch page, last first."""
        page, offsets = self._page(number, _BRANCH)
        self._branch_pages += 1
        if not offsets:
            raise PagesDamaged(f"page {number}: a branch without pages")
        nodes: list[tuple[int, bytes | None]] = []
        ends = {}
        for at in offsets:
            low, high, key_bytes = NODE.unpack_from(page, at)
            ends[at] = end = at + NODE.size + key_bytes
            if end > len(page):
                raise PagesDamaged(f"page {number}: a node reaches beyond it")
            nodes.append((low | high << 32, self._key(page[at + NODE.size : end])))
        self._check_tiles(number, page, ends)
        # The first key of a branch page has no meaning: its child has all that is below the next.
        keys = [least, *(key for _, key in nodes[1:]), beyond]
        self._check_order(number, [key for key in keys if key is not None])
        return [
            (child, levels, keys[place], keys[place + 1])
            for place, (child, _) in reversed([*enumerate(nodes)])
        ]

    def _leaf(self, number: int, least: bytes | None, beyond: bytes | None) -> Leaf:
        page, offsets = self._page(number, _LEAF)
        self._leaf_pages += 1
        self._entries += len(offsets)
        if not offsets:
            self._on_problem(f"page {number}: a leaf without entries")
        return Leaf(number, page, offsets, least, beyond)

    def check_leaf(self, leaf: Leaf, ends: Mapping[int, int], found: Sequence[bytes]) -> None:
        """Check that the nodes fill their page, and that their keys are in order and in the page's
        range. ``ends`` has the end of each node by its offset, and ``found`` the keys in order."""
        self._check_tiles(leaf.number, leaf.page, ends)
        keys = [self._key(key) for key in found] if self._is_reversed else found
        if keys:
            self._check_order(leaf.number, keys)
            self._check_range(leaf.number, keys, leaf.least, leaf.beyond)

    def use_overflow(self, firsts: Sequence[int], counts: Sequence[int]) -> None:
        """Count the overflow pages of values, given by the first page of each and how many they
        are, and check that they are in the file and that nothing else uses them.

        Raises:
            PagesDamaged: They are not in the file.
        """
        for first, count in zip(firsts, counts, strict=True):
            self._pages.check_bounds(first, count)
            self._pages.use(first, count, self._on_problem)
        self._overflow_pages += sum(counts)

    def _key(self, key: bytes) -> bytes:
        """Return the key as bytes that are sorted as LMDB sorts it."""
        return key[::-1] if self._is_reversed else key

    def _value(self, number: int, page: bytes, at: int, ends: dict[int, int]) -> StoredValue:
        size, flags, key_bytes = NODE.unpack_from(page, at)
        value_at = at + NODE.size + key_bytes
        key = page[at + NODE.size : value_at]
        if flags == IS_OVERFLOWING:
            ends[at] = end = value_at + PAGE_NUMBER.size
            if end > len(page):
                raise PagesDamaged(f"page {number}: a node reaches beyond it")
            (first,) = PAGE_NUMBER.unpack_from(page, value_at)
            return self._overflowing(key, first, size)
        if flags not in self._value_flags:
            self._on_problem(f"page {number}: a node is of kind {flags:#x}")
        ends[at] = end = value_at + size
        if end > len(page):
            raise PagesDamaged(f"page {number}: a value reaches beyond it")
        start = page[value_at : value_at + min(size, self._start_bytes)]
        return StoredValue(key, number * self._root.page_bytes + value_at, size, start, flags)

    def _overflowing(self, key: bytes, first: int, size: int) -> StoredValue:
        page_bytes = self._root.page_bytes
        pages = -(-(PAGE_HEADER_BYTES + size) // page_bytes)
        self._pages.check_bounds(first, pages)
        position = first * page_bytes
        head = self._read_at(position, PAGE_HEADER_BYTES + min(size, self._start_bytes))
        if len(head) < PAGE_HEADER_BYTES:
            raise PagesDamaged(f"truncated: page {first} is not there")
        number, _, kind, found = OVERFLOW_PAGE.unpack_from(head)
        # There are more than needed where a value was replaced by a shorter one in one transaction,
        # because LMDB keeps the pages.
        is_enough = pages <= found <= self._root.last_page + 1 - first
        start = head[PAGE_HEADER_BYTES:]
        if number != first or kind != OVERFLOW or not is_enough:
            self._on_problem(
                f"page {first} says that it is {found} pages from {number} of kind {kind:#x}, not "
                f"{pages}"
            )
            found, start = pages, b""
        self._pages.use(first, found, self._on_problem)
        self._overflow_pages += found
        return StoredValue(key, position + PAGE_HEADER_BYTES, size, start, IS_OVERFLOWING)

    def _page(self, number: int, kind: int) -> tuple[bytes, tuple[int, ...]]:
        """Return a page and the offsets of its nodes."""
        root = self._root
        self._pages.check_bounds(number, 1)
        self._pages.use(number, 1, self._on_problem)
        page = self._read_at(number * root.page_bytes, root.page_bytes)
        if len(page) < root.page_bytes:
            raise PagesDamaged(f"truncated: page {number} is not there")
        found, _, flags, lower, upper = PAGE.unpack_from(page)
        if found != number or flags != kind:
            raise PagesDamaged(f"page {number} says that it is page {found} of kind {flags:#x}")
        if not PAGE_HEADER_BYTES <= lower <= upper <= len(page) or lower % 2:
            raise PagesDamaged(f"page {number} is said to be filled to {lower} and from {upper}")
        count = (lower - PAGE_HEADER_BYTES) // 2
        offsets: tuple[int, ...] = struct.unpack_from(f"={count}H", page, PAGE_HEADER_BYTES)
        if offsets and not upper <= min(offsets) <= max(offsets) <= len(page) - NODE.size:
            raise PagesDamaged(f"page {number}: a node begins outside of it")
        return page, offsets

    def _check_tiles(self, number: int, page: bytes, ends: Mapping[int, int]) -> None:
        """Check that the nodes, each of an even size, fill the page from ``upper`` to its end."""
        (at,) = struct.unpack_from("=H", page, 14)
        for start in sorted(ends):
            if start != at:
                self._on_problem(f"page {number}: no node at {at}, one at {start}")
                return
            at = ends[start] + (ends[start] & 1)
        if at != len(page):
            self._on_problem(f"page {number}: its nodes end at {at}")

    def _check_order(self, number: int, keys: Sequence[bytes]) -> None:
        if any(map(bytes.__ge__, keys, keys[1:])):
            self._on_problem(f"page {number}: its keys do not rise")

    def _check_range(
        self, number: int, keys: Sequence[bytes], least: bytes | None, beyond: bytes | None
    ) -> None:
        if (least is not None and keys[0] < least) or (beyond is not None and keys[-1] >= beyond):
            self._on_problem(f"page {number}: its keys are not those that its parent says")
