"""The cluster's metadata: typed records, one immutable image, and the pure function between them.

``apply(image, offset, transaction) -> Applied`` is deterministic, so every voter, every broker and
every simulator that has read the same log holds the same image. Nothing here uses a clock, a
network, a disk or a thread: time, ids and randomness arrive inside the transactions.
"""
