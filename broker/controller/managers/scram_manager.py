"""Decides changes of SCRAM credentials: checked, then one operation per user (KIP-554)."""

from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple, TypeAlias

from quorate.broker.common.errors import KafkaError
from quorate.broker.controller.managers.decisions import ControllerTenure, ItemDecision
from quorate.broker.security.principal import RESERVED_NAMES
from quorate.broker.security.scram import BY_NUMBER, ScramMechanism, credential
from quorate.metadata_log.image import Image, ScramKey
from quorate.metadata_log.records import (
    Record,
    ScramCredentialRemoved,
    ScramCredentialSet,
)
from quorate.metadata_log.rules.administration import KEY_BYTES, LEAST_ITERATIONS, MOST_ITERATIONS
from quorate_proto.v1 import admin_pb2, errors_pb2

ScramDecision: TypeAlias = ItemDecision[admin_pb2.ScramResult]


class _Changes(NamedTuple):
    """The changes of one user's credentials."""

    deletions: list[admin_pb2.ScramDeletion]
    upsertions: list[admin_pb2.ScramUpsertion]


def alter(
    image: Image, request: admin_pb2.AlterUserScramCredentialsRequest, *, tenure: ControllerTenure
) -> list[ScramDecision]:
    """Decide for each user, in order. Either all changes of a user's credentials are made, or
    none."""
    changes: dict[str, _Changes] = {}
    for deletion in request.deletions:
        changes.setdefault(deletion.user, _Changes([], [])).deletions.append(deletion)
    for upsertion in request.upsertions:
        changes.setdefault(upsertion.user, _Changes([], [])).upsertions.append(upsertion)
    return [_alter(image, user, own, tenure) for user, own in changes.items()]


def _alter(image: Image, user: str, changes: _Changes, tenure: ControllerTenure) -> ScramDecision:
    deletions, upsertions = changes
    try:
        mechanisms = [one.mechanism for one in deletions]
        _check_user(user, mechanisms + [one.mechanism for one in upsertions])
        records: list[Record] = [_removed(image, one) for one in deletions]
        records += [_set(one) for one in upsertions]
    except KafkaError as error:
        return ItemDecision(
            admin_pb2.ScramResult(user=user, error_code=error.code, error_message=error.message)
        )
    return ItemDecision(admin_pb2.ScramResult(user=user), tenure.operation(*records))


def _check_user(user: str, mechanisms: Iterable[int]) -> None:
    if not user:
        raise KafkaError(errors_pb2.UNACCEPTABLE_CREDENTIAL, "the user name is empty")
    if user in RESERVED_NAMES:
        raise KafkaError(
            errors_pb2.UNACCEPTABLE_CREDENTIAL, f"{user!r} is no user's name: choose another"
        )
    for mechanism, times in Counter(mechanisms).items():
        if times > 1:
            raise KafkaError(
                errors_pb2.DUPLICATE_RESOURCE,
                f"user {user!r}: mechanism {mechanism} is changed {times} times in one request",
            )


def _removed(image: Image, deletion: admin_pb2.ScramDeletion) -> ScramCredentialRemoved:
    mechanism = _mechanism(deletion.mechanism)
    if ScramKey(deletion.user, mechanism.number) not in image.scram:
        raise KafkaError(
            errors_pb2.RESOURCE_NOT_FOUND,
            f"user {deletion.user!r} has no credential for {mechanism.name}",
        )
    return ScramCredentialRemoved(user=deletion.user, mechanism=mechanism.number)


def _set(upsertion: admin_pb2.ScramUpsertion) -> ScramCredentialSet:
    mechanism = _mechanism(upsertion.mechanism)
    if not LEAST_ITERATIONS <= upsertion.iterations <= MOST_ITERATIONS:
        raise KafkaError(
            errors_pb2.UNACCEPTABLE_CREDENTIAL,
            f"user {upsertion.user!r}: {upsertion.iterations} iterations: they must be "
            f"{LEAST_ITERATIONS} to {MOST_ITERATIONS}",
        )
    if not upsertion.salt or len(upsertion.salted_password) != KEY_BYTES[mechanism.number]:
        raise KafkaError(
            errors_pb2.UNACCEPTABLE_CREDENTIAL,
            f"user {upsertion.user!r}: the salt is empty, or the salted password has another "
            f"length than {mechanism.name} gives it",
        )
    made = credential(mechanism, upsertion.salted_password, upsertion.salt, upsertion.iterations)
    return ScramCredentialSet(user=upsertion.user, mechanism=mechanism.number, credential=made)


def _mechanism(number: int) -> ScramMechanism:
    mechanism = BY_NUMBER.get(number)
    if mechanism is None:
        raise KafkaError(
            errors_pb2.UNSUPPORTED_SASL_MECHANISM,
            f"there is no SCRAM mechanism {number}: 1 is SCRAM-SHA-256, 2 SCRAM-SHA-512",
        )
    return mechanism
