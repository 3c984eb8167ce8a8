"""Cases: one request each, with an id by which it can be sent alone, in an order from a seed."""

import random
import struct
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from bench.hostile_requests.layouts import api_name, layout_of
from bench.hostile_requests.shapes import Shape, shapes_of
from quorate.broker.kafka.connection.requests import Api

Role = Literal["nobody", "root", "stranger"]
"""nobody: logged in, without any right. root: a super user. stranger: not logged in."""

SIZES: Final[Mapping[str, int]] = {
    "100m": 100 << 20, "10m": 10_000_000, "1m": 1_000_000, "100k": 100_000, "10k": 10_000,
    "1k": 1_000,
}  # fmt: skip
"""Frames, by the name that they have in an id; the first is the limit."""
SMALL: Final = "small"
LOGIN_APIS: Final = frozenset({17, 18, 36})
"""The APIs that a broker serves to a client that has not logged in."""
LOGIN_SIZE: Final = "64k"
_LOGIN_FRAME_BYTES: Final = 65_000
"""The size of a frame just below sasl.server.max.receive.size, in bytes."""
_HEADER: Final = struct.Struct(">hhi")
CORRELATION_ID: Final = 7


@dataclass(frozen=True)
class Case:
    """One request: API, version, shape, size and sender."""

    key: int
    version: int
    shape: Shape
    size: str
    role: Role

    @property
    def api(self) -> str:
        return api_name(self.key)

    @property
    def id(self) -> str:
        return f"{self.api}/{self.version}/{self.shape.name}/{self.size}/{self.role}"

    def frame(self) -> bytes:
        """The bytes to send, size included."""
        limit = {**SIZES, LOGIN_SIZE: _LOGIN_FRAME_BYTES, SMALL: 0}[self.size]
        parts = self.shape.make(limit - _HEADER.size - 64)
        is_flexible = layout_of(self.key, self.version).flexible
        header = _HEADER.pack(self.key, self.version, CORRELATION_ID)
        header += struct.pack(">h", len(parts.client_id)) + parts.client_id
        rest = (parts.header_tags if is_flexible else b"") + parts.body
        return b"".join((struct.pack(">i", len(header) + len(rest)), header, rest))


def cases_of(
    api: Api, *, versions: Collection[int], sizes: Sequence[str], roles: Collection[Role]
) -> Iterator[Case]:
    """Every shape of these versions, in these sizes, from these clients."""
    for version in versions:
        for shape in shapes_of(api.key, version):
            for role in roles:
                for size in sizes if shape.is_large else (SMALL,):
                    yield Case(api.key, version, shape, size, role)
            if api.key in LOGIN_APIS:
                size = LOGIN_SIZE if shape.is_large else SMALL
                yield Case(api.key, version, shape, size, "stranger")


def in_order(cases: Sequence[Case], seed: int) -> list[Case]:
    """The cases in an order that the seed decides."""
    shuffled = sorted(cases, key=lambda case: case.id)
    random.Random(seed).shuffle(shuffled)
    return shuffled
