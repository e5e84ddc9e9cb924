"""Which names lead to which image. A name counts once its image is complete; until then the old meaning holds."""

from hawker.ids import Digest
from hawker.image.reference import DigestReference, Reference, RegistryReference
from hawker.image.resolve import Resolved
from hawker.image.shelf import Name, Shelf

_EXPECTED_LIMIT = 1000


class Naming:
    def __init__(self, shelf: Shelf) -> None:
        self._shelf = shelf
        self._expected: dict[Digest, dict[str, Resolved]] = {}

    def lookup(self, reference: Reference) -> Digest | None:
        """What the reference last meant here: by its name, or because it says a digest itself."""
        name = self._shelf.name(str(reference))
        if name:
            return name.digest
        return reference.digest if isinstance(reference, DigestReference | RegistryReference) else None

    def is_imported(self, reference: Reference) -> bool:
        name = self._shelf.name(str(reference))
        return name is not None and name.imported

    async def resolved(self, resolved: Resolved) -> None:
        """A reference has been resolved; its image may be here or may be about to come."""
        if self._shelf.image(resolved.digest):
            return await self._put(resolved)
        self._expected.setdefault(resolved.digest, {})[resolved.reference] = resolved
        if len(self._expected) > _EXPECTED_LIMIT:
            del self._expected[next(iter(self._expected))]

    def best(self, resolved: Resolved) -> Resolved:
        """The most telling reference to the image: what a user wrote rather than a bare digest."""
        return min([resolved, *self._expected.get(resolved.digest, {}).values()], key=_is_pinned)

    async def complete(self, resolved: Resolved) -> None:
        """The image is on the shelf: it goes by all the names that wait for it."""
        waiting = self._expected.pop(resolved.digest, {})
        for each in {**waiting, resolved.reference: resolved}.values():
            await self._put(each)

    async def _put(self, resolved: Resolved) -> None:
        """A reference that is pinned to this very digest is no name, unless there is none other."""
        if not _is_pinned(resolved) or not self._shelf.names_of(resolved.digest):
            name = Name(reference=resolved.reference, digest=resolved.digest, imported=resolved.imported)
            await self._shelf.put_name(name)


def _is_pinned(resolved: Resolved) -> bool:
    return resolved.reference.endswith(resolved.digest)
