"""What every struct of a config has in common: no field is required, and an absent one stays absent."""

from typing import ClassVar

import msgspec

from hawker.config.duration import format_duration


class Part(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A group of optional fields. None means absent; anything that was given is kept, also an empty list or false."""


class TimedPart(Part, frozen=True, kw_only=True, omit_defaults=True):
    """A part with durations: a Go duration string, or integer nanoseconds, which are turned into a string."""

    durations: ClassVar[tuple[str, ...]] = ()

    def __post_init__(self) -> None:
        for name in self.durations:
            value = getattr(self, name)
            if isinstance(value, int):
                msgspec.structs.force_setattr(self, name, format_duration(value))
