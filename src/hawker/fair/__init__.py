"""Fair shares: what tenants share inside a process, how much of it one of them may have, and who is next."""
