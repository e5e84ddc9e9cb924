"""The HTTP API by noun: what is sent, what is answered, and the rows of the route table."""
