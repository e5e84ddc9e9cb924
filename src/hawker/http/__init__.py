"""HTTP/1.1 as a client speaks it, for the API between nodes and for the API of a VMM. It knows no route and no error of
either: `connection_pool` has a connection, decides which one a request takes, and joins the two.
"""
