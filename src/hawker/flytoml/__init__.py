"""fly.toml, fly.json and fly.yaml: text to values with their places, to an app's config, to machine configs. Pure."""
