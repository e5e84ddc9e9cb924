"""The host's side of the pilot: its protocol, its journal and its output, and the driver half that all
technologies share whose pilot is a process of this host."""
