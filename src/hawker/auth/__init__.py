"""Who may call, and what for: tokens that narrow, the keys of the cluster, and what was revoked."""
