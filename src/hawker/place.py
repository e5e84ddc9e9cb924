"""The data directory of a node: where everything of it is on disk, and how a local client finds the node."""

import os
from pathlib import Path

from hawker.errors import CannotStart
from hawker.log import bind

_log = bind("hawker.place")


class Place:
    """Paths below one directory. Only `make` and `announce` write."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.store = root / "hawker.db"
        self.token = root / "token"
        self.address = root / "address"
        self.images = root / "images"
        self.machines = root / "machines"
        self.networks = root / "netns"
        self.crun = root / "crun"

    def make(self) -> None:
        """Raises `CannotStart` when the directory cannot be made or written to."""
        try:
            self.root.mkdir(parents=True, exist_ok=True, mode=0o700)
            self.machines.mkdir(exist_ok=True, mode=0o700)
        except OSError as error:
            raise CannotStart(
                f"cannot use the data directory {self.root}: {error.strerror}; choose one with --data-dir"
            ) from error
        if not os.access(self.root, os.W_OK):
            raise CannotStart(f"cannot write to the data directory {self.root}; choose one with --data-dir")

    def announce(self, url: str) -> None:
        """Leave the node's address for clients on this host. A disk that is full must not keep the node from answering:
        then the address that is there, if any, is an old one."""
        draft = self.address.with_suffix(".new")
        try:
            draft.write_text(f"{url}\n")
            draft.rename(self.address)
        except OSError as error:
            _log.warning("cannot leave the address", extra={"path": str(self.address), "reason": error.strerror})
