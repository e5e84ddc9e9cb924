"""What the simulators of a worker, a fleet and a catalog share."""
