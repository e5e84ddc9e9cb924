"""Every driver by name: which one this node runs machines with, what was found of the others, and how each is made.

`decide` comes first and looks at the host; `driver` then makes the one that was decided on. The others are looked at
when somebody asks: a boot waits for none of them, and what they are made of is not imported before.
"""

import os
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

import anyio

from hawker import guest
from hawker.clock import Clock
from hawker.deferred import deferred
from hawker.errors import CannotStart
from hawker.host.facts import Facts
from hawker.host.mapping_trial import TRIED_ID
from hawker.ids import NodeId
from hawker.log import bind
from hawker.place import Place
from hawker.runtime.container import container_driver, launcher_trial
from hawker.runtime.driver import NodeDriver
from hawker.runtime.driver_probe import AUTO, Candidate, DriverVerdict, choose, judge, marked
from hawker.runtime.launcher.launcher_choice import LauncherChoice
from hawker.settings import Settings

if TYPE_CHECKING:
    from hawker.runtime import microvm, process
    from hawker.runtime.kernel import guest_kernel, kvm_trial
    from hawker.runtime.kernel.guest_kernel import BootFiles
    from hawker.runtime.kernel.kvm_trial import KvmTrial
else:
    microvm = deferred("hawker.runtime.microvm")
    process = deferred("hawker.runtime.process")
    guest_kernel = deferred("hawker.runtime.kernel.guest_kernel")
    kvm_trial = deferred("hawker.runtime.kernel.kvm_trial")

CONTAINER, PROCESS, QEMU = "container", "process", "qemu"
MICROVMS = ("cloud-hypervisor", "firecracker", QEMU)
NAMES = (*MICROVMS, CONTAINER, PROCESS)
"""The names of all drivers, the best first."""

_log = bind("hawker.driver_selection")
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
        self._launcher = LauncherChoice.HAWKER if settings.launcher == "hawker" else LauncherChoice.CRUN
        self._why_launcher = ""  # said once the node is not refused any more: a refusal is one line
        self._verdicts: tuple[DriverVerdict, ...] = ()
        self._looking = anyio.Lock()

    async def decide(self) -> tuple[DriverVerdict, ...]:
        """The verdict on the node's own driver, which is chosen: the driver asked for; by default that of the machines
        that are here, else containers for root and processes for every other user. With `auto`, also the verdicts on
        all others. Makes nothing but results of trials. Raises `CannotStart`, also for a driver that knows nothing of
        the machines that are here."""
        self._verdicts = await self._decided()
        return self._verdicts

    async def looked(self) -> tuple[DriverVerdict, ...]:
        """The verdicts on every driver, the best first. The first call looks at the other drivers; `decide` comes
        before."""
        async with self._looking:
            known = {verdict.name: verdict for verdict in self._verdicts}
            others = [self._candidate(name) for name in NAMES if name not in known]
            known |= {verdict.name: verdict for verdict in await judge(others)}
            self._verdicts = tuple(known[name] for name in NAMES)
            return self._verdicts

    async def _decided(self) -> tuple[DriverVerdict, ...]:
        bound = self._bound()
        verdicts = await self._decide(bound)
        if self._settings.launcher == AUTO and any(each.chosen and each.name == CONTAINER for each in verdicts):
            self._launcher = await self._choose_launcher()
        return verdicts

    async def _decide(self, bound: str | None) -> tuple[DriverVerdict, ...]:
        asked = self._settings.driver or bound or self._usual()
        if asked == AUTO:
            return choose(await judge([self._candidate(name, tried=True) for name in NAMES]), bound)
        if asked not in NAMES:
            raise CannotStart(f"there is no driver {asked!r}: use {AUTO}, {', '.join(NAMES[:-1])} or {NAMES[-1]}")
        if bound not in (None, asked):
            raise CannotStart(
                f"--driver {asked}: the machines that are here are the {bound} driver's; start with --driver {bound},"
                f" and destroy them first"
            )
        [verdict] = await judge([self._candidate(asked, tried=True)])
        if not verdict.usable:
            raise CannotStart(f"--driver {asked}: {verdict.reason}" if asked in MICROVMS else verdict.reason)
        return marked([verdict], asked)

    def driver(self, verdicts: tuple[DriverVerdict, ...], node_id: NodeId) -> NodeDriver:
        chosen = next(verdict for verdict in verdicts if verdict.chosen)
        return self._make(chosen.name, node_id, accelerates=chosen.by_itself)

    def remember(self, verdicts: tuple[DriverVerdict, ...]) -> None:
        """Write down the chosen driver, by which `auto` goes as long as there are machines. On a full disk it is not
        remembered yet."""
        if self._why_launcher:
            _log.info("launcher chosen", extra={"launcher": self._launcher.value, "reason": self._why_launcher})
        chosen = next(verdict for verdict in verdicts if verdict.chosen)
        draft = self._place.driver.with_suffix(".new")
        try:
            draft.write_text(f"{chosen.name}\n")
            draft.rename(self._place.driver)
        except OSError as error:
            _log.warning("cannot remember the driver", extra={"driver": chosen.name, "reason": error.strerror})

    async def _choose_launcher(self) -> LauncherChoice:
        """Ours where its box was found to be crun's."""
        maps = self._make(CONTAINER, _ANY_NODE).features.user_namespace
        first_id = TRIED_ID if maps else None
        trial = launcher_trial(self._place.root, self._facts.boot_id, self._clock, first_id)
        found = await trial.run()
        choice = LauncherChoice.HAWKER if found.alike else LauncherChoice.CRUN
        self._why_launcher = found.reason
        return choice

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

    def _candidate(self, name: str, *, tried: bool = False) -> Candidate:
        """A microVM is checked as if KVM worked, which the trial then finds out."""
        if name not in MICROVMS:
            return Candidate(name=name, check=self._make(name, _ANY_NODE).check, works=_WORKS[name])
        check = self._make(name, _ANY_NODE, accelerates=True).check
        trials = kvm_trial.KvmTrials(self._place.trials, self._facts.boot_id, self._clock)
        trial = partial(trials.run, kvm_trial.CONTENDERS[name], self._files) if tried else _untried
        return Candidate(name=name, check=check, trial=trial, emulates=name == QEMU)

    def _files(self, form: str) -> "BootFiles":
        place, settings = self._place, self._settings
        return guest_kernel.GuestKernel(place.kernels, settings.kernel, guest.pilot_path(), self._clock).files(form)

    def _make(self, name: str, node_id: NodeId, *, accelerates: bool = False) -> NodeDriver:
        place, settings, clock = self._place, self._settings, self._clock
        if name == CONTAINER:
            suspends = settings.container_suspend == "freeze"
            return container_driver(
                node_id,
                place.machines,
                place.crun,
                clock,
                suspends=suspends,
                userns=settings.userns,
                launcher=self._launcher,
            )
        if name == PROCESS:
            return process.process_driver(place.machines, clock)
        return microvm.microvm_driver(
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


async def _untried() -> "KvmTrial":
    lack = kvm_trial.lack_of_kvm()
    return kvm_trial.KvmTrial(boots=not lack, reason=lack or _UNTRIED)
