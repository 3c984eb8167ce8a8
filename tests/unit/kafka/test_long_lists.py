"""Lists of very many ACLs, quotas, SCRAM users and delegation tokens are made in slices, so that a
small request gets its turn between them (issue 17).
"""

import dataclasses
from collections.abc import Callable, Coroutine
from typing import Any, Final

import immutables
import pytest

from quorate.broker.common.steps import ITEMS_IN_A_STEP, SORTED_IN_A_STEP, sorted_in_steps
from quorate.broker.kafka.admin.acl_apis import describe_acls
from quorate.broker.kafka.admin.client_quota_apis import describe_client_quotas
from quorate.broker.kafka.admin.scram_apis import describe_user_scram_credentials
from quorate.broker.kafka.admin.token_apis import describe_delegation_token
from quorate.broker.kafka.connection.requests import RequestContext
from quorate.broker.kafka.services import KafkaServices
from quorate.broker.kafka.wire.codec import Message
from quorate.broker.kafka.wire.primitives import at_once
from quorate.broker.quota.work_turns import ITEMS_BETWEEN_LOOKS, WorkTurns
from quorate.broker.security.authorizer import Authorizer, AuthorizerSettings
from quorate.broker.security.principal import KafkaPrincipal
from quorate.broker.security.token_access import TokenDescription
from quorate.broker.security.token_secrets import TokenKeys
from quorate.common.types import MetadataOffset
from quorate.metadata_log.acls import AclEntry, AclPattern
from quorate.metadata_log.client_quotas import ClientQuotaEntity
from quorate.metadata_log.image import DelegationTokenState, Image, ScramKey
from quorate.metadata_log.records import ScramCredential
from tests.support.followers import ShownImage
from tests.support.kafka_fakes import FakeBrokerInside
from tests.unit.kafka.test_large_requests import LOOKS_IN_A_SLICE, Ticking
from tests.unit.test_work_turns import Passes

COUNT: Final = 2_000
ROOT: Final = KafkaPrincipal("root")
NAMES: Final = [f"{number:05}" for number in sorted(range(COUNT), key=lambda one: one * 7 % 1_999)]
EVERY_ACL: Final = {
    "resource_type_filter": 1,
    "resource_name_filter": None,
    "pattern_type_filter": 1,
    "principal_filter": None,
    "host_filter": None,
    "operation": 1,
    "permission_type": 1,
}
TOKEN: Final = DelegationTokenState("User:root", "User:root", (), 1, 2, 3, MetadataOffset(1))
QUOTAS: Final = immutables.Map({"producer_byte_rate": 1.0})
CREDENTIAL: Final = ScramCredential(salt=b"s", stored_key=b"k", server_key=b"v", iterations=4_096)
IMAGE: Final = Image(
    acls=immutables.Map(
        {
            AclPattern(2, 3, name): immutables.Map(
                {
                    "User:a": frozenset(
                        {AclEntry("User:a", "*", 3, 3), AclEntry("User:a", "*", 4, 3)}
                    )
                }
            )
            for name in NAMES
        }
    ),
    client_quotas=immutables.Map({ClientQuotaEntity(user=name): QUOTAS for name in NAMES}),
    scram=immutables.Map({ScramKey(name, 1): CREDENTIAL for name in NAMES}),
    tokens=immutables.Map(dict.fromkeys(NAMES, TOKEN)),
)

Handler = Callable[[KafkaServices, RequestContext, Message], Coroutine[Any, Any, Message]]


def named(answer: Message) -> list[str]:
    """Return the names in an answer to any of the requests, in order."""
    if "resources" in answer:
        return [one["resource_name"] for one in answer["resources"]]
    if "entries" in answer:
        return [one["entity"][0]["entity_name"] for one in answer["entries"]]
    if "results" in answer:
        return [one["user"] for one in answer["results"]]
    return [one["token_id"] for one in answer["tokens"]]


def services_of(inside: FakeBrokerInside, turns: WorkTurns) -> KafkaServices:
    images = ShownImage(lambda: IMAGE)
    settings = AuthorizerSettings(enabled=True, super_users=frozenset({str(ROOT)}))
    authorizer = Authorizer(images, settings)
    return dataclasses.replace(
        inside.services,
        images=images,
        authorizer=authorizer,
        tokens=TokenDescription(images, TokenKeys("a secret", ""), authorizer),
        turns=turns,
    )


class StandingStill:
    """A clock that counts how often somebody looks whether the slice is over. It never is."""

    def __init__(self) -> None:
        self.looks = 0

    def __call__(self) -> float:
        self.looks += 1
        return 0.0


LISTS: Final = [
    pytest.param(describe_acls, EVERY_ACL, 2 * COUNT, 2, id="acls"),
    pytest.param(
        describe_client_quotas, {"components": [], "strict": False}, COUNT, 2, id="quotas"
    ),
    pytest.param(describe_user_scram_credentials, {"users": None}, COUNT, 3, id="scram"),
    pytest.param(describe_delegation_token, {"owners": None}, COUNT, 2, id="tokens"),
]


@pytest.mark.parametrize(("handler", "request_of_all", "count", "stages"), LISTS)
async def test_small_requests_get_their_turns_while_a_long_list_is_made(
    inside: FakeBrokerInside, handler: Handler, request_of_all: Message, count: int, stages: int
) -> None:
    services = services_of(inside, WorkTurns(Ticking()))
    with Passes() as passes:
        answer = await handler(services, RequestContext(3, "c", "h", ROOT), request_of_all)
    assert named(answer) == sorted(NAMES)
    assert passes.count > count // ITEMS_BETWEEN_LOOKS // LOOKS_IN_A_SLICE > stages


@pytest.mark.parametrize(("handler", "request_of_all", "count", "stages"), LISTS)
async def test_each_stage_of_a_long_list_gives_way(
    inside: FakeBrokerInside, handler: Handler, request_of_all: Message, count: int, stages: int
) -> None:
    """Entries are looked up and sorted in these stages, and described in the last one."""
    clock = StandingStill()
    services = services_of(inside, WorkTurns(clock))
    await handler(services, RequestContext(3, "c", "h", ROOT), request_of_all)
    described = count // ITEMS_BETWEEN_LOOKS
    assert clock.looks >= stages * (count // ITEMS_IN_A_STEP) + described


@pytest.mark.parametrize("count", [0, 1, 511, 512, 513, 3_000])
def test_a_sort_in_steps_is_a_stable_sort(count: int) -> None:
    items = [(one * 7_919 % 101, one) for one in range(count)]
    by_first = sorted(items, key=lambda item: item[0])
    assert at_once(sorted_in_steps(items, key=lambda item: item[0])) == by_first


def test_a_long_sort_has_short_steps() -> None:
    compared = 0

    def key(item: int) -> int:
        nonlocal compared
        compared += 1
        return -item

    most = before = 0
    for _ in sorted_in_steps(range(5_000), key):
        most, before = max(most, compared - before), compared
    assert 0 < most <= 2 * SORTED_IN_A_STEP
