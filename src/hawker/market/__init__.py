"""Market."""
