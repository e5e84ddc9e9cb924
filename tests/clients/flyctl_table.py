"""The commands of flyctl that a node answers, each with what the client then says. For a real client; what CI asks
instead, call by call, is in test_flyctl_table.py."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Row:
    """`says` is found in what the command prints; `status` is its exit status. A group of `finds` is a word that later
    commands use. Words in braces are filled in: the app, the image, the region, and what was found."""

    command: str
    says: str = ""
    status: int = 0
    finds: str = ""


_DEPLOY = "deploy -a {app} --image {image} --dns-checks=false"
_LOCAL = "--region {region} --size 1 --yes"

ROWS = (
    Row("auth whoami", "@"),
    Row("orgs list --json", '"personal"'),
    Row("orgs show personal", "personal"),
    Row("platform regions", "{region}"),
    Row("apps create {app} --org personal", "New app created: {app}"),
    Row("apps create {app} --org personal", "Name has already been taken", 1),
    Row("apps create {app}-other --org personal", "New app created: {app}-other"),
    Row("apps list", "{app}"),
    Row("machine run {image} -a {app}-other", "successfully launched", finds=r"Machine ID: (?P<first>\w+)"),
    Row("machine destroy {first} --force -a {app}-other", "has been destroyed"),
    Row(_DEPLOY, "update finished: success"),
    Row("status -a {app}", "{app}"),
    Row("status -a {app} --json", '"Version": 1'),
    Row(f"{_DEPLOY} --strategy rolling", "update succeeded"),
    Row(f"{_DEPLOY} --strategy bluegreen", "Deployment Complete"),
    Row(f"{_DEPLOY} --strategy immediate --detach"),
    Row(f"{_DEPLOY} --strategy canary", "Creating canary machine"),
    Row(f"{_DEPLOY} -c fails.toml", "release command failed - aborting deployment", 1),
    Row(f"{_DEPLOY} -c command.toml", "completed successfully"),
    Row("releases -a {app} --image", "complete"),
    Row("apps releases -a {app}", "failed"),
    Row("config show -a {app}", "{app}"),
    Row("config save -a {app} --yes", "Wrote config file"),
    Row("config env -a {app}", "Environment Variables"),
    Row("image show -a {app}", "sha256:"),
    Row("checks list -a {app}", "passing"),
    Row("services list -a {app}", "8080"),
    Row("scale count 3 -a {app} --yes", "Created"),
    Row("scale show -a {app}", "shared"),
    Row("scale vm shared-cpu-1x -a {app}", "Scaled VM"),
    Row("scale memory 512 -a {app}", "Scaled VM"),
    Row("secrets set A=1 -a {app} --stage", "Secrets have been staged"),
    Row("secrets list -a {app}", "Staged"),
    Row("secrets deploy -a {app} --dns-checks=false", "update succeeded"),
    Row("secrets list -a {app}", "Deployed"),
    Row("secrets unset A -a {app} --stage", "Secrets have been staged"),
    Row("secrets sync -a {app}"),
    Row(f"volumes create data -a {{app}} {_LOCAL}", "Encrypted: false", finds=r"ID: (?P<volume>vol_\w+)"),
    Row(f"volumes create plain -a {{app}} {_LOCAL} --no-encryption", "plain"),
    Row("volumes list -a {app}", "data"),
    Row("volumes show {volume}", "Size GB: 1"),
    Row("volumes extend {volume} --size 2 --yes", "Size GB: 2"),
    Row("volumes snapshots create {volume}", "Scheduled to snapshot volume"),
    Row("volumes snapshots list {volume}", "vs_"),
    Row("volumes update {volume} --snapshot-retention 7", "Snapshot retention: 7"),
    Row("volumes fork {volume}", "Size GB: 2"),
    Row("volumes destroy {volume} --yes", "Destroyed volume ID: {volume}"),
    Row("deploy -a {app}-other -c mounts.toml --image {image} --dns-checks=false", "update finished: success"),
    Row("scale count job=2 -a {app}-other -c mounts.toml --yes", "Created"),
    Row("ips allocate-v4 --shared -a {app} --yes"),
    Row("ips allocate-v4 -a {app} --yes", "no pool of IPv4", 1),
    Row("ips allocate-v6 -a {app}", "v6", finds=r"(?P<ip>fdaa:[0-9a-f:]+)"),
    Row("ips list -a {app}", "{ip}"),
    Row("ips private -a {app}", "fdaa:"),
    Row("ips release {ip} -a {app}", "Released {ip}"),
    Row("certs list -a {app}", "HOSTNAME"),
    Row("certs add shop.example.com -a {app}", "orders no certificates", 1),
    Row("certs import shop.example.com -a {app} --fullchain chain.pem --private-key key.pem", "Certificate is active"),
    Row("certs import other.example.com -a {app} --fullchain chain.pem --private-key key.pem", "not for other", 1),
    Row("certs list -a {app}", "Custom"),
    Row("certs show shop.example.com -a {app}", "Verified"),
    Row("certs check shop.example.com -a {app}", "Verified"),
    Row("certs setup shop.example.com -a {app}", "_fly-ownership.shop.example.com"),
    Row("certs remove shop.example.com -a {app} --yes", "deleted from app {app}"),
    Row("logs -a {app} --no-tail", "machine"),
    Row("machine run {image} -a {app} --name one", "successfully launched", finds=r"Machine ID: (?P<machine>\w+)"),
    Row("logs -a {app} --no-tail -i {machine}", "machine started"),
    Row("machine list -a {app}", "{machine}"),
    Row("machine status {machine} -a {app}", "State: started"),
    Row("machine stop {machine} -a {app}", "successfully stopped"),
    Row("machine start {machine} -a {app}", "has been started"),
    Row("machine wait {machine} -a {app} --state started"),
    Row("machine restart {machine} -a {app}", "restarted successfully"),
    Row("machine suspend {machine} -a {app}", "is being suspended"),
    Row("machine start {machine} -a {app}", "has been started"),
    Row("machine wait {machine} -a {app} --state started"),
    Row("machine cordon {machine} -a {app}", "done!"),
    Row("machine uncordon {machine} -a {app}", "done!"),
    Row('machine exec {machine} "/bin/hello env" -a {app}', "FLY_MACHINE_ID={machine}"),
    Row("machine update {machine} --image {image} -a {app} --yes", "updated successfully"),
    Row("machine update {machine} --metadata a=b -a {app} --yes", "updated successfully"),
    Row("machine clone {machine} -a {app}", "has been successfully cloned"),
    Row("machine leases view {machine} -a {app}", "No leases found"),
    Row("machine kill {machine} -a {app}", "kill signal has been sent"),
    Row("machine destroy {machine} --force -a {app}", "has been destroyed"),
    Row("machine create {image} -a {app} --name two", "successfully created"),
    Row("tokens create deploy -a {app}", "hwk_", finds=r"(?P<token>hwk_\S+)"),
    Row("tokens list -a {app}", "Tokens for app"),
    Row("tokens create org -o personal", "only tokens to deploy one app are made here", 1),
    Row("ssh console -a {app} -C ls", "WireGuard peers are not served by this node yet", 1),
    Row("launch --no-deploy --image {image} --name {app}-launched --internal-port 80 --yes", "{app}-launched"),
    Row("launch --now --image {image} --name {app}-now --internal-port 8080 --yes --dns-checks=false", "{app}-now"),
    Row("apps destroy {app}-launched --yes", "Destroyed app {app}-launched"),
    Row("apps destroy {app}-now --yes", "Destroyed app {app}-now"),
)

LAST = (
    Row("apps destroy {app}-other --yes", "Destroyed app {app}-other"),
    Row("apps destroy {app} --yes", "Destroyed app {app}"),
)
