"""The errors that a client of the quorum may get."""


class QuorumError(Exception):
    """Base of all errors of the quorum's client."""


class QuorumUnavailable(QuorumError):
    """No voter, or no leader, answered in time. Names the addresses tried."""


class SessionLost(QuorumError):
    """The session is closed or expired: nothing bound to it can be done any more (rule 9)."""


class ChangeNotMade(QuorumError):
    """The quorum refused a change of its membership or leadership; says why and what to do."""


class NoSuchVoter(ChangeNotMade):
    """The voter to be removed is not in the quorum."""


class OutcomeUnknown(QuorumError):
    """The transaction may or may not have been applied, and can no longer be found out."""


class TransactionTooLarge(QuorumError, ValueError):
    """The transaction is over 1 MiB when encoded: surely not applied, split it."""


class TransactionInvalid(QuorumError, ValueError):
    """The quorum could not read the transaction: surely not applied."""


class BackupError(QuorumError):
    """A backup cannot be taken, read or restored; the message says why and what to do."""


class MetadataUnreadable(QuorumError):
    """The metadata log holds what this release cannot read: a newer one wrote it."""


class OffsetUnavailable(QuorumError):
    """The metadata log is not kept so far back, or has not come so far."""
