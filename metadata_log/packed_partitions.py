"""The partitions of a topic in some twenty bytes each, for voters: they hold millions and read few.

A leaf as an object takes a hundred bytes. So a voter makes one when it is read, out of blocks of
bytes. A changed leaf lies over its block as an object, and goes into the block when the next
snapshot is written, which reads all blocks anyway.

What a ``PackedPartitions`` says never changes; how it is held does. A snapshot is encoded in
another thread than the one that applies, so one assignment replaces the whole state.
"""

import functools
import operator
import struct
from array import array
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple, cast, overload

import immutables

from quorate.common.types import BrokerId
from quorate.metadata_log.partitions import Partition, interned

BLOCK: Final = 2_000
"""Partitions in one block, and in one record of a snapshot."""


class Columns(NamedTuple):
    """Consecutive partitions, field by field. Broker lists are given as numbers of ``lists``."""

    lists: list[tuple[BrokerId, ...]]
    replicas: list[int]
    leaders: list[int]
    leader_epochs: list[int]
    isrs: list[int]
    controller_ids: list[int]
    controller_epochs: list[int]
    versions: list[int]

    def used_lists(self) -> set[int]:
        """Return the numbers of the lists that some partition has."""
        return {*self.replicas, *self.isrs}

    def replace(self, leaves: Mapping[int, Partition]) -> None:
        """Put other leaves in the place of some."""
        for place, leaf in leaves.items():
            self.replicas[place] = len(self.lists)
            self.isrs[place] = len(self.lists) + 1
            self.lists.extend((leaf.replicas, leaf.isr))
            self.leaders[place] = leaf.leader
            self.leader_epochs[place] = leaf.leader_epoch
            self.controller_ids[place] = leaf.controller_id
            self.controller_epochs[place] = leaf.controller_epoch
            self.versions[place] = leaf.version


# --- one block: ``layout u8 | partitions u16 | room u32``, then column after column --------
#
# The columns are leaders, controller ids, leader epochs, controller epochs, versions, replica lists
# and ISRs, in the machine's byte order: a block stays in its process. Every list takes the room of
# the longest one.


class _Layout(NamedTuple):
    """The types of the numbers in a block, as ``array`` names them."""

    leader: str
    epoch: str
    version: str
    member: str
    nobody: int
    """Fills up lists; no member of a list in this layout."""


_LAYOUTS: Final = (
    _Layout("h", "H", "I", "h", -(1 << 15)),
    _Layout("i", "i", "q", "q", -(1 << 63)),
)
"""The narrow layout, of 24 bytes per partition with three replicas, and one for any numbers."""

_HEAD: Final = struct.Struct("=BHI")


_LISTS_KEPT: Final = 65_536
"""Packed lists that a ``Packer`` keeps, about. With 1,000 brokers few of them are met again."""


class Packer:
    """Makes blocks of columns that share one table of broker lists, which may grow meanwhile."""

    def __init__(self, lists: Sequence[tuple[BrokerId, ...]]) -> None:
        """Create the packer of all columns with these ``lists``."""
        self._table = lists
        self._packed: dict[tuple[_Layout, int], dict[int, bytes]] = {}
        """The lists that were packed, by layout and room, and then by number."""

    def pack(self, columns: Columns) -> bytes:
        """Return a block of these partitions, at most ``BLOCK``.

        Raises:
            IndexError: the columns name a list that is not in their table.
            ValueError: a number is too large for any layout, and so for any record.
        """
        assert columns.lists is self._table, "the numbers are of another table"
        used = columns.used_lists()
        room = max([len(self._table[number]) for number in used], default=0)
        refused: Exception | None = None
        for number, layout in enumerate(_LAYOUTS):
            try:
                head = _HEAD.pack(number, len(columns.leaders), room)
                packed = self._lists(used, layout, room)
                return b"".join((head, *_packed(columns, layout, packed)))
            except (OverflowError, struct.error) as error:
                refused = error
        raise ValueError(f"partitions that no block holds: {refused}")

    def _lists(self, used: set[int], layout: _Layout, room: int) -> dict[int, bytes]:
        packed = self._packed.setdefault((layout, room), {})
        form = struct.Struct(f"={room}{layout.member}")
        nobody = layout.nobody
        if len(packed) > _LISTS_KEPT:
            packed.clear()
        for number in used:
            if number in packed:
                continue
            members = self._table[number]
            if nobody in members:
                raise OverflowError(f"broker {nobody} fills up lists in this layout")
            packed[number] = form.pack(*members, *(nobody,) * (room - len(members)))
        return packed


