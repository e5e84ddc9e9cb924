"""What a worker stores: every record and its bucket, by noun, and pure readings of them."""
