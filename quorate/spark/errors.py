"""The errors of the Spark source. Each message says what to do.

Spark shows errors of planning as ``AnalysisException`` and errors of reading as
``PythonException``, both with these messages inside.
"""

from quorate.client.errors import QuorateError


class QuorateSourceError(QuorateError):
    """Any refusal or failure of the source."""


class OptionError(QuorateSourceError, ValueError):
    """An option, or a combination of options, breaks the contract."""


class SchemaError(QuorateSourceError, ValueError):
    """The schema of the query is no projection of the source's schema."""


class UnknownTopic(QuorateSourceError, LookupError):
    """The cluster does not have a topic or partition, or no longer has it."""


class RangeUnavailable(QuorateSourceError, LookupError):
    """Offsets are outside the log; the message names the partition and the available range."""


class DataLoss(QuorateSourceError, LookupError):
    """Records that a stream still had to read are gone; the message names partitions and why."""


class CheckpointError(QuorateSourceError, ValueError):
    """The source cannot go on from a checkpoint; the message says which source wrote it."""


class CorruptBatch(QuorateSourceError, ValueError):
    """The bytes are no record batch; the message names topic, partition and offset."""


class ClusterUnavailable(QuorateSourceError, ConnectionError):
    """No broker answered within the retries; the message names the broker and the call."""


class CallRefused(QuorateSourceError, PermissionError):
    """A broker refused a call for good, because of certificates, user, rights or its release."""


class RowError(QuorateSourceError, ValueError):
    """A row cannot be written as it is; the message names the column."""


class RecordTooLarge(QuorateSourceError, ValueError):
    """A record is too large for its topic; the message names topic, partition, size and limit."""


class WriteRefused(QuorateSourceError):
    """The cluster refuses a write; the message names topic, partition and reason."""


class ValueSchemaError(QuorateSourceError, ValueError):
    """A schema of keys or values cannot be used; the message says why."""


class UndecodableValue(QuorateSourceError, ValueError):
    """A key or value does not fit its schema; the message names topic, partition and offset."""


class RegistryUnavailable(QuorateSourceError, ConnectionError):
    """The schema registry gave no answer within the retries, or refused; the message says which."""
