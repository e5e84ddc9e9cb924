"""How much of an image is taken before it is refused, and the room's other settings. Sizes are bytes."""

from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path

MIB = 1 << 20
GIB = 1 << 30


@dataclass(frozen=True, slots=True)
class ImageLimits:
    """What one image may ask of the node. Layer and image bytes are what unpacking would write, holes included."""

    max_manifest_bytes: int = 4 * MIB
    max_config_bytes: int = 8 * MIB
    max_layers: int = 512
    max_layer_bytes: int = 10 * GIB
    max_image_bytes: int = 20 * GIB
    max_import_bytes: int = 8 * GIB
    max_files: int = 500_000  # entries of all layers, replaced and removed ones included
    max_path: int = 4096
    max_depth: int = 256
    max_names_bytes: int = 256 * MIB  # names, link targets and attributes, which are held in memory
    max_ratio: int = 250  # unpacked to packed, once `ratio_free_bytes` are unpacked
    ratio_free_bytes: int = 512 * MIB


class BlockChoice(Enum):
    """The filesystem of the block images. AUTO: EROFS where the kernel has it, else ext4; none without root, because
    owners cannot be kept."""

    AUTO = "auto"
    EROFS = "erofs"
    EXT4 = "ext4"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class ImageSettings:
    """`insecure_hosts` are registries spoken to without TLS, beside loopback. `auth_file` is in the format of Docker's
    config.json. Partial downloads are dropped when unused for `partial_age_s`."""

    allow_local: bool = True
    insecure_hosts: frozenset[str] = frozenset()
    auth_file: Path | None = None
    parallel_downloads: int = 4
    block: BlockChoice = BlockChoice.AUTO
    partial_age_s: float = 86_400.0
    limits: ImageLimits = field(default_factory=ImageLimits)
