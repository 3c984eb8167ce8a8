"""Nodes that begin at once: they are forked from a process that has loaded their code already.

Loading the code of a broker takes more processor time and memory than all the rest of its start. So
a process that starts a local cluster has one fork server for brokers and one for voters. It loads
the code once, starts no thread, and forks each node from itself.

- ``quorate.cli.cluster.fork_server_program`` is the program of the fork server.
- ``command_line`` lets a forked node show the command line that it would have been started with.
- ``forked_process`` is what the process that asked holds of one forked node.
- ``fork_servers`` starts the servers, and decides which node is forked and which one is not.
"""
