"""Durable flows: operations as tables of steps, recorded as they happen and resumed where they stopped."""
