"""Proof by damage: a real node is hurt on purpose, and what it makes of that is compared with what it promised."""
