"""From an image's name to a root filesystem: references, registries, layers, the cache."""
