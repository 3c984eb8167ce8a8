"""What is checked about the structure of the code, as it shows while real processes run."""
