"""Measures what it costs to ask whether a topic may be written, by the number of access control
entries.

"known ns": the question of a producer's second request. "new us": asked for the first time, or
after an entry has changed; of a name of 40 characters. "off ns": without an authorizer.
"add us": an entry more, with its record applied to the image. "many principals" has all entries on
one topic.
"""

import functools
import time
from collections.abc import Callable
from typing import Final

import immutables

from bench._support import Bench
from quorate.broker.security.authorizer import Authorizer, AuthorizerSettings
from quorate.broker.security.principal import KafkaPrincipal
from quorate.common.acl_types import AclOperation, AclPermission, PatternType, ResourceType
from quorate.metadata_log.acls import AclEntry, AclPattern, Acls, EntriesByPrincipal, with_entry
from quorate.metadata_log.image import Image
from tests.support.followers import ShownImage

NAME: Final = "orders-of-the-shop-in-a-distant-region-1"
HOST: Final = "10.0.0.1"
ALICE: Final = KafkaPrincipal("alice")
WRITE: Final = AclOperation.WRITE
TOPIC: Final = ResourceType.TOPIC


def entry(principal: str) -> AclEntry:
    return AclEntry(principal, "*", WRITE, AclPermission.ALLOW)


def spread(count: int) -> Acls:
    """One entry for each of ``count`` resources, half of them prefixes."""
    kinds = (PatternType.LITERAL, PatternType.PREFIXED)
    return immutables.Map(
        {
            AclPattern(TOPIC, kinds[number % 2], f"topic-{number}"): with_entry(
                immutables.Map(), entry("User:bob")
            )
            for number in range(count)
        }
    )


def many_principals(count: int) -> Acls:
    """``count`` entries of as many principals on the one topic."""
    entries: EntriesByPrincipal = immutables.Map()
    for number in range(count):
        entries = with_entry(entries, entry(f"User:{number}"))
    return immutables.Map({AclPattern(TOPIC, PatternType.LITERAL, NAME): entries})


def per_call_ns(call: Callable[[], object], calls: int) -> float:
    start = time.process_time_ns()
    for _ in range(calls):
        call()
    return (time.process_time_ns() - start) / calls


def measure(acls: Acls, calls: int) -> dict[str, float]:
    pattern = AclPattern(TOPIC, PatternType.PREFIXED, "orders-")
    acls = acls.set(pattern, with_entry(immutables.Map(), entry("User:alice")))
    image = Image(acls=acls)
    on = Authorizer(ShownImage(lambda: image), AuthorizerSettings(enabled=True))
    off = Authorizer(ShownImage(lambda: image), AuthorizerSettings())
    versions = iter([acls.set(pattern, acls[pattern].set(str(n), frozenset())) for n in range(500)])
    fresh = Authorizer(
        ShownImage(lambda: Image(acls=next(versions))), AuthorizerSettings(enabled=True)
    )
    assert on.allowed(ALICE, HOST, WRITE, TOPIC, NAME)
    added = iter(range(10**9))
    return {
        "off ns": per_call_ns(lambda: off.allowed(ALICE, HOST, WRITE, TOPIC, NAME), calls),
        "known ns": per_call_ns(lambda: on.allowed(ALICE, HOST, WRITE, TOPIC, NAME), calls),
        "new us": per_call_ns(lambda: fresh.allowed(ALICE, HOST, WRITE, TOPIC, NAME), 500) / 1e3,
        "add us": per_call_ns(
            lambda: acls.set(pattern, with_entry(acls[pattern], entry(f"User:{next(added)}"))),
            500,
        )
        / 1e3,
    }


def main() -> None:
    bench = Bench.from_command_line("Authorizer", "CPU time of one question, by entries")
    calls = bench.pick(full=200_000, quick=20_000)
    for count in bench.pick(full=(0, 100, 10_000, 100_000), quick=(0, 10_000)):
        figures = bench.repeat(functools.partial(measure, spread(count), calls))
        bench.row({"entries": count}, figures)
    figures = bench.repeat(functools.partial(measure, many_principals(10_000), calls))
    bench.row({"entries": "10000 of one topic"}, figures)
    bench.finish()


if __name__ == "__main__":
    main()
