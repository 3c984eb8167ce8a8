"""What is done once in each Python worker."""

import gc
from collections.abc import Iterator

import pytest

from quorate.spark.reading.batch_reader import REUSED_WORKER, prepare_worker


@pytest.fixture(autouse=True)
def _fresh_process() -> Iterator[None]:
    """Let nothing be frozen, as in a new process; the run's own objects are frozen again after
    that."""
    prepare_worker.cache_clear()
    gc.unfreeze()
    yield
    gc.freeze()
    prepare_worker.cache_clear()


def test_a_worker_that_is_used_again_keeps_imports_out_of_garbage_collection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(REUSED_WORKER, "1")
    prepare_worker()
    frozen = gc.get_freeze_count()
    assert frozen > 1000  # nothing was frozen before: all that this process has imported
    kept = [[] for _ in range(1000)]  # type: ignore[var-annotated]
    prepare_worker()
    assert gc.get_freeze_count() <= frozen
    assert len(kept) == 1000


def test_other_processes_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(REUSED_WORKER, raising=False)
    prepare_worker()
    assert gc.get_freeze_count() == 0
