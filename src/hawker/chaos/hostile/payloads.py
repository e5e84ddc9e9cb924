"""What runs inside a machine: `python3 payloads.py NAME [SECONDS]` runs one function and prints its result as JSON.

The standard library only, since the image has nothing else.
"""

import base64
import ctypes
import errno
import hashlib
import http.server
import json
import os
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from urllib.parse import unquote

_LIBC = ctypes.CDLL(None, use_errno=True)
_METADATA = (
    ("169.254.169.254", "AWS, GCP, Azure, OpenStack"),
    ("169.254.170.2", "AWS ECS"),
    ("168.63.129.16", "Azure WireServer"),
    ("100.100.100.200", "Alibaba"),
    ("192.0.0.192", "Oracle classic"),
    ("fd00:ec2::254", "AWS over IPv6"),
    ("fd20:ce::254", "GCP over IPv6"),
)


def rest(seconds: float) -> dict[str, object]:
    """Wait to be told what to do."""
    while True:
        time.sleep(3600)


def serve(seconds: float) -> dict[str, object]:
    """Answer every request, and write to /data without pause where a volume is."""

    class Answer(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = json.dumps(_own_name() if self.path == "/name" else _written).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            pass

    threading.Thread(target=_write_for_ever, daemon=True).start()
    server = http.server.ThreadingHTTPServer
    server.address_family = socket.AF_INET6
    server(("::", 8080), Answer).serve_forever()
    return {}


def _own_name() -> str:
    """Whether the name of the machine's own app leads anywhere."""
    try:
        socket.getaddrinfo(f"{os.environ['FLY_APP_NAME']}.internal", None, socket.AF_INET6)
    except OSError as error:
        return str(error)
    return "found"


_written: dict[str, object] = {"writes": 0, "failed": 0, "error": "", "longest_s": 0.0}


def _write_for_ever() -> None:
    """A record at a time, each on disk before the next."""
    while True:
        began = time.monotonic()
        try:
            with open("/data/record", "wb") as file:
                file.write(os.urandom(4096))
                file.flush()
                os.fsync(file.fileno())
            _written["writes"] = int(str(_written["writes"])) + 1
        except OSError as error:
            _written["failed"] = int(str(_written["failed"])) + 1
            _written["error"] = str(error)
        longest = float(str(_written["longest_s"]))
        _written["longest_s"] = max(longest, time.monotonic() - began)
        time.sleep(0.05)


# What can be reached.


def metadata(seconds: float) -> dict[str, object]:
    """Which of the clouds' metadata addresses answer."""
    return {"reached": [f"{address} ({whose})" for address, whose in _METADATA if _answers(address, 80)]}


def reach(seconds: float) -> dict[str, object]:
    """Which of the addresses in the arguments, each HOST PORT, answer."""
    pairs = zip(sys.argv[3::2], sys.argv[4::2], strict=True)
    return {"reached": [f"{host} port {port}" for host, port in pairs if _answers(host, int(port))]}


def _answers(host: str, port: int) -> bool:
    try:
        with socket.create_connection((host, port), timeout=1.0):
            return True
    except OSError:
        return False


def datagrams(seconds: float) -> dict[str, object]:
    """Begin as many UDP flows as time allows: each port of each address is another entry of connection tracking."""
    deadline, sent, refused = time.monotonic() + seconds, 0, 0
    host = sys.argv[3]
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    while time.monotonic() < deadline:
        with socket.socket(family, socket.SOCK_DGRAM) as sender:
            for port in range(1, 65536, 1):
                try:
                    sender.sendto(b"x", (host, port))
                    sent += 1
                except OSError:
                    refused += 1
                if time.monotonic() > deadline:
                    break
    return {"sent": sent, "refused": refused}


def questions(seconds: float) -> dict[str, object]:
    """Questions to the resolver without pause, for names of the private network and of the world that are each asked
    once, and as many connections to it as it takes."""
    with open("/etc/resolv.conf") as file:
        server = next(line.split()[1] for line in file if line.startswith("nameserver"))
    deadline, asked, held = time.monotonic() + seconds, 0, []
    family = socket.AF_INET6 if ":" in server else socket.AF_INET
    for _ in range(200):
        with suppress(OSError):
            held.append(socket.create_connection((server, 53), timeout=0.2))
            held[-1].sendall(b"\x00")
    with socket.socket(family, socket.SOCK_DGRAM) as sender:
        sender.setblocking(False)
        while time.monotonic() < deadline:
            for zone in (b"\x08internal", b"\x07example\x03com", b"\x03bad" * 40):
                name = b"\x10" + os.urandom(8).hex().encode() + zone + b"\x00"
                with suppress(OSError):
                    sender.sendto(
                        os.urandom(2) + b"\x01\x00\x00\x01" + bytes(6) + name + b"\x00\x1c\x00\x01", (server, 53)
                    )
                    asked += 1
    return {"asked": asked, "connections": len(held)}


def spoof(seconds: float) -> dict[str, object]:
    """Send frames with another machine's address as source, where raw sockets are allowed at all."""
    try:
        raw = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
    except OSError as error:
        return {"raw": errno.errorcode.get(error.errno or 0, str(error))}
    raw.bind(("eth0", 0))
    for _ in range(1000):
        raw.send(b"\xff" * 6 + os.urandom(6) + b"\x08\x06" + os.urandom(28))
    return {"raw": "open"}


# The kernel's shared tables.


def inotify(seconds: float) -> dict[str, object]:
    """Take every inotify instance that this user may have; a child holds them for so long."""
    held = len(list(_until_refused(_LIBC.inotify_init)))
    if os.fork() == 0:
        os.setsid()
        for stream in range(3):
            os.close(stream)
        time.sleep(seconds)
        os._exit(0)
    return {"held": held}


def pipes(seconds: float) -> dict[str, object]:
    """Take the pipe pages that this user may have: afterwards its pipes are small."""
    for _ in range(1500):
        try:
            os.pipe()
        except OSError:
            break
    time.sleep(seconds)
    return {}


def sockets(seconds: float) -> dict[str, object]:
    """Which families of sockets open that a container has no need of."""
    families = {"AF_ALG": 38, "AF_VSOCK": 40, "AF_RXRPC": 33, "AF_KEY": 15, "AF_CAN": 29, "AF_TIPC": 30, "AF_SMC": 43}
    opened = []
    for name, family in families.items():
        for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM, socket.SOCK_SEQPACKET):
            with suppress(OSError):
                socket.socket(family, kind).close()
                opened.append(name)
                break
    return {"opened": opened}


