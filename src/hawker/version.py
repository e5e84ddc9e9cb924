"""Which Hawker this is. The packages are built from this line, and reading it costs nothing: what is known of installed
packages takes a command longer to import than everything else that it needs.
"""

VERSION = "0.1.0"
