"""Two releases at once: voters and brokers of an earlier release beside those of this checkout.

The earlier release is built from its commit. Both run as wheels in environments of their own.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings

from quorate.common.types import MetadataOffset
from quorate.metadata_log.apply import apply
from quorate.metadata_log.codec import decode_transaction, encode_transaction
from quorate.metadata_log.records import Transaction
from tests.support.examples import examples
from tests.support.installed_wheel import InstalledWheel, unpack_wheel
from tests.support.releases.elsewhere import Elsewhere
from tests.support.releases.levels import (
    INTER_BROKER_PROTOCOL,
    METADATA_VERSION,
    give_office_to,
    levels,
    refusal,
)
from tests.support.releases.mixed_cluster import MixedCluster, mixed_cluster
from tests.support.releases.table import ONLINE_FROM, Release, extract, release, why_not_here
from tests.support.releases.traffic import traffic
from tests.unit.metadata_log.test_apply_properties import logs, same_state, world_at

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]

LEVEL = "inter.broker.protocol.version"
CONFIG = {
    LEVEL: 1,
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": True,
}


@pytest.fixture(scope="module")
def old(tmp_path_factory: pytest.TempPathFactory) -> InstalledWheel:
    return _unpacked(release(ONLINE_FROM[0]), tmp_path_factory.mktemp("old"))


@pytest.fixture(scope="module")
def new(tmp_path_factory: pytest.TempPathFactory) -> InstalledWheel:
    return unpack_wheel(tmp_path_factory.mktemp("new"))


@pytest.fixture
def small(old: InstalledWheel) -> Iterator[MixedCluster]:
    with mixed_cluster(old, brokers=2, voters=2, config=CONFIG) as cluster:
        yield cluster


def _unpacked(one: Release, folder: Path) -> InstalledWheel:
    if why := why_not_here(one):
        pytest.skip(why)
    return unpack_wheel(folder, extract(one, folder / "source"))


def test_b4_f6_an_old_voter_and_an_old_broker_work_beside_new_ones(
    small: MixedCluster, new: InstalledWheel
) -> None:
    """The short form: half of the first pass, under controllers of both releases."""
    with traffic(small) as clients:
        clients.go_on()
        small.bounce_voter(1, new)
        small.bounce_broker(1, new)
        for controller_id, why in ((2, "knows levels up to 4"), (1, "all voters (4 at most)")):
            give_office_to(small, controller_id)
            clients.go_on()
            assert why in refusal(small, METADATA_VERSION, 6)
        assert levels(small) == {INTER_BROKER_PROTOCOL: 1, METADATA_VERSION: 4}
        clients.end()


@pytest.fixture(scope="module")
def elsewhere(old: InstalledWheel) -> Iterator[Elsewhere]:
    with Elsewhere(old) as elsewhere:
        yield elsewhere


@given(log=logs)
@settings(max_examples=examples(15), suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_b6_voters_of_both_releases_come_to_the_same_state(
    elsewhere: Elsewhere, log: list[Transaction]
) -> None:
    """At the levels of the earlier release, of any log, with records that it does not know."""
    before = world_at(release(ONLINE_FROM[0]).metadata_version)
    here, codes = before, []
    entries = [
        (MetadataOffset(before.offset + place), encode_transaction(one))
        for place, one in enumerate(log, 1)
    ]
    for offset, encoded in entries:
        applied = apply(here, offset, decode_transaction(encoded))
        here = applied.image
        codes.append([int(result.code) for result in applied.result.results])
    there, codes_there = elsewhere.apply(before, entries)
    assert same_state(there, here)
    assert (there.histories, there.deleted_topics) == (here.histories, here.deleted_topics)
    for found, known in zip(codes, codes_there, strict=True):
        assert known in (None, found)
