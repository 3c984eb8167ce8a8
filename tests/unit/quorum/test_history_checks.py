"""The checks of the kill test refuse what they must: each against a history with one lie in it."""

import random
from dataclasses import replace

import pytest

from tests.support.history import (
    Effect,
    Jumped,
    Kind,
    Op,
    Outcome,
    Seen,
    Started,
    Verdict,
    check_against_log,
    check_watch,
)
from tests.support.linearizability import is_linearizable


def write(at: int, token: int, *, until: int | None = None, outcome: Outcome = Outcome.OK) -> Op:
    """Called and answered at offset times ten, unless told otherwise."""
    return Op(
        kind=Kind.WRITE,
        key=f"w{token}",
        invoked=at * 10,
        returned=at * 10 + 5 if until is None else until,
        outcome=outcome,
        offset=at,
        token=token,
    )


def cas(
    at: int, token: int, expected: int, *, outcome: Outcome = Outcome.OK, times: str = ""
) -> Op:
    invoked, returned = map(int, times.split("-")) if times else (at * 10, at * 10 + 5)
    return Op(
        kind=Kind.CAS,
        key="r",
        invoked=invoked,
        returned=returned,
        outcome=outcome,
        offset=at,
        token=token,
        expected=expected,
        version=expected + 1,
    )


def read(at: int, version: int, token: int, *, times: str = "") -> Op:
    invoked, returned = map(int, times.split("-")) if times else (at * 10, at * 10 + 5)
    return Op(
        kind=Kind.READ,
        key="r",
        invoked=invoked,
        returned=returned,
        outcome=Outcome.OK,
        offset=at,
        token=token,
        version=version,
    )


GOOD_OPS = [
    write(1, 101),
    cas(2, 102, 0),
    cas(3, 103, 0, outcome=Outcome.REFUSED),
    read(3, 1, 102),
    cas(4, 104, 1),
    read(5, 2, 104),
    write(6, 105, outcome=Outcome.UNKNOWN),
    write(7, 106, outcome=Outcome.UNKNOWN),
    write(8, 107, outcome=Outcome.NOT_APPLIED),
]
GOOD_LOG = [
    Effect(1, "w101", 101, 1),
    Effect(2, "r", 102, 1),
    Effect(4, "r", 104, 2),
    Effect(9, "w105", 105, 1),
]


def verdict(ops: list[Op], log: list[Effect]) -> Verdict:
    return check_against_log(random.sample(ops, len(ops)), log)


def test_truthful_history_passes() -> None:
    assert verdict(GOOD_OPS, GOOD_LOG) == Verdict([], lost=0, twice=0, resolved=1)


def test_lost_write_is_found() -> None:
    found = verdict(GOOD_OPS, GOOD_LOG[1:])
    assert found.lost == 1
    assert "no offset" in found.violations[0]


def test_write_at_another_offset_than_acknowledged_is_found() -> None:
    assert verdict(GOOD_OPS, [Effect(0, "w101", 101, 1), *GOOD_LOG[1:]]).lost == 1


def test_double_apply_is_found() -> None:
    found = verdict(GOOD_OPS, [*GOOD_LOG, Effect(10, "w101", 101, 2)])
    assert found.twice == 1


def test_double_apply_of_an_unknown_outcome_is_found() -> None:
    assert verdict(GOOD_OPS, [*GOOD_LOG, Effect(10, "w105", 105, 2)]).twice == 1


@pytest.mark.parametrize("token", [103, 107])
def test_refused_write_in_the_log_is_found(token: int) -> None:
    assert verdict(GOOD_OPS, [*GOOD_LOG, Effect(11, f"w{token}", token, 1)]).violations


def test_write_of_nobody_is_found() -> None:
    assert verdict(GOOD_OPS, [*GOOD_LOG, Effect(11, "x", 999, 1)]).violations == [
        "nobody wrote 999"
    ]


def test_write_before_one_that_was_answered_earlier_is_found() -> None:
    early, late = write(5, 201), write(4, 202)
    ops = [early, replace(late, invoked=60, returned=65)]
    log = [Effect(4, "w202", 202, 1), Effect(5, "w201", 201, 1)]
    assert "was answered before it began" in verdict(ops, log).violations[0]


def test_concurrent_writes_may_be_in_any_order() -> None:
    ops = [write(5, 201, until=99), replace(write(4, 202), invoked=60, returned=65)]
    log = [Effect(4, "w202", 202, 1), Effect(5, "w201", 201, 1)]
    assert verdict(ops, log).violations == []


def test_unknown_outcome_applied_before_its_call_is_found() -> None:
    ops = [write(5, 201), write(6, 202, outcome=Outcome.UNKNOWN)]
    log = [Effect(3, "w202", 202, 1), Effect(5, "w201", 201, 1)]
    assert verdict(ops, log).violations


def test_stale_read_is_found() -> None:
    """It answers with a state that is older than what was answered before it began."""
    stale = read(3, 1, 102, times="60-65")
    assert "answered before it began" in verdict([*GOOD_OPS[:5], stale], GOOD_LOG[:3]).violations[0]


def test_read_offset_of_a_deposed_leader_is_found() -> None:
    """It covers less than what was answered before it was asked for."""
    fence = replace(read(3, 0, 0, times="60-65"), kind=Kind.FENCE)
    assert "answered before it began" in verdict([*GOOD_OPS[:5], fence], GOOD_LOG[:3]).violations[0]
    assert verdict([*GOOD_OPS[:5], replace(fence, offset=4)], GOOD_LOG[:3]).violations == []


