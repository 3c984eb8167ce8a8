"""The logic of the check before a release."""
