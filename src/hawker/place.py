"""The data directory of a node: where everything of it is on disk, and how a local client finds the node."""

import os
import re
from pathlib import Path

from hawker.errors import CannotStart
from hawker.ids import NodeId

_NODE_ID = re.compile("[0-9a-f]{8}")
from hawker.log import bind

_log = bind("hawker.place")


class Place:
    """Paths below one directory. Only `make`, `announce` and `remember` write."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.store = root / "hawker.db"
        self.token = root / "token"
        self.address = root / "address"
        self.identity = root / "node"
        self.images = root / "images"
        self.machines = root / "machines"
        self.networks = root / "netns"
        self.crun = root / "crun"
        self.archive = root / "archive"

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

    def remembered(self) -> NodeId | None:
        """Who the node was that was here before. Its name is in the names of what it has on the host, so a node whose
        store was lost goes by it again."""
        try:
            text = self.identity.read_text().strip()
        except OSError:
            return None
        return NodeId(text) if _NODE_ID.fullmatch(text) else None

    def remember(self, node_id: NodeId) -> None:
        if self.remembered() != node_id:
            draft = self.identity.with_suffix(".new")
            draft.write_text(f"{node_id}\n")
            draft.rename(self.identity)

    def announce(self, url: str) -> None:
        """Leave the node's address for clients on this host. A disk that is full must not keep the node from answering:
        then the address that is there, if any, is an old one."""
        draft = self.address.with_suffix(".new")
        try:
            draft.write_text(f"{url}\n")
            draft.rename(self.address)
        except OSError as error:
            _log.warning("cannot leave the address", extra={"path": str(self.address), "reason": error.strerror})
