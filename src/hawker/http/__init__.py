"""HTTP/1.1 as a client speaks it, for the API between nodes and for the API of a VMM. It knows no route and no error of
either: `http1` is one connection, `connection_pool` decides which one a request takes, `transport` joins the two.
"""
