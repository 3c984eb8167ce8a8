"""Delegation tokens: written by the controller alone (F3, KIP-48)."""

from metadata_log.draft import Draft
from metadata_log.image import DelegationToken
from metadata_log.records import DelegationTokenRemoved, DelegationTokenSet, ResultCode
from metadata_log.rules.requirements import Refused
from metadata_log.types import MetadataOffset


def delegation_token_set(draft: Draft, offset: MetadataOffset, record: DelegationTokenSet) -> int:
    """Whose it is and how long it may live at most is said once: later only its expiry changes."""
    if not record.token_id or "/" in record.token_id or not record.owner:
        raise Refused(ResultCode.INVALID, "a delegation token needs an owner, and an id without /")
    if not record.issue_ms <= record.expiry_ms <= record.max_ms:
        raise Refused(
            ResultCode.INVALID,
            f"token {record.token_id} would end at {record.expiry_ms}: not between its issue at "
            f"{record.issue_ms} and its maximum {record.max_ms}",
        )
    token = DelegationToken(
        record.owner,
        record.requester,
        record.renewers,
        record.issue_ms,
        record.expiry_ms,
        record.max_ms,
        offset,
    )
    before = draft.tokens.get(record.token_id)
    if before is not None and _fixed(before) != _fixed(token):
        raise Refused(ResultCode.INVALID, f"token {record.token_id} is another one already")
    draft.tokens.put(record.token_id, token)
    return offset


def delegation_token_removed(
    draft: Draft, offset: MetadataOffset, record: DelegationTokenRemoved
) -> int:
    if draft.tokens.get(record.token_id) is not None:
        draft.tokens.remove(record.token_id)
    return offset


def _fixed(token: DelegationToken) -> tuple[object, ...]:
    return token.owner, token.requester, token.renewers, token.issue_ms, token.max_ms
