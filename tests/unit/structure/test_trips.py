"""Counting the files of a trip: what counts as a file, a move, a caller, and an excess."""

import json
import os
from collections.abc import Sequence
from pathlib import Path
from types import CodeType

import pytest

from tests.structure.counting import (
    Event,
    Function,
    Passage,
    files_of,
    follow,
    more_than_half,
    read_window,
    summarise,
)
from tests.structure.probe.sitecustomize import Probe, name_in_product
from tests.structure.trips import Count, Trip, as_json, listing, table

LOOP = "event loop"
AT = ("broker", "tests")


def enter(file: str, name: str, frame: int, thread: str = LOOP) -> Event:
    return Event(thread, Function(file, name), frame)


def leave(frame: int, thread: str = LOOP) -> Event:
    return Event(thread, None, frame)


def passage(*files: str) -> Passage:
    """A window in which the event loop calls one function of each file, one after the other."""
    return follow(
        event
        for frame, file in enumerate(files)
        for event in (enter(file, "handle", frame), leave(frame))
    )


def test_calls_and_returns_are_moves_between_files() -> None:
    followed = follow(
        [
            enter("a.py", "handle", 1),
            enter("a.py", "helper", 2),
            leave(2),
            enter("b.py", "store", 3),
            leave(3),
            leave(1),
        ]
    )
    assert followed.moves == 2
    assert list(followed.visits) == ["a.py", "b.py"]
    assert followed.visits["a.py"].calls == {"handle": 1, "helper": 1}
    assert followed.visits["a.py"].caller == "(event loop)"
    assert followed.visits["b.py"].caller == "a.py"


def test_two_callbacks_of_one_file_are_no_move() -> None:
    assert passage("a.py", "a.py").moves == 0
    assert passage("a.py", "b.py").moves == 1


def test_threads_move_independently() -> None:
    followed = follow(
        [
            enter("a.py", "handle", 1),
            enter("w.py", "write", 2, "log-writer"),
            leave(1),
            leave(2, "log-writer"),
        ]
    )
    assert followed.moves == 0
    assert followed.visits["w.py"].caller == "(log-writer)"


def test_a_frame_from_before_the_window_is_not_on_the_stack() -> None:
    followed = follow([leave(9), enter("a.py", "handle", 1), leave(8), leave(1)])
    assert followed.visits["a.py"].caller == "(event loop)"
    assert followed.moves == 0


def test_leaving_a_frame_leaves_what_is_above_it() -> None:
    followed = follow(
        [
            enter("a.py", "handle", 1),
            enter("b.py", "thrown_into", 2),
            leave(1),
            enter("c.py", "next_callback", 3),
        ]
    )
    assert followed.visits["c.py"].caller == "(event loop)"


@pytest.mark.parametrize(("windows", "least"), [(1, 1), (2, 2), (3, 2), (15, 8)])
def test_more_than_half(windows: int, least: int) -> None:
    assert more_than_half(windows) == least


def test_a_file_of_few_windows_does_not_count() -> None:
    passages = [passage("a.py", "b.py"), passage("a.py", "tick.py", "b.py"), passage("a.py")]
    summary = summarise(passages, more_than_half(3))
    assert [row.file for row in summary.rows] == ["a.py", "b.py"]
    assert summary.moves == 1


def test_rows_have_the_median_of_calls_and_the_usual_functions() -> None:
    often = follow([enter("a.py", "handle", 1), leave(1), enter("a.py", "retry", 1), leave(1)])
    summary = summarise([passage("a.py"), often, passage("a.py", "a.py")], least=2)
    (row,) = summary.rows
    assert row.functions == (("handle", 1),)
    assert row.calls == 2


def test_a_file_in_two_processes_counts_once() -> None:
    receiver = summarise([passage("a.py", "b.py")], least=1)
    controller = summarise([passage("b.py", "c.py")], least=1)
    assert files_of([receiver, controller]) == {"a.py", "b.py", "c.py"}


def count(limit: int | None, files: Sequence[str]) -> Count:
    def begin(*_: object) -> None:
        raise AssertionError("nothing is started")

    summary = summarise([passage(*files)], least=1)
    return Count(Trip("produce", begin, limit), {"leader": summary})  # type: ignore[arg-type]


def test_a_limit_is_exceeded_by_one_file_more() -> None:
    assert count(2, ["a.py", "b.py"]).excess is None
    assert count(None, ["a.py", "b.py"]).excess is None
    excess = count(1, ["a.py", "b.py"]).excess
    assert excess is not None
    assert "produce passes through 2 files; at most 1 are allowed" in excess
    assert "--list produce" in excess


def test_what_is_printed_names_every_file() -> None:
    counted = count(25, ["a.py", "b.py"])
    assert table([counted]).splitlines()[1].split() == ["produce", "2", "1", "25", "25"]
    listed = listing(counted)
    assert "a.py  <- (event loop)" in listed
    assert "1 x handle" in listed
    assert as_json(counted)["files"] == 2


def test_a_linked_file_has_one_name(tmp_path: Path) -> None:
    root = Path(os.path.realpath(tmp_path))
    (root / "broker").mkdir()
    (root / "quorate").mkdir()
    (root / "broker" / "node.py").touch()
    (root / "quorate" / "broker").symlink_to("../broker")
    names = [
        name_in_product(str(root / path), str(root))
        for path in ("broker/node.py", "quorate/broker/node.py", "tests/node.py")
    ]
    assert names == ["broker/node.py", "broker/node.py", None]
    assert name_in_product("<string>", str(root)) is None


class _Frame:
    """What the probe looks at of a frame."""

    def __init__(self, code: CodeType) -> None:
        self.f_code = code


def test_the_probe_records_the_product_alone_and_only_while_it_is_open(tmp_path: Path) -> None:
    root = Path(os.path.realpath(tmp_path))
    inside, outside = (compile("def run(): ...", str(root / at / "a.py"), "exec") for at in AT)
    probe = Probe(root)
    probe.profile(_Frame(inside), "call", None)  # type: ignore[arg-type]
    probe.open()
    for code in (inside, outside):
        for event in ("call", "c_call", "return"):
            probe.profile(_Frame(code), event, None)  # type: ignore[arg-type]
    entered, left = read_window(json.loads(json.dumps(probe.close())))
    assert entered.function == Function("broker/a.py", "<module>")
    assert left.function is None
    assert probe.close()["events"] == []
