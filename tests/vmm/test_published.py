"""Our descriptions of the APIs against the documents that the VMMs publish, where these are at hand."""

import pytest

from tests.vmm.cloud_hypervisor_document import CLOUD_HYPERVISOR
from tests.vmm.document import Document, Schema
from tests.vmm.firecracker_document import FIRECRACKER
from tests.vmm.published import VARIABLE, find, read

PAIRS = [
    pytest.param(FIRECRACKER, "firecracker.yaml", id="firecracker"),
    pytest.param(CLOUD_HYPERVISOR, "cloud-hypervisor.yaml", id="cloud-hypervisor"),
]
_SAID = ("type", "enum", "minimum", "maximum")


def differences(ours: Schema, theirs: Schema, where: str) -> list[str]:
    """What ours says and theirs does not, or otherwise. Ours may leave out fields that are not required."""
    found = [f"{where}: {key}" for key in _SAID if ours.get(key) != theirs.get(key)]
    if sorted(ours.get("required", ())) != sorted(theirs.get("required", ())):
        found.append(f"{where}: required")
    for name, each in ours.get("properties", {}).items():
        if name not in theirs.get("properties", {}):
            found.append(f"{where}.{name}: not there")
        else:
            found += differences(each, theirs["properties"][name], f"{where}.{name}")
    if "items" in ours:
        found += differences(ours["items"], theirs.get("items", {}), f"{where}[]")
    return found


@pytest.mark.parametrize(("ours", "name"), PAIRS)
def test_our_description_says_what_the_published_document_says(ours: Document, name: str) -> None:
    path = find(name)
    if path is None:
        pytest.skip(f"{name} is not at hand: name its directory in {VARIABLE}")
    theirs = read(path)
    found = []
    for operation, schema in ours.operations.items():
        if operation not in theirs.operations:
            found.append(f"{operation}: not there")
            continue
        published = theirs.operations[operation]
        assert (schema is None) == (published is None), operation
        if schema is not None and published is not None:
            found += differences(schema, published, operation)
    assert found == []
