"""The memory of a group: in plain directories that look like each version's; the kernel's own is in the drivers'
contract suite."""

from pathlib import Path

import pytest

from hawker.errors import NotFound, WrongState
from hawker.host.cgroup_memory import read_use, reclaim, set_limit

MIB = 1 << 20


def v1(group: Path, *, limit: int = 256, used: int = 100, caches: int = 40, swaps: bool = True) -> Path:
    (group / "memory.limit_in_bytes").write_text(f"{limit * MIB}\n")
    if swaps:
        (group / "memory.memsw.limit_in_bytes").write_text(f"{limit * MIB}\n")
    (group / "memory.usage_in_bytes").write_text(f"{used * MIB}\n")
    stat = f"cache 1\ntotal_inactive_file {(caches - 10) * MIB}\ntotal_active_file {10 * MIB}\n"
    (group / "memory.stat").write_text(stat)
    (group / "memory.force_empty").touch()
    return group


def v2(group: Path, *, limit: str = str(256 * MIB), used: int = 100, caches: int = 40) -> Path:
    (group / "memory.max").write_text(f"{limit}\n")
    (group / "memory.swap.max").write_text("0\n")
    (group / "memory.current").write_text(f"{used * MIB}\n")
    (group / "memory.stat").write_text(f"anon 5\ninactive_file {(caches - 10) * MIB}\nactive_file {10 * MIB}\n")
    (group / "memory.reclaim").touch()
    return group


@pytest.mark.parametrize("make", [v1, v2])
def test_caches_count_as_available(make: object, tmp_path: Path) -> None:
    use = read_use(make(tmp_path))  # type: ignore[operator]
    assert (use.limit // MIB, use.used // MIB, use.caches // MIB, use.available // MIB) == (256, 100, 40, 196)


def test_a_group_without_a_limit_has_what_it_uses(tmp_path: Path) -> None:
    use = read_use(v2(tmp_path, limit="max"))
    assert (use.limit, use.available) == (100 * MIB, 40 * MIB)


def test_no_group_is_not_found(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="gone"):
        read_use(tmp_path / "gone")


@pytest.mark.parametrize("limit_mib", [128, 512])
def test_v1_is_told_memory_and_memory_with_swap(tmp_path: Path, limit_mib: int) -> None:
    set_limit(v1(tmp_path), limit_mib * MIB, 64 * MIB)
    assert int((tmp_path / "memory.limit_in_bytes").read_text()) == limit_mib * MIB
    assert int((tmp_path / "memory.memsw.limit_in_bytes").read_text()) == (limit_mib + 64) * MIB


def test_v1_without_swap_accounting_is_told_memory_only(tmp_path: Path) -> None:
    set_limit(v1(tmp_path, swaps=False), 128 * MIB, 0)
    assert not (tmp_path / "memory.memsw.limit_in_bytes").exists()


def test_v2_is_told_memory_and_swap(tmp_path: Path) -> None:
    set_limit(v2(tmp_path), 128 * MIB, 64 * MIB)
    assert int((tmp_path / "memory.max").read_text()) == 128 * MIB
    assert int((tmp_path / "memory.swap.max").read_text()) == 64 * MIB


@pytest.mark.parametrize("make", [v1, v2])
def test_less_than_is_in_use_is_refused_and_says_what_would_do(make: object, tmp_path: Path) -> None:
    group = make(tmp_path)  # type: ignore[operator]
    with pytest.raises(WrongState, match="must be at least 68 MB"):
        set_limit(group, 67 * MIB, 0)
    assert read_use(group).limit == 256 * MIB
    set_limit(group, 68 * MIB, 0)


def test_nothing_is_reclaimed_when_nothing_is_asked_for(tmp_path: Path) -> None:
    assert reclaim(v2(tmp_path), 0) == 0
    assert (tmp_path / "memory.reclaim").read_text() == ""


@pytest.mark.parametrize(("make", "file", "told"), [(v1, "memory.force_empty", "0"), (v2, "memory.reclaim", "5000")])
def test_the_kernel_is_asked_in_its_own_way(make: object, file: str, told: str, tmp_path: Path) -> None:
    group = make(tmp_path)  # type: ignore[operator]
    assert reclaim(group, 5000) == 0, "these files do not answer"
    assert (group / file).read_text() == told
