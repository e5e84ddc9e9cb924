"""Moves of machines and volumes between nodes, played: two crashes, a network that loses, and a power that fails."""
