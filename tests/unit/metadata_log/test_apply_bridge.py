"""Inter-broker protocol 1: brokers write administration by themselves, one at a time (F6)."""

import msgspec
import pytest

from quorate.common.types import BrokerId, MetadataOffset
from quorate.metadata_log.image import INTER_BROKER_PROTOCOL, METADATA_VERSION
from quorate.metadata_log.paths import ADMINISTRATION, broker_path
from quorate.metadata_log.records import (
    AtVersion,
    ChangeNote,
    Condition,
    ConfigSet,
    FeatureLevel,
    Operation,
    ProducerIdBlock,
    Record,
    ResultCode,
)
from quorate.metadata_log.snapshot.snapshot import decode_snapshot, encode_snapshot
from tests.support.metadata import MetadataLogBuilder

NOTE = ChangeNote(principal="User:ann", client_host="h", client_id="c", api="AlterConfigs")


def config(value: str, key: str = "k") -> ConfigSet:
    return ConfigSet(entity_type="topic", entity_name="orders", key=key, value=value)


class Bridge:
    """Brokers 1 and 2, of which 1 is the controller, at ``level``."""

    def __init__(self, level: int | None = 1) -> None:
        self.log = MetadataLogBuilder()
        for broker_id in (1, 2):
            self.log.start_broker(broker_id)
        self.log.elect_controller(1)
        if level is not None:
            self.log.write_as_controller(FeatureLevel(name=INTER_BROKER_PROTOCOL, level=level))

    def epoch_of(self, broker_id: int) -> int:
        return self.log.image.brokers[BrokerId(broker_id)].epoch

    def write(
        self, *records: Record, seen: int | None = None, broker_epoch: int | None = None
    ) -> ResultCode:
        """As broker 2, on what it has seen."""
        if seen is None:
            seen = self.log.image.administered
        epoch = self.epoch_of(2) if broker_epoch is None else broker_epoch
        path = broker_path(BrokerId(2))
        conditions: tuple[Condition, ...] = (
            AtVersion(path=ADMINISTRATION, version=seen),
            AtVersion(path=path, version=epoch),
        )
        operation = Operation(records=records, conditions=conditions)
        return self.log.transact(operation, atomic=False).results[0].code


def test_f6_at_level_1_a_live_broker_writes_by_itself() -> None:
    bridge = Bridge()
    assert bridge.write(NOTE, config("1")) is ResultCode.OK
    assert dict(bridge.log.image.config("topic", "orders")) == {"k": "1"}
    assert bridge.log.image.administered == bridge.log.image.offset


@pytest.mark.parametrize("level", [2, None])
def test_f6_at_level_2_the_controller_alone_does(level: int | None) -> None:
    bridge = Bridge(level)
    assert bridge.write(config("1")) is ResultCode.CONTROLLER_FENCED
    assert bridge.log.write_as_controller(config("2")).ok
    assert dict(bridge.log.image.config("topic", "orders")) == {"k": "2"}


def test_f6_the_level_may_be_raised_between_decision_and_write() -> None:
    bridge = Bridge()
    seen = bridge.log.image.administered
    assert bridge.log.write_as_controller(FeatureLevel(name=INTER_BROKER_PROTOCOL, level=2)).ok
    assert bridge.write(config("1"), seen=seen) is ResultCode.CONTROLLER_FENCED


def test_f6_no_broker_overwrites_what_it_has_not_seen() -> None:
    bridge = Bridge()
    seen = bridge.log.image.administered
    assert bridge.log.write_as_controller(config("theirs")).ok
    assert bridge.write(config("mine"), seen=seen) is ResultCode.CONDITION_FAILED
    assert dict(bridge.log.image.config("topic", "orders")) == {"k": "theirs"}
    assert bridge.write(config("mine")) is ResultCode.OK


def test_f6_topics_come_and_go_without_overtaking_anybody() -> None:
    bridge = Bridge()
    seen = bridge.log.image.administered
    bridge.log.create_topic("t", (1, 2))
    assert bridge.log.write_as_controller(NOTE, ProducerIdBlock(next_producer_id=5)).ok
    assert bridge.write(config("1"), seen=seen) is ResultCode.OK


def test_f6_a_broker_that_is_gone_writes_nothing() -> None:
    bridge = Bridge()
    epoch = bridge.epoch_of(2)
    bridge.log.stop_broker(2)
    assert bridge.write(config("1"), broker_epoch=epoch) is ResultCode.CONDITION_FAILED
    bridge.log.start_broker(2, incarnation=1)
    assert bridge.write(config("1"), broker_epoch=epoch) is ResultCode.CONDITION_FAILED


@pytest.mark.parametrize("missing", [ADMINISTRATION, "/brokers/ids/2"])
def test_f6_without_both_of_its_conditions_a_broker_writes_nothing(missing: str) -> None:
    bridge = Bridge()
    conditions = (
        AtVersion(path=ADMINISTRATION, version=bridge.log.image.administered),
        AtVersion(path="/brokers/ids/2", version=bridge.epoch_of(2)),
    )
    left = tuple(one for one in conditions if one.path != missing)
    operation = Operation(records=(config("1"),), conditions=left)
    assert bridge.log.transact(operation, atomic=False).results[0].code is ResultCode.INVALID


def test_f6_what_was_always_the_controllers_stays_its_own() -> None:
    assert Bridge().write(ProducerIdBlock(next_producer_id=5)) is ResultCode.INVALID


def test_b4_older_voters_know_nothing_of_the_bridge_and_so_there_is_none() -> None:
    """They refuse such a write as INVALID and keep no /administration: all must do the same."""
    bridge = Bridge()
    features = bridge.log.image.features.set(METADATA_VERSION, 2)
    bridge.log.image = msgspec.structs.replace(bridge.log.image, features=features)
    assert bridge.write(config("1")) is ResultCode.INVALID
    assert bridge.log.write_as_controller(config("1")).ok
    assert bridge.log.image.administered == 0


def test_p11_what_is_compared_survives_a_snapshot() -> None:
    bridge = Bridge()
    bridge.write(config("1"))
    bridge.log.create_topic("t", (1, 2))
    image = bridge.log.image
    assert MetadataOffset(0) < image.administered < image.offset
    assert decode_snapshot(encode_snapshot(image)) == image
