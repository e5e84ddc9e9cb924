"""Machines and volumes that move to another node, at their source and at their destination."""