def _packed(
    columns: Columns, layout: _Layout, packed: Mapping[int, bytes]
) -> Iterator["bytes | array[int]"]:
    yield array(layout.leader, columns.leaders)
    yield array(layout.leader, columns.controller_ids)
    yield array(layout.epoch, columns.leader_epochs)
    yield array(layout.epoch, columns.controller_epochs)
    yield array(layout.version, columns.versions)
    replicas = b"".join(map(packed.__getitem__, columns.replicas))
    yield replicas
    is_same = columns.isrs == columns.replicas
    yield replicas if is_same else b"".join(map(packed.__getitem__, columns.isrs))


class _Form(NamedTuple):
    """The places of all columns in the blocks of one head."""

    layout: _Layout
    partitions: int
    places: tuple[tuple[int, struct.Struct], ...]
    """The offset of each column, and the form of one value in it."""


@functools.lru_cache(maxsize=4_096)
def _form(head: bytes) -> _Form:
    number, count, room = _HEAD.unpack(head)
    layout = _LAYOUTS[number]
    leader, epoch = struct.Struct(f"={layout.leader}"), struct.Struct(f"={layout.epoch}")
    version, members = struct.Struct(f"={layout.version}"), struct.Struct(f"={room}{layout.member}")
    places, at = [], _HEAD.size
    for one in (leader, leader, epoch, epoch, version, members, members):
        places.append((at, one))
        at += count * one.size
    return _Form(layout, count, tuple(places))


def size_of(block: bytes) -> int:
    """Return the number of partitions in the block."""
    return _form(block[: _HEAD.size]).partitions


def leaf_of(block: bytes, place: int) -> Partition:
    """Return one partition of the block."""
    layout, _, places = _form(block[: _HEAD.size])
    found = [one.unpack_from(block, at + place * one.size) for at, one in places]
    (leader,), (controller_id,), (leader_epoch,), (controller_epoch,), (version,) = found[:5]
    replicas = interned(_members(found[5], layout.nobody))
    isr = replicas if found[6] == found[5] else interned(_members(found[6], layout.nobody))
    return Partition(replicas, leader, leader_epoch, isr, controller_id, controller_epoch, version)


def unpack(block: bytes) -> Columns:
    """Return all partitions of the block."""
    layout, count, places = _form(block[: _HEAD.size])

    def numbers(place: int, code: str) -> list[int]:
        at, one = places[place]
        found: array[int] = array(code, block[at : at + count * one.size])
        return found.tolist()

    known: dict[bytes, int] = {}
    replicas = _numbered(known, block, places[5], count)
    begin, end = places[5][0], places[6][0]
    is_same = block[begin:end] == block[end:]
    isrs = replicas.copy() if is_same else _numbered(known, block, places[6], count)
    members = places[5][1]
    return Columns(
        lists=[_members(members.unpack(key), layout.nobody) for key in known],
        replicas=replicas,
        leaders=numbers(0, layout.leader),
        leader_epochs=numbers(2, layout.epoch),
        isrs=isrs,
        controller_ids=numbers(1, layout.leader),
        controller_epochs=numbers(3, layout.epoch),
        versions=numbers(4, layout.version),
    )


def _numbered(
    known: dict[bytes, int], block: bytes, place: tuple[int, struct.Struct], count: int
) -> list[int]:
    """Return the numbers of the lists in one column; ``known`` has those of all that were met."""
    at, one = place
    width = one.size
    return [
        known.setdefault(block[begin : begin + width], len(known))
        for begin in (range(at, at + count * width, width) if width else [at] * count)
    ]


def _members(padded: tuple[int, ...], nobody: int) -> tuple[BrokerId, ...]:
    members = padded[: padded.index(nobody)] if nobody in padded else padded
    return cast("tuple[BrokerId, ...]", members)


def columns_of(leaves: Sequence[Partition]) -> Columns:
    """Return the leaves, field by field."""
    known: dict[tuple[BrokerId, ...], int] = {}
    replicas = [known.setdefault(leaf.replicas, len(known)) for leaf in leaves]
    isrs = [known.setdefault(leaf.isr, len(known)) for leaf in leaves]
    return Columns(
        [*known],
        replicas,
        [leaf.leader for leaf in leaves],
        [leaf.leader_epoch for leaf in leaves],
        isrs,
        [leaf.controller_id for leaf in leaves],
        [leaf.controller_epoch for leaf in leaves],
        [leaf.version for leaf in leaves],
    )


