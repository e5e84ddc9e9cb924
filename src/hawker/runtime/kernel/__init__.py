"""The guest kernel: imported from a distribution with the modules it needs; the initramfs that starts the pilot."""
