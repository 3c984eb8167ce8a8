"""Transactions of producers: who may write, in which partitions, and how each of them ends.

The state of one transactional id is a value, and what becomes of it is decided by pure functions:
state, request and time in; the next state, a refusal or a plain yes out. The shell writes the next
state to the log, and goes on from it only once the log has it. Nothing here knows of clocks,
sockets, logs or tasks.

- ``transaction``: what is known of a transactional id.
- ``decisions``: what each request, timeout and completion makes of it.
- ``log_format``: how it stands in __transaction_state.
"""
