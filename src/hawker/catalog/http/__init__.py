"""The catalog's HTTP API, as Corrosion's agents serve it, over HTTP/1.1 and h2c. `assembly` puts it together, `server`
listens.
"""
