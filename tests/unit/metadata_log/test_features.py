"""Feature levels: who may raise and lower them, and what they gate (B4)."""

import msgspec
import pytest

from quorate.common.types import NO_BROKER, BrokerId, ControllerEpoch, Endpoint
from quorate.metadata_log import features
from quorate.metadata_log.image import INTER_BROKER_PROTOCOL, METADATA_VERSION, Image
from quorate.metadata_log.records import (
    BrokerRegistration,
    ClientQuotaSet,
    ConfigSet,
    ControllerEpochIs,
    ControllerRemoved,
    FeatureLevel,
    IpQuotaSet,
    Operation,
    ResultCode,
    SessionClosed,
    SessionOpened,
)
from quorate.metadata_log.rules import table
from tests.support.metadata import MetadataLogBuilder, first_voter_set, session_of

PROTOCOL, METADATA = INTER_BROKER_PROTOCOL, METADATA_VERSION


@pytest.fixture
def log() -> MetadataLogBuilder:
    """Brokers 1 and 2; broker 1 is the controller."""
    log = MetadataLogBuilder(begun=False)
    for broker_id in (1, 2):
        log.start_broker(broker_id)
    log.elect_controller(1)
    return log


def register(log: MetadataLogBuilder, broker_id: int, **understood: int) -> tuple[ResultCode, str]:
    """A broker of other software than ours registers."""
    ours = log.image.brokers[BrokerId(1)].registration
    registration = msgspec.structs.replace(
        ours,
        broker_id=BrokerId(broker_id),
        session_id=session_of(broker_id),
        **understood,
    )
    log.write(SessionOpened(session_id=session_of(broker_id), timeout_ms=6_000))
    (result,) = log.write(registration).results
    return result.code, result.detail


def level(log: MetadataLogBuilder, name: str, level: int) -> tuple[ResultCode, str]:
    (result,) = log.write_as_controller(FeatureLevel(name=name, level=level)).results
    return result.code, result.detail


def test_b4_a_level_is_raised_and_is_in_force_at_once(log: MetadataLogBuilder) -> None:
    for wanted in (1, 2):
        assert level(log, PROTOCOL, wanted) == (ResultCode.OK, "")
        assert log.image.inter_broker_protocol == wanted
    assert dict(log.image.features) == {PROTOCOL: 2}


def test_b4_raising_waits_for_the_last_broker_that_does_not_understand(
    log: MetadataLogBuilder,
) -> None:
    assert register(log, 3, inter_broker_protocol_max=1)[0] is ResultCode.OK
    code, detail = level(log, PROTOCOL, 2)
    assert code is ResultCode.CONDITION_FAILED
    assert "broker 3 (1 at most)" in detail
    log.stop_broker(3)
    assert level(log, PROTOCOL, 2)[0] is ResultCode.OK


def test_b4_a_broker_that_does_not_understand_the_level_cannot_register(
    log: MetadataLogBuilder,
) -> None:
    assert level(log, PROTOCOL, 2)[0] is ResultCode.OK
    code, detail = register(log, 3, inter_broker_protocol_max=1)
    assert code is ResultCode.INVALID
    assert "inter_broker_protocol is at level 2, and broker 3 understands 1" in detail
    assert BrokerId(3) not in log.image.brokers
    assert register(log, 3, inter_broker_protocol_max=3)[0] is ResultCode.OK


def test_b4_what_nobody_knows_cannot_be_raised(log: MetadataLogBuilder) -> None:
    assert level(log, "time_travel", 1)[0] is ResultCode.CONDITION_FAILED
    assert level(log, PROTOCOL, 3)[0] is ResultCode.CONDITION_FAILED
    assert level(log, PROTOCOL, 0)[0] is ResultCode.CONDITION_FAILED
    assert not log.image.features


def test_b4_lowering_is_refused_where_it_would_lose_something(log: MetadataLogBuilder) -> None:
    level(log, PROTOCOL, 2)
    quota = ConfigSet(
        entity_type="users", entity_name="anna", key="controller_mutation_rate", value="10"
    )
    log.write_as_controller(quota)
    code, detail = level(log, PROTOCOL, 1)
    assert code is ResultCode.CONDITION_FAILED
    assert "controller_mutation_rate of users 'anna'" in detail
    log.write_as_controller(msgspec.structs.replace(quota, value=None))
    assert level(log, PROTOCOL, 1)[0] is ResultCode.OK, "nothing is lost now"


def test_q7_lowering_is_refused_while_there_are_quotas_that_would_be_lost(
    log: MetadataLogBuilder,
) -> None:
    level(log, PROTOCOL, 2)
    level(log, METADATA, 3)
    kept = ClientQuotaSet(user="anna", client_id="", key="producer_byte_rate", value=10)
    lost = msgspec.structs.replace(kept, key="controller_mutation_rate")
    log.write_as_controller(kept, lost)
    code, detail = level(log, PROTOCOL, 1)
    assert code is ResultCode.CONDITION_FAILED
    assert "controller_mutation_rate of user 'anna', the default client-id, which" in detail
    assert "producer_byte_rate" not in detail
    log.write_as_controller(msgspec.structs.replace(lost, value=None))
    assert level(log, PROTOCOL, 1)[0] is ResultCode.OK, "nothing is lost now"


def test_b4_the_metadata_version_never_goes_back(log: MetadataLogBuilder) -> None:
    assert level(log, METADATA, 2)[0] is ResultCode.OK
    code, detail = level(log, METADATA, 1)
    assert code is ResultCode.CONDITION_FAILED
    assert "cannot read" in detail


