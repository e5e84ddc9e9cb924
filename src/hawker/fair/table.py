"""Each resource that tenants share in a process: its bound, its key, and what one gets who is over it.

This is the one place that names them, beside `threads.Pool`. `scripts/docs.py` prints both, and a rule of the code
refuses a pool, a queue or a limiter that is made anywhere else.
"""

import msgspec

from hawker.fair.threads import Pool
from hawker.fair.turns import Share
from hawker.value_object import ValueObject

CHECKS = Share(
    name="health checks under way",
    total=2048,
    each=128,
    waiting=16_384,
    key="app",
    over="the check waits, and its deadline begins when it is its turn",
)
CHECKS_OF_MACHINE = Share(
    name="health checks of a machine under way",
    total=16_384,
    each=4,
    waiting=512,
    key="machine",
    over="the check waits, and its deadline begins when it is its turn",
)
SCRAPES = Share(
    name="metrics endpoints asked at once",
    total=64,
    each=8,
    waiting=16_384,
    key="app",
    over="the endpoint waits; one whose turn does not come in time counts as down",
)
CONNECTIONS = Share(
    name="connections of a listener",
    total=16_384,
    each=1024,
    key="address",
    over="one that rests is closed for it; with none at rest it is answered 503 and closed",
)
CALLS = Share(
    name="calls of clients that a node's API answers",
    total=16_384,
    each=1024,
    key="address",
    over="429, `rate_limited`",
)
EDGE_CONNECTIONS = Share(
    name="connections of clients to published ports",
    total=50_000,
    each=512,
    key="address",
    over="one that rests is closed for it; with none at rest it is answered 429 or reset",
)
EDGE_HANDSHAKES = Share(
    name="TLS handshakes of clients at published ports",
    total=4096,
    each=64,
    key="address",
    over="the one of the address, or of who has most, that began longest ago is reset for it",
)
EDGE_PROXIED = Share(
    name="connections of balancers whose PROXY head has not come",
    total=4096,
    each=2048,
    key="address",
    over="the one of the address, or of who has most, that began longest ago is reset for it",
)
CERTIFICATES = Share(
    name="certificates that a node keeps, and as many orders",
    total=2000,
    each=1500,
    reserve=500,
    key="organization",
    over="422; the last quarter is for organizations with less than an equal part",
)
HOSTNAMES = Share(
    name="host names of apps that a keeper of a fleet keeps",
    total=10_000,
    each=1500,
    reserve=2500,
    key="organization",
    over="422, `quota_exceeded`; the last quarter is for organizations with less than an equal part",
)
EDGE_VISITS = Share(
    name="requests and connections of clients in machines",
    total=50_000,
    each=40_000,
    reserve=10_000,
    key="organization",
    over="503 `HQ01`, or a reset; the last fifth is for organizations with less than an equal part",
)
EDGE_HOLDS = Share(
    name="requests that wait for a machine of an app",
    total=10_000,
    each=1000,
    key="app",
    over="503 `HQ01`",
)
EDGE_HOLDS_OF_ORG = Share(
    name="requests that wait for a machine of any app",
    total=10_000,
    each=8000,
    reserve=2000,
    key="organization",
    over="503 `HQ01`; the last fifth is for organizations with less than an equal part",
)
EDGE_FLOWS = Share(
    name="UDP flows of clients at published ports",
    total=16_384,
    each=12_288,
    reserve=4096,
    key="organization",
    over="its oldest flow that no machine has answered ends for it; without one the datagram is dropped. The last"
    " quarter is for organizations with less than an equal part",
)
EDGE_FLOWS_OF_ADDRESS = Share(
    name="UDP flows of one client",
    total=16_384,
    each=512,
    key="address",
    over="its oldest flow that no machine has answered ends for it; without one the datagram is dropped",
)
EDGE_WAKES = Share(
    name="machines that are being started for requests",
    total=32,
    each=24,
    reserve=8,
    key="organization",
    over="the request waits until another machine is up; the last quarter is for organizations with less than an equal"
    " part",
)
EDGE_KEPT_BYTES = Share(
    name="bytes of bodies that the edge keeps to send them again",
    total=256 << 20,
    each=128 << 20,
    reserve=64 << 20,
    key="organization",
    over="the body is not kept, and its request is not sent again; the last quarter is for organizations with less than"
    " an equal part",
)
EDGE_HOPS = Share(
    name="connections of other hosts' edges to machines of this one",
    total=20_000,
    each=8192,
    key="address",
    over="one that has not asked yet is closed for it, or it is closed",
)
BODIES = Share(
    name="bodies over 64 KiB that are read",
    total=64,
    each=16,
    waiting=256,
    key="address",
    over="the body waits for its turn",
)
DOWNLOADS = Share(
    name="downloads of layers",
    total=64,
    each=4,
    waiting=16_384,
    key="organization",
    over="the download waits; one below 32 KiB/s for 30 s is given up",
)
BUILDS = Share(
    name="images that are unpacked",
    total=4,
    each=2,
    waiting=16_384,
    key="organization",
    over="the build waits for its turn",
)
BUILDS_WHILE_IT_COMES = Share(
    name="images that are unpacked while they come",
    total=2,
    each=1,
    key="organization",
    over="the image is unpacked after its download",
)
HANDOVERS = Share(
    name="pieces of images for other nodes",
    total=8,
    each=2,
    waiting=64,
    key="node",
    over="the piece waits for its turn; then 429, and the node asks another one",
)
VOLUME_HANDOVERS = Share(
    name="pieces of volumes for their next nodes",
    total=8,
    each=4,
    waiting=64,
    key="node",
    over="the piece waits for its turn; then 429, and the node asks again",
)
UPLOADS = Share(
    name="files for machines that are uploaded",
    total=16,
    each=1,
    waiting=16,
    key="app",
    over="the upload waits for its turn; then 429, `over_share`",
)
GRAPHQL_OPERATIONS = Share(
    name="GraphQL operations under way",
    total=32,
    each=2,
    reserve=4,
    waiting=64,
    key="caller",
    over="the operation waits for its turn; then 429, `over_share`",
)
EXECS = Share(
    name="commands and terminals in machines",
    total=512,
    each=64,
    key="app",
    over="429, `over_share`",
)
EXECS_OF_MACHINE = msgspec.structs.replace(EXECS, name="commands and terminals in a machine", each=24, key="machine")
"""`each` is below the 32 clients that a pilot serves: the others are for its stop and its upkeep."""
PORT_CONNECTIONS = Share(
    name="connections to machines' ports through the API",
    total=1024,
    each=256,
    key="app",
    over="429, `over_share`",
)
PORT_CONNECTIONS_OF_CALLER = Share(
    name="connections of a token to machines' ports",
    total=1024,
    each=256,
    key="caller",
    over="429, `over_share`",
)
DNS_FORWARDS = Share(
    name="questions of a machine that other name servers are asked",
    total=2048,
    each=64,
    key="machine",
    over="the answer is SERVFAIL",
)
DNS_FORWARDS_OF_NETWORK = Share(
    name="questions of a private network that other name servers are asked",
    total=2048,
    each=1024,
    reserve=512,
    key="private network",
    over="the answer is SERVFAIL; the last quarter is for networks that have less than an equal part",
)
ZONE_CONNECTIONS = Share(
    name="TCP connections to the name server of the platform's domain",
    total=1024,
    each=16,
    key="network of the asker",
    over="the connection is closed",
)
DNS_CONNECTIONS = Share(
    name="TCP connections of machines to their resolver",
    total=4096,
    each=16,
    key="machine",
    over="the connection is closed",
)
FOLLOWERS = Share(
    name="followers of logs",
    total=1024,
    each=64,
    key="app",
    over="429, `over_share`",
)
FOLLOWERS_OF_MACHINE = Share(
    name="followers of a machine's log",
    total=1024,
    each=16,
    key="machine",
    over="429, `over_share`",
)
FOLLOWERS_OF_LOG = Share(
    name="followers of an app's log",
    total=1024,
    each=64,
    key="app",
    over="429, `over_share`",
)
FOLLOWERS_OF_FLEET_LOG = Share(
    name="pages of an app's log that a broker merges",
    total=512,
    each=32,
    key="app",
    over="429, `over_share`",
)


