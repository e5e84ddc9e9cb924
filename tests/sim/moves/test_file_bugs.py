import pytest

from hawker.host.changed_blocks import BlockRange
from hawker.sim.moves.file_bugs import ComparesNothing
from hawker.sim.node.fake_moved_files import PIECES
from tests.sim.node.test_fake_moved_files import ALL, ONE, files, filled

pytestmark = pytest.mark.anyio


async def test_files_that_are_not_compared_are_all_the_same_and_else_as_they_are() -> None:
    sound = files()
    planted = ComparesNothing(sound)
    await filled(sound)
    assert (await planted.digests(ONE, [BlockRange(0, 3)])).of == {}
    assert (await planted.digests_of_draft("01", ALL)).upto == PIECES
    assert await planted.drafts() == ["01"]
