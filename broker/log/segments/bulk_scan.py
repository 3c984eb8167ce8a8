"""Reads the contents of a sound segment, a leaf page at a time.

A segment is scanned whenever it is full, beside the event loop, so this must not take long. The
nodes of a page, their keys and the headers of their batches are each read by one call, which takes
a third of the time of reading them one by one. Everything that ``SegmentFile.scan`` checks is
checked here too. What is not as it should be, or is of an earlier format, is not judged here:
``Unusual`` leaves the whole file to a scan that can tell of it.
"""

import struct
from collections.abc import Callable, Sequence
from itertools import compress
from operator import add
from typing import Final

from quorate.broker.log.batches.control_batches import EndMarker, decode_marker
from quorate.broker.log.batches.record_batch import (
    HEADER_BYTES,
    MAGIC,
    BatchHeader,
    check_of,
    read_headers,
)
from quorate.broker.log.segments.segment_contents import SegmentContents, StoredEpoch
from quorate.broker.log.segments.segment_keys import (
    CHECK,
    EPOCHS,
    FORMAT,
    IDENTITY_KEY,
    IDENTITY_VALUE,
    KEY,
    LAST_NUMBER,
    epoch_of,
    epoch_start,
)
from quorate.common.files.lmdb_check import check_free_pages
from quorate.common.files.lmdb_pages import (
    PAGE_HEADER_BYTES,
    DatabaseRoot,
    PageMap,
    PagesDamaged,
    ReadAt,
)
from quorate.common.files.lmdb_tree import (
    IS_OVERFLOWING,
    NODE,
    OVERFLOW,
    OVERFLOW_PAGE,
    PAGE_NUMBER,
    Leaf,
    TreeWalk,
)

_KEYED_NODE: Final = struct.Struct(f"{NODE.format}{KEY.size}s")
_VALUE_AT: Final = _KEYED_NODE.size
_HEAD: Final = struct.Struct(f"{OVERFLOW_PAGE.format}{HEADER_BYTES}s")
"""The first of the overflow pages of a batch, up to the end of the batch's header."""
_NODES_AT_ONCE: Final = 256
"""The number of nodes whose batches are read together, of one page or of several: a batch has at
least two."""
_NODES_PER_LEAF: Final = 20
"""The number of nodes that cost as much as a page does, however many nodes it has."""
_NODES_PER_BREATH: Final = 500


class Unusual(Exception):
    """Raised when the file is damaged, or is not a segment of the newest format."""


def scan_in_bulk(
    read_at: ReadAt,
    root: DatabaseRoot,
    contents: SegmentContents,
    breathe: Callable[[], None],
) -> None:
    """Fill ``contents``, which are empty, with all that is in the file of their segment.

    ``breathe`` is called after about every millisecond of work.

    Raises:
        Unusual: ``SegmentFile.scan`` may find out more; what is in ``contents`` is of no use.
    """
    try:
        pages = PageMap(root)
        walk = TreeWalk(read_at, root, root.main, pages)
        scan = _BulkScan(read_at, root, walk, contents)
        work = 0
        for leaf in walk.leaves():
            scan.take(leaf)
            if scan.has_many:
                scan.use_whole_batches()
            work += len(leaf.offsets) + _NODES_PER_LEAF
            if work >= _NODES_PER_BREATH:
                breathe()
                work = 0
        scan.finish()
        check_free_pages(read_at, root, pages)
    except (PagesDamaged, struct.error, OverflowError) as error:
        raise Unusual(str(error)) from error


