"""Consumer groups: who is in them, which assignment they agreed on, which offsets they committed.

The state of one group is a pure machine: requests and deadlines in, answers and records out. Time
comes in as ``now_ms`` (monotonic); nothing here knows of clocks, sockets, logs or tasks.

- ``group``: joining, agreeing, being stable, and what ends each of them (Kafka's classic protocol).
- ``members``: the members of a group and what they have in common.
- ``effects``: what a group wants done.
"""
