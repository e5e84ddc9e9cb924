"""What runs where: a SQLite replica on every node. Every row has one owner, the node that its key begins with; owners
publish whole rows, and replicas apply each owner's changes in their order. The description: docs/catalog.md.
"""