def escape_calls(seconds: float) -> dict[str, object]:
    """Which calls are not refused that change mounts, modules, keys, namespaces or other processes."""
    numbers = {
        "mount": 165, "umount2": 166, "pivot_root": 155, "init_module": 175, "kexec_load": 246, "bpf": 321,
        "perf_event_open": 298, "userfaultfd": 323, "open_by_handle_at": 304, "setns": 308, "add_key": 248,
        "keyctl": 250, "io_uring_setup": 425, "fsopen": 430, "move_mount": 429, "swapon": 167, "reboot": 169,
        "settimeofday": 164, "kcmp": 312, "syslog": 103, "acct": 163, "iopl": 172,
    }  # fmt: skip
    if os.uname().machine != "x86_64":
        return {"passed": []}
    refused = {errno.EPERM, errno.ENOSYS, errno.EACCES}
    passed = []
    for name, number in numbers.items():
        ctypes.set_errno(0)
        _LIBC.syscall(number, -1, 0, 0, 0, 0)
        if ctypes.get_errno() not in refused:
            passed.append(f"{name}: {errno.errorcode.get(ctypes.get_errno(), '0')}")
    return {"passed": passed}


def privileged_writes(seconds: float) -> dict[str, object]:
    """Which of the host's switches can be written, and whether the machine can be spared by the OOM killer."""
    done = []
    for path, text in (
        ("/proc/sys/kernel/core_pattern", "|/bin/sh"),
        ("/proc/sysrq-trigger", "h"),
        ("/proc/self/oom_score_adj", "-900"),
        ("/sys/kernel/mm/ksm/run", "1"),
        ("/sys/fs/cgroup/cgroup.procs", "1"),
        ("/sys/fs/cgroup/memory/memory.limit_in_bytes", "-1"),
    ):
        with suppress(OSError):
            file = os.open(path, os.O_WRONLY)
            os.write(file, text.encode())
            os.close(file)
            done.append(path)
    for name in ("kmsg", "mem", "fuse", "vda"):
        with suppress(OSError):
            os.mknod(f"/tmp/{name}", 0o20666, os.makedev(1, 11))
            os.close(os.open(f"/tmp/{name}", os.O_RDONLY))
            done.append(f"/dev/{name}")
    return {"done": done}


