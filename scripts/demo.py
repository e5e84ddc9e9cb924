"""The demo: one machine's life on a node of its own, through the `hawker` command, each step checked as it happens.

Ends with status 0 only if every step did what it says. Leaves nothing behind.
"""

import json
import os
import signal
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter

HAWKER = str(Path(sys.executable).with_name("hawker"))
STOP_WITHIN_S = 30.0


class Failed(Exception):
    """A step did not do what it says."""


def say(text: str) -> None:
    print(f"\n\033[1m{text}\033[0m" if sys.stdout.isatty() else f"\n{text}", flush=True)


class Demo:
    """Runs `hawker` against the node in `data_dir`."""

    def __init__(self, data_dir: str) -> None:
        kept = {key: value for key, value in os.environ.items() if not key.startswith("HAWKER_")}
        self._environment = kept | {"HAWKER_DATA_DIR": data_dir}

    def hawker(self, *arguments: str, quiet: bool = False) -> str:
        """Show the command and its output; raise `Failed` when it fails."""
        if not quiet:
            print(f"$ hawker {' '.join(arguments)}", flush=True)
        errors = subprocess.PIPE if quiet else subprocess.STDOUT
        done = subprocess.run(
            [HAWKER, *arguments],
            env=self._environment,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            timeout=120,
            check=False,
        )
        if not quiet or done.returncode:
            print(done.stdout + (done.stderr or ""), end="", flush=True)
        if done.returncode:
            raise Failed(f"hawker {arguments[0]} ended with status {done.returncode}")
        return done.stdout

    def machine(self, name: str) -> dict[str, object]:
        found: dict[str, object] = json.loads(self.hawker("machine", "status", name, "-o", "json", quiet=True))[
            "machine"
        ]
        return found


@contextmanager
def node(data_dir: str, log: Path) -> Iterator[str]:
    """A node as `hawker up` makes it; its URL."""
    command = [HAWKER, "up", "--data-dir", data_dir, "--listen", "127.0.0.1:0", "--ephemeral"]
    with log.open("wb") as errors, subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors) as process:
        assert process.stdout is not None
        words = process.stdout.readline().decode().split()
        try:
            if not words:
                raise Failed(f"the node did not start:\n{log.read_text()}")
            yield words[1]
            say("Stop the node")
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(STOP_WITHIN_S)
        if process.returncode != 0:
            raise Failed(f"the node ended with status {process.returncode}:\n{log.read_text()[-2000:]}")


def expect(text: str, wanted: str) -> None:
    if wanted not in text:
        raise Failed(f"expected {wanted!r} in {text!r}")


def fetch(address: str) -> str:
    url = f"http://[{address}]:8080/" if ":" in address else f"http://{address}:8080/"
    print(f"$ curl {url}", flush=True)
    with urllib.request.urlopen(url, timeout=10) as answer:
        return str(answer.read().decode())


def show(demo: Demo) -> None:
    """The machine's life, step by step."""
    say("Order a machine from the sample image")
    demo.hawker("machine", "run", "hawker/hello", "--name", "demo")
    machine = demo.machine("demo")
    expect(str(machine["state"]), "started")

    say("Ask it something over its private address")
    answer = fetch(str(machine["private_ip"]))
    print(answer, end="")
    expect(answer, str(machine["id"]))

    say("Run a command in it")
    expect(demo.hawker("machine", "exec", "demo", "--", "hello", "env"), f"FLY_MACHINE_ID={machine['id']}")

    say("Read its output")
    expect(demo.hawker("machine", "logs", "demo"), "GET /")

    say("See what was done to it, step by step")
    runs = json.loads(demo.hawker("runs", "list", "--machine", "demo", "-o", "json", quiet=True))
    expect(demo.hawker("runs", "show", runs["runs"][0]["id"]), "launch")

    say("Stop it, and start it again")
    demo.hawker("machine", "stop", "demo")
    expect(str(demo.machine("demo")["state"]), "stopped")
    demo.hawker("machine", "start", "demo")
    expect(str(demo.machine("demo")["state"]), "started")
    print(f"the start took {start_ms(demo):.0f} ms from the call to started")

    say("Destroy it")
    demo.hawker("machine", "destroy", "--force", "demo")
    expect(demo.hawker("machine", "list", "-o", "json", quiet=True), "[]")


def start_ms(demo: Demo) -> float:
    """Between the two events that the node recorded."""
    events = json.loads(demo.hawker("machine", "events", "demo", "-o", "json", quiet=True))
    at = {event["status"]: event["timestamp"] for event in reversed(events) if event["type"] == "start"}
    return float(at["started"] - at["starting"])


def main() -> int:
    began = perf_counter()
    with tempfile.TemporaryDirectory(prefix="hawker-demo-") as directory:
        say("Start a node on a temporary directory")
        try:
            with node(f"{directory}/data", Path(directory) / "log") as url:
                print(f"ready {url}")
                show(Demo(f"{directory}/data"))
        except (Failed, OSError, subprocess.TimeoutExpired) as error:
            print(f"\nfailed: {error}", file=sys.stderr)
            return 1
    say(f"All of it did what it says, in {perf_counter() - began:.1f} s.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
