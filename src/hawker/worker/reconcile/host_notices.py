"""What is wrong with the host itself, which an operator has to see to: shown by the doctor, mended by nobody here."""

from collections.abc import Callable, Iterable, Iterator

from hawker.host.egress import exposed_metadata, parse_allowed
from hawker.host.packet_counts import TrackedConnections, connection_table
from hawker.settings import Settings
from hawker.worker.reconcile.findings import Finding, Kind

NEARLY_FULL = 0.8


class HostNotices:
    """`networked`: machines have networks of their own. `cloud` is that whose instance the host is, or "".
    `lacks_reserve` says why the store has none on the disk, or "". `ending` are host names, and what is wrong with the
    certificate of each; `damaged` are backups of volumes, and what is wrong with each."""

    def __init__(
        self,
        settings: Settings,
        *,
        networked: bool,
        cloud: str,
        lacks_reserve: Callable[[], str] = lambda: "",
        ending: Callable[[], Iterable[tuple[str, str]]] = tuple,
        damaged: Callable[[], Iterable[tuple[str, str]]] = tuple,
        connections: Callable[[], TrackedConnections | None] = connection_table,
    ) -> None:
        self._settings = settings
        self._networked = networked
        self._cloud = cloud
        self._lacks_reserve = lacks_reserve
        self._ending = ending
        self._damaged = damaged
        self._connections = connections

    def __call__(self) -> Iterable[Finding]:
        certificates = (Finding(Kind.ENDING_CERTIFICATE, name, what) for name, what in self._ending())
        backups = (Finding(Kind.DAMAGED_BACKUP, name, what) for name, what in self._damaged())
        return [*self._connection_table(), *self._metadata(), *self._reserve(), *certificates, *backups]

    def _reserve(self) -> Iterator[Finding]:
        if lack := self._lacks_reserve():
            yield Finding(Kind.NO_RESERVE, "store", f"the disk keeps nothing for the store: {lack}")

    def _connection_table(self) -> Iterator[Finding]:
        table = self._connections()
        if table is not None and table.share >= NEARLY_FULL:
            what = f"{table.entries} of {table.most} entries are in use; when all are, nobody can connect"
            yield Finding(Kind.FULL_CONNECTIONS, "host", what)

    def _metadata(self) -> Iterator[Finding]:
        if not self._cloud:
            return
        if not self._networked:
            what = "machines use the host's network, and so reach its metadata and credentials"
            yield Finding(Kind.EXPOSED_METADATA, self._cloud, what)
        else:
            opened = exposed_metadata(parse_allowed(self._settings.egress_allow))
            for network in opened:
                yield Finding(Kind.EXPOSED_METADATA, self._cloud, f"egress_allow lets machines reach {network}")
