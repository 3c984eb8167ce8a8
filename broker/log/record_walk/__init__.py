"""The walk over all records of a batch: machine code, and Python where that cannot run."""
