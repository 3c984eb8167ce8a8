"""The metadata log as changes: from the oldest state on, in frames, and never with a gap."""

import json
from collections.abc import Sequence
from typing import Any

import grpc
import pytest

from quorate.broker.admin import metadata_change_frame as change_frames
from quorate.broker.admin.metadata_history import MetadataHistory
from quorate.broker.admin.metadata_view_service import MetadataViewService
from quorate.common.types import MetadataOffset, TopicPartition
from quorate.metadata_log.codec import decode_transaction
from quorate.metadata_log.image import Image
from quorate.metadata_log.records import ConfigSet
from quorate.metadata_log.tree.history import ALL_KINDS, history
from quorate.quorum.quorum_errors import QuorumUnavailable
from quorate_proto.v1 import admin_pb2
from tests.support.acls import ALL_RIGHTS
from tests.support.metadata import MetadataLogBuilder
from tests.support.metadata_voter import Voter


@pytest.fixture
def log() -> MetadataLogBuilder:
    log = MetadataLogBuilder()
    for broker_id in (1, 2, 3):
        log.start_broker(broker_id)
    log.elect_controller(1)
    log.create_topic("orders", *[(1, 2)] * 5)
    for partition in range(5):
        tp = TopicPartition("orders", partition)
        log.reassign(tp, replicas=(1, 2, 3), target=(2, 3))
    log.write_as_controller(
        ConfigSet(entity_type="topic", entity_name="orders", key="a", value="1"),
        ConfigSet(entity_type="topic", entity_name="orders", key="b", value="2"),
        ConfigSet(entity_type="topic", entity_name="orders", key="a", value=None),
    )
    log.stop_broker(3)
    return log


async def read(
    voter: Voter, start: int, end: int, kinds: frozenset[str] = ALL_KINDS
) -> list[admin_pb2.MetadataChanges]:
    return await go_on(MetadataHistory(voter, voter), start, end, kinds)


async def go_on(
    history: MetadataHistory, start: int, end: int, kinds: frozenset[str] = ALL_KINDS
) -> list[admin_pb2.MetadataChanges]:
    frames = history.changes(MetadataOffset(start), MetadataOffset(end), kinds)
    return [frame async for frame in frames]


def rows(frames: Sequence[admin_pb2.MetadataChanges]) -> list[tuple[object, ...]]:
    """Offset, record, kind, key, old and new of each row."""
    return [
        (
            frame.offsets[row],
            frame.record_indexes[row],
            frame.record_types[frame.record_type_of[row]],
            frame.keys[row],
            frame.olds[row],
            frame.news[row],
        )
        for frame in frames
        for row in range(len(frame.offsets))
    ]


def expected(log: MetadataLogBuilder, start: int, end: int) -> list[tuple[object, ...]]:
    image = Image()
    found: list[tuple[object, ...]] = []
    for offset, encoded in log.entries:
        image, changes = history(image, offset, decode_transaction(encoded))
        found += [
            (
                change.offset,
                change.record_index,
                change.kind,
                change.key,
                (change.old or b"").decode(),
                (change.new or b"").decode(),
            )
            for change in changes
            if start <= offset < end
        ]
    return found


