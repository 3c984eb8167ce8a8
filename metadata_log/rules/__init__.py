"""The rules: one small function per kind of record, which checks it and writes it into
the draft.
"""
