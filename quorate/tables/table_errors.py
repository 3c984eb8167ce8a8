"""The errors of tables. Each message names the table and says what to do."""

from quorate.pipeline.pipeline_errors import PipelineError


class TableError(PipelineError):
    """A table, its catalog or its storage cannot be used, or holds something unexpected."""


class TableUnavailable(TableError):
    """The catalog or the storage does not answer, or refuses. A later run may succeed."""


class TableChanged(TableError):
    """Another writer has changed the table so that the written files do not fit any more. The next
    run writes them anew for the table as it is then."""


class CommitConflict(TableError):
    """Another writer has committed first. The same commit may be tried on the new state."""


class PositionMoved(TableError):
    """Another run of the same pipeline has committed to the table."""
