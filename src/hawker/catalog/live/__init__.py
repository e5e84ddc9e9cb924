"""Live queries: the answer of a statement kept on disk, and told anew whenever it changes. `Live` is the way in."""
