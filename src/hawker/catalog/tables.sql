-- What nodes tell each other. Every table's key begins with the owner. Times are Unix seconds, sizes MiB unless named
-- otherwise, lists and maps are JSON. Adding a column replicates nothing; readers without it keep what they cannot place.

-- scope: global

CREATE TABLE nodes (
    node TEXT NOT NULL,
    region TEXT NOT NULL DEFAULT '',
    api TEXT NOT NULL DEFAULT '',          -- base URL of the peer API
    version TEXT NOT NULL DEFAULT '',
    drivers TEXT NOT NULL DEFAULT '[]',    -- names of those that machines may ask for here
    labels TEXT NOT NULL DEFAULT '{}',
    cordoned INTEGER NOT NULL DEFAULT 0,   -- 1: takes no new machines
    draining INTEGER NOT NULL DEFAULT 0,   -- 1: its machines are being moved away
    started_at REAL NOT NULL DEFAULT 0,
    PRIMARY KEY (node)
) WITHOUT ROWID;

-- Which nodes know an app. `home` is 1 where it was made: there its secrets, policies and addresses are kept.
CREATE TABLE apps (
    node TEXT NOT NULL,
    name TEXT NOT NULL,
    org TEXT NOT NULL DEFAULT '',
    home INTEGER NOT NULL DEFAULT 0,
    record TEXT NOT NULL DEFAULT '{}',     -- the worker's AppRecord
    PRIMARY KEY (node, name)
) WITHOUT ROWID;
CREATE INDEX apps_by_name ON apps (name);

CREATE TABLE revoked_tokens (
    node TEXT NOT NULL,
    token_id TEXT NOT NULL,
    at REAL NOT NULL DEFAULT 0,
    by TEXT NOT NULL DEFAULT '',
    note TEXT NOT NULL DEFAULT '',
    PRIMARY KEY (node, token_id)
) WITHOUT ROWID;
CREATE INDEX revoked_tokens_by_id ON revoked_tokens (token_id);

