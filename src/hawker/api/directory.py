"""What a broker knows of the fleet, and how it reaches a worker. Protocols and values; the catalog or one node alone
keeps them."""

from collections.abc import Mapping, Sequence
from typing import Protocol

from hawker.api.caller import Caller
from hawker.ids import AppName, NodeId
from hawker.node import Capacity, Resources
from hawker.value_object import ValueObject


class Node(ValueObject, frozen=True, kw_only=True):
    """A host of the fleet. `alive` is what gossip says, True where nobody gossips. `capacity` and `used` are what it
    published, which may be late; None for nodes of other regions."""

    id: NodeId
    region: str
    """The region that the node is in, as orders name it."""
    alive: bool = True
    unheard: bool = False
    """Gossip has not spoken of it in the life of this process, and may yet: nobody knows whether it is alive."""
    cordoned: bool = False
    """An operator wants no new machines there."""
    draining: bool = False
    """Its machines are being moved away; it takes no new ones."""
    drivers: tuple[str, ...] = ()
    """The names of the drivers that work there; an order for another one is not sent to it."""
    labels: Mapping[str, str]
    capacity: Capacity | None = None
    used: Resources | None = None

    @property
    def is_down(self) -> bool:
        """As far as gossip tells: it was heard of, or there was time to hear of it, and it does not live."""
        return not self.alive and not self.unheard


class KnownApp(ValueObject, frozen=True, kw_only=True):
    """That a node knows an app. `created_at` is the app's, Unix seconds."""

    node: NodeId
    name: AppName
    org: str
    """The organization that has the app."""
    home: bool
    """Whether the node keeps the app's secrets, policies and claims."""
    created_at: float = 0.0


class KnownMachine(ValueObject, frozen=True, kw_only=True):
    """What a machine's node last published of it. Times are Unix seconds; `image` is a digest."""

    id: str
    """The machine's id, 14 hexadecimal digits."""
    name: str
    """As its app's other machines see it; unique in the app."""
    state: str
    """One of the machine's states, in the words of the API."""
    version: str
    """Of its config, a ULID: a later version is greater."""
    image: str
    private_ip: str
    """The machine's IPv6 address in its private network."""
    cordoned: bool
    """The edge leads no requests to it."""
    metadata: Mapping[str, str]
    created_at: float
    updated_at: float


class KnownVolume(ValueObject, frozen=True, kw_only=True):
    """What a volume's node last published of it. `machine` has it attached, empty when it is free."""

    id: str
    """The volume's id, `vol_` and letters and digits."""
    name: str
    """What mounts of the app's machines name; several volumes may have it."""
    state: str
    """One of the volume's states, in the words of the API."""
    size_gb: int
    """GiB, 1 or more: how much its file system may hold."""
    machine: str


class AppNodes(ValueObject, frozen=True, kw_only=True):
    """Nodes that know an app, and its home, None where nobody asked for it or nobody knows it."""

    nodes: tuple[NodeId, ...] = ()
    home: NodeId | None = None


class AppIndex(Protocol):
    """Who knows which apps, in all regions."""

    def apps(self, org: str | None = None) -> Sequence[KnownApp]: ...

    def app(self, name: AppName) -> Sequence[KnownApp]:
        """One for each node that knows it, its home first."""

    def network_of(self, org: str, network: str) -> int | None:
        """The 32 bits of a private network that has apps, as its oldest app has them."""

    def pairs_of(self, number: int) -> Sequence[tuple[str, str]]:
        """The organizations and networks whose apps have this number."""


class Directory(Protocol):
    """Reads that do not block for longer than a look into a local file."""

    @property
    def region(self) -> str:
        """This broker's own."""

    def nodes(self) -> Sequence[Node]: ...

    def node(self, node_id: NodeId) -> Node | None: ...

    def owner_of_machine(self, machine_id: str, app: AppName | None = None) -> NodeId | None:
        """Of the row that counts, among those of this region; of a machine of that app only, where one is named."""

    def owner_of_volume(self, volume_id: str) -> NodeId | None: ...

    def nodes_of_app(self, app: AppName) -> Sequence[NodeId]:
        """All that know it, in any region; its home first."""

    def home_of_app(self, app: AppName) -> NodeId | None: ...

    async def caught_up(self, token: str, *, timeout_s: float) -> bool:
        """Whether what was written at this place (`origin:epoch:version`) can be read here by now."""


class Peers(Protocol):
    """The way to the workers' peer API."""

    def caller(self, node_id: NodeId, *, behalf: str) -> Caller:
        """Calls this node in the name of `behalf`, which the broker has authenticated. Raises `Unavailable` when it is
        not known where the node is; the calls raise it when nothing was sent."""