@pytest.mark.parametrize("rows_max", [1, 3, 1_000])
@pytest.mark.parametrize(("start", "end"), [(0, 100), (5, 6), (9, 14), (1, 9)])
async def test_a_range_is_told_whole_however_it_is_cut(
    log: MetadataLogBuilder, start: int, end: int, rows_max: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(change_frames, "ROWS_MAX", rows_max)
    end = min(end, log.image.offset + 1)
    for per_event in (1, 2, 100):
        frames = await read(Voter(log, per_event=per_event), start, end)
        assert rows(frames) == expected(log, start, end)
        assert not frames[0].offsets
        assert frames[0].first_offset == max(1, start)
        assert frames[-1].next_offset == end
        assert max(len(frame.offsets) for frame in frames) <= rows_max
        for frame in frames:
            assert all(offset <= frame.next_offset for offset in frame.offsets)


async def test_reading_begins_where_the_log_does(log: MetadataLogBuilder) -> None:
    voter = Voter(log, compacted=10)
    end = log.image.offset + 1
    frames = await read(voter, 3, end)
    assert frames[0].first_offset == 11
    assert rows(frames) == expected(log, 11, end)
    reader = MetadataHistory(voter, voter)
    offsets = await reader.offsets(latest_only=False)
    assert (offsets.earliest_offset, offsets.latest_offset) == (11, end)
    assert offsets.cluster_id == "a-cluster"
    assert (await reader.offsets(latest_only=True)).earliest_offset == 0


async def test_a_log_that_is_compacted_meanwhile_is_no_gap(log: MetadataLogBuilder) -> None:
    voter = Voter(log)
    voter.appears = [log.image]
    with pytest.raises(QuorumUnavailable, match="compacted up to offset"):
        await read(voter, 1, log.image.offset + 1)


async def test_a_reader_that_comes_back_goes_on_from_where_it_ended(
    log: MetadataLogBuilder,
) -> None:
    """Also where the log has been compacted since, as long as the journal has what is next."""
    voter, end = Voter(log), log.image.offset + 1
    reader = MetadataHistory(voter, voter)
    assert rows(await go_on(reader, 3, 9)) == expected(log, 3, 9)
    voter.compacted, voter.journal_from = 12, 9
    await go_on(reader, 13, 14)
    assert voter.asked[-1].from_offset == 9
    frames = await go_on(reader, 14, end)
    assert (frames[0].first_offset, rows(frames)) == (14, expected(log, 14, end))
    assert [request.from_offset for request in voter.asked] == [0, 9, 14]
    frames = await go_on(reader, 13, end)
    assert voter.asked[-1].from_oldest
    assert rows(frames) == expected(log, 13, end)
    await go_on(reader, 13, 14)
    log.delete_topic("orders")
    assert rows(await go_on(reader, end, end + 1)) == expected(log, end, end + 1)
    assert voter.asked[-1].from_offset == end


async def test_a_reader_that_comes_back_too_late_is_told_where_the_log_begins(
    log: MetadataLogBuilder,
) -> None:
    voter, end = Voter(log), log.image.offset + 1
    reader = MetadataHistory(voter, voter)
    await go_on(reader, 3, 9)
    voter.compacted, voter.journal_from = 12, 13
    frames = await go_on(reader, 9, end)
    assert [frame.first_offset for frame in frames if frame.first_offset] == [9, 13]
    assert rows(frames) == expected(log, 13, end)


async def test_what_a_reader_left_is_forgotten(log: MetadataLogBuilder) -> None:
    voter = Voter(log)
    reader = MetadataHistory(voter, voter)
    await go_on(reader, 3, 9)
    reader._kept._forget()
    await go_on(reader, 9, 10)
    assert voter.asked[-1].from_oldest


async def test_what_is_not_written_yet_is_not_waited_for(log: MetadataLogBuilder) -> None:
    last = log.image.offset
    with pytest.raises(QuorumUnavailable, match=f"above {last} are not written yet"):
        await read(Voter(log), 1, last + 2)


async def test_leaves_authors_and_configurations_point_at_their_rows(
    log: MetadataLogBuilder,
) -> None:
    frames = await read(Voter(log, per_event=1_000), 1, log.image.offset + 1)
    (frame,) = [frame for frame in frames if frame.offsets]
    after = frame.after
    leaves = {
        (frame.offsets[row], frame.keys[row]): (
            leader,
            epoch,
            list(after.lists[replicas].ids),
            list(after.lists[isr].ids),
        )
        for row, leader, epoch, replicas, isr in zip(
            after.rows, after.leaders, after.leader_epochs, after.replicas, after.isrs, strict=True
        )
    }
    every_row = range(len(frame.offsets))
    created = next(row for row in every_row if _is(frame, row, "topic_created"))
    offset = frame.offsets[created]
    assert leaves[offset, "/brokers/topics/orders/4/leaderAndISR"] == (1, 0, [1, 2], [1, 2])
    assert leaves[offset + 5, "/brokers/topics/orders/4/leaderAndISR"] == (1, 1, [1, 2, 3], [1, 2])
    moved = [row for row in every_row if _is(frame, row, "partition_reassignment")]
    assert set(frame.before.rows) == {row for row in moved if frame.keys[row].endswith("ISR")}
    assert len(frame.before.lists) == 1
    configs = [
        (
            frame.keys[one.row],
            one.key,
            one.old if one.HasField("old") else None,
            one.new if one.HasField("new") else None,
        )
        for one in frame.configs
    ]
    key = "/config/topic/orders"
    assert configs == [(key, "a", None, "1"), (key, "b", None, "2"), (key, "a", "1", None)]
    assert json.loads(frame.olds[frame.configs[2].row]) == {"a": "1", "b": "2"}
    epochs = {frame.authors[frame.author_of[row]].controller_epoch for row in moved}
    assert epochs == {1}
    assert frame.brokers[-1] == 3


def _is(frame: admin_pb2.MetadataChanges, row: int, kind: str) -> bool:
    return frame.record_types[frame.record_type_of[row]] == kind


class Aborted(Exception):
    pass


class Context:
    async def abort(self, code: grpc.StatusCode, details: str) -> None:
        raise Aborted(code, details)


async def test_unknown_record_types_are_refused_by_name(log: MetadataLogBuilder) -> None:
    context: Any = Context()
    view = MetadataViewService(Voter(log), Voter(log), lambda: ALL_RIGHTS)
    with pytest.raises(Aborted, match="'isr_chang': did you mean 'isr_change'"):
        await view.MetadataOffsets(
            admin_pb2.MetadataOffsetsRequest(record_types=["isr_chang"]), context
        )
    request = admin_pb2.MetadataChangesRequest(record_types=["?"], end_offset=5)
    with pytest.raises(Aborted, match="unknown record type"):
        [frame async for frame in view.ReadMetadataChanges(request, context)]
