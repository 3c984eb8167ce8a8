"""Groups of the consumer protocol (KIP-848): the broker assigns, and members heartbeat.

The state of one group is a pure state machine, as that of a classic group is. Time is passed in as
``now_ms`` (monotonic). Nothing here uses clocks, sockets, logs or tasks.

- ``consumer_group``: the group: heartbeats, leaving, expiry, and changes of topics.
- ``classic_members``: members of the classic protocol, while a group changes its protocol.
- ``group_members``: the members, and which of them owns a partition.
- ``consumer_member``: one member: what it asks for, and what it has.
- ``reconciliation``: how a member gets from what it has to its target assignment.
- ``target_assignment``, ``range_assignor``, ``uniform_assignor``: who is to have which partitions.
- ``regular_expressions``: subscriptions to all topics whose names match.
- ``consumer_log_format``: the records in __consumer_offsets.
"""
