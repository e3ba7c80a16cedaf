"""The largest batch that fits: by steps that are really made, and never over the limit."""

import pytest
import torch

from vitrail.errors import ConfigError
from vitrail.runtime.memory import forget_peak, memory_in_use, peak_memory
from vitrail.training.loop import batch_size
from vitrail.training.loop.batch_size import largest_batch_size

CPU = torch.device("cpu")
FIXED = 1000


@pytest.fixture
def memory(monkeypatch):
    """A machine whose memory has ``memory["free"]`` bytes, of which an image takes 10; keeps what was tried."""
    machine = {"free": 5000.0, "tried": []}

    def peak_of(make, size, device):
        machine["tried"].append(size)
        return FIXED + 10.0 * size

    monkeypatch.setattr(batch_size, "_peak_of", peak_of)
    monkeypatch.setattr(batch_size, "_memory", lambda device: (float(FIXED), machine["free"]))
    return machine


@pytest.mark.parametrize(("free", "expected"), [(5000, 384), (12.5, 1), (26, 2), (10_240, 768), (1e6, 1000)])
def test_it_is_within_an_eighth_of_what_fits(memory, free, expected):
    memory["free"] = free
    found = largest_batch_size(lambda size: None, 1000, CPU, on_message=lambda text: None)
    assert found == expected and found in memory["tried"]
    assert all(10 * size <= 0.8 * free + 1e-9 for size in memory["tried"])  # nothing larger was ever begun
    assert found == 1000 or 10 * found * 9 / 8 > 0.8 * free * 0.9 or found < 8


def test_a_machine_that_is_too_small_is_told_of(memory, monkeypatch):
    monkeypatch.setattr(batch_size, "_peak_of", lambda make, size, device: None)
    with pytest.raises(ConfigError, match="a batch of one image does not fit"):
        largest_batch_size(lambda size: None, 1000, CPU, on_message=lambda text: None)


def test_a_size_that_runs_out_of_memory_does_not_fit(make_trainer):
    def too_large(size):
        raise torch.OutOfMemoryError("CUDA out of memory")

    assert batch_size._peak_of(too_large, 4, CPU) is None


def test_other_errors_are_not_taken_for_a_full_memory():
    def broken(size):
        raise RuntimeError("mat1 and mat2 shapes cannot be multiplied")

    with pytest.raises(RuntimeError, match="shapes"):
        batch_size._peak_of(broken, 4, CPU)


@pytest.mark.parametrize("changes", [{}, {"augmentation.mixup": 0.2}, {"training.ema": 0.9, "training.tune": "lora"}])
def test_two_whole_steps_are_made_on_whole_images(make_trainer, changes):
    falling = {"schedule.patch_dropout": "falling", "model.patch_dropout": 0.9}
    trainer = make_trainer(**falling, **changes)
    seen = []
    trainer.learner.model.blocks[0].register_forward_hook(lambda module, args, out: seen.append(out.shape))
    before = {name: value.clone() for name, value in trainer.learner.model.state_dict().items()}
    assert batch_size._peak_of(lambda size: trainer, 5, CPU) > 0
    assert len(seen) == 2 and all(shape[0] == 5 for shape in seen)
    tokens = 1 + 4
    assert all(shape[1] >= tokens - 1 for shape in seen)
    assert any(not torch.equal(value, before[name]) for name, value in trainer.learner.model.state_dict().items())
    assert trainer.learner.optimizers[0].state


def test_processes_of_one_machine_share_its_memory(monkeypatch):
    _, alone = batch_size._memory(CPU)
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "4")
    assert batch_size._memory(CPU)[1] == pytest.approx(alone / 4, rel=0.1)


def test_memory_that_was_used_and_let_go_before_does_not_count():
    now = memory_in_use()
    forget_peak()
    before = peak_memory()
    taken = torch.ones(64, 2**20)  # 256 MiB
    assert peak_memory() - before > 200e6
    del taken
    assert memory_in_use() < now + 100e6
    forget_peak()
    assert peak_memory() < before + 100e6


def test_a_run_on_the_processor_is_measured_there_though_a_gpu_is_near(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert min(batch_size._memory(CPU)) > 2**20


def test_where_the_free_memory_is_unknown_two_gibibytes_are_assumed(monkeypatch):
    monkeypatch.setattr(batch_size, "available_memory", lambda: None)
    assert batch_size._memory(CPU)[1] == 2**31