def pulls(parallel: int) -> Share:
    """The share for pulls: `parallel` for each organization; most of a pull is waiting for its registry."""
    return Share(
        name="pulls of images",
        total=16 * parallel,
        each=parallel,
        waiting=100_000,
        key="organization",
        over="the pull waits for its turn",
    )


def copies(parallel: int) -> Share:
    """The share for copies: it has a slot beyond `parallel`, so that one organization does not have all slots."""
    return Share(
        name="copies of volumes",
        total=parallel + 1,
        each=parallel,
        waiting=100_000,
        key="organization",
        over="the copy waits for its turn",
    )


BACKUPS = Share(
    name="backups of volumes",
    total=3,
    each=2,
    waiting=100_000,
    key="organization",
    over="the backup waits for its turn",
)
"""Each backup has three segments of 16 MiB of its volume in memory."""

RESTORES = msgspec.structs.replace(BACKUPS, name="restores of backups", over="the restore waits for its turn")


class BoundElsewhere(ValueObject, frozen=True, kw_only=True):
    """A shared resource that is no number of slots, in words."""

    name: str
    """The name of the shared resource."""
    bound: str
    """The bound: how much of the resource there is, with its unit."""
    key: str
    """The owner that each part counts for: an app, an organization, a machine or an address."""
    over: str
    """What happens to an owner that wants more."""


USUAL_PULLS, USUAL_COPIES = 3, 2

