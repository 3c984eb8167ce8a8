"""View models: what a page shows, computed from what the cluster answered. Pure."""
