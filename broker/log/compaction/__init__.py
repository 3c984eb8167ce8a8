"""What is left of a compacted log: of each key the newest record, at the offset it always had.

Pure: batches in, batches out. Who reads them, where the result goes and when are elsewhere.
"""