def test_read_of_another_value_is_found() -> None:
    assert verdict([*GOOD_OPS, read(9, 2, 102, times="90-95")], GOOD_LOG).violations


def test_broken_chain_of_versions_is_found() -> None:
    broken = [GOOD_LOG[0], GOOD_LOG[1], Effect(4, "r", 104, 3), GOOD_LOG[3]]
    assert any("version 3 at 4 follows 1" in each for each in verdict(GOOD_OPS, broken).violations)


def test_compare_and_set_that_should_have_been_refused_is_found() -> None:
    ops = [cas(2, 102, 0), cas(4, 104, 0)]
    log = [Effect(2, "r", 102, 1), Effect(4, "r", 104, 2)]
    assert "met" in verdict(ops, log).violations[0]


def test_compare_and_set_that_should_have_been_taken_is_found() -> None:
    ops = [cas(2, 102, 0), cas(4, 104, 1, outcome=Outcome.REFUSED)]
    assert "met" in verdict(ops, [Effect(2, "r", 102, 1)]).violations[0]


# --- without offsets ----------------------------------------------------------------------------


def test_truthful_register_is_linearizable() -> None:
    assert is_linearizable([op for op in GOOD_OPS if op.key == "r"])


@pytest.mark.parametrize(
    ("why", "ops"),
    [
        ("stale read", [cas(1, 1, 0), read(2, 0, 0)]),
        ("lost write", [cas(1, 1, 0), cas(2, 2, 0)]),
        ("refused without a reason", [cas(1, 1, 0), cas(2, 2, 1, outcome=Outcome.REFUSED)]),
        ("read of what nobody wrote", [read(1, 1, 7)]),
        (
            "two readers disagree on the order",
            [
                cas(1, 1, 0, times="0-90"),
                read(2, 1, 1, times="10-20"),
                read(3, 0, 0, times="30-40"),
            ],
        ),
        (
            "unknown outcome takes effect before its call",
            [read(1, 1, 1, times="0-5"), cas(2, 1, 0, outcome=Outcome.UNKNOWN, times="10-11")],
        ),
        (
            "effect of what was surely not applied",
            [cas(1, 1, 0, outcome=Outcome.NOT_APPLIED), read(2, 1, 1)],
        ),
    ],
)
def test_lie_about_a_register_is_found(why: str, ops: list[Op]) -> None:
    assert not is_linearizable(ops), why


def test_unknown_outcome_may_take_effect_late_or_never() -> None:
    unknown = cas(1, 1, 0, outcome=Outcome.UNKNOWN, times="0-1")
    assert is_linearizable([unknown, read(5, 0, 0), read(6, 1, 1)])
    assert is_linearizable([unknown, read(5, 0, 0), cas(6, 2, 0)])
    assert not is_linearizable([unknown, read(5, 1, 1), read(6, 0, 0)])


def test_register_with_many_concurrent_calls_is_decided() -> None:
    """Twelve at a time for two hundred calls, from a register that is linearizable by making."""
    chance = random.Random(7)
    ops: list[Op] = []
    version, token = 0, 0
    for at in range(200):
        took_effect = 100 + at * 10
        times = f"{took_effect - chance.randint(1, 60)}-{took_effect + chance.randint(1, 60)}"
        if chance.random() < 0.5:
            ops.append(read(at, version, token, times=times))
        else:
            version, token = version + 1, at + 1
            ops.append(cas(at, token, version - 1, times=times))
    assert is_linearizable(chance.sample(ops, len(ops)))
    at = next(number for number, op in enumerate(ops) if op.kind is Kind.READ and number > 150)
    ops[at] = read(at, 3, 999, times=f"{100 + at * 10}-{105 + at * 10}")
    assert not is_linearizable(ops)


# --- watches ------------------------------------------------------------------------------------

LOG = [2, 3, 5, 8, 9, 12]


@pytest.mark.parametrize(
    "seen",
    [
        [Started(1), 2, 3, 5, 8, 9, 12],
        [Started(5), 5, 8],
        [Started(4), 5],
        [Started(1), 2, 3, Started(4), 5],
        [Started(1), 2, Jumped(8), 9, 12],
        [Started(1), 2, 3, Jumped(3), 5],
        [Started(0), Jumped(9), 12, Started(13), Jumped(12)],
        [Started(8), Jumped(5), 8],
    ],
)
def test_truthful_watch_passes(seen: list[Seen]) -> None:
    assert check_watch(seen, LOG) == []


@pytest.mark.parametrize(
    ("seen", "why"),
    [
        ([Started(1), 2, 5], "3 to 3 are skipped"),
        ([Started(1), 3], "2 to 2 are skipped"),
        ([Started(1), 2, 3, 3], "repeated"),
        ([Started(1), 2, 3, 2], "repeated"),
        ([Started(1), 2, 3, Started(4), 3], "repeated"),
        ([Started(1), 2, 3, Started(4), 8], "5 to 5 are skipped"),
        ([Started(1), 2, Jumped(8), 8], "repeated"),
        ([Started(1), 2, Jumped(5), 9], "8 to 8 are skipped"),
        ([Started(1), 2, 3, 5, Jumped(3), 5], "a snapshot of 3 after 5"),
        ([Started(1), 2, 3, 4], "not in the log"),
    ],
)
def test_watch_that_skips_or_repeats_is_found(seen: list[Seen], why: str) -> None:
    assert why in "; ".join(check_watch(seen, LOG))
