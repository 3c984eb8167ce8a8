"""One replica of one partition as a pure state machine: events in, effects out.

Nothing here knows of clocks, sockets, disks or tasks: time comes in as ``now_ms`` (monotonic), and
what is to be done comes out as values. A simulation replays it from a seed.

- ``replica``: commands, appends, followers' progress, outcomes of ISR changes.
- ``state``: what is known, and what follows: high watermark and ISR proposals.
- ``isr``: committed ISR, and the changes whose outcome is not known.
- ``follower_progress``: what a leader knows of one follower.
- ``truncation``: where a follower cuts its log, by leader-epoch history.
- ``checks``: whether an offset or a leader epoch in a request is acceptable.
"""
