"""What users may ask for: options by name, checked before anything is opened."""
