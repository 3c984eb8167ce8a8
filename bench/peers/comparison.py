"""Rows of figures side by side, with Quorate's share of each peer's."""

from collections.abc import Mapping, Sequence
from typing import Final

from bench._support import Bench, Cell

QUORATE: Final = "quorate"
"""The name of Quorate as it is by default: with mutual TLS between voters and towards clients."""
PLAIN: Final = "quorate plain"
ETCD: Final = "etcd"
ETCD_BARE: Final = "etcd bare"
ZOOKEEPER: Final = "ZooKeeper"
ZOOKEEPER_BARE: Final = "ZooKeeper bare"

_CONTESTANTS: Final = (QUORATE, PLAIN, ETCD, ETCD_BARE, ZOOKEEPER, ZOOKEEPER_BARE)
_COMPARED: Final = (ETCD, ZOOKEEPER)


class Comparison:
    """The table of one run: a row per figure, a column per contestant."""

    def __init__(self, bench: Bench) -> None:
        self._bench = bench
        ratios = [f"x {peer}" for peer in _COMPARED]
        bench.column_order = ["figure", *_CONTESTANTS, *ratios, "goal"]

    def row(
        self,
        figure: str,
        measured: Mapping[str, float],
        goal: str = "",
        *,
        compared: Sequence[str] = _COMPARED,
    ) -> None:
        """``measured``: by contestant, those left out that lack it; ``compared``: the ratios."""
        ours = measured.get(QUORATE)
        cells: dict[str, Cell] = dict(measured)
        for peer in compared:
            theirs = measured.get(peer)
            if ours is not None and theirs:
                cells[f"x {peer}"] = round(ours / theirs, 2)
        if goal:
            cells["goal"] = goal
        self._bench.row({"figure": figure}, cells)
