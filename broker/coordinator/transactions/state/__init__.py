"""Transactions of producers: which producer may write, in which partitions, and how they end.

The state of one transactional id is a value, and pure functions decide how it changes. They take
the state, a request and the time, and return the next state, a refusal, or plain agreement. The
shell writes the next state to the log, and uses it only once the log has it. Nothing here uses
clocks, sockets, logs or tasks.

- ``transaction``: the metadata of a transactional id.
- ``transaction_decisions``: the effect of each request, timeout and completion.
- ``ends_in_next_epoch``: the ends of transactions v2.
- ``transaction_log_format``: its format in __transaction_state.
"""
