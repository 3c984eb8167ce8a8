"""Clients in processes of their own, to be killed, and what must be true of all that they did.

``copier`` consumes, transforms and produces in transactions; ``reader`` is a member of a plain
consumer group. Both write down what they do; ``history`` judges it; ``crew`` starts and kills them.
"""
