"""The Linux host: one file per kernel feature. Knows nothing of machines' records."""
