"""The edge of a host and the gates of its machines: connections of clients reach machines here, and nowhere else."""
