"""The layout of LMDB's pages, and its two roots, read without LMDB.

LMDB maps its file and trusts every byte in it: damage ends the process by a signal, or is read as
other contents. This module and ``lmdb_tree`` check everything that can be checked without knowing
the contents. What is left for checksums in the contents is a damaged key or value whose size and
order stay right. Integers are in the byte order of the machine, as LMDB writes them.

    page      number u64 | pad u16 | kind u16 | lower u16, upper u16; overflow: pages u32
    leaf      offsets u16 for each 2 bytes of (lower - 16), each of a node in the page
    node      size u32 | flags u16 | key size u16 | key | value, or number u64 of its first overflow
              page; in a branch, size and flags are the number of the child
    overflow  the page's header, then the value, over as many pages as it takes
    root      magic, version u32 | address, map size u64 | two trees | last page, transaction u64
    tree      page size (of the first one) u32 | flags, depth u16 | branch pages, leaf pages,
              overflow pages, entries, root page u64

The first tree of a root has the free pages: by transaction u64, how many they are and then their
numbers u64. The second has the contents, or the trees of the named databases.
"""

import struct
from collections.abc import Callable
from typing import Final, NamedTuple

PAGE_HEADER_BYTES: Final = 16
"""The bytes before the value in the first of its overflow pages."""

ReadAt = Callable[[int, int], bytes]
"""(position, size) → that many bytes of the file, fewer only at its end."""
OnProblem = Callable[[str], None]
"""Called with each problem that does not keep the walk from going on."""

PAGE: Final = struct.Struct("=QHHHH")
_ROOT: Final = struct.Struct("=IIQQ48s48sQQ")
_TREE: Final = struct.Struct("=IHHQQQQQ")
TREE_BYTES: Final = _TREE.size
_MAGIC: Final = 0xBEEFC0DE
_VERSION: Final = 1
_LEAST_PAGE_BYTES: Final = 512
_LARGEST_PAGE_BYTES: Final = 1 << 16
_META: Final = 0x08
_FREE_TREE_FLAGS: Final = (0x08, 0x4008)
"""Keys that are integers; and that the environment is a file and no folder."""
_DEPTH_MAX: Final = 32
_NO_PAGE: Final = 2**64 - 1
_FIRST_PAGE: Final = 2
"""The number of the first page after the two roots."""
_BEYOND_BYTES: Final = 1 << 30
"""The most that the last page may lie beyond the end of the file. LMDB does not write pages that
one transaction allocates and frees."""


class PagesDamaged(Exception):
    """Raised when the file is not what LMDB writes."""


def raise_problem(problem: str) -> None:
    """Raise every problem as ``PagesDamaged``."""
    raise PagesDamaged(problem)


class Tree(NamedTuple):
    """A tree of pages, with the numbers of pages and entries that it must have."""

    flags: int
    depth: int
    branch_pages: int
    leaf_pages: int
    overflow_pages: int
    entries: int
    root: int

    @property
    def is_empty(self) -> bool:
        return self.root == _NO_PAGE

    @classmethod
    def unpack(cls, packed: bytes) -> "Tree":
        """Return the tree of a named database, from its value.

        Raises:
            PagesDamaged: The value is no tree, or one of a kind that is not used here.
        """
        if len(packed) != _TREE.size:
            raise PagesDamaged(f"the tree of a named database has {len(packed)} bytes")
        tree = cls(*_TREE.unpack(packed)[1:])
        tree.check((0,))
        return tree

    def check(self, flags: tuple[int, ...]) -> None:
        if self.flags not in flags:
            raise PagesDamaged(f"a tree is of kind {self.flags:#x}")
        if self.depth > _DEPTH_MAX:
            raise PagesDamaged(f"its tree is said to be {self.depth} levels deep")
        if self.is_empty != (self.depth == 0) or self.is_empty != (self.entries == 0):
            raise PagesDamaged(
                f"a tree {self.depth} levels deep is said to have {self.entries} entries"
            )


class DatabaseRoot(NamedTuple):
    """The root of a commit."""

    page_bytes: int
    free: Tree
    main: Tree
    last_page: int
    """The number of the last page."""
    transaction: int
    file_bytes: int

    @property
    def used_bytes(self) -> int:
        """The bytes of the file that LMDB has ever used."""
        return (self.last_page + 1) * self.page_bytes


