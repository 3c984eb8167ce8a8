"""The format ``quorate-metadata``: the changes of the metadata log as rows, with their authors."""
