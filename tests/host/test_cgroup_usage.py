from hawker.errors import NotFound
from hawker.host.cgroup import read_flat, read_usage


def test_flat_files_are_read_line_by_line() -> None:
    assert read_flat("low 0\noom 2\noom_kill 3\n\nodd\n") == {"low": 0, "oom": 2, "oom_kill": 3}


def read_from(files: dict[str, str]) -> tuple[object, object]:
    def read(controller: str, name: str) -> str:
        if name not in files:
            raise NotFound(name)
        return files[name]

    return read, lambda controller, name: files.get(name, "")


def test_usage_needs_no_more_than_the_oldest_files_of_both_versions() -> None:
    v1 = {"memory.usage_in_bytes": "10", "cpuacct.usage": "1000000000", "pids.current": "1"}
    v2 = {"memory.current": "10", "cpu.stat": "usage_usec 1000000", "pids.current": "1", "memory.max": "max"}
    for files, unified in ((v1, False), (v2, True)):
        read, optional = read_from(files)
        usage = read_usage(read, optional, unified=unified)  # type: ignore[arg-type]
        assert (usage.cpu_s, usage.working_set_bytes, usage.memory_limit_bytes) == (1.0, 10, None)


def test_no_limit_of_v1_is_no_number() -> None:
    files = {
        "memory.usage_in_bytes": "10",
        "memory.limit_in_bytes": "9223372036854771712",
        "cpuacct.usage": "0",
        "pids.current": "1",
    }
    read, optional = read_from(files)
    assert read_usage(read, optional, unified=False).memory_limit_bytes is None  # type: ignore[arg-type]
