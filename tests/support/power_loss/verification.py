"""Whether a log folder that a power loss left keeps what was promised."""

import asyncio
from pathlib import Path
from unittest.mock import patch

from quorate.broker.log import LogCallbacks, LogManager, PartitionLog
from quorate.broker.log.options import Flush
from quorate.broker.log.recovery.examination import examine
from quorate.common.types import LeaderEpoch
from tests.support.power_loss.load import held, key_of, options
from tests.support.power_loss.promises import (
    NEITHER,
    PRODUCING,
    WRITTEN,
    Promise,
    Promises,
    Said,
    payload,
    slot_of,
)

_BOOT = "the boot after the power loss"
_LATER_EPOCH = 1 << 30


def check(directory: Path, flush: Flush, promises: Promises, *, thoroughly: bool) -> None:
    """Open it, compare; ``thoroughly``: use it, close it, open it again, have it verified too.

    Raises:
        AssertionError: a promise is broken.
        Exception: it does not open, or cannot be read.
    """
    with patch("quorate.broker.log.log_manager.current_boot_id", lambda: _BOOT):
        asyncio.run(_check(directory, flush, promises, go_on=thoroughly))
        if thoroughly:
            problems = examine(directory).problems
            assert not problems, f"after a clean end: {problems}"
            asyncio.run(_check(directory, flush, promises, go_on=False))
            assert not examine(directory).problems


async def _check(directory: Path, flush: Flush, promises: Promises, *, go_on: bool) -> None:
    changed = asyncio.Event()
    failures: list[Exception] = []

    def failed(error: Exception) -> None:
        failures.append(error)
        changed.set()

    store = await LogManager.open(
        directory, options(flush), LogCallbacks(lambda _: changed.set(), failed)
    )
    try:
        _compare(store, flush, promises)
        if go_on:
            store.loss_handled()
            for log in store.logs.values():
                _send_again(log)
                _go_on(log, promises)
            while any(log.flushed_offset < log.log_end_offset for log in store.logs.values()):
                assert not failures, failures
                changed.clear()
                await changed.wait()
            for log in store.logs.values():
                promises.logs[key_of(log)].durable_end = log.log_end_offset
            promises.loss_is_settled = True
    finally:
        await store.close()


def _compare(store: LogManager, flush: Flush, promises: Promises) -> None:
    if flush == "sync" and promises.loss_is_settled:
        assert not store.log_may_be_lost, "a synced store says that batches may be lost"
    logs = {key_of(log): log for log in store.logs.values()}
    may_lack = flush == "os" and store.log_may_be_lost
    for key, promise in promises.logs.items():
        log = logs.pop(key, None)
        if log is None:
            assert not promise.must_exist, f"{key} is gone"
        else:
            assert promise.may_exist, f"{key} was deleted and is there again"
            _compare_log(log, promise, may_lack=may_lack)
    assert not logs, f"nobody created {logs}"


def _compare_log(log: PartitionLog, promise: Promise, *, may_lack: bool) -> None:
    start, end = log.log_start_offset, log.log_end_offset
    assert start in promise.starts, f"{log} may begin at {promise.starts}"
    least = promise.sealed_end if may_lack else promise.durable_end
    assert end >= least, f"{log} was durable to {least}"
    at = start
    epochs: dict[int, int] = {}
    for base_offset, last_offset, epoch, version in held(log):
        assert base_offset == at or base_offset < at == start, f"{log}: a gap at {at}"
        allowed = promise.may_hold.get(base_offset, set())
        what = f"{log}: {base_offset} to {last_offset} of epoch {epoch}"
        assert version != NEITHER, f"{what}: other bytes than were written"
        found = (last_offset, epoch, version)
        assert found in allowed, f"{what}, version {version}; only {allowed} may be there"
        epochs.setdefault(epoch, max(base_offset, start))
        at = last_offset + 1
    assert at == end, f"{log}: its batches end at {at}"
    known = [entry for entry in log.leader_epochs.entries if entry[1] < end]
    assert known == list(epochs.items()), f"{log}: epochs {known}, its batches say {epochs}"


def _send_again(log: PartitionLog) -> None:
    """The last batch of an idempotent producer is known."""
    key = key_of(log)
    if slot_of(key) % PRODUCING == 0 or log.log_start_offset == log.log_end_offset:
        return
    base_offset, last_offset, epoch, _ = held(log)[-1]
    appended = log.append_as_leader(payload(key, base_offset, epoch), LeaderEpoch(epoch))
    assert appended[:2] == (base_offset, last_offset), f"{log}: took a batch twice: {appended}"


def _go_on(log: PartitionLog, promises: Promises) -> None:
    key, base_offset = key_of(log), log.log_end_offset
    appended = log.append_as_leader(
        payload(key, base_offset, _LATER_EPOCH), LeaderEpoch(_LATER_EPOCH)
    )
    batch = (base_offset, appended.last_offset, _LATER_EPOCH, WRITTEN)
    promise = promises.logs[key]
    promise.note(Said("append", key, batches=[batch]))
    promise.must_exist = True
    promise.starts = {log.log_start_offset}
