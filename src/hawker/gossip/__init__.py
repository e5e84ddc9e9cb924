"""Who is alive: SWIM with Lifeguard, and sealed messages between nodes. Nothing here knows what the messages are about.

Pure protocol; sockets are in `transport`. The protocol's description: docs/gossip.md.
"""
