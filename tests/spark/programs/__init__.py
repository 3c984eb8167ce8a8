"""What users would write: run by the Python that the wheel is installed in, never imported."""
