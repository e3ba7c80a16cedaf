"""A stranger's file costs an error and no more: a few of the files that ``make soak`` spoils by the ten thousand."""

import shutil

import file_bytes
import file_trials
import harmful_openers
import pytest

pytestmark = pytest.mark.soak


@pytest.fixture
def seeds(folder, run, tmp_path):
    """A good model folder and a good run."""
    shutil.copytree(folder, tmp_path / "seeds/own/model")
    shutil.copytree(run.folder, tmp_path / "seeds/finished/run", ignore=shutil.ignore_patterns("plots"))
    file_bytes.forget_sums(tmp_path / "seeds")
    return tmp_path / "seeds"


@pytest.mark.parametrize(("kind", "count"), [("own", 120), ("finished", 25)])
def test_spoilt_files_are_still_good_or_refused(kind, count, seeds, tmp_path):
    result = file_trials.trial(kind, 0, count, seeds, tmp_path / "work")
    assert (result.cases, result.violations) == (count, {})
    assert result.good and result.refused["ModelFileError"] and result.slowest < file_trials.SECONDS


@pytest.mark.parametrize(
    ("kind", "told"), [("crash", "crashed with signal 11"), ("fill", "memory of 4"), ("fail", "KeyError from elsewhere")]
)
def test_what_a_file_may_not_cost_is_told_with_its_seed(kind, told, tmp_path):
    (tmp_path / "seeds" / kind / "a").mkdir(parents=True)
    (tmp_path / "seeds" / kind / "a" / "x").write_bytes(harmful_openers.GOOD)
    result = file_trials.trial(kind, 8, 2, tmp_path / "seeds", tmp_path / "work", work=harmful_openers.work)
    ((what, cases),) = result.violations.items()
    assert what.startswith(told) and [case.split()[0] for case in cases] == ["8", "9"] and result.wrong == 2