def host_paths(seconds: float) -> dict[str, object]:
    """What the machine can read of the host: paths in its mount table, kernel tables."""
    seen = []
    for path in ("/proc/slabinfo", "/proc/vmallocinfo", "/sys/kernel/vmcoreinfo", "/proc/config.gz", "/proc/kcore"):
        with suppress(OSError), open(path, "rb") as file:
            if file.read(16):
                seen.append(path)
    return {"seen": seen}


def _until_refused(make: Callable[[], int]) -> Iterator[int]:
    while True:
        made = make()
        if made < 0:
            return
        yield made


# What a machine pays for, taken to the end.


def burn(seconds: float) -> dict[str, object]:
    """Use every cpu."""
    pids = [_child(_spin) for _ in range(2 * (os.cpu_count() or 1))]
    time.sleep(seconds)
    for pid in pids:
        os.kill(pid, 9)
        os.waitpid(pid, 0)
    return {}


def _spin() -> None:
    while True:
        pass


def _child(work: Callable[[], None]) -> int:
    pid = os.fork()
    if pid == 0:
        work()
    return pid


def fork_bomb(seconds: float) -> dict[str, object]:
    """Fork until it is refused, and hold all of them."""
    pids: list[int] = []
    deadline = time.monotonic() + seconds
    with suppress(OSError):
        while time.monotonic() < deadline:
            pids.append(_child(lambda: time.sleep(3600)))
    time.sleep(max(0.0, deadline - time.monotonic()))
    for pid in pids:
        os.kill(pid, 9)
        os.waitpid(pid, 0)
    return {"forked": len(pids)}


def eat_memory(seconds: float) -> dict[str, object]:
    """Take memory until the kernel ends a child, again and again."""
    deadline = time.monotonic() + seconds
    ends = 0
    while time.monotonic() < deadline:
        pid = _child(_grow)
        os.waitpid(pid, 0)
        ends += 1
    return {"ends": ends}


def _grow() -> None:
    held = []
    while True:
        held.append(bytearray(16 << 20))


def fill_disk(seconds: float) -> dict[str, object]:
    """Write to the root file system until it is full, and stay so."""
    deadline, written = time.monotonic() + seconds, 0
    block = os.urandom(1 << 20)
    try:
        with open("/filler", "wb", buffering=0) as file:
            while time.monotonic() < deadline:
                written += file.write(block)
    except OSError as error:
        time.sleep(max(0.0, deadline - time.monotonic()))
        return {"written_mib": written >> 20, "error": errno.errorcode.get(error.errno or 0, str(error))}
    return {"written_mib": written >> 20, "error": ""}


def many_files(seconds: float) -> dict[str, object]:
    """Use inodes: empty files in many directories."""
    deadline, made = time.monotonic() + seconds, 0
    with suppress(OSError):
        while time.monotonic() < deadline:
            folder = f"/many/{made // 1000}"
            os.makedirs(folder, exist_ok=True)
            open(f"{folder}/{made}", "w").close()
            made += 1
    return {"made": made}


def sync_storm(seconds: float) -> dict[str, object]:
    """Write and sync without pause."""
    deadline, syncs = time.monotonic() + seconds, 0
    block = os.urandom(1 << 18)
    with open("/storm", "wb", buffering=0) as file:
        while time.monotonic() < deadline:
            file.seek(0)
            file.write(block)
            os.fsync(file.fileno())
            syncs += 1
    return {"syncs": syncs}


def flood_output(seconds: float) -> dict[str, object]:
    """Write lines to the workload's own output, which is process 1's child's: the log."""
    deadline, lines = time.monotonic() + seconds, 0
    with open("/proc/2/fd/1", "w") as out:
        while time.monotonic() < deadline:
            out.write("x" * 200 + "\n")
            lines += 1
    return {"lines": lines}


