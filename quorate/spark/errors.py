"""What can go wrong between a query and the log, each with a message that says what to do.

Spark shows errors of planning as ``AnalysisException`` and errors of reading as
``PythonException``, both with these messages inside.
"""

from quorate.client.errors import QuorateError


class QuorateSourceError(QuorateError):
    """Any refusal or failure of the source."""


class OptionError(QuorateSourceError, ValueError):
    """An option, or a combination of options, breaks the contract."""


class SchemaError(QuorateSourceError, ValueError):
    """The schema asked for is no projection of the source's."""


class UnknownTopic(QuorateSourceError, LookupError):
    """A topic or partition that the cluster does not have, or no longer."""


class RangeUnavailable(QuorateSourceError, LookupError):
    """Offsets outside what the log holds; the message names partition and available range."""


class DataLoss(QuorateSourceError, LookupError):
    """Offsets that a stream had still to read are gone; the message names partitions and why."""


class CheckpointError(QuorateSourceError, ValueError):
    """A checkpoint that this source cannot go on from; the message says whose it is."""


class CorruptBatch(QuorateSourceError, ValueError):
    """Bytes that are no record batch; the message names topic, partition and offset."""


class ClusterUnavailable(QuorateSourceError, ConnectionError):
    """No answer within the retries allowed; the message names who was asked, and for what."""


class CallRefused(QuorateSourceError, PermissionError):
    """A broker refused a call for good: certificates, user, rights, or what it does not serve."""


class RowError(QuorateSourceError, ValueError):
    """A row that cannot be written as it is; the message names the column."""


class RecordTooLarge(QuorateSourceError, ValueError):
    """A record that its topic does not take; the message names topic, partition, size and limit."""


class WriteRefused(QuorateSourceError):
    """The cluster will not take what was written; the message names topic, partition and reason."""
