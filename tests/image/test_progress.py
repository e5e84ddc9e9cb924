from hawker.image.progress import PullProgress, PullStage, PullSteps


def test_steps_of_a_hundredth_are_told_and_never_more_than_all() -> None:
    told: list[PullProgress] = []
    steps = PullSteps(told.append, PullStage.BUILDING, 1000)
    for done in (0, 1, 9, 10, 11, 19, 500, 2000, 3000):
        steps.at(done)
    assert [progress.done_bytes for progress in told] == [0, 10, 500, 1000]
    assert {(progress.stage, progress.total_bytes) for progress in told} == {(PullStage.BUILDING, 1000)}


def test_steps_of_an_empty_image_are_told_once() -> None:
    told: list[PullProgress] = []
    steps = PullSteps(told.append, PullStage.UNPACKING, 0)
    steps.at(0)
    steps.at(0)
    assert [progress.done_bytes for progress in told] == [0]
