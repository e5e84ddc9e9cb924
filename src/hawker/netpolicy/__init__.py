"""Network policies of apps: their operations, and the packet rules that keep them in force."""
