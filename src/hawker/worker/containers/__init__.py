"""Several containers in one machine: when each is started, started again, stopped, and when the machine has ended."""