def read_roots(read_at: ReadAt, file_bytes: int) -> tuple[DatabaseRoot, DatabaseRoot]:
    """Return (older, newer) root. LMDB goes on from the newer one.

    LMDB writes the two in turn, each transaction the next number, so a number that was damaged
    shows; otherwise LMDB would silently go on from an older commit.

    Raises:
        PagesDamaged: A root is not valid, or the two are not of successive commits.
    """
    first = _root(read_at(0, PAGE_HEADER_BYTES + _ROOT.size), 0, file_bytes)
    page_bytes = first.page_bytes
    second = _root(read_at(page_bytes, PAGE_HEADER_BYTES + _ROOT.size), 1, file_bytes)
    if second.page_bytes != page_bytes:
        raise PagesDamaged(
            f"its roots say that pages have {page_bytes} and {second.page_bytes} bytes"
        )
    numbers = first.transaction, second.transaction
    if abs(numbers[0] - numbers[1]) != 1:
        raise PagesDamaged(
            f"its two roots are of commits {numbers[0]} and {numbers[1]}, not of one and the next"
        )
    if numbers[0] % 2:
        raise PagesDamaged(f"its roots of commits {numbers[0]} and {numbers[1]} are exchanged")
    return (first, second) if numbers[0] < numbers[1] else (second, first)


def _root(page: bytes, number: int, file_bytes: int) -> DatabaseRoot:
    if len(page) < PAGE_HEADER_BYTES + _ROOT.size:
        raise PagesDamaged(f"truncated: {len(page)} bytes of a root are left")
    found, _, kind, _, _ = PAGE.unpack_from(page)
    magic, version, _, _, free, main, last_page, transaction = _ROOT.unpack_from(
        page, PAGE_HEADER_BYTES
    )
    if (found, kind, magic, version) != (number, _META, _MAGIC, _VERSION):
        raise PagesDamaged("it does not begin as LMDB files do")
    page_bytes, *free_fields = _TREE.unpack(free)
    is_power = page_bytes & (page_bytes - 1) == 0
    if not _LEAST_PAGE_BYTES <= page_bytes <= _LARGEST_PAGE_BYTES or not is_power:
        raise PagesDamaged(f"its pages are said to have {page_bytes} bytes")
    if last_page * page_bytes > file_bytes + _BEYOND_BYTES:
        raise PagesDamaged(f"it is said to have {last_page + 1} pages, in {file_bytes} bytes")
    free_tree, main_tree = Tree(*free_fields), Tree(*_TREE.unpack(main)[1:])
    free_tree.check(_FREE_TREE_FLAGS)
    main_tree.check((0,))
    return DatabaseRoot(page_bytes, free_tree, main_tree, last_page, transaction, file_bytes)


class PageMap:
    """The pages of a commit that are used. It makes sure that none is used twice."""

    def __init__(self, root: DatabaseRoot) -> None:
        self._root = root
        self._used = bytearray(root.last_page + 1)
        self._used[:_FIRST_PAGE] = b"\1" * _FIRST_PAGE

    def check_bounds(self, first: int, pages: int) -> None:
        """Check that pages are in the file.

        Raises:
            PagesDamaged: They are not.
        """
        root = self._root
        if first < _FIRST_PAGE or first + pages > root.last_page + 1:
            raise PagesDamaged(f"pages {first} to {first + pages - 1} of {root.last_page + 1}")
        end_bytes = (first + pages) * root.page_bytes
        if end_bytes > root.file_bytes:
            raise PagesDamaged(
                f"truncated: {root.file_bytes} of {end_bytes} bytes or more are left"
            )

    def use(self, first: int, pages: int, on_problem: OnProblem) -> None:
        """Mark pages as used."""
        if pages == 1:
            if self._used[first]:
                on_problem(f"page {first} is used twice")
            self._used[first] = 1
            return
        if self._used.find(1, first, first + pages) >= 0:
            on_problem(f"of pages {first} to {first + pages - 1} some are used twice")
        self._used[first : first + pages] = b"\1" * pages

    def free(self, numbers: tuple[int, ...], on_problem: OnProblem) -> None:
        """Mark pages as free. They may lie beyond the end of the file."""
        for number in numbers:
            if not _FIRST_PAGE <= number < len(self._used):
                on_problem(f"free page {number} of {len(self._used)}")
            elif self._used[number]:
                on_problem(f"page {number} is free and used, or free twice")
            else:
                self._used[number] = 1
