"""How the node shows itself at work: metrics, spans, and a watchdog over its event loop. It knows no other room."""
