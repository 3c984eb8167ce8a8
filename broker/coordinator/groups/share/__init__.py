"""Share groups (KIP-932): the broker assigns partitions, several members may have the same one.

The state of one group is a pure state machine, as that of a consumer group is. Time is passed in as
``now_ms`` (monotonic). Nothing here uses clocks, sockets, logs or tasks.

- ``share_group``: the group: heartbeats, leaving, expiry, and changes of topics.
- ``share_member``: one member, and what it says and is told in a heartbeat.
- ``share_topics``: the topics whose partitions have a state with the share coordinator.
- ``simple_assignor``: who is to have which partitions.
- ``share_group_log_format``: the records in __consumer_offsets.
"""
