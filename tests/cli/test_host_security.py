from pathlib import Path

from hawker.cli.host_security import HostSecurity
from hawker.clock import ManualClock
from hawker.cluster import found_cluster, write_cluster


def host(
    place: Path, *, af_alg: bool = False, crun: str = "crun version 1.21", lack_of_ids: str = "", **files: str
) -> HostSecurity:
    for name, text in files.items():
        file = place / "root" / name.replace("__", "/")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    (place / "data").mkdir(mode=0o700, exist_ok=True)
    return HostSecurity(place / "data", place / "root", lambda _: lack_of_ids, lambda: af_alg, lambda: crun)


def about(security: HostSecurity) -> list[str]:
    return [each.about for each in security.weaknesses()]


def test_a_host_without_weaknesses_has_none(tmp_path: Path) -> None:
    assert about(host(tmp_path, proc__swaps="Filename\n", proc__sys__kernel__dmesg_restrict="1")) == []


def test_each_weakness_of_the_kernel_is_told(tmp_path: Path) -> None:
    weak = host(
        tmp_path,
        af_alg=True,
        lack_of_ids="only root can map ids",
        crun="crun version 1.8.1\ncommit: x",
        sys__kernel__mm__ksm__run="1\n",
        sys__devices__system__cpu__smt__active="1\n",
        proc__sys__kernel__dmesg_restrict="0\n",
        proc__swaps="Filename\n/dev/sda2 partition\n",
    )
    assert about(weak) == ["AF_ALG", "KSM", "SMT", "dmesg", "swap", "user namespaces", "crun"]


def test_files_that_others_may_read_are_told(tmp_path: Path) -> None:
    weak = host(tmp_path)
    token = tmp_path / "data" / "token"
    token.write_text("hwk_x")
    token.chmod(0o644)
    (found,) = weak.weaknesses()
    assert found.about == str(token) and found.detail == "other users may use it: mode 0644"


def test_plain_http_between_hosts_is_told_and_not_on_one_host(tmp_path: Path) -> None:
    weak = host(tmp_path)
    for address, count in (("10.0.0.1", 1), ("127.0.0.2", 0)):
        write_cluster(tmp_path / "data" / "cluster.json", found_cluster(ManualClock(), advertise=address, peer_port=1))
        assert len(weak.weaknesses()) == count
