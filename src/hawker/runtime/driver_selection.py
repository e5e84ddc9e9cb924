"""Every driver by name: which one this node runs machines with, what was found of the others, and how each is made.

`decide` comes first and looks at the host; `driver` then makes the one that was decided on.
"""

import os
from collections.abc import Collection
from contextlib import suppress
from functools import partial

from hawker import guest
from hawker.clock import Clock
from hawker.errors import CannotStart
from hawker.host.facts import Facts
from hawker.ids import NodeId
from hawker.log import bind
from hawker.place import Place
from hawker.runtime.container import container_driver
from hawker.runtime.driver import NodeDriver
from hawker.runtime.driver_probe import AUTO, Candidate, DriverVerdict, choose, judge, marked
from hawker.runtime.kernel.guest_kernel import BootFiles, GuestKernel
from hawker.runtime.kernel.kvm_trial import CONTENDERS, KvmTrial, KvmTrials, lack_of_kvm
from hawker.runtime.microvm import microvm_driver
from hawker.runtime.process import process_driver
from hawker.settings import Settings

CONTAINER, PROCESS, QEMU = "container", "process", "qemu"
MICROVMS = tuple(CONTENDERS)
NAMES = (*MICROVMS, CONTAINER, PROCESS)
"""The best first."""

_log = bind("hawker.roster")
_WORKS = {
    CONTAINER: "crun, nftables and control groups are there; machines share the host's kernel",
    PROCESS: "needs nothing; machines are processes of this host, and nothing of it is hidden from them",
}
_UNTRIED = "all that it needs is here; no kernel was booted to see, as --driver auto would"
_ANY_NODE = NodeId("00000000")


class DriverSelection:
    def __init__(self, settings: Settings, facts: Facts, place: Place, clock: Clock) -> None:
        self._settings = settings
        self._facts = facts
        self._place = place
        self._clock = clock
        self._trials = KvmTrials(place.trials, facts.boot_id, clock)

    async def decide(self) -> tuple[DriverVerdict, ...]:
        """What was found of each driver, with the node's own chosen: the one asked for; by default that of the machines
        that are here, else containers for root and processes for everybody else. Makes nothing but results of trials.
        Raises `CannotStart`, also for a driver that knows nothing of the machines that are here."""
        bound = self._bound()
        asked = self._settings.driver or bound or self._usual()
        if asked == AUTO:
            return choose(await judge(self._candidates(MICROVMS)), bound)
        if asked not in NAMES:
            raise CannotStart(f"there is no driver {asked!r}: use {AUTO}, {', '.join(NAMES[:-1])} or {NAMES[-1]}")
        if bound not in (None, asked):
            raise CannotStart(
                f"--driver {asked}: the machines that are here are the {bound} driver's; start with --driver {bound},"
                f" and destroy them first"
            )
        verdicts = await judge(self._candidates([asked]))
        for verdict in verdicts:
            if verdict.name == asked and not verdict.usable:
                raise CannotStart(f"--driver {asked}: {verdict.reason}" if asked in MICROVMS else verdict.reason)
        return marked(verdicts, asked)

    def driver(self, verdicts: tuple[DriverVerdict, ...], node_id: NodeId) -> NodeDriver:
        chosen = next(verdict for verdict in verdicts if verdict.chosen)
        return self._make(chosen.name, node_id, accelerates=chosen.by_itself)

    def remember(self, verdicts: tuple[DriverVerdict, ...]) -> None:
        """What `auto` goes by as long as there are machines. On a full disk it is not remembered yet."""
        chosen = next(verdict for verdict in verdicts if verdict.chosen)
        draft = self._place.driver.with_suffix(".new")
        try:
            draft.write_text(f"{chosen.name}\n")
            draft.rename(self._place.driver)
        except OSError as error:
            _log.warning("cannot remember the driver", extra={"driver": chosen.name, "reason": error.strerror})

    def _usual(self) -> str:
        return CONTAINER if self._facts.root else PROCESS

    def _bound(self) -> str | None:
        """Whose machines are here. A node from before drivers were remembered had the usual one. A directory that
        cannot be read is refused by those who need it."""
        with suppress(OSError):
            if os.listdir(self._place.machines):
                try:
                    return self._place.driver.read_text().strip()
                except FileNotFoundError:
                    return self._usual()
        return None

    def _candidates(self, tried: Collection[str]) -> list[Candidate]:
        return [self._microvm(name, tried=name in tried) for name in MICROVMS] + [
            Candidate(name=name, check=self._make(name, _ANY_NODE).check, works=_WORKS[name])
            for name in (CONTAINER, PROCESS)
        ]

    def _microvm(self, name: str, *, tried: bool) -> Candidate:
        """It is checked as if KVM worked, which the trial then finds out."""
        check = self._make(name, _ANY_NODE, accelerates=True).check
        trial = partial(self._trials.run, CONTENDERS[name], self._files) if tried else _untried
        return Candidate(name=name, check=check, trial=trial, emulates=name == QEMU)

    def _files(self, form: str) -> BootFiles:
        place, settings = self._place, self._settings
        return GuestKernel(place.kernels, settings.kernel, guest.pilot_path(), self._clock).files(form)

    def _make(self, name: str, node_id: NodeId, *, accelerates: bool = False) -> NodeDriver:
        place, settings, clock = self._place, self._settings, self._clock
        if name == CONTAINER:
            suspends = settings.container_suspend == "freeze"
            return container_driver(node_id, place.machines, place.crun, clock, suspends=suspends)
        if name == PROCESS:
            return process_driver(place.machines, clock)
        return microvm_driver(
            name,
            node_id,
            machines=place.machines,
            crun_state=place.crun,
            kernels=place.kernels,
            clock=clock,
            kernel=settings.kernel,
            accelerates=accelerates,
            overhead_mib=settings.vmm_overhead_mib,
        )


async def _untried() -> KvmTrial:
    lack = lack_of_kvm()
    return KvmTrial(boots=not lack, reason=lack or _UNTRIED)
