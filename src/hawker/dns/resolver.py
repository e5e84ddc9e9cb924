"""What a node's resolver does with a question: names of the asker's own network from what is known here, all others by
way of `forward`. Which network asks is told by the link that the question came over, never by what is in it.
"""

from collections import Counter, defaultdict
from collections.abc import Sequence
from functools import lru_cache
from ipaddress import IPv6Address, ip_address
from pathlib import Path

from msgspec.structs import replace

from hawker.clock import Clock
from hawker.dns.answer import TCP_BYTES, Question, answer, failed, read_question, reordered, spelling, wire_of
from hawker.dns.forward import Forwarder
from hawker.dns.plain import plain_answer, read_plain
from hawker.dns.view import View, view_of
from hawker.errors import OverShare
from hawker.names import FILE, RESOLVER, KnownNames, KnownZone, NamedMachine, read_names
from hawker.token_bucket import Allowance, TokenBuckets
from hawker.value_object import ValueObject

QUESTIONS = Allowance(1000.0, 2000)
"""Questions of one machine: 1000 a second, and 2000 at once."""
_LOOK_EVERY_S = 0.05
_SAID, _SAID_OF_NETWORK, _SAID_S = 4096, 1024, 0.1
"""Answers that are given again as long as nothing else is known, how many of them of one network, and for how many
seconds in one order. A longer one counts once for each `_PART_BYTES`."""
_PART_BYTES, _QUESTION_AT = 1233, 12
_SOURCES = 4096
"""The number of addresses whose machines are remembered."""
_ID_BYTES = 2
_HOST_FILE = Path("/etc/resolv.conf")


class AskingNetwork(ValueObject, frozen=True):
    """The network that a question is from; `entered`: the question is from a computer that came in over WireGuard."""

    network_id: int
    """The number of the private network, computed from its organization and name; 0 to 4294967295."""
    entered: bool = False


class Names:
    """The names that the worker has written last, as views. `now` is monotonic."""

    def __init__(self, folder: Path, clock: Clock) -> None:
        self._folder = folder
        self._now = clock.monotonic
        self._chance = clock.random
        self._looked, self._stamp = float("-inf"), (0, 0)
        self._known: KnownNames | None = None
        self._of_network: dict[int, KnownNames] = {}
        self._views: dict[AskingNetwork, View] = {}

    def view(self, asker: AskingNetwork) -> View | None:
        """The view of the asker's network; None as long as no names are known."""
        self._look()
        if self._known is None:
            return None
        if asker not in self._views:
            known = self._of_network.get(asker.network_id) or replace(self._known, machines=())
            self._views[asker] = view_of(known, asker.network_id, self._shuffle, entered=asker.entered)
        return self._views[asker]

    def _shuffle(self, machines: list[NamedMachine]) -> None:
        machines.sort(key=lambda each: self._chance())

    @property
    def known(self) -> KnownNames | None:
        """All that answers come from; another object once the worker has written other names. None as long as no names
        are known."""
        self._look()
        return self._known

    def zone(self) -> KnownZone | None:
        """The zone of the platform's own domain; None where there is no zone, or no names are known."""
        self._look()
        return self._known.zone if self._known is not None else None

    def entered(self) -> frozenset[int]:
        """The ids of the networks that people's computers are in through this node."""
        self._look()
        return frozenset(each.network_id for each in (self._known.peers if self._known else ()) if each.here)

    def upstream(self) -> Sequence[str]:
        """The addresses of the servers for names of the world: those that the worker has named, else those of the
        host."""
        self._look()
        given = self._known.upstream if self._known is not None else ()
        return given or host_servers(_HOST_FILE)

    def _look(self) -> None:
        if self._now() < self._looked + _LOOK_EVERY_S:
            return
        self._looked = self._now()
        try:
            found = (self._folder / FILE).stat()
        except OSError:
            return
        stamp = (found.st_mtime_ns, found.st_ino)
        if stamp != self._stamp:
            self._stamp = stamp
            self._take(read_names(self._folder) or self._known)

    def _take(self, known: KnownNames | None) -> None:
        self._known, self._views = known, {}
        self._of_network = {} if known is None else by_network(known)


def by_network(known: KnownNames) -> dict[int, KnownNames]:
    """What is known, with the machines of one network each: to look through all machines for each network took 3 ms for
    1,000 of them."""
    machines: defaultdict[int, list[NamedMachine]] = defaultdict(list)
    for machine in known.machines:
        machines[machine.network_id].append(machine)
    return {network_id: replace(known, machines=tuple(those)) for network_id, those in machines.items()}


def host_servers(file: Path) -> tuple[str, ...]:
    """The addresses of the name servers in a file as of resolv.conf(5), also those on loopback: the host itself asks
    them."""
    try:
        words = [line.split() for line in file.read_text().splitlines()]
    except OSError:
        return ()
    named = [line[1] for line in words if len(line) > 1 and line[0] == "nameserver"]
    return tuple(name for name in named if _is_address(name) and ip_address(name) != RESOLVER)


def _is_address(text: str) -> bool:
    try:
        ip_address(text)
    except ValueError:
        return False
    return True


