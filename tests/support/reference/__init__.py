"""Pages of docs/ that are written by the product itself: ``python -m tests.support.reference``.

A test fails while a page is not what this would write.
"""
