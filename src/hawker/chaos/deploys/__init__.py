"""A trial of deploys on a real fleet behind its edges."""
