"""The exceptions to the rules, each a named line with its reason. `test_tidy` refuses a line that nothing needs."""

from tests.tidy.rules import Allowed

EXCEPTIONS: tuple[Allowed, ...] = (
    Allowed("banned", "src/hawker/clock.py", "*", "the one place where time and chance come from"),
    Allowed("banned", "tests/waiting.py", "*.sleep", "the one place where tests sleep, between two looks at a fact"),
    Allowed("banned", "tests/contract/test_driver_exec.py", "anyio.sleep", "a slow reader is what the test is about"),
    Allowed("banned", "src/hawker/sim/harness/loop.py", "*", "a Clock over a loop whose time is virtual"),
    Allowed("banned", "src/hawker/chaos/hostile/payloads.py", "*", "runs in a machine, where Python is all there is"),
    # Where everything may be caught.
    Allowed("swallowing", "src/hawker/fsm/drive.py", "except", "the step runner: a step may raise anything"),
    Allowed(
        "swallowing", "src/hawker/fsm/ledger.py", "except", "part of the step runner: hands it what a commit raised"
    ),
    Allowed("swallowing", "src/hawker/api/endpoints.py", "except", "the HTTP boundary: logs it, answers an error"),
    Allowed("swallowing", "src/hawker/containment.py", "except", "one machine's trouble must not end the daemon"),
    Allowed("swallowing", "src/hawker/store/sqlite.py", "except", "carries it from the writer's thread to the caller"),
    Allowed(
        "swallowing", "src/hawker/sim/harness/seeded_run.py", "except", "whatever breaks what is simulated is a finding"
    ),
    Allowed(
        "swallowing",
        "src/hawker/sim/worker/simulation.py",
        "except",
        "whatever breaks the simulated worker is a finding",
    ),
    Allowed(
        "swallowing",
        "src/hawker/gossip/contract.py",
        "except",
        "a poisonous message must not end all nodes it meets",
    ),
    Allowed("swallowing", "src/hawker/edge/requester.py", "except", "one connection's fault must not end all others"),
    Allowed("loose_tasks", "src/hawker/edge/requester.py", "create_task", "one of a group costs a fifth of a request"),
    # Imported by name.
    Allowed("alive", "src/hawker/cli/completions.py", "*", "cli/options.py imports it by name, when a shell asks"),
    Allowed(
        "alive", "src/hawker/cli/commands/*", "*", "cli/main.py names each command, cli/lazy.py imports it by name"
    ),
    Allowed("alive", "src/hawker/up/commands/*", "*", "cli/main.py names each of them"),
    Allowed("alive", "src/hawker/sim/commands/*", "*", "cli/main.py names the first, and that one the others"),
    Allowed("alive", "src/hawker/chaos/commands.py", "*", "cli/main.py names it"),
    Allowed("alive", "src/hawker/edge/commands.py", "*", "cli/main.py names it"),
    Allowed("alive", "src/hawker/edge/program.py", "*", "cli/main.py names it"),
    Allowed("alive", "src/hawker/dns/commands.py", "*", "cli/main.py names it"),
    Allowed("alive", "src/hawker/observe/otlp.py", "*", "observe/spans.py imports it by name, when an endpoint is set"),
    # A library that has a second use.
    Allowed(
        "hidden_libraries", "src/hawker/archive/history_file.py", "apsw", "a history is a SQLite file, and no store"
    ),
    Allowed("hidden_libraries", "src/hawker/sim/fleet/shared_catalog.py", "apsw", "plays one catalog of all nodes"),
    # Values of two rooms that one record holds; nothing of theirs is called.
    Allowed("one_meeting_place", "src/hawker/record/machine.py", "*", "a machine's record has its image and its exit"),
    Allowed("one_meeting_place", "src/hawker/proof/invariants.py", "*", "compares what the host enforces and runs"),
    # What a real node left on its host, with what it was to leave.
    Allowed("one_meeting_place", "src/hawker/chaos/daemon.py", "*", "looks for what a daemon left on its host"),
    Allowed("one_meeting_place", "src/hawker/chaos/inspect.py", "*", "compares what runs with what is on the host"),
    # A host that is played has all its parts.
    Allowed("one_meeting_place", "src/hawker/sim/node/fake_host.py", "*", "plays machines and network policies"),
    Allowed(
        "one_meeting_place", "src/hawker/sim/networks/network_host.py", "*", "plays machines, and the ways to them"
    ),
    Allowed("one_meeting_place", "src/hawker/sim/node/fake_moved_files.py", "*", "plays files, also of memories"),
    Allowed("one_meeting_place", "src/hawker/sim/moves/move_host.py", "*", "machines write to files and memories"),
    Allowed("one_meeting_place", "src/hawker/sim/moves/file_bugs.py", "*", "plants bugs in files and memories"),
    Allowed("one_meeting_place", "src/hawker/sim/node/world.py", "*", "builds a whole worker over a played host"),
    Allowed("one_meeting_place", "src/hawker/sim/worker/planted/daemon.py", "*", "plants bugs in parts of all rooms"),
    # A name that looks like an address.
    Allowed("no_registries", "bench/peers/superfly_fsm/go.*", "golang.*", "names of Go modules, no address"),
    Allowed("no_registries", "bench/peers/coredns/go.*", "golang.*", "names of Go modules, no address"),
    # What has one field, which its own name tells.
    Allowed("frozen_values", "src/hawker/auth/caveat.py", "*", "a caveat is one field: Apps(names) says it twice"),
    Allowed("frozen_values", "src/hawker/catalog/change.py", "*", "sent between nodes by the million, as arrays"),
    # What only a process shows.
    Allowed("mirrored", "src/hawker/up/*", "*", "tests/e2e start it as a process, and there is no other way to use it"),
    # What is not a value.
    Allowed("frozen_dataclasses", "src/hawker/proof/edge_checks.py", "SentRequest", "follows a request, which goes on"),
    Allowed("frozen_dataclasses", "src/hawker/sim/edge/played_machine.py", "PlayedMachine", "plays what changes"),
    Allowed("frozen_dataclasses", "src/hawker/sim/fleet/client.py", "Ordered", "follows an order, which changes"),
    Allowed("frozen_dataclasses", "src/hawker/sim/fleet/client.py", "Counted", "follows an order, which changes"),
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
    Allowed("floor", "src/hawker/http/upgraded.py", "*", "imported for the first WebSocket, and no boot waits for it"),
    Allowed("floor", "src/hawker/image/resolver.py", "*", "imported with aiohttp, for the first pull"),
    Allowed("floor", "src/hawker/runtime/pilot/inventory.py", "*", "keeps `HostView`, and is looked for by that word"),
    Allowed("floor", "src/hawker/runtime/launcher/plan.py", "*", "the twin of a header in C, which names it"),
    Allowed("floor", "src/hawker/handlers/catalog.py", "*", "a noun's answers, as each file beside it"),
    Allowed("floor", "src/hawker/up/boot_refusal.py", "*", "pure, and tested without a node"),
    Allowed("floor", "src/hawker/fsm/context.py", "*", "what a step is given: authors of flows look for that word"),
    Allowed("floor", "src/hawker/sim/edge/played_catalog.py", "*", "a noun, and tested without a run"),
    Allowed("floor", "src/hawker/sim/edge/played_client.py", "*", "a noun, and tested without a run"),
    # One word in two rooms that are each the word's home.
    Allowed("one_class_a_name", "src/hawker/fsm/*.py", "*", "the engine's own words: flow, run, state, fault, verdict"),
    Allowed("one_class_a_name", "src/hawker/machine.py", "State", "a machine's state; a run has one, too"),
    # The same part of things that are built alike.
    Allowed("telling_stems", "*", "contract", "a room's contract is in the file of that name"),
    Allowed("telling_stems", "*", "plan", "what is to be done, decided before it is, in each room that does so"),
    Allowed("telling_stems", "*", "faults", "what goes wrong on purpose, in each simulated world and on real hosts"),
    # What is nobody's share, because nobody shares it.
    Allowed(
        "unkeyed_shares",
        "src/hawker/catalog/read_connection.py",
        "*",
        "connections at rest, at most `SPARE`; who may use one is the share of queries",
    ),
    Allowed(
        "unkeyed_shares",
        "src/hawker/catalog/snapshots.py",
        "anyio.open_file",
        "a snapshot of another member, one at a time",
    ),
    Allowed(
        "unkeyed_shares",
        "src/hawker/gateway/fan_out.py",
        "anyio.CapacityLimiter",
        "how many nodes one call asks at once: the call's own",
    ),
    Allowed(
        "unkeyed_shares",
        "src/hawker/market/placing.py",
        "anyio.CapacityLimiter",
        "how many nodes one order asks at once: the order's own",
    ),
    Allowed(
        "unkeyed_shares",
        "src/hawker/market/handlers.py",
        "anyio.CapacityLimiter",
        "how many nodes one call asks at once: the call's own",
    ),
    Allowed(
        "unkeyed_shares",
        "src/hawker/history/archivist.py",
        "*",
        "the archivist's own, with no room: it waits for each history",
    ),
    Allowed(
        "unkeyed_shares",
        "src/hawker/observe/spans.py",
        "*",
        "bounded, and what does not fit is dropped and counted: nobody waits for spans",
    ),
    Allowed(
        "unkeyed_shares",
        "src/hawker/handlers/images.py",
        "*",
        "the progress of one pull for the one who asked: what does not fit is left out",
    ),
    Allowed(
        "unkeyed_shares",
        "src/hawker/handlers/node.py",
        "anyio.open_file",
        "a backup, for the operator, one at a time",
    ),
    Allowed(
        "unkeyed_shares",
        "src/hawker/audit/audit_log.py",
        "*",
        "one thread for syncs, which all callers that wait share: a control call waits behind no other work",
    ),
    Allowed(
        "unkeyed_shares",
        "src/hawker/catalog/mirror.py",
        "anyio.CapacityLimiter",
        "how many tokens one agent judges at once, each for a second at most",
    ),
    Allowed(
        "unkeyed_shares",
        "src/hawker/dns/zone.py",
        "hawker.token_bucket.TokenBucket",
        "what all askers take of the loop together, behind a bucket for each network: sources over UDP can be forged",
    ),
    Allowed("unkeyed_shares", "src/hawker/api/in_process.py", "*", "the two ends of one conversation"),
    Allowed("unkeyed_shares", "src/hawker/gossip/streams.py", "*", "calls of members, who share the cluster's key"),
    Allowed(
        "unkeyed_shares",
        "src/hawker/store/writer.py",
        "*",
        "the writer takes all that wait as one group; each was begun by a call or a run",
    ),
    Allowed(
        "unkeyed_shares",
        "src/hawker/host/mount.py",
        "*",
        "a thread that ends with the call: it is in another namespace, so no pool may have it",
    ),
    Allowed(
        "unkeyed_shares",
        "src/hawker/archive/archive.py",
        "*",
        "readers of archived histories: each unpacks a file; kept small for its memory",
    ),
    Allowed(
        "unkeyed_shares",
        "src/hawker/catalog/engine.py",
        "collections.deque",
        "what other members are served, at most `WAITING` of them",
    ),
    Allowed(
        "unkeyed_shares",
        "src/hawker/catalog/http/server.py",
        "*",
        "its connections are those of `http.incoming`, with a table of places",
    ),
    Allowed(
        "unkeyed_shares",
        "src/hawker/catalog/inbound.py",
        "collections.deque",
        "what members send, at most `MAX_READY`; they share the cluster's key",
    ),
    Allowed(
        "unkeyed_shares",
        "src/hawker/catalog/live/feed.py",
        "collections.deque",
        "a ring of events, bounded in number and in bytes",
    ),
    Allowed(
        "unkeyed_shares",
        "src/hawker/catalog/replica.py",
        "*",
        "what this node sends to members; what does not fit is dropped and counted",
    ),
    Allowed(
        "unkeyed_shares",
        "src/hawker/catalog/write_queue.py",
        "collections.deque",
        "at most `MAX_WAITING` calls of services with a token of the catalog, then 503",
    ),
    Allowed(
        "unkeyed_shares", "src/hawker/dns/zone.py", "asyncio.start_server", "places of `ZONE_CONNECTIONS`, by network"
    ),
    Allowed(
        "unkeyed_shares",
        "src/hawker/dns/server.py",
        "asyncio.start_server",
        "its connections are places of `DNS_CONNECTIONS`",
    ),
    Allowed(
        "unkeyed_shares",
        "src/hawker/edge/hop_door.py",
        "asyncio.start_server",
        "its connections are places of `EDGE_HOPS`",
    ),
    Allowed(
        "unkeyed_shares",
        "src/hawker/edge/leaving.py",
        "asyncio.start_unix_server",
        "the edge processes after it connect, one at a time, and nobody else sees the folder",
    ),
    Allowed(
        "unkeyed_shares",
        "src/hawker/edge/listeners.py",
        "asyncio.start_server",
        "its connections are places of `EDGE_CONNECTIONS`",
    ),
    Allowed(
        "unkeyed_shares",
        "src/hawker/edge/nghttp2.py",
        "collections.deque",
        "what waits on one stream: its machine is read no more above a bound",
    ),
    Allowed(
        "unkeyed_shares",
        "src/hawker/edge/visits.py",
        "collections.deque",
        "by app and port; who waits has a place of `EDGE_HOLDS`",
    ),
    Allowed(
        "unkeyed_shares",
        "src/hawker/fsm/runner.py",
        "hawker.fair.turns.Share",
        "of each kind of flow, by the settings: the keys are the owners of runs",
    ),
    Allowed(
        "unkeyed_shares",
        "src/hawker/gossip/memory_network.py",
        "collections.deque",
        "the network of tests and of the simulator",
    ),
    Allowed(
        "unkeyed_shares",
        "src/hawker/http/connection_pool.py",
        "collections.deque",
        "calls of this process to one member, each begun by a call that is bounded",
    ),
    Allowed(
        "unkeyed_shares",
        "src/hawker/market/survey.py",
        "collections.deque",
        "by node; each waits for an order that a rate limit let in",
    ),
    Allowed(
        "unkeyed_shares",
        "src/hawker/runtime/pilot/connection.py",
        "collections.deque",
        "frames of one machine's pilot, bounded in number and in bytes",
    ),
    Allowed(
        "unkeyed_shares",
        "src/hawker/runtime/pilot/session.py",
        "collections.deque",
        "input of one command, at most a window",
    ),
)
