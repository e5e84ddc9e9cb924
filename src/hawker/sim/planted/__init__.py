"""The planted bugs: each is what a worker of this kind gets wrong, and the simulator must find every one."""

from hawker.proof.violation import Invariant as I
from hawker.sim.kit import Kit
from hawker.sim.planted import containers, copies, fences, flows, hosts, records, stores, volumes, watch
from hawker.sim.planted.plant import Plant


def _plant(name: str, what: str, kit: Kit, *breaks: I) -> Plant:
    return Plant(name, what, kit, frozenset(breaks))


PLANTS: tuple[Plant, ...] = (
    _plant("no-fsync", "what is acknowledged is not yet on disk", Kit(store=stores.Unsynced), I.KEPT),
    _plant(
        "two-commits",
        "a record and the run that it waits for are written in two transactions",
        Kit(store=stores.Halved),
        I.ANSWERS,
        I.KEPT,
        I.WHOLE,
        I.LEGAL_PATH,
    ),
    _plant(
        "recorded-before-done",
        "the removal of a network is recorded before it is done",
        Kit(flows=flows.records_first),
        I.NOTHING_STRAY,
    ),
    _plant("no-undo", "what a step made half is left there", Kit(flows=flows.without_undo), *I),
    _plant(
        "undo-of-another",
        "an undo ends an instance that is not its own",
        Kit(flows=flows.undoes_for_all),
        I.UNDISTURBED,
        I.EXIT_ONCE,
    ),
    _plant(
        "skipped-step", "a resumed run goes on one step too far", Kit(runner=flows.SkipsAStep), *I
    ),
    _plant(
        "late-launch",
        "a start that was overtaken by a stop is done all the same",
        Kit(flows=flows.launches_unawaited),
        *I,
    ),
    _plant("no-release", "a stop does not unmount", Kit(flows=flows.without_release), I.NOTHING_STRAY),
    _plant(
        "wrong-pid",
        "a stranger that has the process id of an ended instance is adopted",
        Kit(driver=hosts.TrustsPids),
        I.ONE_INSTANCE,
        I.EXIT_ONCE,
        I.ANSWERS,
    ),
    _plant(
        "lost-exit",
        "an exit that came while no daemon ran is forgotten",
        Kit(driver=hosts.Forgetful),
        I.EXIT_ONCE,
    ),
    _plant(
        "unwatched",
        "an instance of an earlier daemon is not watched",
        Kit(supervisor=watch.WatchesOnlyItsOwn),
        I.ONE_INSTANCE,
        I.EXIT_ONCE,
    ),
    _plant(
        "exit-twice",
        "an exit is recorded by the flow and by the supervisor",
        Kit(exits=watch.RecordsTwice),
        I.EXIT_ONCE,
        I.LEGAL_PATH,
    ),
    _plant("launched-twice", "a launch that is repeated launches again", Kit(driver=hosts.LaunchesTwice), *I),
    _plant(
        "clean-start",
        "a daemon that starts ends what runs",
        Kit(driver=hosts.KillsAtRecovery),
        I.UNDISTURBED,
    ),
    _plant("never-thaws", "what is resumed stays frozen", Kit(driver=hosts.NeverThaws), I.HELD),
    _plant("never-freezes", "what is suspended goes on", Kit(driver=hosts.NeverFreezes), I.HELD),
    _plant(
        "snapshot-kept",
        "what is resumed leaves the snapshot of its memory",
        Kit(driver=hosts.KeepsMemories),
        I.HELD,
        I.NOTHING_STRAY,
    ),
    _plant(
        "cold-unsaid",
        "what cannot be resumed is started anew, and nobody is told",
        Kit(driver=hosts.StartsColdUnsaid),
        I.ONE_INSTANCE,
        I.EXIT_ONCE,
    ),
    _plant("never-ends", "a machine is not ended with its containers", Kit(driver=containers.NeverConcludes), I.WHOLE),
    _plant("runs-again", "containers that ended start with the daemon", Kit(driver=containers.ForgetsRuns), I.WHOLE),
    _plant("no-limit", "another limit of memory is recorded only", Kit(driver=hosts.LimitsNothing), I.WHOLE),
    _plant("room-twice", "the room of a machine is taken twice", Kit(table=records.CountsTwice), I.CAPACITY),
    _plant("room-kept", "the room of a destroyed machine is not given back", Kit(table=records.KeepsRoom), I.CAPACITY),
    _plant(
        "order-twice",
        "which orders were filled is forgotten at a restart",
        Kit(table=records.ForgetsOrders),
        I.KEPT,
        I.WHOLE,
    ),
    _plant(
        "late-event",
        "an event is written in a later transaction than its change",
        Kit(table=records.WritesEventsLater),
        I.WHOLE,
    ),
    _plant(
        "early-cache",
        "records are remembered before they are committed",
        Kit(table=records.RemembersTooSoon),
        I.WHOLE,
        I.CAPACITY,
        I.KEPT,
        I.LEGAL_PATH,
    ),
    _plant("lost-lease", "a lease ends when the machine changes its state", Kit(table=records.DropsLeases), I.KEPT),
    _plant("lost-metadata", "a start forgets the metadata", Kit(table=records.LosesMetadata), I.KEPT),
    _plant("stray-directory", "a destroy leaves the directory", Kit(rootfs=hosts.keeps_directories), I.NOTHING_STRAY),
    _plant(
        "stray-network",
        "a destroy leaves a network that an earlier daemon made",
        Kit(networks=hosts.keeps_networks),
        I.NOTHING_STRAY,
    ),
    _plant(
        "fences-remembered",
        "what policies say is worked out once in a daemon's life",
        Kit(fences=fences.Remembers),
        I.FENCED,
    ),
    _plant("kept-volume", "a destroyed machine keeps its volume", Kit(table=records.KeepsVolumes), I.ONE_MACHINE),
    _plant("volume-anew", "a volume is made anew when its step is repeated", Kit(disks=volumes.makes_anew), I.KEPT),
    _plant("volume-small", "a volume is not as large as was promised", Kit(disks=volumes.grows_nothing), I.KEPT),
    _plant("snapshot-anew", "a snapshot is taken anew by a repeated step", Kit(copies=copies.takes_anew), I.KEPT),
    _plant(
        "volume-mounted",
        "a volume that an earlier daemon mounted stays so",
        Kit(disks=volumes.stays_mounted),
        I.NOTHING_STRAY,
    ),
)  # fmt: skip
"""By name; the list is kept and grows."""


def find(name: str) -> Plant | None:
    return next((plant for plant in PLANTS if plant.name == name), None)