def test_b4_until_it_is_put_down_the_protocol_is_what_all_understand(
    log: MetadataLogBuilder,
) -> None:
    assert log.image.inter_broker_protocol == 2
    register(log, 3, inter_broker_protocol_max=1)
    assert log.image.inter_broker_protocol == 1
    assert Image().inter_broker_protocol == 1


def test_b4_a_new_quorum_begins_at_the_newest_records_and_an_old_one_stays() -> None:
    new = MetadataLogBuilder(begun=False)
    assert new.image.metadata_version == 1
    new.begin_quorum()
    assert new.image.metadata_version == features.NEWEST_METADATA_VERSION


class TestRecordsOfALaterLevel:
    """``SessionOpened`` plays a kind of record that came with level 2."""

    @pytest.fixture(autouse=True)
    def later(self, monkeypatch: pytest.MonkeyPatch) -> None:
        gated = table.RULES[SessionOpened]._replace(since=2)
        monkeypatch.setitem(table.RULES, SessionOpened, gated)

    @pytest.fixture
    def log(self) -> MetadataLogBuilder:
        log = MetadataLogBuilder(begun=False)
        with pytest.MonkeyPatch.context() as patch:
            plain = table.RULES[SessionOpened]._replace(since=1)
            patch.setitem(table.RULES, SessionOpened, plain)
            log.start_broker(1)
        log.elect_controller(1)
        return log

    def test_b4_they_are_refused_below_it_and_leave_nothing_behind(
        self, log: MetadataLogBuilder
    ) -> None:
        """A voter of the version before passes such a transaction over: so must all."""
        before = log.image
        later = Operation(records=(SessionOpened(session_id=session_of(5), timeout_ms=1),))
        known = Operation(records=(ControllerRemoved(broker_id=BrokerId(1)),))
        result = log.transact(known, later, atomic=False, client_id=session_of(1), sequence=1)
        assert [one.code for one in result.results] == [ResultCode.INVALID] * 2
        assert "needs metadata_version 2, and 1 is in force" in result.results[0].detail
        assert not log.image.results[session_of(1)].by_sequence, "no result is kept for a retry"
        assert log.image.sessions == before.sessions
        assert log.image.controller == before.controller, "nor is what stands beside them obeyed"

    def test_b4_a_retry_takes_effect_once_the_level_is_raised(
        self, log: MetadataLogBuilder
    ) -> None:
        later = Operation(records=(SessionOpened(session_id=session_of(5), timeout_ms=1),))
        for wanted in (ResultCode.INVALID, ResultCode.OK, ResultCode.OK):
            result = log.transact(later, client_id=session_of(1), sequence=1)
            assert result.results[0].code is wanted
            level(log, METADATA, 2)
        assert session_of(5) in log.image.sessions


@pytest.mark.parametrize(
    "condition", [(), (ControllerEpochIs(controller_epoch=ControllerEpoch(9)),)]
)
def test_b6_what_stands_beside_a_record_that_older_voters_cannot_read_is_never_obeyed(
    condition: tuple[ControllerEpochIs, ...],
) -> None:
    """Whatever else would become of that record: its controller is none, or is deposed."""
    log = begun_at(4)
    close = Operation(records=(SessionClosed(session_id=session_of(1)),))
    later = IpQuotaSet(ip="", key="connection_creation_rate", value=1.0)
    result = log.transact(close, Operation(records=(later,), conditions=condition), atomic=False)
    assert [one.code for one in result.results] == [ResultCode.INVALID] * 2
    assert session_of(1) in log.image.sessions


@pytest.mark.parametrize(("in_force", "kept"), [(4, NO_BROKER), (5, BrokerId(7))])
def test_b6_a_session_is_nobodys_where_older_voters_do_not_know_whose_it_is(
    in_force: int, kept: BrokerId
) -> None:
    log = begun_at(in_force)
    log.write(SessionOpened(session_id=session_of(9), timeout_ms=1, broker_id=BrokerId(7)))
    assert log.image.sessions[session_of(9)].broker_id == kept


def begun_at(level: int) -> MetadataLogBuilder:
    """A broker, and a quorum that began at that metadata version."""
    log = MetadataLogBuilder(begun=False)
    log.write(msgspec.structs.replace(first_voter_set(), metadata_version=level))
    log.start_broker(1)
    return log


def test_b4_every_feature_says_what_its_levels_mean() -> None:
    for name, feature in features.FEATURES.items():
        assert len(feature.levels) == feature.newest, name


def test_b4_a_registration_that_does_not_say_is_of_no_newer_level() -> None:
    """Registrations in existing logs keep their meaning when there is a newer level."""
    silent = BrokerRegistration(
        broker_id=BrokerId(1),
        session_id=session_of(1),
        incarnation_id=bytes(16),
        kafka=Endpoint("kafka", 1),
        grpc=Endpoint("grpc", 1),
    )
    understood = features.FEATURES[PROTOCOL].supported_by(silent)
    assert understood < features.METADATA_FROM_LOG <= features.NEWEST_INTER_BROKER_PROTOCOL


@pytest.mark.parametrize(
    ("in_force", "reads", "is_readable"), [(4, 0, True), (5, 0, False), (6, 5, False), (6, 6, True)]
)
def test_b6_who_does_not_say_what_it_reads_reads_what_the_first_release_did(
    in_force: int, reads: int, is_readable: bool
) -> None:
    image = Image(features=Image().features.set(METADATA_VERSION, in_force))
    why = features.why_unreadable(image, reads)
    assert (why is None) == is_readable
    assert why is None or f"metadata_version {in_force}" in why
