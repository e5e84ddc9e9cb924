"""What Hawker promises, as checks: the same for the crash tests, for chaos on a real node and for the simulator."""
