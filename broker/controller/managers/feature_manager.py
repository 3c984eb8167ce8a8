"""Decides feature levels: the first level of a cluster, which levels may be raised or lowered (B4),
and what the controller writes once a level allows it.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import TypeAlias

import msgspec

from quorate.broker.controller.managers.decisions import ControllerTenure, ItemDecision
from quorate.metadata_log import features
from quorate.metadata_log.features import FEATURES
from quorate.metadata_log.image import (
    INTER_BROKER_PROTOCOL,
    METADATA_VERSION,
    TRANSACTION_VERSION,
    Image,
)
from quorate.metadata_log.records import FeatureLevel, Operation, ScramDecoyKeySet
from quorate_proto.v1 import admin_pb2, errors_pb2

FeatureDecision: TypeAlias = ItemDecision[admin_pb2.FeatureResult]


def first_level(image: Image, tenure: ControllerTenure) -> Operation | None:
    """Return the operation that sets a level of a new cluster, or None if the cluster has them.

    They are the newest levels that all its brokers support. The last one is inter_broker_protocol:
    where it is set, a level that is missing is left to the operator, who raises it.
    """
    if INTER_BROKER_PROTOCOL in image.features:
        return None
    level = features.understood_by_all(image, TRANSACTION_VERSION)
    if level > image.transaction_version:
        return tenure.operation(FeatureLevel(name=TRANSACTION_VERSION, level=level))
    level = features.understood_by_all(image, INTER_BROKER_PROTOCOL)
    return tenure.operation(FeatureLevel(name=INTER_BROKER_PROTOCOL, level=level))


def first_decoy_key(
    image: Image, tenure: ControllerTenure, draw_key: Callable[[], bytes]
) -> Operation | None:
    """Return the operation that sets the key for credentials of users who do not exist, or None if
    there is a key, or if the metadata log may not hold one yet.
    """
    if image.scram_decoy_key or image.metadata_version < features.LOGIN_PROTECTION:
        return None
    return tenure.operation(ScramDecoyKeySet(key=draw_key()))


def update(
    image: Image,
    wanted: Iterable[admin_pb2.FeatureUpdate],
    *,
    tenure: ControllerTenure,
    voters_read: int,
) -> list[FeatureDecision]:
    """Decide for each feature, with the levels of those before it.

    ``voters_read`` is the metadata version that all voters can read.
    """
    decisions = []
    for one in wanted:
        decision = _update(image, one, tenure, voters_read)
        if decision.operation is not None:
            levels = image.features.set(one.name, decision.result.level)
            image = msgspec.structs.replace(image, features=levels)
        decisions.append(decision)
    return decisions


def needs_voters(wanted: Iterable[admin_pb2.FeatureUpdate]) -> bool:
    """Return whether any of these updates depends on what the voters can read."""
    return any(one.name == METADATA_VERSION for one in wanted)


def statuses(image: Image) -> Iterator[admin_pb2.FeatureStatus]:
    """Yield each feature's level, and the highest level that the brokers support."""
    for name, feature in FEATURES.items():
        level = feature.level(image, name)
        yield admin_pb2.FeatureStatus(
            name=name,
            level=level,
            newest=min(feature.newest, features.understood_by_all(image, name)),
            meaning=feature.levels[level - 1] if 0 < level <= len(feature.levels) else "",
        )


def _update(
    image: Image, wanted: admin_pb2.FeatureUpdate, tenure: ControllerTenure, voters_read: int
) -> FeatureDecision:
    name = wanted.name
    if name not in FEATURES:
        return _refused(wanted, f"there is no feature {name!r}: {', '.join(FEATURES)} are known")
    newest = FEATURES[name].newest
    voters = voters_read if name == METADATA_VERSION else newest
    level = wanted.level or min(newest, voters, features.understood_by_all(image, name))
    now = FEATURES[name].level(image, name)
    reason = features.why_not(image, name, level)
    if level > newest:
        reason = f"{name} {level} is not known to this controller: it knows levels up to {newest}"
    elif level > voters:
        reason = f"level {level} of {name} is not understood by all voters ({voters} at most)"
    elif level < now and not wanted.allow_downgrade:
        reason = (
            f"{name} is at level {now}: to go back to {level}, "
            f"`quorate features downgrade --feature {name} --level {level}`"
        )
    if reason is not None:
        return _refused(wanted, reason)
    return ItemDecision(
        admin_pb2.FeatureResult(name=name, level=level),
        tenure.operation(FeatureLevel(name=name, level=level)),
    )


def _refused(wanted: admin_pb2.FeatureUpdate, reason: str) -> FeatureDecision:
    result = admin_pb2.FeatureResult(
        name=wanted.name, error_code=errors_pb2.FEATURE_UPDATE_FAILED, error_message=reason
    )
    return ItemDecision(result, None)
