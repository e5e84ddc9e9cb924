"""A worker and all that is around it in one process and in virtual time, and the mischief that is done to it."""
