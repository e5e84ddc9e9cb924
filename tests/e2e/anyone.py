"""To be somebody without rights, and to have a place where such a user may make things."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

AS_NOBODY = (
    *("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"),
    *("--bounding-set=-all,+dac_read_search", "--inh-caps=+dac_read_search", "--ambient-caps=+dac_read_search"),
)
"""Before a command: as a user without any right but to read the checkout, which may be below root's home."""


@contextmanager
def open_to_all() -> Iterator[Path]:
    """A directory that any user may make things in; pytest's own are root's alone."""
    with tempfile.TemporaryDirectory(prefix="hawker-test-") as name:
        Path(name).chmod(0o777)
        yield Path(name)
