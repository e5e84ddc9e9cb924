"""The host's end of the tunnels to other hosts: what a device is told, and the device."""