class _BulkScan:
    """The nodes that were read and not used yet: by key, up to the piece of a batch whose check is
    on the next page."""

    def __init__(
        self, read_at: ReadAt, root: DatabaseRoot, walk: TreeWalk, contents: SegmentContents
    ) -> None:
        self._read_at = read_at
        self._root = root
        self._walk = walk
        self._contents = contents
        self._keys: list[bytes] = []
        self._sizes: list[int] = []
        self._positions: list[int] = []
        self._starts: list[bytes] = []
        """The beginning of each value, as long as the header of a batch."""
        self._is_identified = False
        self._enough = _NODES_AT_ONCE

    @property
    def has_many(self) -> bool:
        """Whether there are enough nodes to use them."""
        return len(self._keys) >= self._enough

    def take(self, leaf: Leaf) -> None:
        """Read the nodes of a leaf page."""
        page, offsets = leaf.page, leaf.offsets
        nodes = [_KEYED_NODE.unpack_from(page, at) for at in offsets]
        sizes, flags, key_sizes, keys = zip(*nodes, strict=True)
        if set(key_sizes) != {KEY.size} or not {0, IS_OVERFLOWING}.issuperset(flags):
            raise Unusual(f"page {leaf.number} has a node of another kind")
        if not min(sizes):
            raise Unusual(f"page {leaf.number} has a node without a value")
        values_at = [at + _VALUE_AT for at in offsets]
        stored = [
            PAGE_NUMBER.size if flag else size for size, flag in zip(sizes, flags, strict=True)
        ]
        ends = [*map(add, values_at, stored)]
        if max(ends) > len(page):
            raise Unusual(f"a value reaches beyond page {leaf.number}")
        self._walk.check_leaf(leaf, dict(zip(offsets, ends, strict=True)), keys)
        of_page = leaf.number * self._root.page_bytes
        positions = [of_page + at for at in values_at]
        starts = [
            page[at : min(end, at + HEADER_BYTES)] for at, end in zip(values_at, ends, strict=True)
        ]
        if any(flags):
            self._read_heads(sizes, [*compress(range(len(flags)), flags)], positions, starts)
        self._keys += keys
        self._sizes += sizes
        self._positions += positions
        self._starts += starts

    def _read_heads(
        self,
        sizes: Sequence[int],
        overflowing: Sequence[int],
        positions: list[int],
        starts: list[bytes],
    ) -> None:
        """Read where the values at the places ``overflowing`` begin, whose ``starts`` are numbers
        of pages until now."""
        page_bytes, read_at = self._root.page_bytes, self._read_at
        firsts = [PAGE_NUMBER.unpack(starts[place])[0] for place in overflowing]
        needed = [-(-(PAGE_HEADER_BYTES + sizes[place]) // page_bytes) for place in overflowing]
        if min([sizes[place] for place in overflowing]) < HEADER_BYTES:
            raise Unusual("a value that would fit its page is on overflow pages")
        self._walk.use_overflow(firsts, needed)
        head = b"".join([read_at(first * page_bytes, _HEAD.size) for first in firsts])
        if len(head) != _HEAD.size * len(firsts):
            raise Unusual("an overflow page is not there")
        numbers, _, kinds, counts, begun = zip(*_HEAD.iter_unpack(head), strict=True)
        if [*numbers] != firsts or set(kinds) != {OVERFLOW} or [*counts] != needed:
            raise Unusual("a value is not on the overflow pages that its node names")
        for place, first, start in zip(overflowing, firsts, begun, strict=True):
            positions[place] = first * page_bytes + PAGE_HEADER_BYTES
            starts[place] = start

    def finish(self) -> None:
        """Use the last nodes, and check that nothing is left over."""
        self.use_whole_batches()
        if self._keys or not self._is_identified:
            raise Unusual("a batch has no end, or the segment no identity")

    def use_whole_batches(self) -> None:
        """Use what was read, up to the last check of a batch."""
        places = [*KEY.iter_unpack(b"".join(self._keys))]
        firsts: list[int] = []
        checks: list[int] = []
        used = at = 0
        while at < len(places):
            number, base_offset, chunk = places[at]
            if chunk:
                raise Unusual("a batch does not begin with its first piece")
            if number > LAST_NUMBER:
                self._note(at, number, base_offset)
                used = at = at + 1
                continue
            end = at + 1
            while end < len(places) and places[end] == (number, base_offset, end - at):
                end += 1
            if end == len(places):
                break
            if places[end] != (number, base_offset, CHECK):
                raise Unusual("a batch has no check")
            firsts.append(at)
            checks.append(end)
            used = at = end + 1
        if firsts:
            self._add_batches(places, firsts, checks)
        for read in (self._keys, self._sizes, self._positions, self._starts):
            del read[:used]
        # A batch of very many pieces is not looked at again for each page of its nodes.
        self._enough = max(_NODES_AT_ONCE, 2 * len(self._keys))

    def _note(self, at: int, number: int, packed: int) -> None:
        """Take in what is not a batch: the identity of the segment, or the start of an epoch."""
        key, size, start = self._keys[at], self._sizes[at], self._starts[at]
        if key == IDENTITY_KEY:
            if start != IDENTITY_VALUE.pack(FORMAT, self._contents.segment_id):
                raise Unusual("it is another segment, or of another format")
            self._is_identified = True
        elif number == EPOCHS:
            if size != len(start):
                raise Unusual("the start of an epoch is too long")
            try:
                start_offset = epoch_start(key, start)
            except ValueError as error:
                raise Unusual(str(error)) from error
            self._contents.epochs.append(StoredEpoch(*epoch_of(packed), start_offset))

    def _add_batches(
        self, places: Sequence[tuple[int, ...]], firsts: Sequence[int], ends: Sequence[int]
    ) -> None:
        """Check the headers of whole batches, and add them to the contents. ``ends`` are the places
        of their checks, each behind the last piece."""
        keys, starts, sizes = self._keys, self._starts, self._sizes
        begun = [starts[at] for at in firsts]
        checks = [check_of(keys[end], start) for end, start in zip(ends, begun, strict=True)]
        if checks != [starts[end] for end in ends]:
            raise Unusual("the check of a batch is not that of its header")
        if set(map(len, begun)) != {HEADER_BYTES}:
            raise Unusual("a batch is smaller than its header")
        headers = read_headers(b"".join(begun))
        totals = [
            sizes[at] if end == at + 1 else sum(sizes[at:end])
            for at, end in zip(firsts, ends, strict=True)
        ]
        told = [(MAGIC, size, places[at][1]) for at, size in zip(firsts, totals, strict=True)]
        if told != [(one.magic, one.size, one.base_offset) for one in headers]:
            raise Unusual("the header of a batch is not what was written")
        self._contents.extend(
            [places[at][0] for at in firsts],
            totals,
            [self._positions[at:end] for at, end in zip(firsts, ends, strict=True)],
            headers,
            self._markers(firsts, headers),
        )

    def _markers(
        self, firsts: Sequence[int], headers: Sequence[BatchHeader]
    ) -> dict[int, EndMarker]:
        """Return the markers in control batches, by the place of the batch in ``headers``."""
        markers: dict[int, EndMarker] = {}
        for place, header in enumerate(headers):
            if header.is_control:
                at = firsts[place]
                batch = self._read_at(self._positions[at], self._sizes[at])
                if len(batch) != self._sizes[at]:
                    raise Unusual("a control batch is not all there")
                marker = decode_marker(header, batch)
                if marker is not None:
                    markers[place] = marker
        return markers
