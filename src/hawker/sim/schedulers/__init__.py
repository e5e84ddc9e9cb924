"""Five ways to place machines on a fleet, under one workload, in virtual time: what each does well, and what worse."""