-- What an organization or an app may have (`limits`, JSON). Of several nodes' rows the one set last counts.
CREATE TABLE quotas (
    node TEXT NOT NULL,
    subject TEXT NOT NULL,                 -- org/NAME, app/NAME, org/*
    limits TEXT NOT NULL DEFAULT '{}',
    at REAL NOT NULL DEFAULT 0,
    by TEXT NOT NULL DEFAULT '',
    PRIMARY KEY (node, subject)
) WITHOUT ROWID;

-- What a subject that has a quota has on the node (`amount`, JSON).
CREATE TABLE quota_usage (
    node TEXT NOT NULL,
    subject TEXT NOT NULL,
    amount TEXT NOT NULL DEFAULT '{}',
    PRIMARY KEY (node, subject)
) WITHOUT ROWID;

-- Which nodes have an organization's login at a registry, without its password. Of several rows the newest counts.
CREATE TABLE registry_logins (
    node TEXT NOT NULL,
    org TEXT NOT NULL,
    registry TEXT NOT NULL,                -- HOST or HOST:PORT
    username TEXT NOT NULL DEFAULT '',
    at REAL NOT NULL DEFAULT 0,
    by TEXT NOT NULL DEFAULT '',
    gone INTEGER NOT NULL DEFAULT 0,       -- 1: it was given up
    PRIMARY KEY (node, org, registry)
) WITHOUT ROWID;

-- Names that were given to uploaded images, which no registry knows. Of several rows of a name the newest counts.
CREATE TABLE image_names (
    node TEXT NOT NULL,
    reference TEXT NOT NULL,
    digest TEXT NOT NULL DEFAULT '',
    at REAL NOT NULL DEFAULT 0,
    PRIMARY KEY (node, reference)
) WITHOUT ROWID;
CREATE INDEX image_names_by_reference ON image_names (reference);

-- Addresses of apps that are reached from outside, by the app's home. `shared`: others have it, too. Of several apps that
-- have one alone, the one that got it first counts.
CREATE TABLE app_ips (
    node TEXT NOT NULL,
    app TEXT NOT NULL,
    ip TEXT NOT NULL,
    shared INTEGER NOT NULL DEFAULT 0,
    created_at REAL NOT NULL DEFAULT 0,
    PRIMARY KEY (node, app, ip)
) WITHOUT ROWID;

-- Addresses of apps in private networks, by the app's home: an edge serves each to machines of its network only.
CREATE TABLE private_ips (
    node TEXT NOT NULL,
    app TEXT NOT NULL,
    ip TEXT NOT NULL,
    created_at REAL NOT NULL DEFAULT 0,
    PRIMARY KEY (node, app, ip)
) WITHOUT ROWID;

-- Certificates of host names, by the app's home. `sealed` is the chain and its key under the cluster's key, in base64. Of
-- several nodes' rows of a host name the one made first counts.
CREATE TABLE certificates (
    node TEXT NOT NULL,
    hostname TEXT NOT NULL,
    app TEXT NOT NULL DEFAULT '',
    sealed TEXT NOT NULL DEFAULT '',
    created_at REAL NOT NULL DEFAULT 0,
    updated_at REAL NOT NULL DEFAULT 0,
    PRIMARY KEY (node, hostname)
) WITHOUT ROWID;

-- What a certificate authority asks for, by the node that orders: every edge and name server of the fleet shows it.
CREATE TABLE challenges (
    node TEXT NOT NULL,
    hostname TEXT NOT NULL,
    kind TEXT NOT NULL,                    -- http-01, tls-alpn-01, dns-01
    app TEXT NOT NULL DEFAULT '',
    token TEXT NOT NULL DEFAULT '',
    answer TEXT NOT NULL DEFAULT '',
    PRIMARY KEY (node, hostname, kind)
) WITHOUT ROWID;

-- People's computers in private networks, by the node through which they come in. To the mesh they are machines there.
CREATE TABLE peers (
    node TEXT NOT NULL,
    org TEXT NOT NULL,
    name TEXT NOT NULL,
    network INTEGER NOT NULL DEFAULT 0,    -- its 32 bits
    id TEXT NOT NULL DEFAULT '',           -- makes its address, with the network
    PRIMARY KEY (node, org, name)
) WITHOUT ROWID;

-- Where a host hears packets of other hosts' machines: what a tunnel of WireGuard needs to know.
CREATE TABLE mesh_hosts (
    node TEXT NOT NULL,
    public_key TEXT NOT NULL DEFAULT '',   -- X25519, base64
    endpoint TEXT NOT NULL DEFAULT '',     -- ADDRESS:PORT, UDP
    PRIMARY KEY (node)
) WITHOUT ROWID;

-- Which machine of a private network is on which host, while it exists, started or not. Its address follows from its id
-- and its network. Of several rows of one machine the greatest `generation` counts.
CREATE TABLE addresses (
    node TEXT NOT NULL,
    machine TEXT NOT NULL,
    app TEXT NOT NULL DEFAULT '',
    network INTEGER NOT NULL DEFAULT 0,    -- its 32 bits
    generation INTEGER NOT NULL DEFAULT 1,
    PRIMARY KEY (node, machine)
) WITHOUT ROWID;
CREATE INDEX addresses_by_network ON addresses (network, machine);

-- Which services the machines of a host have, started or not: how edges of other regions, which know nothing else of
-- them, listen for their apps, and which hosts they ask.
CREATE TABLE served_machines (
    node TEXT NOT NULL,
    machine TEXT NOT NULL,
    app TEXT NOT NULL DEFAULT '',
    publish TEXT NOT NULL DEFAULT '',      -- `*`: its ports are published at every edge
    services TEXT NOT NULL DEFAULT '[]',   -- those of its config that are reached
    PRIMARY KEY (node, machine)
) WITHOUT ROWID;

-- scope: region

-- `generation` tells which of several rows of one machine is the one that counts: the greatest.
CREATE TABLE machines (
    node TEXT NOT NULL,
    id TEXT NOT NULL,
    app TEXT NOT NULL DEFAULT '',
    name TEXT NOT NULL DEFAULT '',
    state TEXT NOT NULL DEFAULT '',
    version TEXT NOT NULL DEFAULT '',
    generation INTEGER NOT NULL DEFAULT 1,
    image TEXT NOT NULL DEFAULT '',        -- digest
    private_ip TEXT NOT NULL DEFAULT '',
    cordoned INTEGER NOT NULL DEFAULT 0,
    metadata TEXT NOT NULL DEFAULT '{}',
    standby_for TEXT NOT NULL DEFAULT '[]', -- ids of machines that this one is a spare of
    created_at REAL NOT NULL DEFAULT 0,
    updated_at REAL NOT NULL DEFAULT 0,
    PRIMARY KEY (node, id)
) WITHOUT ROWID;
CREATE INDEX machines_by_id ON machines (id);
CREATE INDEX machines_by_app ON machines (app);

CREATE TABLE services (
    node TEXT NOT NULL,
    machine TEXT NOT NULL,
    number INTEGER NOT NULL,               -- its place in the config
    app TEXT NOT NULL DEFAULT '',
    protocol TEXT NOT NULL DEFAULT 'tcp',
    internal_port INTEGER NOT NULL DEFAULT 0,
    config TEXT NOT NULL DEFAULT '{}',     -- the service as the machine's config has it
    PRIMARY KEY (node, machine, number)
) WITHOUT ROWID;
CREATE INDEX services_by_app ON services (app);

CREATE TABLE health (
    node TEXT NOT NULL,
    machine TEXT NOT NULL,
    name TEXT NOT NULL,
    status TEXT NOT NULL DEFAULT '',
    updated_at REAL NOT NULL DEFAULT 0,
    PRIMARY KEY (node, machine, name)
) WITHOUT ROWID;

CREATE TABLE volumes (
    node TEXT NOT NULL,
    id TEXT NOT NULL,
    app TEXT NOT NULL DEFAULT '',
    name TEXT NOT NULL DEFAULT '',
    state TEXT NOT NULL DEFAULT '',
    size_gb INTEGER NOT NULL DEFAULT 0,
    machine TEXT NOT NULL DEFAULT '',
    PRIMARY KEY (node, id)
) WITHOUT ROWID;
CREATE INDEX volumes_by_id ON volumes (id);
CREATE INDEX volumes_by_app ON volumes (app);

CREATE TABLE capacity (
    node TEXT NOT NULL,
    cpus INTEGER NOT NULL DEFAULT 0,
    memory_mib INTEGER NOT NULL DEFAULT 0,
    disk_mib INTEGER NOT NULL DEFAULT 0,
    shared_ratio REAL NOT NULL DEFAULT 8,
    used_shared_cpus INTEGER NOT NULL DEFAULT 0,
    used_performance_cpus INTEGER NOT NULL DEFAULT 0,
    used_memory_mib INTEGER NOT NULL DEFAULT 0,
    used_disk_mib INTEGER NOT NULL DEFAULT 0,
    gpus TEXT NOT NULL DEFAULT '{}',       -- model to how many are free
    PRIMARY KEY (node)
) WITHOUT ROWID;

CREATE TABLE images (
    node TEXT NOT NULL,
    digest TEXT NOT NULL,
    PRIMARY KEY (node, digest)
) WITHOUT ROWID;
CREATE INDEX images_by_digest ON images (digest);

-- That a spare was started for a machine whose host was lost; the owner is the spare's. `seen` is the lost machine's
-- `updated_at` at that time.
CREATE TABLE takeovers (
    node TEXT NOT NULL,
    machine TEXT NOT NULL,
    spare TEXT NOT NULL,
    seen REAL NOT NULL DEFAULT 0,
    at REAL NOT NULL DEFAULT 0,
    PRIMARY KEY (node, machine, spare)
) WITHOUT ROWID;
