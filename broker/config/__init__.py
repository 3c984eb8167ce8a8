"""The configuration keys of a broker, one module for each area. Keys have Kafka's names where Kafka
has them.

Each key is declared once, in the module of its area. ``spec.BROKER_SPEC`` joins all areas.
"""
