"""SCRAM credentials: written by the controller alone (F3)."""

from typing import Final

from metadata_log.draft import Draft
from metadata_log.image import ScramKey
from metadata_log.records import ResultCode, ScramCredentialRemoved, ScramCredentialSet
from metadata_log.rules.requirements import Refused
from metadata_log.types import MetadataOffset

MECHANISMS: Final = {1: "SCRAM-SHA-256", 2: "SCRAM-SHA-512"}
"""Names by Kafka's numbers."""

KEY_BYTES: Final = {1: 32, 2: 64}
"""Length of the mechanism's hash."""

LEAST_ITERATIONS: Final = 4_096
MOST_ITERATIONS: Final = 16_384


def scram_credential_set(draft: Draft, offset: MetadataOffset, record: ScramCredentialSet) -> int:
    credential, key_bytes = record.credential, KEY_BYTES.get(record.mechanism)
    if not record.user or key_bytes is None:
        raise Refused(
            ResultCode.INVALID,
            f"SCRAM credential of user {record.user!r} for mechanism {record.mechanism}: a name is "
            "needed, and one of the mechanisms 1 and 2",
        )
    if not {len(credential.stored_key), len(credential.server_key)} == {key_bytes}:
        raise Refused(ResultCode.INVALID, f"keys of user {record.user!r} have another length")
    if not LEAST_ITERATIONS <= credential.iterations <= MOST_ITERATIONS or not credential.salt:
        raise Refused(
            ResultCode.INVALID,
            f"SCRAM credential of user {record.user!r}: it needs a salt, and "
            f"{LEAST_ITERATIONS} to {MOST_ITERATIONS} iterations, not {credential.iterations}",
        )
    draft.scram.put(ScramKey(record.user, record.mechanism), credential)
    return offset


def scram_credential_removed(
    draft: Draft, offset: MetadataOffset, record: ScramCredentialRemoved
) -> int:
    key = ScramKey(record.user, record.mechanism)
    if draft.scram.get(key) is None:
        raise Refused(
            ResultCode.CONDITION_FAILED,
            f"user {record.user!r} has no credential for mechanism {record.mechanism}",
        )
    draft.scram.remove(key)
    return offset