def leaves_of(columns: Columns) -> list[Partition]:
    """Return the partitions as leaves."""
    lists = columns.lists
    replicas = [lists[number] for number in columns.replicas]
    isrs = [lists[number] for number in columns.isrs]
    numbers = columns.leaders, columns.leader_epochs
    of_controllers = columns.controller_ids, columns.controller_epochs, columns.versions
    return list(map(Partition, replicas, *numbers, isrs, *of_controllers))


# --- the partitions of a topic ------------------------------------------------------------------

_Block = bytes | tuple[Partition, ...]
"""A block, or the leaves that will be one."""

_UNCHANGED: Final["immutables.Map[int, Partition]"] = immutables.Map()


class PackedPartitions(Sequence[Partition]):
    """The partitions of a topic, number by number, as a tuple of leaves would be."""

    __slots__ = ("_count", "_last", "_state")

    def __init__(
        self,
        blocks: tuple[_Block, ...],
        count: int,
        changed: "immutables.Map[int, Partition]" = _UNCHANGED,
    ) -> None:
        """Create them. There is at least one block; all but the last have ``BLOCK`` partitions."""
        self._count = count
        self._state = blocks, changed
        self._last: tuple[int, Partition] | None = None
        """The last leaf that was made out of a block: the rules look at a leaf several times."""

    @classmethod
    def of(cls, leaves: Sequence[Partition]) -> "PackedPartitions":
        """Take the leaves as they are: the next snapshot packs them."""
        starts = range(0, max(1, len(leaves)), BLOCK)
        return cls(tuple(tuple(leaves[at : at + BLOCK]) for at in starts), len(leaves))

    @classmethod
    def of_blocks(cls, blocks: Sequence[bytes]) -> "PackedPartitions":
        """Take blocks of any sizes; where only the last is not full, as they are."""
        sizes = list(map(size_of, blocks))
        if any(size != BLOCK for size in sizes[:-1]):
            return cls.of([leaf for block in blocks for leaf in leaves_of(unpack(block))])
        return cls(tuple(blocks), sum(sizes))

    def replaced(self, leaves: Mapping[int, Partition]) -> "PackedPartitions":
        """Return the same partitions with some other leaves."""
        blocks, changed = self._state
        return PackedPartitions(blocks, self._count, changed.update(leaves))

    def blocks(self) -> Iterator[Columns]:
        """Yield all partitions, block by block. Once all are read, each is held as a block."""
        blocks, changed = self._state
        over: dict[int, dict[int, Partition]] = {}
        for number, leaf in changed.items():
            over.setdefault(number // BLOCK, {})[number % BLOCK] = leaf
        packed: list[_Block] = []
        for number, block in enumerate(blocks):
            columns = columns_of(block) if isinstance(block, tuple) else unpack(block)
            if number in over:
                columns.replace(over[number])
            if number in over or isinstance(block, tuple):
                block = Packer(columns.lists).pack(columns)
            packed.append(block)
            yield columns
        self._state = tuple(packed), _UNCHANGED

    # -- as a tuple of leaves --------------------------------------------------------------------

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, index: int) -> Partition: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Partition, ...]: ...
    def __getitem__(self, index: int | slice) -> Partition | tuple[Partition, ...]:
        if isinstance(index, slice):
            return tuple(self)[index]
        blocks, changed = self._state
        leaf = changed.get(index)
        if leaf is not None:
            return leaf
        if not 0 <= index < self._count:
            if -self._count <= index < 0:
                return self[index + self._count]
            raise IndexError(index)
        block = blocks[index // BLOCK]
        if isinstance(block, tuple):
            return block[index % BLOCK]
        last = self._last
        if last is None or last[0] != index:
            last = self._last = index, leaf_of(block, index % BLOCK)
        return last[1]

    def __iter__(self) -> Iterator[Partition]:
        blocks, changed = self._state
        number = 0
        for block in blocks:
            for leaf in block if isinstance(block, tuple) else leaves_of(unpack(block)):
                yield changed.get(number, leaf)
                number += 1

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, PackedPartitions | tuple):
            return NotImplemented
        return len(self) == len(other) and all(map(operator.eq, self, other))

    def __hash__(self) -> int:
        return hash(tuple(self))

    def __repr__(self) -> str:
        return f"PackedPartitions({list(self)})"
