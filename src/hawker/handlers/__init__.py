"""A node's answers to the route table, one file per noun. They translate; what they call decides."""
