"""What torchrun tells of processes, and what it cannot have told."""

import pytest

from vitrail.errors import ConfigError
from vitrail.runtime.processes import ALONE, open_processes
from vitrail.runtime.terminal import is_first

MEETING = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500"}


@pytest.mark.parametrize("told", [{}, {"RANK": "1"}, {"LOCAL_RANK": "1"}, {"WORLD_SIZE": "1", "RANK": "3"}])
def test_a_process_without_others_is_the_first_whatever_its_number(told, monkeypatch):
    for name, value in told.items():
        monkeypatch.setenv(name, value)
    with open_processes() as group:
        assert group is ALONE and is_first()


@pytest.mark.parametrize("told, where", [
    ({"WORLD_SIZE": ""}, "WORLD_SIZE"), ({"WORLD_SIZE": "x"}, "WORLD_SIZE"), ({"WORLD_SIZE": "0"}, "WORLD_SIZE"),
    ({"WORLD_SIZE": "-2"}, "WORLD_SIZE"), ({"WORLD_SIZE": "2", **MEETING}, "RANK"),
    ({"WORLD_SIZE": "2", "RANK": "2", **MEETING}, "RANK"), ({"WORLD_SIZE": "2", "RANK": "x", **MEETING}, "RANK"),
    ({"WORLD_SIZE": "2", "RANK": "0", "MASTER_PORT": "29500"}, "MASTER_ADDR"),
    ({"WORLD_SIZE": "2", "RANK": "0", "MASTER_ADDR": "127.0.0.1"}, "MASTER_PORT"),
])  # fmt: skip
def test_what_torchrun_cannot_have_set_is_refused_by_name(told, where, monkeypatch):
    for name in ("WORLD_SIZE", "RANK", *MEETING):
        monkeypatch.delenv(name, raising=False)
    for name, value in told.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(ConfigError) as error, open_processes():
        pass
    assert error.value.where == f"${where}"


def test_of_several_processes_the_first_prints(monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert is_first()
    monkeypatch.setenv("RANK", "1")
    assert not is_first()
