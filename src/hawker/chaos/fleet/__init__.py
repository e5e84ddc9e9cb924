"""Several nodes as real processes, each on a host of its own: a network namespace with a link to the others. Links are
cut, packets are lost, hosts lose their power."""
