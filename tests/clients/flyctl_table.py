"""The commands of flyctl that a node answers, each with what the client then says. For a real client; what CI asks
instead, call by call, is in test_flyctl_table.py."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Row:
    """`says` is found in what the command prints; `status` is its exit status. `{app}` and `{image}` are filled in."""

    command: str
    says: str = ""
    status: int = 0


ROWS = (
    Row("auth whoami", "@"),
    Row("orgs list --json", '"personal"'),
    Row("apps create {app} --org personal", "New app created: {app}"),
    Row("apps create {app} --org personal", "Name has already been taken", 1),
    Row("deploy -a {app} --image {image} --dns-checks=false", "update finished: success"),
    Row("status -a {app}", "{app}"),
    Row("status -a {app} --json", '"Version": 1'),
    Row("deploy -a {app} --image {image} --dns-checks=false --strategy rolling", "succeeded"),
    Row("deploy -a {app} --image {image} --dns-checks=false --strategy bluegreen", "Deployment Complete"),
    Row("deploy -a {app} --image {image} --dns-checks=false --strategy immediate --detach"),
    Row("deploy -a {app} --image {image} --dns-checks=false --strategy canary", "update succeeded"),
    Row("releases -a {app} --image", "complete"),
    Row("config show -a {app}", "{app}"),
    Row("image show -a {app}", "sha256:"),
    Row("scale count 3 -a {app} --yes", "Created"),
    Row("scale vm shared-cpu-1x -a {app}", "Scaled VM"),
    Row("scale memory 512 -a {app}", "Scaled VM"),
    Row("secrets set A=1 -a {app} --stage", "Staged"),
    Row("secrets list -a {app}", "A"),
    Row("secrets deploy -a {app} --dns-checks=false"),
    Row("secrets unset A -a {app} --stage"),
    Row("volumes create data -a {app} --region {region} --size 1 --no-encryption --yes", "data"),
    Row("volumes list -a {app}", "data"),
    Row("ips private -a {app}", "fdaa:"),
    Row("ips allocate-v4 --shared -a {app} --yes"),
    Row("ips list -a {app}"),
    Row("logs -a {app} --no-tail", "started"),
    Row("machine run {image} -a {app}", "successfully launched"),
    Row("machine list -a {app}", "started"),
    Row("tokens create deploy -a {app}", "FlyV1"),
    Row("launch --no-deploy --image {image} --name {app}-launched --internal-port 80 --yes"),
    Row("apps destroy {app}-launched --yes"),
    Row("apps destroy {app} --yes", "Destroyed app {app}"),
)
