"""The public front door. With one node: its token; the market comes with the fleet."""
