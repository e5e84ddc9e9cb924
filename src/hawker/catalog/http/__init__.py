"""The catalog's HTTP API, as Corrosion's agents serve it, over HTTP/1.1 and h2c. `CatalogApp` answers, `serving` listens."""
