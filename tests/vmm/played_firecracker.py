"""Firecracker's answers: what it takes before the start, what after, and what never. In our words, in its shapes.

After docs/ and src/vmm/src/rpc_interface.rs of Firecracker 1.16.1.
"""

import json
import os
import re
from pathlib import Path
from typing import Any

from tests.vmm.document import Document
from tests.vmm.firecracker_document import FIRECRACKER
from tests.vmm.guests import Guest, Machine
from tests.vmm.vmm_server import DONE, PlayedVmm, Refused, Reply

_ALWAYS = {"GET /", "GET /version", "GET /machine-config", "GET /vm/config", "GET /balloon"}
_BEFORE = {
    "PUT /boot-source",
    "PUT /machine-config",
    "PUT /drives/{drive_id}",
    "PUT /network-interfaces/{iface_id}",
    "PUT /vsock",
    "PUT /balloon",
    "PUT /entropy",
    "PUT /snapshot/load",
}
_STATE = b"state of "
_ID = re.compile(r"[A-Za-z0-9_]+")


class PlayedFirecracker(PlayedVmm):
    """It has one status for all that it does not do."""

    document: Document = FIRECRACKER
    server = "Firecracker API"

    def __init__(self, guest: Guest, version: str = FIRECRACKER.version) -> None:
        super().__init__(guest, version)
        self.state = "Not started"
        self._machine = {"vcpu_count": 1, "mem_size_mib": 128}
        self._told: dict[str, Any] = {}
        self.drives: dict[str, dict[str, Any]] = {}
        self._balloon_mib = 0

    def fault(self, status: int, text: str) -> Reply:
        return Reply(400, {"fault_message": text})

    def _refusal(self, operation: str, error: Exception, refused: Refused | None) -> Reply:
        return self.fault(400, str(error) if refused else f"{operation}: {error}")

    def _refuse_untimely(self, operation: str, body: Any) -> None:
        before = self.state == "Not started"
        if operation in _ALWAYS or (operation == "PUT /actions" and before and body["action_type"] == "InstanceStart"):
            return
        if before and operation not in _BEFORE:
            raise Refused("not supported before the microVM is started")
        if not before and (operation in _BEFORE or operation == "PUT /actions"):
            raise Refused("not supported once the microVM is started")

    def _do(self, operation: str, path: str, body: Any) -> Reply:
        self._refuse_untimely(operation, body)
        match operation:
            case "GET /version":
                return Reply(200, {"firecracker_version": self.version})
            case "GET /":
                about = {"app_name": "Firecracker", "id": "played", "state": self.state, "vmm_version": self.version}
                return Reply(200, about)
            case "GET /machine-config":
                return Reply(200, self._machine)
            case "GET /vm/config":
                return Reply(200, {"drives": list(self.drives.values()), "machine-config": self._machine, **self._told})
            case "GET /balloon" | "PUT /balloon" | "PATCH /balloon" | "GET /balloon/statistics":
                return self._do_balloon(operation, body)
            case "PUT /drives/{drive_id}" | "PATCH /drives/{drive_id}":
                return self._do_drive(operation, path, body)
            case "PUT /network-interfaces/{iface_id}":
                self._check_id(path, body["iface_id"])
            case "PUT /machine-config":
                if body["mem_size_mib"] < 1:
                    raise Refused("a microVM needs memory")
                self._machine = body
            case "PUT /boot-source":
                for file in filter(None, (body["kernel_image_path"], body.get("initrd_path"))):
                    Path(file).open("rb").close()
            case "PUT /actions":
                return self._start()
            case "PATCH /vm":
                return self._turn(body["state"])
            case "PUT /snapshot/create":
                return self._save(body)
            case "PUT /snapshot/load":
                return self._load(body)
        self._told[operation.split()[1].split("/")[1]] = body
        return DONE

    def _do_balloon(self, operation: str, body: Any) -> Reply:
        if operation == "PUT /balloon":
            self._refuse_balloon(body["amount_mib"])
            self._told["balloon"], self._balloon_mib = body, body["amount_mib"]
            return DONE
        balloon = self._told.get("balloon")
        if balloon is None:
            raise Refused("there is no balloon")
        if operation == "GET /balloon":
            return Reply(200, {**balloon, "amount_mib": self._balloon_mib})
        if operation == "PATCH /balloon":
            self._refuse_balloon(body["amount_mib"])
            self._balloon_mib = body["amount_mib"]
            self._guest.give(self._machine["mem_size_mib"] - self._balloon_mib)
            return DONE
        if not balloon.get("stats_polling_interval_s"):
            raise Refused("statistics of the balloon were not asked for before the start")
        pages = {"target_pages": self._balloon_mib * 256, "actual_pages": self._balloon_mib * 256}
        return Reply(200, {**pages, "target_mib": self._balloon_mib, "actual_mib": self._balloon_mib})

    def _refuse_balloon(self, amount_mib: int) -> None:
        if not 0 <= amount_mib <= self._machine["mem_size_mib"]:
            raise Refused(f"no balloon of {amount_mib} MiB in {self._machine['mem_size_mib']} MiB")

    def _do_drive(self, operation: str, path: str, body: Any) -> Reply:
        self._check_id(path, body["drive_id"])
        known = self.drives.get(body["drive_id"])
        if operation.startswith("PATCH"):
            if known is None:
                raise Refused(f"there is no drive {body['drive_id']}")
            if "path_on_host" not in body and "rate_limiter" not in body:
                raise Refused("only a vhost-user drive is updated by its name alone")
            body = {**known, **body}
        elif "socket" not in body and not {"path_on_host", "is_read_only"} <= body.keys():
            raise Refused("a drive is a file, read-only or not, or a socket")
        elif body["is_root_device"] and any(drive["is_root_device"] for drive in self.drives.values()):
            raise Refused("there is a root device already")
        os.close(os.open(body["path_on_host"], os.O_RDONLY if body["is_read_only"] else os.O_RDWR))
        self.drives[body["drive_id"]] = body
        return DONE

    def _check_id(self, path: str, given: str) -> None:
        named = path.rsplit("/", 1)[1]
        if not _ID.fullmatch(named):
            raise Refused("an id has letters, digits and underscores")
        if named != given:
            raise Refused("path and body name two ids")

    def _start(self) -> Reply:
        boot, vsock = self._told.get("boot-source"), self._told.get("vsock")
        if boot is None:
            raise Refused("no start without a kernel")
        drives = {name: drive["path_on_host"] for name, drive in self.drives.items()}
        machine = Machine(
            command_line=boot.get("boot_args", ""),
            memory_mib=self._machine["mem_size_mib"] - self._balloon_mib,
            vsock=vsock["uds_path"] if vsock else "",
            drives=drives,
        )
        self._guest.start(machine)
        self.state = "Running"
        return DONE

    def _turn(self, state: str) -> Reply:
        """Twice is no error."""
        wanted = "Paused" if state == "Paused" else "Running"
        if self.state != wanted:
            self._hold(wanted)
        return DONE

    def _save(self, body: Any) -> Reply:
        if self.state != "Paused":
            raise Refused("a snapshot is of a microVM that is paused")
        told = {**self._told, "machine-config": self._machine, "drives": self.drives, "amount_mib": self._balloon_mib}
        Path(body["snapshot_path"]).write_text(f"{_STATE.decode()}{self.version}\n{json.dumps(told)}\n")
        self._guest.save(Path(body["mem_file_path"]))
        return DONE

    def _load(self, body: Any) -> Reply:
        """What was loaded in part is of no use: it ends."""
        if self._told or self.drives:
            raise Refused("a snapshot is loaded before anything else is said")
        if ("mem_file_path" in body) == ("mem_backend" in body):
            raise Refused("either mem_backend or mem_file_path")
        try:
            head, _, told = Path(body["snapshot_path"]).read_bytes().partition(b"\n")
            if head != _STATE + self.version.encode():
                raise Refused("the snapshot is damaged, or of another version")
            self._guest.restore(Path(body["mem_backend"]["backend_path"]))
        except (OSError, Refused):
            self.ended = True
            raise
        self._recall(told)
        self.state = "Paused"
        if body.get("resume_vm"):
            self._turn("Resumed")
        return DONE

    def _recall(self, told: bytes) -> None:
        self._told = json.loads(told)
        self._machine = self._told.pop("machine-config")
        self.drives = self._told.pop("drives")
        self._balloon_mib = self._told.pop("amount_mib")
