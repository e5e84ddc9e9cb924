"""The commands that play a simulator. `cli/main.py` names the first one, and that one the others."""
