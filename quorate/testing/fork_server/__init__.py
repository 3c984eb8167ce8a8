"""Nodes that begin at once: they are forked from a process that has loaded their code already.

Loading the code of a broker takes more processor time than all the rest of its start, and a test
run starts hundreds of them. So a test process has one fork server for brokers and one for voters.
It loads the code once, starts no thread, and forks each node from itself.

- ``server`` is the program of the fork server.
- ``command_line`` lets a forked node show the command line that it would have been started with.
- ``forked_process`` is what the test process holds of one forked node.
- ``fork_servers`` starts the servers, and decides which node is forked and which one is not.
"""
