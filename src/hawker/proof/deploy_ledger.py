"""What coordinators of deploys sent, what nodes did of it, and what must hold of that at the moment itself: who begins
what, in which term, and whether a majority of the voters knew before.
"""

from collections.abc import Callable, Iterable, Iterator

from hawker.ids import NodeId
from hawker.proof.violation import Invariant, Violation
from hawker.record.deploy import RegisterRecord, SlotRecord, SlotState
from hawker.value_object import ValueObject

_NEVER = (0, 0)


class SentChange(ValueObject, frozen=True, kw_only=True):
    """A call by which a deploy changes a machine, as its coordinator sends it. `term` is that of its deploy at the
    sender. `slot` is the number of the slot whose machine it orders or changes, `machine` the id of one that is there;
    a call without either announces the term. `begins`: a majority has to know of it before, so that whoever comes next
    does not miss it."""

    node: NodeId
    route: str
    """The name of the call."""
    version: int
    """The number of the release that is deployed."""
    term: int
    slot: int | None = None
    machine: str = ""
    begins: bool = True


class KeptDeploy(ValueObject, frozen=True):
    """What a majority of a deploy's voters surely has: the `term` in which it was written, and its slots."""

    term: int
    slots: tuple[SlotRecord, ...]


def surely_kept(registers: Iterable[RegisterRecord | None]) -> RegisterRecord | None:
    """Of what each node keeps, the newest that a majority of its voters has or goes beyond."""
    written = [each for each in registers if each is not None and each.term]
    newest_first = sorted(written, key=lambda each: (each.term, each.number), reverse=True)
    majority = len(newest_first[0].voters) // 2 + 1 if newest_first else 1
    return newest_first[majority - 1] if len(newest_first) >= majority else None


class DeployLedger:
    """`kept` says what a majority has of a deploy, or None where it has nothing."""

    def __init__(
        self, note: Callable[[Iterable[Violation]], None], kept: Callable[[int], KeptDeploy | None], app: str
    ) -> None:
        self._note = note
        self._kept = kept
        self._app = app
        self._sent: tuple[int, int] = _NEVER
        self._sender: NodeId | None = None
        self._done: dict[NodeId, tuple[int, int]] = {}
        self._changed: set[tuple[int, str]] = set()
        self._waiting: dict[int, frozenset[int]] = {}

    def sent(self, change: SentChange) -> None:
        """Of a deploy that voters keep."""
        self._note(self._two_at_once(change))
        self._note(self._unknown(change))
        self._note(self._paused(change))

    def paused(self, version: int, waiting: Iterable[int]) -> None:
        """It was answered that the deploy is paused; `waiting` are the slots that it had not begun with then."""
        self._waiting[version] = frozenset(waiting)

    def go_on(self) -> None:
        """What is paused is about to be resumed or aborted."""
        self._waiting.clear()

    def _paused(self, change: SentChange) -> Iterator[Violation]:
        if change.begins and change.slot is not None and change.slot in self._waiting.get(change.version, ()):
            what = f"{change.node} sends {change.route} for slot {change.slot}, which waited when it was paused"
            yield Violation(Invariant.PAUSED, f"{self._app}/{change.version}", what)

    def _two_at_once(self, change: SentChange) -> Iterator[Violation]:
        """A coordinator goes on after a later one has begun. That one announces the end of an earlier deploy, whose
        nodes have not heard of it, changes nothing."""
        term = (change.version, change.term)
        if not change.machine and change.slot is None and change.version < self._sent[0]:
            return
        if term < self._sent and change.node != self._sender:
            what = (
                f"{change.node} sends {change.route} in term {_text(term)}, after {self._sender} in {_text(self._sent)}"
            )
            yield Violation(Invariant.ONE_COORDINATOR, self._app, what)
        if term >= self._sent:
            self._sent, self._sender = term, change.node

    def _unknown(self, change: SentChange) -> Iterator[Violation]:
        kept, about = self._kept(change.version), f"{self._app}/{change.version}"
        if kept is None or kept.term < change.term:
            what = f"{change.node} sends {change.route} in term {change.term}, in which no majority has anything"
            yield Violation(Invariant.KEPT_BEFORE, about, what)
            return
        for slot in kept.slots if change.begins else ():
            of_machine = bool(change.machine) and slot.machine == change.machine
            if (of_machine or slot.number == change.slot) and slot.state is SlotState.WAITING:
                what = f"{change.node} sends {change.route} for slot {slot.number}, and a majority has it waiting"
                yield Violation(Invariant.KEPT_BEFORE, about, what)

    def begins(self, node: NodeId) -> tuple[int, int]:
        """The greatest term in which the node has changed a machine until now."""
        return self._done.get(node, _NEVER)

    def did(self, node: NodeId, route: str, term: tuple[int, int], before: tuple[int, int]) -> None:
        """A node has changed a machine in a term; `before` is the greatest that it had changed one in, or had been told
        of, when the call came."""
        if term < before:
            what = f"{node} does {route} in term {_text(term)}, after {_text(before)} there"
            self._note([Violation(Invariant.ONE_COORDINATOR, self._app, what)])
        self._done[node] = max(self._done.get(node, _NEVER), term)

    def changed(self, version: int, machine: str) -> None:
        """A node has given a machine the config of a release, which it gets once from each."""
        if (version, machine) in self._changed:
            self._note([Violation(Invariant.ONE_SLOT, machine, f"was changed to release {version} twice")])
        self._changed.add((version, machine))


def _text(term: tuple[int, int]) -> str:
    return f"{term[0]}/{term[1]}"
