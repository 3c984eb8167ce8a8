"""The dead letters of share groups (KIP-1191): records that a group rejects, or that were delivered
too often, are written to the group's dead letter topic before they leave the group.

- ``dead_letter_place``: where a group's dead letters go, or why there are none. Pure.
- ``dead_letter_batch``: what a dead letter consists of. Pure.
- ``dead_letter_topics``: what is configured of the topics, and their creation.
- ``source_records``: the records that dead letters copy.
- ``dead_letter_peers``: the leaders of dead letter topics, here or on other brokers.
- ``dead_letter_figures``: what is written, and what is missing.
- ``dead_letters``: writes them, and gives up in time.
"""
