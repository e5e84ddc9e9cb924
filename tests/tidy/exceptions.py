"""The exceptions to the rules, each a named line with its reason. `test_tidy` refuses a line that nothing needs."""

from tests.tidy.rules import Allowed

EXCEPTIONS: tuple[Allowed, ...] = (
    Allowed("banned", "src/hawker/clock.py", "*", "the one place where time and chance come from"),
    Allowed("banned", "tests/waiting.py", "*.sleep", "the one place where tests sleep, between two looks at a fact"),
    Allowed("banned", "tests/contract/test_driver_exec.py", "anyio.sleep", "a slow reader is what the test is about"),
    Allowed("banned", "src/hawker/sim/harness/loop.py", "*", "a Clock over a loop whose time is virtual"),
    # Where everything may be caught.
    Allowed("swallowing", "src/hawker/fsm/drive.py", "except", "the step runner: a step may raise anything"),
    Allowed(
        "swallowing", "src/hawker/fsm/ledger.py", "except", "part of the step runner: hands it what a commit raised"
    ),
    Allowed("swallowing", "src/hawker/api/error_boundary.py", "except", "the HTTP boundary: logs it, answers an error"),
    Allowed("swallowing", "src/hawker/store/sqlite.py", "except", "carries it from the writer's thread to the caller"),
    Allowed(
        "swallowing", "src/hawker/sim/fleet/simulation.py", "except", "whatever breaks a simulated node is a finding"
    ),
    Allowed(
        "swallowing",
        "src/hawker/sim/worker/simulation.py",
        "except",
        "whatever breaks the simulated worker is a finding",
    ),
    Allowed(
        "swallowing",
        "src/hawker/gossip/listener.py",
        "except",
        "a poisonous message must not end all nodes it meets",
    ),
    # Imported by name.
    Allowed(
        "alive", "src/hawker/cli/commands/*", "*", "cli/main.py names each command, cli/lazy.py imports it by name"
    ),
    Allowed("alive", "src/hawker/api/streaming.py", "*", "api/client.py imports it by name, for streams and uploads"),
    Allowed("alive", "src/hawker/up/commands/*", "*", "cli/main.py names each of them"),
    Allowed("alive", "src/hawker/sim/commands/*", "*", "cli/main.py names the first, and that one the others"),
    Allowed("alive", "src/hawker/chaos/commands.py", "*", "cli/main.py names it"),
    Allowed("alive", "src/hawker/observe/otlp.py", "*", "observe/spans.py imports it by name, when an endpoint is set"),
    Allowed(
        "alive", "src/hawker/archive/s3.py", "*", "archive/backend.py imports it by name, where a bucket is wanted"
    ),
    # A library that has a second use.
    Allowed("hidden_libraries", "src/hawker/archive/file.py", "apsw", "a history is a SQLite file, and no store"),
    Allowed("hidden_libraries", "src/hawker/sim/fleet/shared_catalog.py", "apsw", "plays one catalog of all nodes"),
    # Values of two rooms that one record holds; nothing of theirs is called.
    Allowed("one_meeting_place", "src/hawker/record/machine.py", "*", "a machine's record has its image and its exit"),
    Allowed("one_meeting_place", "src/hawker/proof/invariants.py", "*", "compares what the host enforces and runs"),
    # A host that is played has all its parts.
    Allowed("one_meeting_place", "src/hawker/sim/node/fake_host.py", "*", "plays machines and network policies"),
    Allowed("one_meeting_place", "src/hawker/sim/node/world.py", "*", "builds a whole worker over a played host"),
    Allowed("one_meeting_place", "src/hawker/sim/worker/planted/daemon.py", "*", "plants bugs in parts of all rooms"),
    # A name that looks like an address.
    Allowed("no_registries", "bench/peers/superfly_fsm/go.*", "golang.*", "names of Go modules, no address"),
    # What has one field, which its own name tells.
    Allowed("frozen_values", "src/hawker/auth/caveat.py", "*", "a caveat is one field: Apps(names) says it twice"),
    Allowed("frozen_values", "src/hawker/catalog/change.py", "*", "sent between nodes by the million, as arrays"),
    # What only a process shows.
    Allowed("mirrored", "src/hawker/up/*", "*", "tests/e2e start it as a process, and there is no other way to use it"),
    # What is not a value.
    Allowed("frozen_dataclasses", "src/hawker/sim/fleet/ledger.py", "Ordered", "follows an order, which changes"),
    Allowed("frozen_dataclasses", "src/hawker/sim/fleet/ledger.py", "Counted", "follows an order, which changes"),
    Allowed(
        "frozen_dataclasses",
        "src/hawker/sim/node/fake_volumes.py",
        "FakeVolume",
        "plays a file of a host, which changes",
    ),
    Allowed(
        "frozen_dataclasses", "src/hawker/runtime/fake_host.py", "Instance", "plays the state of a host, which changes"
    ),
    Allowed("frozen_dataclasses", "src/hawker/runtime/fake_host.py", "FakeProcess", "plays a process, which changes"),
    # What joins host and driver for one noun.
    Allowed(
        "one_meeting_place",
        "src/hawker/volume/guest_disks.py",
        "*",
        "a guest's volume is a file of the host, and its driver asks the guest about it",
    ),
    # Small, and a noun of its own that a stranger looks for by name.
    Allowed("floor", "src/hawker/market/singleflight.py", "*", "a known mechanism, which is found by its name"),
    Allowed("floor", "src/hawker/http/connection_pool.py", "*", "pure policy, tested without a socket"),
    Allowed("floor", "src/hawker/runtime/pilot/inventory.py", "*", "keeps `HostView`, and is looked for by that word"),
    Allowed("floor", "src/hawker/runtime/vmm/vmm_socket.py", "*", "trusts nothing of the file of a socket"),
    Allowed("floor", "src/hawker/up/boot_refusal.py", "*", "pure, and tested without a node"),
    Allowed("floor", "src/hawker/fsm/context.py", "*", "the engine's files are as its readers know them"),
    # One word in two rooms that are each the word's home.
    Allowed("one_class_a_name", "src/hawker/fsm/*.py", "*", "the engine's own words: run, state, fault, verdict"),
    Allowed("one_class_a_name", "src/hawker/machine.py", "State", "a machine's state; a run has one, too"),
    # The same part of things that are built alike.
    Allowed("telling_stems", "*", "contract", "a room's contract is in the file of that name"),
    Allowed("telling_stems", "*", "plan", "the simulated worlds have one file a part, as their harness has"),
    Allowed("telling_stems", "*", "faults", "the simulated worlds have one file a part, as their harness has"),
    Allowed("telling_stems", "*", "report", "the simulated worlds have one file a part, as their harness has"),
    Allowed("telling_stems", "*", "ledger", "the simulated worlds have one file a part, as their harness has"),
)
