"""A worker among others: what it tells the fleet of itself, whom it knows, and the cluster's keys."""
