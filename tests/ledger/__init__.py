"""The ledger: which tests show each demand, and which missing guard they notice.

``python -m tests.ledger`` prints it.
"""
