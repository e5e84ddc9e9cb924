"""The HTTP contract and both ends of it: bodies, the route table, the typed client, the server."""
