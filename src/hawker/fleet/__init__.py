"""A node in its fleet: joining, what it publishes, whom it knows, and the failover of machines to spares."""
