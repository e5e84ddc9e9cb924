"""The data directory of a node: where everything of it is on disk, and how a local client finds the node."""

import fcntl
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from hawker.errors import CannotStart
from hawker.ids import NodeId
from hawker.log import bind

_log = bind("hawker.place")
_NODE_ID = re.compile("[0-9a-f]{8}")


def default_data_dir() -> Path:
    """`/var/lib/hawker` for root, else below the user's data directory."""
    if os.geteuid() == 0:
        return Path("/var/lib/hawker")
    return Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local/share") / "hawker"


class Place:
    """Paths below one directory. Only `make`, `announce`, `withdraw` and `remember` write."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.store = root / "hawker.db"
        self.token = root / "token"
        self.key = root / "key"  # that secrets are sealed under
        self.address = root / "address"
        self.identity = root / "node"
        self.images = root / "images"
        self.machines = root / "machines"
        self.volumes = root / "volumes"
        self.snapshots = root / "snapshots"
        self.networks = root / "netns"
        self.crun = root / "crun"
        self.kernels = root / "kernels"
        self.driver = root / "driver"  # whose machines are here
        self.trials = root / "trials.json"  # what booting a kernel with KVM came to
        self.archive = root / "archive"
        self.backup = root / "backup"
        self.cluster = root / "cluster.json"  # whom the node is one of; `hawker.cluster` reads and writes it
        self.audit = root / "audit"
        self.joining = root / "joining"  # a join that is under way
        self.catalog = root / "catalog.db"
        self.dns = root / "dns"  # the lock of the machines' resolver, and what it knows of names
        self.mesh = root / "mesh"  # this host's end of the tunnels to others: its key, and what its program says
        self.mesh_key = self.mesh / "key"
        self.floating = root / "floating"  # which addresses this node has put at the host's interface
        self.logs = root / "logs"  # of apps: what their machines wrote
        self.logs_sent = root / "logs-sent.json"  # how far they were sent elsewhere
        self.files = root / "files"  # what was uploaded for the machines of apps
        self.presence = root / "presence"  # the lock of what answers for this host, and the mark of its daemon
        self.edge = root / "edge"  # the lock, socket and routes of the processes that serve published ports

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

    @contextmanager
    def held(self, *, withdraws: bool = False) -> Iterator[None]:
        """Holds the directory: nobody else has it meanwhile, be its store there or not. In the end the address is
        withdrawn, where that is said. Raises `CannotStart`."""
        fd = os.open(self.root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            self._lock(fd)
            try:
                yield
            finally:
                if withdraws:
                    self.withdraw()
        finally:
            os.close(fd)

    def _lock(self, fd: int) -> None:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            text = f"{self.root} is in use by another hawker: stop it, or choose another data directory"
            raise CannotStart(text) from error

    def remembered(self) -> NodeId | None:
        """The id of the node that was in this directory before; None where there is none to read. Its id is in the
        names of what it has on the host, so a node whose store was lost goes by it again."""
        try:
            text = self.identity.read_text().strip()
        except OSError:
            return None
        return NodeId(text) if _NODE_ID.fullmatch(text) else None

    def remember(self, node_id: NodeId) -> None:
        """A full disk only means that it is not remembered yet."""
        if self.remembered() == node_id:
            return
        try:
            draft = self.identity.with_suffix(".new")
            draft.write_text(f"{node_id}\n")
            draft.rename(self.identity)
        except OSError as error:
            _log.error("cannot remember the node", extra={"file": str(self.identity), "error": str(error)})

    def announce(self, url: str) -> None:
        """Leave the node's address for clients on this host. A disk that is full must not keep the node from answering:
        then the address that is there, if any, is an old one."""
        draft = self.address.with_suffix(".new")
        try:
            draft.write_text(f"{url}\n")
            draft.rename(self.address)
        except OSError as error:
            _log.warning("cannot leave the address", extra={"path": str(self.address), "reason": error.strerror})

    def withdraw(self) -> None:
        """Take the address away: from now on any user of the host may listen there."""
        with suppress(OSError):
            self.address.unlink()