# Servers that answer the node badly.


def silent_server(seconds: float) -> dict[str, object]:
    """Accept every connection on port 9000, and never answer."""
    listener = socket.create_server(("::", 9000), family=socket.AF_INET6, backlog=1024, dualstack_ipv6=True)
    held = []
    while True:
        held.append(listener.accept())


def endless_server(seconds: float) -> dict[str, object]:
    """Answer every request on port 9001 with a head, or a body, that does not end."""
    listener = socket.create_server(("::", 9001), family=socket.AF_INET6, backlog=1024, dualstack_ipv6=True)
    while True:
        connection, _ = listener.accept()
        threading.Thread(target=_pour, args=(connection,), daemon=True).start()


def _pour(connection: socket.socket) -> None:
    with suppress(OSError):
        path = connection.recv(65536).split(b" ")[1]
        if path == b"/head":
            connection.sendall(b"HTTP/1.1 200 OK\r\n")
            while True:
                connection.sendall(b"X-Pad: " + b"x" * 8000 + b"\r\n")
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\r\n")
        while True:
            connection.sendall(b'hawker_runs_open{job="hawker",state="stuck"} 7\n' * 1000)


def without_end(seconds: float) -> dict[str, object]:
    """Answer every request on port 8080 with a body that does not end."""

    def pour(connection: socket.socket) -> None:
        with suppress(OSError), connection:
            connection.recv(65536)
            connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\r\n")
            while True:
                connection.sendall(b"x" * 65536)

    listener = socket.create_server(("::", 8080), family=socket.AF_INET6, dualstack_ipv6=True, backlog=1024)
    while True:
        threading.Thread(target=pour, args=(listener.accept()[0],), daemon=True).start()


_KEY = "sec-websocket-key:"


def pouring_websocket(seconds: float) -> dict[str, object]:
    """Agree to be a WebSocket on port 8080, whoever asks; pour messages, and read none."""

    def pour(connection: socket.socket) -> None:
        with suppress(OSError), connection:
            head = connection.recv(65536).decode("latin-1")
            key = next((line[18:].strip() for line in head.splitlines() if line.lower().startswith(_KEY)), "")
            digest = hashlib.sha1((key + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11").encode()).digest()
            agreed = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            agreed += f"Sec-WebSocket-Accept: {base64.b64encode(digest).decode()}\r\n\r\n"
            connection.sendall(agreed.encode())
            while True:
                connection.sendall(b"\x82\x7e\x40\x00" + b"x" * 16_384)

    listener = socket.create_server(("::", 8080), family=socket.AF_INET6, dualstack_ipv6=True, backlog=1024)
    while True:
        threading.Thread(target=pour, args=(listener.accept()[0],), daemon=True).start()


def replaying(seconds: float) -> dict[str, object]:
    """Have every request replayed to where its query says, which begins with { as JSON; without one, answer."""

    class Answer(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length") or 0))
            order = unquote(self.path.partition("?")[2])
            as_json = order.startswith("{")
            body = order.encode() if as_json else b""
            self.send_response(200)
            if as_json:
                self.send_header("Content-Type", "application/vnd.fly.replay+json")
            elif order:
                self.send_header("fly-replay", order)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_POST = do_GET

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer
    server.address_family = socket.AF_INET6
    server(("::", 8080), Answer).serve_forever()
    return {}


def forged_metrics(seconds: float) -> dict[str, object]:
    """Serve series on port 9002 that look like the node's own."""
    text = b"\n".join((
        b'hawker_runs_open{job="hawker",state="stuck"} 7',
        b'up{job="hawker"} 0',
        b'own_total{exported_job="x",__name__x="y",cluster="z"} 1',
        *(b'many_total{n="%d"} 1' % number for number in range(200_000)),
    ))  # fmt: skip
    listener = socket.create_server(("::", 9002), family=socket.AF_INET6, dualstack_ipv6=True)
    while True:
        connection, _ = listener.accept()
        with suppress(OSError), connection:
            connection.recv(65536)
            connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(text) + text)


if __name__ == "__main__":
    chosen = globals()[sys.argv[1]]
    sys.stdout.write(json.dumps(chosen(float(sys.argv[2]) if len(sys.argv) > 2 else 1.0)))
