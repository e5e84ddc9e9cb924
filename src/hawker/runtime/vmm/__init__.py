"""Virtual machine monitors: what each is told, the jail that it runs in, and how it is spoken to."""
