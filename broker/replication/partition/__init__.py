"""One replica of one partition as a pure state machine: events in, effects out.

Nothing here knows clocks, sockets, disks or tasks. Time comes in as ``now_ms`` (monotonic), and
what is to be done comes out as values. So a simulation can replay it from a seed.

- ``partition_replica``: commands, followers' progress, ISR proposals and their outcomes.
- ``replica_state``: the fields of a replica, and its high watermark.
- ``isr``: the committed ISR, and the changes whose outcome is not known.
- ``follower_progress``: what a leader knows about one follower.
- ``leader_and_isr``: leader, ISR and replicas as a request or the image states them.
- ``truncation``: where a follower truncates its log, by leader-epoch history.
- ``checks``: whether an offset or a leader epoch in a request is acceptable.
- ``effects``: the roles of a replica, and what its state machine wants done.
"""
