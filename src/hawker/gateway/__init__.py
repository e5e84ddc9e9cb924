"""The API gateway: each call is answered here, merged from several nodes, or forwarded to its owner."""
