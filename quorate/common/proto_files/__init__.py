"""Parses .proto files and links them: names are resolved, and what protoc refuses is refused.

The registry of a broker and the typed columns of Spark have it in common. The parser that PyPI has
reads 13 KB/s and takes what is no schema. Protobuf's own library ends the process on some files.
"""
