"""The cluster's simulator: whole brokers with controller and clients, from one seed."""
