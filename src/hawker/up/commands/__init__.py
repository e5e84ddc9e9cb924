"""The commands that start a node or a broker. `cli/main.py` names each."""
