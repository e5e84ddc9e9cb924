"""Points a generated call at what is there, so that it gets further than "not found".

Only where the call is meant to be valid: what was made wrong on purpose is sent as it is. Values that only the node can
know (names of things, cursors, ciphertexts) are put in, and what would make a call last long by itself is left out.
"""

from base64 import b64encode
from collections.abc import Mapping
from typing import Any

from schemathesis import Case
from schemathesis.generation import GenerationMode

from tests.conformance.stock import APP, HELLO, SECRET, Stock
from tests.fixtures.parts import ImageParts, docker_files, layer, tar

_PLAINTEXT = b64encode(b"plain").decode()
_ONLY_FROM_THE_NODE = ("cursor", "version", "instance_id", "from_event_id", "min_version")
_NONCE = "fly-machine-lease-nonce"


def aim(case: Case[Any], stock: Stock) -> None:
    path = case.operation.path
    if "x-websocket" in case.operation.definition.raw:
        return
    if not meant_wrong(case, "path"):
        live = stock.names(path)
        for name in case.path_parameters or ():
            case.path_parameters[name] = live.get(name, case.path_parameters[name])
    if not meant_wrong(case, "query"):
        for name in _ONLY_FROM_THE_NODE:
            (case.query or {}).pop(name, None)
    (case.query or {}).pop("follow", None)  # it would not end
    _wait_shortly(case, path)
    if path.endswith("/lease") and case.method == "DELETE" and not meant_wrong(case, "header"):
        machine_id = str((case.path_parameters or {}).get("machine_id"))
        case.headers[_NONCE] = stock.nonce(machine_id)
    if not meant_wrong(case, "body"):
        _fill(case, path, stock)


def _wait_shortly(case: Case[Any], path: str) -> None:
    """For what does not come."""
    query: dict[str, Any] = case.query or {}
    if path.endswith("/wait"):
        case.query = {"timeout": 1, **query}
    if meant_wrong(case, "query"):
        return
    if path.endswith("/wait"):
        case.query["timeout"] = 1
    if "wait_s" in query:
        query["wait_s"] = 0
    if path.startswith("/api/v1/"):
        query.pop("next_token", None)  # with it a log is held open


def meant_wrong(case: Case[Any], location: str) -> bool:
    components = {} if case.meta is None else case.meta.components
    return any(where.value == location and info.mode is GenerationMode.NEGATIVE for where, info in components.items())


def _fill(case: Case[Any], path: str, stock: Stock) -> None:
    if path.endswith("/images/import"):
        case.body = archive()
    if not isinstance(case.body, dict):
        return
    body: dict[str, Any] = case.body
    if isinstance(body.get("config"), dict):
        body["config"]["image"] = HELLO
    if path.endswith(("/images/pull", "/image")):
        body["reference"] = HELLO
    if "end_foreign" in body:
        body["end_foreign"] = False  # another node may be on this host
    if path.endswith("/decrypt"):
        put_first(body, _sealed(stock))
    if path.endswith("/verify"):
        put_first(body, _signed(stock))


def put_first(body: dict[str, Any], values: Mapping[str, Any]) -> None:
    """Before generated fields, which may have any name and length: a finding shows how a body begins."""
    generated = {name: value for name, value in body.items() if name not in values}
    body.clear()
    body.update(values)
    body.update(generated)


def _sealed(stock: Stock) -> dict[str, Any]:
    answer = stock.ask("POST", f"/v1/apps/{APP}/secretkeys/{SECRET}/encrypt", {"plaintext": _PLAINTEXT})
    return {"ciphertext": answer.body["ciphertext"], "associated_data": None}


def _signed(stock: Stock) -> dict[str, Any]:
    answer = stock.ask("POST", f"/v1/apps/{APP}/secretkeys/{SECRET}/sign", {"plaintext": _PLAINTEXT})
    return {"plaintext": _PLAINTEXT, "signature": answer.body["signature"]}


def archive() -> bytes:
    """A whole small image, as `docker save` writes it."""
    image = ImageParts([layer(tar(("hello", b"world")))], {"Cmd": ["/hello"]})
    return tar(*docker_files(image, "judged:latest").items())
