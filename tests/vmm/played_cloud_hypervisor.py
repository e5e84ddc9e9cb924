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
from tests.vmm.vmm_server import DONE, PlayedVmm, Refused, Reply

_ROOT = "/api/v1"
_NEXT = {
    "vm.pause": ("Running", "Paused"),
    "vm.resume": ("Paused", "Running"),
}
_CONFIG, _STATE, _MEMORY = "config.json", "state.json", "memory-ranges"
_MIB = 1 << 20


class PlayedCloudHypervisor(PlayedVmm):
    """It tells what failed, and why, as links of a chain. Without a VM it has no state."""

    document: Document = CLOUD_HYPERVISOR
    server = "Cloud Hypervisor API"

    def __init__(self, guest: Guest, version: str = CLOUD_HYPERVISOR.version) -> None:
        super().__init__(guest, version)
        self.config: dict[str, Any] = {}

    def fault(self, status: int, text: str) -> Reply:
        return Reply(status, [text])

    def _refusal(self, operation: str, error: Exception, refused: Refused | None) -> Reply:
        if refused is not None:
            return Reply(refused.status, ["Error from API", refused.what, str(refused)])
        return Reply(500, ["Error from API", f"{_name(operation)} failed", str(error)])

    def _do(self, operation: str, path: str, body: Any) -> Reply:
        name = _name(operation)
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
            raise Refused("there is a VM already", what="vm.create failed")
        self.config, self.state = config, "Created"

    def _delete(self) -> None:
        if self.state in ("Running", "Paused"):
            self._guest.end()
        self.config, self.state = {}, None

    def _boot(self) -> None:
        if self.state is None:
            raise Refused("there is no VM", what="vm.boot failed", status=404)
        if self.state != "Created":
            raise Refused("the VM is booted already", what="vm.boot failed")
        payload = self.config["payload"]
        if "kernel" not in payload and "firmware" not in payload:
            raise Refused("no boot without a kernel", what="vm.boot failed")
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
            raise Refused("two devices have one id", what="vm.boot failed")
        if config["cpus"]["max_vcpus"] < config["cpus"]["boot_vcpus"]:
            raise Refused("fewer cpus at the most than at the boot", what="vm.boot failed")
        if config.get("balloon", {}).get("size", 0) > config["memory"]["size"]:
            raise Refused("the balloon is larger than the memory", what="vm.boot failed")
        if any(net.get("mtu", 1280) < 1280 for net in config.get("net", ())):
            raise Refused("an MTU below 1280", what="vm.boot failed")

    def _need_running(self, name: str) -> None:
        if self.state not in ("Running", "Paused"):
            raise Refused("the VM does not run", what=f"{name} failed")

    def _turn(self, name: str) -> None:
        """Twice is an error."""
        self._need_running(name)
        before, after = _NEXT[name]
        if self.state != before:
            raise Refused(f"a VM that is {self.state} cannot become {after}", what=f"{name} failed")
        self._hold(after)

    def _info(self) -> Reply:
        if self.state is None:
            raise Refused("there is no VM", what="vm.info failed", status=404)
        actual = self.config["memory"]["size"] - self.config.get("balloon", {}).get("size", 0)
        return Reply(200, {"config": self.config, "state": self.state, "memory_actual_size": actual})

    def _resize(self, body: Any) -> None:
        if self.state is None:
            raise Refused("there is no VM", what="vm.resize failed", status=404)
        size = body.get("desired_balloon")
        if size is not None:
            if "balloon" not in self.config:
                raise Refused("there is no balloon", what="vm.resize failed")
            if not 0 <= size <= self.config["memory"]["size"]:
                raise Refused("a balloon larger than the memory", what="vm.resize failed")
            self.config["balloon"]["size"] = size
            self._guest.give((self.config["memory"]["size"] - size) // _MIB)

    def _resize_disk(self, body: Any) -> None:
        if self.state is None:
            raise Refused("there is no VM", what="vm.resize-disk failed", status=404)
        self._need_running("vm.resize-disk")
        disks = {disk["id"]: disk for disk in self.config.get("disks", ()) if "id" in disk}
        if body["id"] not in disks:
            raise Refused(f"there is no disk {body['id']}", what="vm.resize-disk failed")
        os.truncate(disks[body["id"]]["path"], body["desired_size"])

    def _save(self, body: Any) -> None:
        self._need_running("vm.snapshot")
        if self.state != "Paused":
            raise Refused("a snapshot is of a VM that is paused", what="vm.snapshot failed")
        place = _directory(body["destination_url"], "vm.snapshot")
        (place / _CONFIG).write_text(json.dumps(self.config))
        (place / _STATE).write_text(json.dumps({"version": self.version}))
        self._guest.save(place / _MEMORY)

    def _restore(self, body: Any) -> None:
        if self.state is not None:
            raise Refused("there is a VM already", what="vm.restore failed")
        place = _directory(body["source_url"], "vm.restore")
        try:
            config, state = (json.loads((place / name).read_bytes()) for name in (_CONFIG, _STATE))
        except ValueError as error:
            raise Refused(f"the snapshot cannot be read: {error}", what="vm.restore failed") from error
        if state != {"version": self.version}:
            raise Refused("the state is of another version", what="vm.restore failed")
        self._guest.restore(place / _MEMORY)
        self.config, self.state = config, "Paused"
        if body.get("resume"):
            self._turn("vm.resume")


def _name(operation: str) -> str:
    return operation.split()[1].removeprefix(f"{_ROOT}/")


def _directory(url: str, name: str) -> Path:
    place = Path(url.removeprefix("file://"))
    if not url.startswith("file://") or not place.is_dir():
        raise Refused(f"no directory at {url}", what=f"{name} failed")
    return place
