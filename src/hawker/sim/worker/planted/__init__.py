"""The planted bugs: each is what a worker of this kind gets wrong, and the simulator must find every one."""

from hawker.proof.violation import Invariant as I
from hawker.sim.harness.planted_bug import PlantedBug
from hawker.sim.node.kit import WorkerKit
from hawker.sim.worker.planted import daemon, host


def _plant(name: str, what: str, kit: WorkerKit, *breaks: I) -> PlantedBug[WorkerKit]:
    return PlantedBug(name=name, what=what, kit=kit, breaks=frozenset(breaks))


PLANTS: tuple[PlantedBug[WorkerKit], ...] = (
    _plant("no-fsync", "what is acknowledged is not yet on disk", WorkerKit(store=daemon.Unsynced), I.KEPT),
    _plant(
        "two-commits",
        "a record and the run that it waits for are written in two transactions",
        WorkerKit(store=daemon.Halved),
        I.ANSWERS,
        I.KEPT,
        I.WHOLE,
        I.LEGAL_PATH,
    ),
    _plant(
        "recorded-before-done",
        "the removal of a network is recorded before it is done",
        WorkerKit(flows=daemon.records_first),
        I.NOTHING_STRAY,
    ),
    _plant("no-undo", "what a step made half is left there", WorkerKit(flows=daemon.without_undo), *I),
    _plant(
        "undo-of-another",
        "an undo ends an instance that is not its own",
        WorkerKit(flows=daemon.undoes_for_all),
        I.UNDISTURBED,
        I.EXIT_ONCE,
    ),
    _plant("skipped-step", "a resumed run goes on one step too far", WorkerKit(runner=daemon.SkipsAStep), *I),
    _plant(
        "late-launch",
        "a start that was overtaken by a stop is done all the same",
        WorkerKit(flows=daemon.launches_unawaited),
        *I,
    ),
    _plant("no-release", "a stop does not unmount", WorkerKit(flows=daemon.without_release), I.NOTHING_STRAY),
    _plant(
        "wrong-pid",
        "a stranger that has the process id of an ended instance is adopted",
        WorkerKit(driver=host.TrustsPids),
        I.ONE_INSTANCE,
        I.EXIT_ONCE,
        I.ANSWERS,
    ),
    _plant(
        "lost-exit",
        "an exit that came while no daemon ran is forgotten",
        WorkerKit(driver=host.Forgetful),
        I.EXIT_ONCE,
    ),
    _plant(
        "unwatched",
        "an instance of an earlier daemon is not watched",
        WorkerKit(supervisor=daemon.WatchesOnlyItsOwn),
        I.ONE_INSTANCE,
        I.EXIT_ONCE,
    ),
    _plant(
        "exit-twice",
        "an exit is recorded by the flow and by the supervisor",
        WorkerKit(exits=daemon.RecordsTwice),
        I.EXIT_ONCE,
        I.LEGAL_PATH,
    ),
    _plant("launched-twice", "a launch that is repeated launches again", WorkerKit(driver=host.LaunchesTwice), *I),
    _plant(
        "clean-start",
        "a daemon that starts ends what runs",
        WorkerKit(driver=host.KillsAtRecovery),
        I.UNDISTURBED,
    ),
    _plant("never-thaws", "what is resumed stays frozen", WorkerKit(driver=host.NeverThaws), I.HELD),
    _plant("never-freezes", "what is suspended goes on", WorkerKit(driver=host.NeverFreezes), I.HELD),
    _plant(
        "snapshot-kept",
        "what is resumed leaves the snapshot of its memory",
        WorkerKit(driver=host.KeepsMemories),
        I.HELD,
        I.NOTHING_STRAY,
    ),
    _plant(
        "cold-unsaid",
        "what cannot be resumed is started anew, and nobody is told",
        WorkerKit(driver=host.StartsColdUnsaid),
        I.ONE_INSTANCE,
        I.EXIT_ONCE,
    ),
    _plant("never-ends", "a machine is not ended with its containers", WorkerKit(driver=host.NeverConcludes), I.WHOLE),
    _plant("runs-again", "containers that ended start with the daemon", WorkerKit(driver=host.ForgetsRuns), I.WHOLE),
    _plant("no-limit", "another limit of memory is recorded only", WorkerKit(driver=host.LimitsNothing), I.WHOLE),
    _plant("room-twice", "the room of a machine is taken twice", WorkerKit(table=daemon.CountsTwice), I.CAPACITY),
    _plant(
        "room-kept", "the room of a destroyed machine is not given back", WorkerKit(table=daemon.KeepsRoom), I.CAPACITY
    ),
    _plant(
        "order-twice",
        "which orders were filled is forgotten at a restart",
        WorkerKit(table=daemon.ForgetsOrders),
        I.KEPT,
        I.WHOLE,
    ),
    _plant(
        "late-event",
        "an event is written in a later transaction than its change",
        WorkerKit(table=daemon.WritesEventsLater),
        I.WHOLE,
    ),
    _plant(
        "early-cache",
        "records are remembered before they are committed",
        WorkerKit(table=daemon.RemembersTooSoon),
        I.WHOLE,
        I.CAPACITY,
        I.KEPT,
        I.LEGAL_PATH,
    ),
    _plant(
        "lost-lease", "a lease ends when the machine changes its state", WorkerKit(table=daemon.DropsLeases), I.KEPT
    ),
    _plant("lost-metadata", "a start forgets the metadata", WorkerKit(table=daemon.LosesMetadata), I.KEPT),
    _plant(
        "stray-directory", "a destroy leaves the directory", WorkerKit(rootfs=host.keeps_directories), I.NOTHING_STRAY
    ),
    _plant(
        "stray-network",
        "a destroy leaves a network that an earlier daemon made",
        WorkerKit(networks=host.keeps_networks),
        I.NOTHING_STRAY,
    ),
    _plant(
        "fences-remembered",
        "what policies say is worked out once in a daemon's life",
        WorkerKit(enforcer=daemon.Remembers),
        I.ENFORCED,
    ),
    _plant("kept-volume", "a destroyed machine keeps its volume", WorkerKit(table=daemon.KeepsVolumes), I.ONE_MACHINE),
    _plant("volume-anew", "a volume is made anew when its step is repeated", WorkerKit(disks=host.makes_anew), I.KEPT),
    _plant("volume-small", "a volume is not as large as was promised", WorkerKit(disks=host.grows_nothing), I.KEPT),
    _plant("snapshot-anew", "a snapshot is taken anew by a repeated step", WorkerKit(copies=host.takes_anew), I.KEPT),
    _plant(
        "volume-mounted",
        "a volume that an earlier daemon mounted stays so",
        WorkerKit(disks=host.stays_mounted),
        I.NOTHING_STRAY,
    ),
)
"""By name; the list is kept and grows."""
