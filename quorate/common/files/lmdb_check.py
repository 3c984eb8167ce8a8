"""Checks a whole LMDB file before LMDB opens it, because LMDB itself checks next to nothing.

The file is read by ``pread``: damage is reported by an exception, never by a signal. Each page is
read once, so the time is bounded by the size of the file, and the memory is one byte per page.
"""

import os
import struct
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Final

from quorate.common.files.lmdb_pages import (
    TREE_BYTES,
    DatabaseRoot,
    OnProblem,
    PageMap,
    PagesDamaged,
    ReadAt,
    Tree,
    raise_problem,
    read_roots,
)
from quorate.common.files.lmdb_tree import IS_NAMED_TREE, TreeWalk

OnRow = Callable[[bytes, bytes, bytes], None]
"""Called with the name of a database, and the key and value of a row."""

_U64: Final = struct.Struct("=Q")


class LmdbDamaged(Exception):
    """An LMDB file that is not what LMDB writes. The message names the file and what is wrong."""

    def __init__(self, path: Path, problem: str) -> None:
        super().__init__(f"{path}: {problem}")
        self.path = path
        self.problem = problem


def check_lmdb_file(path: Path) -> DatabaseRoot:
    """Check both roots, all pages that the newer one uses, and that no free page is in use.

    Return the newer root, from which LMDB goes on.

    Raises:
        LmdbDamaged: The file is not what LMDB writes.
        OSError: It cannot be read.
    """
    with LmdbFile(path) as file:
        file.check()
        return file.newer


class LmdbFile(AbstractContextManager["LmdbFile"]):
    """An LMDB file, open for reading without LMDB. Nobody may write it meanwhile."""

    def __init__(self, path: Path) -> None:
        """Open the file and read its roots.

        Raises:
            LmdbDamaged: Its roots are not what LMDB writes.
            OSError: It cannot be read.
        """
        self.path = path
        self._descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            self.older, self.newer = read_roots(self._read_at, os.fstat(self._descriptor).st_size)
        except PagesDamaged as error:
            self.close()
            raise LmdbDamaged(path, str(error)) from error
        except BaseException:
            self.close()
            raise

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        os.close(self._descriptor)

    def check(self, on_row: OnRow | None = None) -> None:
        """Check what ``check_lmdb_file`` does. ``on_row`` gets every row of the named databases.

        Raises:
            LmdbDamaged: The file is not what LMDB writes.
        """
        root, pages = self.newer, PageMap(self.newer)
        try:
            for name, tree in self._trees(root, pages):
                if on_row is None:
                    for _ in TreeWalk(self._read_at, root, tree, pages).values():
                        pass
                else:
                    for key, value in self._rows(root, tree, pages):
                        on_row(name, key, value)
            check_free_pages(self._read_at, root, pages)
            check_free_pages(self._read_at, self.older, PageMap(self.older))
        except PagesDamaged as error:
            raise LmdbDamaged(self.path, str(error)) from error

    def rows(
        self, name: bytes | None = None, root: DatabaseRoot | None = None
    ) -> Iterator[tuple[bytes, bytes]]:
        """Yield (key, value) of the named database by key, or of the main one if there are none.

        ``root`` is the newer one unless another is given. A database that is not there has no rows.

        Raises:
            LmdbDamaged: The pages are not what LMDB writes.
        """
        of = root or self.newer
        pages = PageMap(of)
        try:
            tree = of.main if name is None else dict(self._trees(of, pages)).get(name)
            if tree is not None:
                yield from self._rows(of, tree, PageMap(of))
        except PagesDamaged as error:
            raise LmdbDamaged(self.path, str(error)) from error

    def _trees(self, root: DatabaseRoot, pages: PageMap) -> Iterator[tuple[bytes, Tree]]:
        """Yield (name, tree) of every named database."""
        walk = TreeWalk(
            self._read_at, root, root.main, pages, start_bytes=TREE_BYTES, has_named=True
        )
        for value in walk.values():
            if value.flags == IS_NAMED_TREE:
                yield value.key, Tree.unpack(value.start)

    def _rows(
        self, root: DatabaseRoot, tree: Tree, pages: PageMap
    ) -> Iterator[tuple[bytes, bytes]]:
        walk = TreeWalk(self._read_at, root, tree, pages, start_bytes=root.file_bytes)
        for value in walk.values():
            if len(value.start) < value.size:
                raise PagesDamaged(f"truncated: {len(value.start)} of {value.size} bytes are left")
            yield value.key, value.start

    def free_pages(self) -> Iterator[int]:
        """Yield the number of every free page, for tools and tests."""
        root = self.newer
        for _, numbers in _free_pages(self._read_at, root, PageMap(root), raise_problem):
            yield from numbers

    def _named(self, name: bytes, root: DatabaseRoot) -> Tree | None:
        walk = TreeWalk(
            self._read_at, root, root.main, PageMap(root), start_bytes=TREE_BYTES, has_named=True
        )
        for value in walk.values():
            if value.key == name and value.flags == IS_NAMED_TREE:
                return Tree.unpack(value.start)
        return None

    def _read_at(self, position: int, size: int) -> bytes:
        try:
            data = os.pread(self._descriptor, size, position)
            while len(data) < size:
                more = os.pread(self._descriptor, size - len(data), position + len(data))
                if not more:
                    break
                data += more
        except OSError as error:
            raise OSError(error.errno, error.strerror, str(self.path)) from error
        return data


def check_free_pages(
    read_at: ReadAt, root: DatabaseRoot, pages: PageMap, on_problem: OnProblem = raise_problem
) -> None:
    """Check the list of free pages: LMDB writes to them next. ``pages`` has those in use.

    LMDB notes under each transaction the pages that it freed. A note of a later transaction than
    the root's shows that the number of the root was damaged.

    Raises:
        PagesDamaged: The list is not what LMDB writes.
    """
    for transaction, numbers in [*_free_pages(read_at, root, pages, on_problem)]:
        if transaction > root.transaction:
            on_problem(
                f"the root of commit {root.transaction} has pages freed by commit {transaction}"
            )
        pages.free(numbers, on_problem)


def _free_pages(
    read_at: ReadAt, root: DatabaseRoot, pages: PageMap, on_problem: OnProblem
) -> Iterator[tuple[int, tuple[int, ...]]]:
    """Yield (transaction, numbers of the pages that it freed)."""
    for value in TreeWalk(read_at, root, root.free, pages, on_problem=on_problem).values():
        packed = read_at(value.position, value.size)
        if len(value.key) != _U64.size or len(packed) != value.size or value.size < _U64.size:
            raise PagesDamaged("its list of free pages is not what LMDB writes")
        (transaction,), (count,) = _U64.unpack(value.key), _U64.unpack_from(packed)
        if (count + 1) * _U64.size > value.size:
            raise PagesDamaged(f"{count} free pages are listed in {value.size} bytes")
        yield transaction, struct.unpack_from(f"={count}Q", packed, _U64.size)
