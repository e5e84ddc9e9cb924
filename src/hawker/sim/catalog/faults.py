"""What happens to a simulated fleet: writes, cut links, hosts that stop, are killed, lose the end of their file, come
back with an old one or none, are forgotten, learn a newer schema, or have a wrong clock.
"""

from collections.abc import Callable, Mapping

from hawker.catalog.contract import Statement
from hawker.catalog.memory_storage import remove, upsert
from hawker.ids import NodeId
from hawker.sim.catalog.host import CatalogHost
from hawker.sim.catalog.network import CatalogNetwork

KEYS = 6
LOOK_S = 0.4


class CatalogFaults:
    """Over `until`, by the world's time, nothing begins any more."""

    def __init__(self, world: CatalogNetwork, hosts: Mapping[NodeId, CatalogHost], until: float) -> None:
        self._world, self._hosts, self._until = world, hosts, until
        self._chance = world.chance
        self._count = 0
        self._what: Mapping[Callable[[], None], float] = {
            self._cut: 3.0,
            self._cut_one_way: 2.0,
            self._stop: 1.0,
            self._kill: 2.0,
            self._lose_tail: 2.0,
            self._restore: 1.0,
            self._wipe: 1.0,
            self._forget: 2.0,
            self._wrong_clock: 0.5,
            self._mark: 2.0,
        }

    def begin(self) -> None:
        self._world.at(0.3, self._write)
        self._world.at(0.8, self._strike)
        for host in self._hosts.values():
            self._world.at(LOOK_S * self._world.source.random(), self._looks(host))

    def write_one(self, host: CatalogHost) -> None:
        """One transaction of one to four rows."""
        host.write([self._statement(host) for _ in range(self._chance.between(1, 4))])

    def _write(self) -> None:
        if self._world.now < self._until:
            self.write_one(self._anyone())
            self._world.at(2 * self._world.source.random() / self._world.plan.writes_per_s, self._write)

    def _statement(self, host: CatalogHost) -> Statement:
        self._count += 1
        node, key = host.node, str(self._chance.between(1, KEYS))
        kind = self._chance.weighed({"machine": 6, "node": 2, "remove": 4, "extra": 2 if host.new else 0})
        state = "odd" if self._chance.happens(0.05) else f"state {self._count}"
        match kind:
            case "machine":
                more = {"name": str(self._count)} if host.new and self._chance.happens(0.5) else {}
                return upsert("machines", {"node": node, "id": key, "state": state} | more)
            case "extra":
                return upsert("extras", {"node": node, "id": key, "state": state})
            case "node":
                return upsert("nodes", {"node": node, "region": state})
            case _:
                return remove("machines", {"node": node, "id": key})

    def _looks(self, host: CatalogHost) -> Callable[[], None]:
        def look() -> None:
            if host.up:
                host.look_around()
            self._world.at(LOOK_S * (0.5 + self._world.source.random()), look)

        return look

    def _strike(self) -> None:
        if self._world.now < self._until:
            self._chance.weighed(self._what)()
            self._world.at(2 * self._world.source.random() * self._world.plan.fault_every_s, self._strike)

    def _anyone(self) -> CatalogHost:
        return self._chance.one_of(list(self._hosts.values()))

    # links

    def _cut(self) -> None:
        self._cut_between(both=True)

    def _cut_one_way(self) -> None:
        self._cut_between(both=False)

    def _cut_between(self, *, both: bool) -> None:
        here = {node for node in self._hosts if self._chance.happens(0.4)}
        links = {(one, other) for one in here for other in self._hosts if other not in here}
        links |= {(other, one) for one, other in links} if both else set()
        self._world.cut |= links
        self._world.at(0.3 + 3 * self._world.source.random(), lambda: self._world.cut.difference_update(links))

    # hosts

    def _down(self, how: Callable[[CatalogHost], None]) -> None:
        """At most half of the fleet at a time. A host may come back with a newer schema."""
        host = self._anyone()
        if not host.up or sum(not each.up for each in self._hosts.values()) * 2 >= len(self._hosts):
            return
        if self._chance.happens(0.3):
            self.write_one(host)
        how(host)
        away_s = 0.1 + 4 * self._world.source.random() ** 2
        self._world.at(away_s, lambda: self.come_back(host))

    def come_back(self, host: CatalogHost) -> None:
        if not host.up and not host.gone:
            host.new = host.new or self._chance.happens(0.3)
            host.start()

    def _stop(self) -> None:
        self._down(lambda host: host.end(host.disk.stop))

    def _kill(self) -> None:
        self._down(lambda host: host.end(host.disk.kill))

    def _lose_tail(self) -> None:
        """The end of the file is lost: it is as it was a moment ago."""

        def begin(host: CatalogHost) -> None:
            host.disk.mark()
            life = host.life

            def end() -> None:
                if host.life == life:
                    self.write_one(host)
                    host.end(host.disk.kill)
                    host.disk.rewind(whole=False)
                    self._world.at(0.1 + self._world.source.random(), lambda: self.come_back(host))

            self._world.at(0.5 * self._world.source.random(), end)

        host = self._anyone()
        if host.up:
            begin(host)

    def _mark(self) -> None:
        host = self._anyone()
        if host.up:
            host.disk.mark()

    def _restore(self) -> None:
        def restore(host: CatalogHost) -> None:
            host.end(host.disk.kill)
            host.disk.rewind(whole=False)

        self._down(restore)

    def _wipe(self) -> None:
        def wipe(host: CatalogHost) -> None:
            host.end(host.disk.kill)
            host.disk.wipe()

        self._down(wipe)

    def _forget(self) -> None:
        """By anybody; who was forgotten may never come back, or be up all the time."""
        away = [host for host in self._hosts.values() if not host.up]
        forgotten, by = self._chance.one_of(away) if away else self._anyone(), self._anyone()
        if by.up and by is not forgotten:
            self._cut()
            by.forget(forgotten.node)
            if not forgotten.up and self._chance.happens(0.4):
                forgotten.gone = True

    def _wrong_clock(self) -> None:
        self._anyone().clock.wrong_s = self._chance.one_of((-86_400.0, 0.0, 3.0, 86_400.0))