SHARES = (
    *(pool.value for pool in Pool),
    CONNECTIONS,
    CALLS,
    EDGE_CONNECTIONS,
    EDGE_HANDSHAKES,
    EDGE_PROXIED,
    CERTIFICATES,
    HOSTNAMES,
    EDGE_VISITS,
    EDGE_HOLDS,
    EDGE_HOLDS_OF_ORG,
    EDGE_FLOWS,
    EDGE_FLOWS_OF_ADDRESS,
    EDGE_WAKES,
    EDGE_KEPT_BYTES,
    EDGE_HOPS,
    BODIES,
    CHECKS,
    CHECKS_OF_MACHINE,
    SCRAPES,
    pulls(USUAL_PULLS),
    DOWNLOADS,
    BUILDS,
    BUILDS_WHILE_IT_COMES,
    HANDOVERS,
    VOLUME_HANDOVERS,
    UPLOADS,
    copies(USUAL_COPIES),
    BACKUPS,
    RESTORES,
    GRAPHQL_OPERATIONS,
    EXECS,
    EXECS_OF_MACHINE,
    DNS_FORWARDS,
    DNS_FORWARDS_OF_NETWORK,
    DNS_CONNECTIONS,
    ZONE_CONNECTIONS,
    PORT_CONNECTIONS,
    PORT_CONNECTIONS_OF_CALLER,
    FOLLOWERS,
    FOLLOWERS_OF_MACHINE,
    FOLLOWERS_OF_LOG,
    FOLLOWERS_OF_FLEET_LOG,
)
"""All shares of this file and of the thread pools; a share that a setting changes has the usual value here."""

ELSEWHERE = (
    BoundElsewhere(
        name="kept logs",
        bound="256 MiB and 24 h (`app_logs_mib`, `app_logs_kept_s`), 8 MiB a second",
        key="app",
        over="the oldest goes; of what is written faster the oldest is lost, and a line says how much",
    ),
    BoundElsewhere(
        name="descriptors",
        bound="80% of RLIMIT_NOFILE for connections",
        key="address",
        over="connections at rest are closed; then newcomers are answered 503",
    ),
    BoundElsewhere(
        name="loop time",
        bound="heads of 64 KiB in pieces of 16, bodies of 1 MiB, a turn after 32 lines of a stream, rate limits",
        key="machine, app, caller",
        over="413, 429, 431; streams let others have their turn",
    ),
    BoundElsewhere(
        name="requests that come in, at the API and at the edge",
        bound="one in each turn of the event loop",
        key="address",
        over="the request waits for the next turn",
    ),
    BoundElsewhere(
        name="questions to the machines' resolver",
        bound="1,000 a second, 2,000 at once",
        key="machine",
        over="the question is dropped",
    ),
    BoundElsewhere(
        name="TLS handshakes at published ports",
        bound="50 a second, 200 at once; 500 a second for one name; 16 KiB and 10 s each",
        key="network of /24 or /48",
        over="the connection is closed",
    ),
    BoundElsewhere(
        name="TLS handshakes between nodes",
        bound="100 a second, 500 at once; 64 KiB and 10 s each",
        key="address, or /64",
        over="the connection is closed",
    ),
    BoundElsewhere(
        name="GraphQL operations",
        bound="4,000 tokens, 500 fields, 16 that are one in the answer, 30,000 things that it leads to",
        key="operation",
        over="the operation is refused",
    ),
    BoundElsewhere(
        name="orders of certificates",
        bound="one at a time; 30 tries an hour, 500 orders and 500 certificates, 2,000 of each on a node",
        key="app",
        over="the try waits; 422",
    ),
    BoundElsewhere(
        name="deploys",
        bound="one at a time, 100 releases kept, a definition of 256 KiB with 5,000 values",
        key="app",
        over="409; the oldest release goes; 422",
    ),
    BoundElsewhere(
        name="moves between nodes",
        bound="one of an app from a node, two into a node, `limit_mib_per_s` where it is given",
        key="app, node",
        over="409; the destination declines",
    ),
    BoundElsewhere(
        name="calls without a token",
        bound="50 a second, 500 at once",
        key="address",
        over="429",
    ),
    BoundElsewhere(
        name="queries",
        bound="10 s (600 s with the root token), 512 MiB of SQLite's memory in all",
        key="caller",
        over="the query ends with an error",
    ),
    BoundElsewhere(
        name="metrics of machines",
        bound="1 MiB and 5,000 series of a machine, an equal part of 32 MiB of an app",
        key="machine, app",
        over="the machine's page is left out, and its `hawker_machine_metrics_up` is 0",
    ),
    BoundElsewhere(
        name="speed of a pull",
        bound="32 KiB a second over 30 s at least",
        key="download",
        over="the download is given up and tried again, four times",
    ),
    BoundElsewhere(
        name="disk",
        bound="admission, and what `docs/host.md` says of writable layers and volumes",
        key="machine, volume",
        over="422 at admission; the machine's own writes fail",
    ),
    BoundElsewhere(
        name="connection tracking",
        bound="what `docs/host.md` says of a machine's flows",
        key="machine",
        over="the machine's own new flows are dropped",
    ),
)
