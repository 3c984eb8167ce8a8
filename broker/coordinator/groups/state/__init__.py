"""Consumer groups: their members, the assignment of a generation, and the committed offsets.

The state of one group is a pure state machine: requests and deadlines go in, answers and records
come out. Time is passed in as ``now_ms`` (monotonic). Nothing here uses clocks, sockets, logs or
tasks.

- ``classic_group``: syncing, heartbeats, leaving and expiry (Kafka's classic protocol).
- ``joining``: joining and rebalancing.
- ``members``: the members of a group and what they have in common.
- ``embedded_protocol``: what members say to each other through the broker.
- ``group_effects``: the requests of a group, its answers, and the work that it asks for.
"""
