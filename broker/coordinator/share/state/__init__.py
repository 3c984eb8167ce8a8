"""The state of share-partitions (KIP-932): a partition as one share group sees it.

Nothing here uses clocks, sockets, logs or tasks. Time is passed in as ``now_ms`` (monotonic).

- ``record_state``: the states of records, and ranges of records that have the same state.
- ``record_window``: the ranges between the start and the end of what a group works at.
- ``acknowledgements``: what a member says of records that it has.
- ``dead_records``: records that leave a group without being accepted.
- ``share_partition``: the state machine at the leader: acquiring, acknowledging, locks that end.
- ``acquiring``: its part that hands records out.
- ``stored_state``: what the share coordinator keeps of a share-partition.
- ``share_log_format``: the records in __share_group_state.
"""
