"""Learning with masks: each image's mask is its own, a step adds two losses, and evaluation knows no masks."""

import numpy as np
import pytest
import torch

from vitrail.data.images.preparation import Preparation
from vitrail.models.configs.base import ModelConfig
from vitrail.models.registry import build, model_config
from vitrail.tasks.diffusion.masks import draw_mask
from vitrail.tasks.diffusion.settings import DiffusionSettings
from vitrail.tasks.diffusion.task import Diffusion, Noisy

SIZES = {"image_size": 16, "channels": 1, "num_classes": 2, "dim": 16, "heads": 2, "mlp_dim": 32}
TINY = {**SIZES, "depth": 3, "decoder_depth": 1}


def config_of(name="MDTv2-S/2", **fields) -> ModelConfig:
    return model_config(name, **{**TINY, **fields})


def task_of(config, *, fresh=False) -> Diffusion:
    torch.manual_seed(0)
    model = build(config)
    with torch.no_grad():
        for parameter in () if fresh else model.parameters():
            parameter.normal_(0, 0.2)
    return Diffusion(model, Preparation.standard((16, 16), 1), ["one", "two"], DiffusionSettings(min_snr=5))


def batch_of(task, count=6):
    """Images with the arrays that the task's targets draw for them."""
    item = type("Item", (), {"target": 1})()
    drawn = [task.targets()(item, None, np.random.default_rng(number)) for number in range(count)]
    batch = {name: torch.from_numpy(np.stack([arrays[name] for arrays in drawn])) for name in drawn[0]}
    images = torch.randint(0, 256, (count, 1, 16, 16), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    return {"images": images, **batch}


def test_the_first_version_masks_as_many_patches_of_every_image_and_the_second_a_fraction_of_its_own():
    random = np.random.default_rng(0)
    first, second = ([int(draw_mask(config_of(name), random).sum()) for _ in range(400)] for name in ("MDT-S/2", "MDTv2-S/2"))
    assert {*first} == {64 - 44}  # of 64 patches 0.7 are seen, rounded down
    assert {*second} == set(range(64 - 44, 64 - 32 + 1)) and np.mean(second) / 64 == pytest.approx(0.4, abs=0.02)
    where = np.mean([draw_mask(config_of("MDT-S/2"), random) for _ in range(2000)], axis=0)
    assert np.abs(where - 20 / 64).max() < 0.05  # every patch alike


def test_a_mask_follows_from_the_images_own_generator_and_changes_no_other_draw():
    config = config_of()
    masking, plain = Noisy((1, 16, 16), 0, dropped=0.5, masked=config), Noisy((1, 16, 16), 0, dropped=0.5)
    one, same, other = (masking(None, None, np.random.default_rng(seed)) for seed in (1, 1, 2))
    assert np.array_equal(one["masked"], same["masked"]) and not np.array_equal(one["masked"], other["masked"])
    without = plain(None, None, np.random.default_rng(1))
    assert "masked" not in without and all(np.array_equal(array, one[name]) for name, array in without.items())


@pytest.mark.parametrize("name", ["MDT-S/2", "MDTv2-S/2"])
def test_a_step_adds_the_losses_of_both_passes_and_evaluation_has_the_first_alone(name):
    task = task_of(config_of(name))
    batch = batch_of(task)
    whole, masked = task.losses(batch, batch["dropped"]), task.losses(batch, batch["dropped"], batch["masked"])
    assert not torch.isclose(whole, masked).any()
    torch.testing.assert_close(task(batch)["loss"], whole.mean() + masked.mean())
    task.eval()
    plain = task.losses(batch, torch.zeros_like(batch["dropped"]))
    torch.testing.assert_close(task(batch)["loss"], plain.mean())
    torch.testing.assert_close(task.answer(batch)["loss"], plain)


def test_the_masked_loss_of_an_image_does_not_depend_on_how_much_of_the_others_is_masked():
    task = task_of(config_of())
    batch = batch_of(task)
    assert len({*batch["masked"].sum(dim=1).tolist()}) > 1
    together = task.losses(batch, batch["dropped"], batch["masked"])
    for number in range(6):
        alone = {name: tensor[number : number + 1] for name, tensor in batch.items()}
        own = task.losses(alone, alone["dropped"], alone["masked"])
        torch.testing.assert_close(own, together[number : number + 1], rtol=1e-5, atol=1e-6)


def test_learning_with_masks_lowers_the_loss_under_masks():
    task = task_of(config_of("MDT-S/2", depth=2, learned_variance=False), fresh=True)
    batch = batch_of(task, 3)
    optimizer = torch.optim.Adam(task.parameters(), 0.02)
    for _ in range(25):
        optimizer.zero_grad()
        task(batch)["loss"].backward()
        optimizer.step()
    with torch.no_grad():
        after = [task.losses(batch, batch["dropped"], mask).mean() for mask in (None, batch["masked"])]
        zeros = task.losses(batch, None).mean()  # which a fresh model gives
    assert max(after) < 0.5 * zeros


def test_a_dit_learns_without_masks():
    task = task_of(model_config("DiT-S/2", **{**SIZES, "depth": 2}))
    assert "masked" not in batch_of(task)
