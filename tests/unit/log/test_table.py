"""The table of a log store: what two threads may do to it at once."""

from pathlib import Path
from typing import Any

import pytest

from quorate.broker.log.checkpoints.store_table import StoreTable


def test_segment_ids_are_never_given_out_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A segment is created ahead while an older one is recorded as synced, by another thread."""
    table = StoreTable.open(tmp_path)
    table.record_segments({4: False})
    environment = table._rows.environment

    class Overtaken:
        """Another thread's write gets in just before this one's."""

        def begin(self, *args: Any, **options: Any) -> Any:  # noqa: ANN401 - as lmdb has it
            if options.get("write"):
                monkeypatch.setattr(table._rows, "environment", environment)
                table.record_segments({5: False})
            return environment.begin(*args, **options)

    monkeypatch.setattr(table._rows, "environment", Overtaken())
    table.record_segments({4: True})
    assert table.last_segment_id() == 5
    assert table.segments() == {4: True, 5: False}
    table.close()