class Said(ValueObject, frozen=True):
    """An answer without its id, `until` when it is given in this order (monotonic seconds), and the names that were
    `known` for it."""

    answer: bytes
    """A DNS message from behind its id on; each asker gets it behind the id of the question."""
    until: float
    known: KnownNames | None

    @property
    def parts(self) -> int:
        """What it counts for: one that only fits TCP has many."""
        return 1 + len(self.answer) // _PART_BYTES


class NameResolver:
    """Answers the questions of machines and of people's computers, for one event loop."""

    def __init__(self, names: Names, forwarder: Forwarder, clock: Clock) -> None:
        self._names = names
        self._forwarder = forwarder
        self._clock = clock
        self._questions = TokenBuckets(QUESTIONS)
        self._said: dict[AskingNetwork, dict[bytes, Said]] = {}
        self._parts: Counter[AskingNetwork] = Counter()  # of the answers of each
        self._count = 0  # the parts of all of them

    def entered(self) -> frozenset[int]:
        """The ids of the networks that people's computers are in through this node."""
        return self._names.entered()

    def admits(self, source: str) -> bool:
        """Whether the machine at `source` may ask once more now; the question is counted then."""
        return self._questions.take(machine_of(source).encode(), self._clock.monotonic())

    def at_once(self, data: bytes, asker: AskingNetwork, *, tcp: bool = False) -> bytes | Question | None:
        """The answer; or the question, where another server has to be asked; or None for a message that gets no
        answer."""
        found = self._ours(data, asker, tcp=tcp)
        return self._forwarder.kept(found, tcp=tcp) or found if isinstance(found, Question) else found

    def _ours(self, data: bytes, asker: AskingNetwork, *, tcp: bool) -> bytes | Question | None:
        """The same question, but for its id and upper case, has the same answer for a moment, and then the same in
        another order until something else is known: to work an answer out costs fifteen times as much."""
        found, now, known = spelling(data, tcp=tcp), self._clock.monotonic(), self._names.known
        if found is None:
            return self._worked_out(data, asker, tcp=tcp)
        key, end = found
        of_network = self._said.get(asker)
        said = None if of_network is None else of_network.get(key)
        if of_network is None or said is None or said.known is not known:
            answer = self._worked_out(data, asker, tcp=tcp)
            if isinstance(answer, bytes) and answer[_QUESTION_AT:end] == data[_QUESTION_AT:end]:
                self._keep(asker, key, Said(answer[_ID_BYTES:], now + _SAID_S, known))
            return answer
        if now >= said.until:
            again = reordered(said.answer, self._clock.random)
            said = of_network[key] = Said(again, now + _SAID_S, known)
        name = data[_QUESTION_AT:end]
        return data[:_ID_BYTES] + said.answer[: _QUESTION_AT - _ID_BYTES] + name + said.answer[end - _ID_BYTES :]

    def _keep(self, asker: AskingNetwork, key: bytes, said: Said) -> None:
        """A network that asks for too many names loses its own answers; of all together those of the network that has
        most are lost."""
        mine = self._said.setdefault(asker, {})
        before = mine.pop(key, None)
        if before is not None:
            self._charge(asker, -before.parts)
        if self._parts[asker] + said.parts > _SAID_OF_NETWORK:
            self._forget(asker)
        while self._count + said.parts > _SAID:
            self._forget(max(self._parts, key=lambda each: self._parts[each]))
        self._said.setdefault(asker, {})[key] = said
        self._charge(asker, said.parts)

    def _charge(self, asker: AskingNetwork, parts: int) -> None:
        self._parts[asker] += parts
        self._count += parts

    def _forget(self, asker: AskingNetwork) -> None:
        self._count -= self._parts.pop(asker)
        self._said.pop(asker)

    def _worked_out(self, data: bytes, asker: AskingNetwork, *, tcp: bool) -> bytes | Question | None:
        view, plain = self._names.view(asker), read_plain(data)
        if view is not None and plain is not None:
            found = plain_answer(plain, view, TCP_BYTES if tcp else plain.most)
            if found is not None:
                return found
        asked = read_question(data)
        if asked is None:
            return None
        if not isinstance(asked, Question):
            return wire_of(asked, TCP_BYTES if tcp else 512)
        if not asked.is_ours:
            return asked
        most = TCP_BYTES if tcp else asked.most
        reply = failed(asked) if view is None else answer(asked, view, most)
        return wire_of(reply, most, in_any_order=False)

    async def forwarded(self, asked: Question, network_id: int, source: str, *, tcp: bool = False) -> bytes:
        """The answer of another server, or SERVFAIL when there was none."""
        try:
            found = await self._forwarder.ask(asked, network_id, machine_of(source), tcp=tcp)
        except OverShare:
            found = None
        return found or wire_of(failed(asked), TCP_BYTES if tcp else asked.most)


@lru_cache(maxsize=_SOURCES)
def machine_of(source: str) -> str:
    """The machine that a question is from, by the 112 bits of the address that are the machine's own. A machine may
    take any address below them."""
    return str(int(IPv6Address(source.partition("%")[0])) >> 16)
