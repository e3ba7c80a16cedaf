"""Where the machine decides, a run has its answer in its settings before the first step."""

from dataclasses import replace

import pytest

from vitrail.config.settings import RunSettings
from vitrail.parts.cpu import kernels
from vitrail.parts.cpu.kernels import likely
from vitrail.runtime.observer import Observer
from vitrail.runtime.processes import Processes
from vitrail.training.runs.setup import with_precision


class Listening(Observer):
    """Keeps what it is told."""

    def __init__(self):
        self.notes = []

    def note(self, text):
        self.notes.append(text)


@pytest.fixture
def decided(monkeypatch):
    """``decided("auto", bf16=True)``: the precision of a run that asks for auto, where bf16 is the quicker, and what is told."""

    def ask(precision: str, *, bf16: bool, group: Processes | None = None) -> tuple[str, list[str]]:
        monkeypatch.setattr("vitrail.models.inference.use_measured", lambda: None)
        monkeypatch.setattr(kernels, "_used", replace(likely(), bf16=bf16))
        training = {"precision": precision, "device": "cpu"}
        settings = RunSettings.read({"model": {"name": "ViT-Ti/16"}, "data": {"source": "photos"}, "training": training})
        observer = Listening()
        return with_precision(settings, observer, group or Processes()).training.precision, observer.notes

    return ask


@pytest.mark.parametrize(("bf16", "chosen"), [(True, "bf16"), (False, "fp32")])
def test_auto_is_the_quicker_precision_of_this_machine(bf16, chosen, decided):
    assert decided("auto", bf16=bf16) == (chosen, [f"precision {chosen}, the quicker one here"])


def test_all_processes_take_what_the_first_has_found(decided):
    class Second(Processes):
        def broadcast(self, value):
            return "bf16"

    assert decided("auto", bf16=False, group=Second(1, 2))[0] == "bf16"


@pytest.mark.parametrize("precision", ["fp32", "bf16", "fp16"])
@pytest.mark.parametrize("bf16", [True, False])
def test_a_precision_that_is_asked_for_stays_and_a_slow_one_is_warned_of(precision, bf16, decided):
    chosen, notes = decided(precision, bf16=bf16)
    assert chosen == precision
    assert ["slower in bf16" in note for note in notes] == [True] * (precision == "bf16" and not bf16)
