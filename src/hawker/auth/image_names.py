"""Which images a caller may name. What leads to a node's own files, or to its own network, is the operator's business.

Asked where a client's token is at hand, before the order or update goes to a worker.
"""

from collections.abc import Container

from hawker.api.grant import Grant
from hawker.config import MachineConfig
from hawker.config.effective import image_names
from hawker.errors import Forbidden
from hawker.image.failure import BadImage
from hawker.image.reach import host_of, is_inside
from hawker.image.reference import ArchiveReference, LayoutReference, Reference, RegistryReference, parse
from hawker.permission import Action, Attempt

_NODE = Attempt(Action.WRITE)
_INSIDE = (
    "only a token that may write the node names a registry at such an address; its operator lists those for everybody"
    " with --private-registry"
)


def check_image_names(grant: Grant, config: MachineConfig, listed: Container[str]) -> None:
    """Checks the images of a config. Raises `Forbidden` when an image of the config is for those only who may write the
    node as a whole: a file of the node, or a registry at a loopback or private address that is not one of `listed`, the
    registries of the settings. A name that means nothing passes: it is refused where it is resolved."""
    for name in image_names(config):
        try:
            refusal = _for_operators(parse(name), listed)
        except BadImage:
            continue
        if refusal and not grant.permits(_NODE):
            raise Forbidden(f"image {name[:200]!r}: {refusal}")


def check_registry_name(grant: Grant, registry: str, listed: Container[str]) -> None:
    """Checks a registry that is asked about a login, as `check_image_names` does. Raises `Forbidden`."""
    if _is_for_operators(registry, listed) and not grant.permits(_NODE):
        raise Forbidden(f"registry {registry[:200]!r}: {_INSIDE}")


def _for_operators(reference: Reference, listed: Container[str]) -> str | None:
    match reference:
        case LayoutReference() | ArchiveReference():
            return "only a token that may write the node names files of it; upload with `hawker images import`"
        case RegistryReference() if _is_for_operators(reference.registry, listed):
            return _INSIDE
    return None


def _is_for_operators(registry: str, listed: Container[str]) -> bool:
    return registry not in listed and is_inside(host_of(registry))
