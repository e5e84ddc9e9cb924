"""Quotas: what an organization or an app may have of a fleet, and what it has."""
