"""Cloud Hypervisor's answers: what it takes of a VM that is created, runs, is paused, or is not there. In our words, in
its shapes. After docs/ and vmm/src/lib.rs of Cloud Hypervisor 53.0.
"""

import json
import os
from pathlib import Path
from typing import Any

from tests.vmm.cloud_hypervisor_document import CLOUD_HYPERVISOR
from tests.vmm.document import Document
from tests.vmm.guests import Guest, Machine
from tests.vmm.vmm_server import DONE, Reply

_ROOT = "/api/v1"
_NEXT = {
    "vm.pause": ("Running", "Paused"),
    "vm.resume": ("Paused", "Running"),
}
_CONFIG, _STATE, _MEMORY = "config.json", "state.json", "memory-ranges"
_MIB = 1 << 20


class _Refused(Exception):
    """What failed, and why, as two links of a chain."""

    def __init__(self, what: str, why: str, status: int = 500) -> None:
        super().__init__(why)
        self.chain = ["Error from API", what, why]
        self.status = status


class PlayedCloudHypervisor:
    """Keeps `PlayedVmm`."""

    document: Document = CLOUD_HYPERVISOR
    server = "Cloud Hypervisor API"

    def __init__(self, guest: Guest, version: str = CLOUD_HYPERVISOR.version) -> None:
        self.ended = False
        self.version = version
        self.state: str | None = None  # None: no VM
        self.config: dict[str, Any] = {}
        self._guest = guest

    def fault(self, status: int, text: str) -> Reply:
        return Reply(status, [text])

    def answer(self, operation: str, path: str, body: Any) -> Reply:
        name = operation.split()[1].removeprefix(f"{_ROOT}/")
        try:
            return self._do(name, body)
        except _Refused as error:
            return Reply(error.status, error.chain)
        except OSError as error:
            return Reply(500, ["Error from API", f"{name} failed", str(error)])

    def _do(self, name: str, body: Any) -> Reply:
        match name:
            case "vmm.ping":
                return Reply(200, {"build_version": self.version, "version": self.version, "pid": 1, "features": []})
            case "vmm.shutdown":
                self._delete()
                self.ended = True
            case "vm.create":
                self._create(body)
            case "vm.delete":
                self._delete()
            case "vm.boot":
                self._boot()
            case "vm.pause" | "vm.resume":
                self._turn(name)
            case "vm.shutdown":
                self._need_running(name)
                self._guest.end()
                self.state = "Created"
            case "vm.info":
                return self._info()
            case "vm.resize":
                self._resize(body)
            case "vm.resize-disk":
                self._resize_disk(body)
            case "vm.snapshot":
                self._save(body)
            case "vm.restore":
                self._restore(body)
        return DONE

    def _create(self, config: Any) -> None:
        if self.state is not None:
            raise _Refused("vm.create failed", "there is a VM already")
        self.config, self.state = config, "Created"

    def _delete(self) -> None:
        if self.state in ("Running", "Paused"):
            self._guest.end()
        self.config, self.state = {}, None

    def _boot(self) -> None:
        if self.state is None:
            raise _Refused("vm.boot failed", "there is no VM", 404)
        if self.state != "Created":
            raise _Refused("vm.boot failed", "the VM is booted already")
        payload = self.config["payload"]
        if "kernel" not in payload and "firmware" not in payload:
            raise _Refused("vm.boot failed", "no boot without a kernel")
        self._refuse_config()
        for file in filter(None, (payload.get("kernel"), payload.get("initramfs"))):
            Path(file).open("rb").close()
        for disk in self.config.get("disks", ()):
            os.close(os.open(disk["path"], os.O_RDONLY if disk.get("readonly") else os.O_RDWR))
        vsock = self.config.get("vsock")
        machine = Machine(
            command_line=payload.get("cmdline", ""),
            memory_mib=(self.config["memory"]["size"] - self.config.get("balloon", {}).get("size", 0)) // _MIB,
            vsock=vsock["socket"] if vsock else "",
            drives={disk["id"]: disk["path"] for disk in self.config.get("disks", ())},
        )
        self._guest.start(machine)
        self.state = "Running"

    def _refuse_config(self) -> None:
        """What it checks only now."""
        config = self.config
        named = [each["id"] for key in ("disks", "net", "devices") for each in config.get(key, ()) if "id" in each]
        if len(named) != len(set(named)):
            raise _Refused("vm.boot failed", "two devices have one id")
        if config["cpus"]["max_vcpus"] < config["cpus"]["boot_vcpus"]:
            raise _Refused("vm.boot failed", "fewer cpus at the most than at the boot")
        if config.get("balloon", {}).get("size", 0) > config["memory"]["size"]:
            raise _Refused("vm.boot failed", "the balloon is larger than the memory")
        if any(net.get("mtu", 1280) < 1280 for net in config.get("net", ())):
            raise _Refused("vm.boot failed", "an MTU below 1280")

    def _need_running(self, name: str) -> None:
        if self.state not in ("Running", "Paused"):
            raise _Refused(f"{name} failed", "the VM does not run")

    def _turn(self, name: str) -> None:
        """Twice is an error."""
        self._need_running(name)
        before, after = _NEXT[name]
        if self.state != before:
            raise _Refused(f"{name} failed", f"a VM that is {self.state} cannot become {after}")
        self._guest.hold() if after == "Paused" else self._guest.go_on()
        self.state = after

    def _info(self) -> Reply:
        if self.state is None:
            raise _Refused("vm.info failed", "there is no VM", 404)
        actual = self.config["memory"]["size"] - self.config.get("balloon", {}).get("size", 0)
        return Reply(200, {"config": self.config, "state": self.state, "memory_actual_size": actual})

    def _resize(self, body: Any) -> None:
        if self.state is None:
            raise _Refused("vm.resize failed", "there is no VM", 404)
        size = body.get("desired_balloon")
        if size is not None:
            if "balloon" not in self.config:
                raise _Refused("vm.resize failed", "there is no balloon")
            if not 0 <= size <= self.config["memory"]["size"]:
                raise _Refused("vm.resize failed", "a balloon larger than the memory")
            self.config["balloon"]["size"] = size
            self._guest.give((self.config["memory"]["size"] - size) // _MIB)

    def _resize_disk(self, body: Any) -> None:
        if self.state is None:
            raise _Refused("vm.resize-disk failed", "there is no VM", 404)
        self._need_running("vm.resize-disk")
        disks = {disk["id"]: disk for disk in self.config.get("disks", ()) if "id" in disk}
        if body["id"] not in disks:
            raise _Refused("vm.resize-disk failed", f"there is no disk {body['id']}")
        os.truncate(disks[body["id"]]["path"], body["desired_size"])

    def _save(self, body: Any) -> None:
        self._need_running("vm.snapshot")
        if self.state != "Paused":
            raise _Refused("vm.snapshot failed", "a snapshot is of a VM that is paused")
        place = _directory(body["destination_url"], "vm.snapshot")
        (place / _CONFIG).write_text(json.dumps(self.config))
        (place / _STATE).write_text(json.dumps({"version": self.version}))
        self._guest.save(place / _MEMORY)

    def _restore(self, body: Any) -> None:
        if self.state is not None:
            raise _Refused("vm.restore failed", "there is a VM already")
        place = _directory(body["source_url"], "vm.restore")
        try:
            config, state = (json.loads((place / name).read_bytes()) for name in (_CONFIG, _STATE))
        except ValueError as error:
            raise _Refused("vm.restore failed", f"the snapshot cannot be read: {error}") from error
        if state != {"version": self.version}:
            raise _Refused("vm.restore failed", "the state is of another version")
        self._guest.restore(place / _MEMORY)
        self.config, self.state = config, "Paused"
        if body.get("resume"):
            self._turn("vm.resume")


def _directory(url: str, name: str) -> Path:
    place = Path(url.removeprefix("file://"))
    if not url.startswith("file://") or not place.is_dir():
        raise _Refused(f"{name} failed", f"no directory at {url}")
    return place
