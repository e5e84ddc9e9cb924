"""Stands in for Firecracker's jailer, which is not here: does what its documentation says (docs/jailer.md, version
1.16), in its order, as far as a test needs it. It is strict about its arguments, as the real one is."""

import argparse
import ctypes
import os
import re
import resource
import shutil
import stat
import sys
from pathlib import Path

_LIBC = ctypes.CDLL(None, use_errno=True)
_NEWNS, _NEWPID, _NEWNET = 0x20000, 0x20000000, 0x40000000
_SLAVE, _REC, _BIND, _DETACH = 1 << 19, 1 << 14, 1 << 12, 2
_PIVOT_ROOT = {"x86_64": 155, "aarch64": 41}[os.uname().machine]


def main() -> None:
    if sys.argv[1:] == ["--version"]:
        print("Jailer v1.16.0")
        return
    wanted, rest = _parse()
    program = Path(wanted.exec_file).resolve(strict=True)
    assert re.fullmatch(r"[A-Za-z0-9-]{1,64}", wanted.id), "invalid instance id"
    assert "firecracker" in program.name, "the name of the program must contain 'firecracker'"
    _close_descriptors()
    os.environ.clear()
    chroot = Path(wanted.chroot_base_dir).resolve(strict=True) / program.name / wanted.id / "root"
    chroot.mkdir(parents=True, exist_ok=True)
    shutil.copy(program, chroot / program.name)
    for limit in wanted.resource_limit:
        name, value = limit.split("=")
        assert name in ("no-file", "fsize"), f"unknown resource {name}"
        kind = resource.RLIMIT_NOFILE if name == "no-file" else resource.RLIMIT_FSIZE
        resource.setrlimit(kind, (int(value), int(value)))
    _join_groups(wanted)
    _enter(chroot, wanted.netns)
    for directory in ("/", "/dev", "/dev/net", "/run"):
        os.makedirs(directory, exist_ok=True)
        os.chmod(directory, 0o700)
        os.chown(directory, wanted.uid, wanted.gid)
    for path, minor in (("/dev/net/tun", 200), ("/dev/kvm", 232)):
        os.mknod(path, stat.S_IFCHR | 0o600, os.makedev(10, minor))
        os.chown(path, wanted.uid, wanted.gid)
    if wanted.new_pid_ns:
        _fork_in_new_pids(program.name)
    os.setgroups([])
    os.setgid(wanted.gid)
    os.setuid(wanted.uid)
    times = ["--start-time-us", "1", "--start-time-cpu-us", "1", "--parent-cpu-time-us", "1"]
    os.execv(f"/{program.name}", [program.name, "--id", wanted.id, *times, *rest])


def _parse() -> tuple[argparse.Namespace, list[str]]:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    for name in ("id", "exec-file", "chroot-base-dir"):
        parser.add_argument(f"--{name}", required=True)
    for name in ("uid", "gid"):
        parser.add_argument(f"--{name}", required=True, type=int)
    parser.add_argument("--parent-cgroup", default="firecracker")
    parser.add_argument("--cgroup-version", choices=("1", "2"), default="1")
    parser.add_argument("--cgroup", action="append", default=[])
    parser.add_argument("--netns")
    parser.add_argument("--resource-limit", action="append", default=[])
    parser.add_argument("--daemonize", action="store_true")
    parser.add_argument("--new-pid-ns", action="store_true")
    own, _, rest = "\0".join(sys.argv[1:]).partition("\0--\0")
    return parser.parse_args(own.split("\0")), rest.split("\0")


def _close_descriptors() -> None:
    """All but the standard ones."""
    for name in os.listdir("/proc/self/fd"):
        if int(name) > 2:
            try:
                os.close(int(name))
            except OSError:
                continue


def _join_groups(wanted: argparse.Namespace) -> None:
    assert not any(part in ("", ".", "..") for part in wanted.parent_cgroup.split("/")), "invalid parent"
    groups = []
    for each in wanted.cgroup:
        name, value = each.split("=")
        group = _tree(name.split(".")[0], wanted.cgroup_version) / wanted.parent_cgroup / wanted.id
        group.mkdir(parents=True, exist_ok=True)
        (group / name).read_text()
        (group / name).write_text(value + "\n")
        groups.append(group)
    for group in groups:
        (group / ("tasks" if wanted.cgroup_version == "1" else "cgroup.procs")).write_text(str(os.getpid()))


def _tree(controller: str, version: str) -> Path:
    for line in Path("/proc/mounts").read_text().splitlines():
        _, target, kind, options, *_ = line.split()
        if version == "2" and kind == "cgroup2":
            return Path(target)
        if version == "1" and kind == "cgroup" and controller in options.split(","):
            return Path(target)
    raise AssertionError(f"no cgroup controller {controller}")


def _enter(chroot: Path, netns: str | None) -> None:
    if netns is not None:
        fd = os.open(netns, os.O_RDONLY)
        _must(_LIBC.setns(fd, _NEWNET))
        os.close(fd)
    _must(_LIBC.unshare(_NEWNS))
    _must(_LIBC.mount(None, b"/", None, _SLAVE | _REC, None))
    _must(_LIBC.mount(bytes(chroot), bytes(chroot), None, _BIND | _REC, None))
    os.chdir(chroot)
    os.mkdir("old_root", 0o600)
    _must(_LIBC.syscall(_PIVOT_ROOT, b".", b"old_root"))
    os.chdir("/")
    _must(_LIBC.umount2(b"old_root", _DETACH))
    os.rmdir("old_root")
    os.chroot(".")


def _fork_in_new_pids(program: str) -> None:
    """The parent writes down the child's pid, and ends."""
    _must(_LIBC.unshare(_NEWPID))
    child = os.fork()
    if child:
        fd = os.open(f"/{program}.pid", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
        os.write(fd, str(child).encode())
        os._exit(0)


def _must(result: int) -> None:
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


if __name__ == "__main__":
    main()
