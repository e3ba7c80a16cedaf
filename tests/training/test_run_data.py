"""Each task's room has a kind of data, which the loop knows by its contract alone."""

import pytest

from vitrail.config.settings import RunSettings
from vitrail.task_registry import TASKS
from vitrail.training.run_data import RunData, check_command, run_data, run_data_of


def settings_of(task: str) -> RunSettings:
    return RunSettings.read({"task": task, "model": {"name": "ViT-Ti/16"}, "data": {"source": "my photos"}})


@pytest.mark.parametrize("task", list(TASKS))
def test_every_room_has_the_data_of_its_own_row(task):
    kind = run_data(task)
    assert isinstance(kind, RunData) and kind.row is TASKS[task]
    assert run_data_of(settings_of(task)) is kind
    for name in ("open_source", "complete", "preparation_of", "start_model"):
        assert getattr(type(kind), name) is not getattr(RunData, name)


@pytest.mark.parametrize(
    ("task", "command"),
    [
        ("classification", "vitrail data check 'my photos'"),
        ("mae", "vitrail data check 'my photos' --task mae"),
        ("pose", "vitrail data check 'my photos' --task pose"),
    ],
)
def test_a_message_names_the_command_that_lists_what_is_wrong_with_the_data(task, command):
    assert check_command(settings_of(task)) == command
    assert check_command(settings_of(task), source=False) == command.replace(" 'my photos'", "")
