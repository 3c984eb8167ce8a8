"""Configuration of one broker, one module per area. Kafka's names where Kafka has the thing.

A key is declared once, in the module of its area; ``spec.BROKER_SPEC`` joins all areas. Areas that
are packages of their own (security, quotas) declare their keys in a ``config`` module there.
"""
