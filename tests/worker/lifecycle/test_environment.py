import base64

import pytest

from hawker.ids import InstanceId
from hawker.image.config import ImageConfig
from hawker.node import Resources
from hawker.runtime.spec import InstanceSpec
from hawker.sim.node.sim_worker import config_of
from hawker.worker.capacity import resources
from hawker.worker.lifecycle.environment import Surroundings, command, instance_spec, platform_env
from tests.worker.machines import machine

IMAGE = ImageConfig(
    env=("PATH=/bin", "A=image", "EMPTY="), entrypoint=("/entry",), cmd=("cmd", "x"), user="www", working_dir="/srv"
)
AROUND = Surroundings(rootfs="/root", netns="/netns", nameservers=("9.9.9.9",), pids=100, output_bytes=1 << 20)


def _spec(image: ImageConfig = IMAGE, around: Surroundings = AROUND, **config: object) -> InstanceSpec:
    return instance_spec(machine(config=config_of(**config)), InstanceId("I1"), image, around)


@pytest.mark.parametrize(
    ("config", "argv"),
    [
        ({}, ("/entry", "cmd", "x")),
        ({"cmd": ["other"]}, ("/entry", "other")),
        ({"entrypoint": ["/mine"]}, ("/mine", "cmd", "x")),
        ({"entrypoint": ["/mine"], "cmd": ["other"]}, ("/mine", "other")),
        ({"exec": ["/all", "of", "it"], "cmd": ["other"]}, ("/all", "of", "it")),
    ],
)
def test_exec_replaces_all_and_the_others_their_part(config: dict[str, list[str]], argv: tuple[str, ...]) -> None:
    assert command(exec=None, entrypoint=None, cmd=None, image=IMAGE) == ("/entry", "cmd", "x")
    assert _spec(init=config).processes[0].argv == argv


def test_the_image_says_who_and_where() -> None:
    (process,) = _spec().processes
    assert (process.user, process.cwd, process.tty) == ("www", "/srv", False)
    assert _spec(ImageConfig(cmd=("x",))).processes[0].cwd == "/"
    assert _spec(init={"tty": True}).processes[0].tty


def test_the_config_overrides_the_image_and_the_platform_overrides_both() -> None:
    env = _spec(env={"A": "config", "FLY_REGION": "mine"}).processes[0].env
    assert (env["A"], env["PATH"], env["EMPTY"], env["FLY_REGION"]) == ("config", "/bin", "", "local")
    assert _spec(ImageConfig(cmd=("x",))).processes[0].env["PATH"].startswith("/usr/local/sbin")


def test_several_processes_each_with_their_own() -> None:
    web, job = _spec(
        env={"A": "1"}, processes=[{"cmd": ["web"], "env": {"A": "2"}}, {"exec": ["job"], "user": "root"}]
    ).processes
    assert (web.argv, web.env["A"], web.user) == (("/entry", "web"), "2", "www")
    assert (job.argv, job.env["A"], job.user) == (("job",), "1", "root")


def test_the_platform_names_what_software_looks_for() -> None:
    record = machine(config=config_of(metadata={"fly_process_group": "web"}))
    assert platform_env(record, "hawker/hello") == {
        "FLY_APP_NAME": "stall",
        "FLY_MACHINE_ID": record.id,
        "FLY_ALLOC_ID": record.id,
        "FLY_REGION": "local",
        "FLY_IMAGE_REF": "hawker/hello",
        "FLY_MACHINE_VERSION": "V1",
        "FLY_PRIVATE_IP": "fdaa::2",
        "FLY_VM_MEMORY_MB": "256",
        "FLY_PROCESS_GROUP": "web",
    }
    assert "FLY_PROCESS_GROUP" not in platform_env(machine(), "")


def test_fields_of_the_machine_can_be_had_under_other_names() -> None:
    asked = [{"env_var": "ME", "field_ref": "id"}, {"env_var": "WHERE", "field_ref": "region"}]
    with_them, without = _spec(processes=[{"env_from": asked, "env": {"ME": "?"}}, {}]).processes
    assert (with_them.env["ME"], with_them.env["WHERE"]) == ("00000000000001", "local")
    assert "ME" not in without.env


def test_the_config_names_the_host_and_its_resolver() -> None:
    dns = {
        "nameservers": ["10.0.0.53"],
        "searches": ["svc.example"],
        "options": [{"name": "ndots", "value": "2"}],
        "hostname": "web",
        "hostname_fqdn": "web.example.com",
    }
    spec = _spec(dns=dns)
    found = {file.path: file.content for file in spec.files}
    assert (spec.hostname, found["/etc/hostname"]) == ("web", b"web\n")
    assert found["/etc/resolv.conf"] == b"nameserver 10.0.0.53\nsearch svc.example\noptions ndots:2\n"
    assert b"fdaa::2 web web.example.com 00000000000001 fly-local-6pn" in found["/etc/hosts"]


def test_files_are_the_platforms_and_the_configs() -> None:
    content = base64.b64encode(b"hello").decode()
    spec = _spec(files=[{"guest_path": "/etc/motd", "raw_value": content, "mode": 0o600}])
    found = {file.path: file for file in spec.files}
    assert (found["/etc/motd"].content, found["/etc/motd"].mode) == (b"hello", 0o600)
    assert found["/etc/resolv.conf"].content == b"nameserver 9.9.9.9\n"
    assert b"fdaa::2 00000000000001 fly-local-6pn" in found["/etc/hosts"].content
    assert b"\n0.0.0.0 fly-global-services\n" in found["/etc/hosts"].content, "it has no IPv4 address of its own"
    assert found["/etc/hostname"].content == b"00000000000001\n"


def test_without_a_root_filesystem_no_file_is_written() -> None:
    bare = Surroundings(rootfs=None, netns=None, nameservers=(), pids=1, output_bytes=1)
    assert _spec(around=bare).files == ()


def test_the_instance_stops_as_its_config_says() -> None:
    assert (_spec().stop_signal, _spec().stop_timeout_s) == ("SIGINT", 5.0)
    spec = _spec(stop_config={"signal": "SIGTERM", "timeout": "20s"})
    assert (spec.stop_signal, spec.stop_timeout_s) == ("SIGTERM", 20.0)


def test_a_performance_cpu_weighs_more_than_a_shared_one() -> None:
    shared = _spec(guest={"cpu_kind": "shared", "cpus": 2, "memory_mb": 512}).limits
    whole = _spec(guest={"cpu_kind": "performance", "cpus": 2, "memory_mb": 4096}).limits
    assert (shared.cpus, shared.memory_mib, shared.pids) == (2, 512, 100)
    assert whole.cpu_weight > 10 * shared.cpu_weight


def test_resources_are_counted_by_kind_of_cpu() -> None:
    shared = resources(config_of(guest={"cpu_kind": "shared", "cpus": 2, "memory_mb": 512}), 100)
    whole = resources(config_of(guest={"cpu_kind": "performance", "cpus": 1, "memory_mb": 2048}), 100)
    assert shared == Resources(shared_cpus=2, memory_mib=512, disk_mib=100)
    assert whole == Resources(performance_cpus=1, memory_mib=2048, disk_mib=100)
