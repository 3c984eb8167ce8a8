"""The brokers of one host, forked from one process that has loaded their code.

A broker uses one core, so a host of several cores runs several brokers. Forked ones share the
memory of the code.

- ``host_configs`` checks that the brokers of a host fit together, before any of them starts.
- ``restart_delays`` decides when a broker that failed starts again.
- ``broker_processes`` forks the brokers, starts them again, and stops them.
- ``host_process`` is the program.
"""
