"""Output of machines and the node's own words about them, kept for each app, also of machines that are gone."""
