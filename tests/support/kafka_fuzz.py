"""Kafka requests that no client would send: valid ones, damaged, to every API in every version."""

import random
import struct
from collections.abc import Callable, Mapping
from typing import Any

from quorate.broker.kafka.connection.requests import Api
from tests.support.kafka_wire import request_body, request_frame

Damage = Callable[[random.Random, bytearray], None]

_EXTREMES = [
    struct.pack(">i", number) for number in (-1, -2, 0, 1, 0x7FFF, 1 << 20, 0x7FFFFFFF, -0x80000000)
] + [b"\xff" * 5, b"\x80\x80\x80\x80\x08", b"\x00", b"\x7f\xff"]


def _flip(chance: random.Random, data: bytearray) -> None:
    for _ in range(chance.randint(1, 4)):
        data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)


def _cut(chance: random.Random, data: bytearray) -> None:
    del data[chance.randrange(len(data)) :]


def _overwrite(chance: random.Random, data: bytearray) -> None:
    at, extreme = chance.randrange(len(data)), chance.choice(_EXTREMES)
    data[at : at + len(extreme)] = extreme


def _repeat(chance: random.Random, data: bytearray) -> None:
    start = chance.randrange(len(data))
    end = min(len(data), start + chance.randint(1, 40))
    data[start:start] = data[start:end] * chance.randint(1, 20)


def _noise(chance: random.Random, data: bytearray) -> None:
    at = chance.randrange(len(data))
    data[at:at] = chance.randbytes(chance.randint(1, 40))


_DAMAGES: tuple[Damage, ...] = (_flip, _cut, _overwrite, _repeat, _noise)


class Fuzzer:
    """Frames without their sizes, the same for the same seed.

    ``bodies``: a valid body of each API, in kio's words; APIs without one get noise.
    """

    def __init__(
        self, seed: int, apis: Mapping[int, Api], bodies: Mapping[int, dict[str, Any]]
    ) -> None:
        self._chance = random.Random(seed)
        self.cases = [
            (key, version)
            for key, api in sorted(apis.items())
            for version in range(api.min_version, api.max_version + 1)
        ]
        self._bodies = bodies
        self._made: dict[tuple[int, int], bytes] = {}
        self._headers: dict[tuple[int, int], bytes] = {}

    def frame(self, case: tuple[int, int]) -> bytes:
        """A damaged request of that API and version."""
        chance = self._chance
        if chance.random() < 0.1:
            body = bytearray(chance.randbytes(chance.randint(0, 60)))
        else:
            body = bytearray(self._valid(case))
            for _ in range(chance.randint(1, 3)):
                if body:
                    chance.choice(_DAMAGES)(chance, body)
        frame = bytearray(self._header(case)) + body
        if chance.random() < 0.05:
            chance.choice(_DAMAGES)(chance, frame)
        return bytes(frame)

    def _header(self, case: tuple[int, int]) -> bytes:
        if case not in self._headers:
            self._headers[case] = request_frame(*case, b"")
        return self._headers[case]

    def _valid(self, case: tuple[int, int]) -> bytes:
        if case not in self._made:
            try:
                self._made[case] = request_body(*case, self._bodies.get(case[0], {}))
            except Exception:  # noqa: BLE001 - kio has no such version, or wants other fields
                self._made[case] = self._chance.randbytes(40)
        return self._made[case]
