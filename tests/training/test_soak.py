"""Whatever happens to a run, nothing is lost: a few of the trials that ``make soak`` makes by the hundred."""

import pytest
import soak_runs

LEARNED = {"images": soak_runs.IMAGES, "texts": soak_runs.TEXTS}


@pytest.fixture(scope="module")
def killed(tmp_path_factory):
    """A folder in which runs were killed, and how they ended."""
    root = tmp_path_factory.mktemp("killed")
    return root, soak_runs.killed_at_random(1, root)


@pytest.mark.soak
def test_a_run_killed_anywhere_ends_as_the_unbroken_one(killed):
    _, trial = killed
    assert trial.of >= 1 and trial.good == trial.of, trial


@pytest.mark.soak
def test_a_run_on_texts_killed_anywhere_ends_as_the_unbroken_one(tmp_path):
    trial = soak_runs.killed_at_random(2, tmp_path, learned=soak_runs.TEXTS)
    assert trial.of >= 2 and trial.good == trial.of, trial


@pytest.mark.soak
def test_no_mutation_of_a_checkpoint_is_taken_for_one(killed):
    root, _ = killed
    trial = soak_runs.mutated_checkpoints(160, max((root / "unbroken/checkpoints").glob("step-*")))
    assert trial.good == trial.of == 160, trial


@pytest.mark.soak
def test_the_number_of_workers_changes_nothing(tmp_path):
    trial = soak_runs.other_numbers_of_workers(tmp_path, counts=(3,))
    assert trial.good == 1, trial


@pytest.mark.soak
@pytest.mark.parametrize(("learned", "processes", "count"), [("images", 1, 2), ("images", 2, 2), ("texts", 1, 2)])
def test_a_run_terminated_anywhere_saves_everything_and_leaves_with_143(tmp_path, learned, processes, count):
    trial = soak_runs.terminated_at_random(count, tmp_path, processes=processes, learned=LEARNED[learned])
    assert trial.good == trial.of == count, trial


def test_no_spoilt_image_does_more_than_be_refused():
    trial, slowest = soak_runs.spoilt_images(800)
    assert trial.good == trial.of == 800, trial
    assert slowest < 2
