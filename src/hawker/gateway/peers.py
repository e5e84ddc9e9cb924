"""The ways to the workers' peer API: over HTTP with connections that are kept, or within the process to the worker that
the broker stands beside.
"""

from collections import OrderedDict
from collections.abc import Callable
from typing import NamedTuple

from hawker.api.caller import Caller
from hawker.api.client import Client
from hawker.api.directory import Peers
from hawker.api.handlers import Handlers, Written
from hawker.api.in_process import InProcessCaller
from hawker.clock import Clock
from hawker.errors import Unavailable
from hawker.http.message import OriginTls
from hawker.http.mutual_tls import MutualTls, name_of
from hawker.ids import NodeId
from hawker.log import Secret

CONNECT_S = 2.0
CONNECTIONS = 128
MOST_NODES = 2048


class _Way(NamedTuple):
    node: NodeId
    root: bool
    url: str
    token: str


class HttpPeers:
    """Keeps `Peers`, for the node `me`, which each call names. `address_of` gives a node's base URL, `token` what the
    cluster shows each other now: both may change. `tls` is what `me` shows where an address is of https. A node has at
    most `connections` at once."""

    def __init__(
        self,
        address_of: Callable[[NodeId], str | None],
        token: Callable[[], Secret],
        *,
        me: NodeId,
        tls: MutualTls | None = None,
        connect_s: float = CONNECT_S,
        connections: int = CONNECTIONS,
        most_nodes: int = MOST_NODES,
    ) -> None:
        self._addresses_of = [address_of]
        self._token = token
        self.me = me
        self._tls = tls
        self._connect_s = connect_s
        self._connections = connections
        self._most_nodes = most_nodes
        self._clients: OrderedDict[_Way, Client] = OrderedDict()  # the least recently used first
        self._retired: list[Client] = []

    def caller(self, node_id: NodeId, *, behalf: str) -> Caller:
        return self._client(node_id, self._url(node_id), self._token()).on_behalf(behalf)

    def to(self, node_id: NodeId, behalf: str) -> Caller:
        return self.caller(node_id, behalf=behalf)

    def own(self, root: Secret) -> Peers:
        """The way of a broker to its own node, which is on this host, for what nodes may not ask of each other."""
        return _OwnNode(self, root)

    def as_root(self, node_id: NodeId, root: Secret, *, behalf: str) -> Caller:
        return self._client(node_id, self._url(node_id), root, root=True).on_behalf(behalf)

    def _url(self, node_id: NodeId) -> str:
        """Raises `Unavailable`."""
        url = next((url for address_of in self._addresses_of if (url := address_of(node_id))), None)
        if url is None:
            raise Unavailable(f"it is not known where node {node_id} is")
        return url

    def ask_also(self, address_of: Callable[[NodeId], str | None]) -> None:
        """Adds `address_of` for the address of a node that nobody who was asked before knows: gossip may not have heard
        it yet."""
        self._addresses_of.append(address_of)

    async def close(self) -> None:
        """Calls that are under way are lost."""
        clients = [*self._clients.values(), *self._retired]
        self._clients.clear()
        self._retired.clear()
        for client in clients:
            await client.close()

    def _client(self, node_id: NodeId, url: str, token: Secret, *, root: bool = False) -> Client:
        key = _Way(node_id, root, url, token.reveal())
        client = self._clients.get(key)
        if client is None:
            self._retire([known for known in self._clients if (known.node, known.root) == (node_id, root)])
            tls = None if self._tls is None else OriginTls(self._tls.client, name_of(node_id))
            client = Client(url, token, connect_s=self._connect_s, connections=self._connections, node=self.me, tls=tls)
            self._clients[key] = client
            self._retire(list(self._clients)[: max(0, len(self._clients) - self._most_nodes)])
        self._clients.move_to_end(key)
        return client

    def _retire(self, keys: list[_Way]) -> None:
        """What is under way on them comes to its end; connections that nobody uses close themselves."""
        self._retired += [self._clients.pop(key) for key in keys]
        del self._retired[: -self._most_nodes]


class _OwnNode:
    """Keeps `Peers` for one node, the broker's own: the root token goes nowhere else."""

    def __init__(self, peers: HttpPeers, root: Secret) -> None:
        self._peers = peers
        self._root = root

    def caller(self, node_id: NodeId, *, behalf: str) -> Caller:
        assert node_id == self._peers.me, "the root token goes to the broker's own node alone"
        return self._peers.as_root(node_id, self._root, behalf=behalf)


class BesidePeers:
    """Keeps `Peers` for a broker in the process of the worker `own`, whose `handlers` it calls without HTTP; `others`
    lead to all other nodes. `written` says where what was written here can be read."""

    def __init__(
        self, own: NodeId, handlers: Handlers, clock: Clock, others: Peers, written: Written | None = None
    ) -> None:
        self._own = own
        self._handlers = handlers
        self._clock = clock
        self._others = others
        self._written = written

    def caller(self, node_id: NodeId, *, behalf: str) -> Caller:
        if node_id == self._own:
            return InProcessCaller(self._handlers, self._clock, behalf, self._written)
        return self._others.caller(node_id, behalf=behalf)

    def to(self, node_id: NodeId, behalf: str) -> Caller:
        return self.caller(node_id, behalf=behalf)
