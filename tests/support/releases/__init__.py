"""Earlier releases, built from the repository's history, and clusters of two releases at once."""
