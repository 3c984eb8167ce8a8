"""Schemas in the languages AVRO, JSON and PROTOBUF: parsing, canonical texts, and whether data of
one schema can be read with another. All of it is pure.
"""
