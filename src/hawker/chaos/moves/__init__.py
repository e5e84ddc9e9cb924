"""A machine with its volume moves between real nodes while they are hurt, and a client writes to it all the time."""
