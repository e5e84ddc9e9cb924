import pytest

from hawker.cli.main import main
from hawker.sim.deploys.deploy_bugs import PLANTS


def said(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, list[str]]:
    status = main(["sim", "deploys", *words])
    return status, capsys.readouterr().out.splitlines()


@pytest.mark.slow
@pytest.mark.long(reason="`make check` plays sound seeds by the command")
def test_a_sound_seed_ends_well(capsys: pytest.CaptureFixture[str]) -> None:
    status, lines = said(capsys, "--seeds", "3-3", "--json")
    assert status == 0 and '"found":[]' in lines[0] and '"ended elsewhere"' in lines[0]


def test_bugs_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    status, lines = said(capsys, "--plants")
    assert status == 0 and [line.split()[0] for line in lines] == [plant.name for plant in PLANTS]
