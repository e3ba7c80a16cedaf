"""The learning rate and the patch dropout of every step, against torch's schedulers and by hand."""

import pytest
import torch
from torch.optim.lr_scheduler import ConstantLR, CosineAnnealingLR, LinearLR

from vitrail.config.settings import ScheduleSettings
from vitrail.tasks.image_schedule import image_size_at, patch_dropout_at
from vitrail.training.loop.schedule import learning_rate_factor, warmup_steps

TOTAL = 40


def factors(name, *, warmup=0, final=0.0, total=TOTAL):
    """The factor of every step, and of the one after the last."""
    settings = ScheduleSettings(name=name, final=final)
    return [learning_rate_factor(settings, step, warmup=warmup, total=total) for step in range(total + 1)]


def torchs(make):
    """The learning rates of a scheduler of torch over a rate of 1."""
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
    scheduler = make(optimizer)
    rates = []
    for _ in range(TOTAL + 1):
        rates.append(scheduler.get_last_lr()[0])
        optimizer.step()
        scheduler.step()
    return rates


@pytest.mark.parametrize("final", [0.0, 0.1])
def test_cosine_is_torchs_cosine_annealing(final):
    expected = torchs(lambda o: CosineAnnealingLR(o, T_max=TOTAL, eta_min=final))
    assert factors("cosine", final=final) == pytest.approx(expected, abs=1e-9)


def test_inverse_sqrt_is_the_rate_of_the_first_transformer_as_a_share_of_its_highest():
    warmup, dim = 8, 512
    paper = [dim**-0.5 * min(step**-0.5, step * warmup**-1.5) for step in range(1, TOTAL + 2)]
    assert factors("inverse-sqrt", warmup=warmup - 1) == pytest.approx([rate / max(paper) for rate in paper], rel=1e-12)


@pytest.mark.parametrize("final", [0.0, 0.25])
def test_linear_is_torchs_linear(final):
    expected = torchs(lambda o: LinearLR(o, start_factor=1.0, end_factor=final, total_iters=TOTAL))
    assert factors("linear", final=final) == pytest.approx(expected, abs=1e-9)


def test_constant_is_torchs_constant():
    assert factors("constant") == torchs(lambda o: ConstantLR(o, factor=1.0))


@pytest.mark.parametrize("name", ["constant", "linear", "cosine"])
def test_warmup_grows_linearly_and_reaches_the_top_at_its_end(name):
    values = factors(name, warmup=4)
    assert values[:5] == pytest.approx([0.2, 0.4, 0.6, 0.8, 1.0])


@pytest.mark.parametrize("name", ["constant", "linear", "cosine"])
def test_a_run_of_one_step_has_a_rate(name):
    assert learning_rate_factor(ScheduleSettings(name=name), 0, warmup=0, total=1) == 1.0


def test_a_run_uses_the_schedule_step_by_step(make_trainer):
    trainer = make_trainer(**{"schedule.warmup_epochs": 1, "schedule.name": "linear", "optimizer.lr": 0.5})
    (optimizer,) = trainer.learner.optimizers
    used, step = [], optimizer.step

    def noting(*args, **kwargs):
        used.append([group["lr"] for group in optimizer.param_groups])
        return step(*args, **kwargs)

    optimizer.step = noting
    trainer.run()
    rates = [0.5 * f for f in (1 / 4, 2 / 4, 3 / 4, 1, 2 / 3, 1 / 3)]
    assert used == [pytest.approx([rate] * len(optimizer.param_groups)) for rate in rates]


def test_warmup_takes_at_most_half_of_a_run(make_trainer):
    assert make_trainer(**{"schedule.warmup_epochs": 50, "training.epochs": 4}).learner.warmup == 6


@pytest.mark.parametrize(
    ("settings", "epoch", "total", "expected"),
    [
        ({"warmup_epochs": 2}, 10, 100, 20),
        ({"warmup_epochs": 0.25}, 10, 100, 2),
        ({"warmup_epochs": 0, "warmup_share": 0.1}, 2, 400, 40),
        ({"warmup_epochs": 1, "warmup_share": 0.1}, 2, 400, 40),
        ({"warmup_epochs": 1, "warmup_share": 0.1}, 160, 480, 160),
        ({"warmup_epochs": 9, "warmup_share": 0.5}, 1, 3, 1),
        ({"warmup_epochs": 9}, 1, 1, 0),
    ],
)
def test_warmup_is_told_in_epochs_and_as_a_share_of_the_run(settings, epoch, total, expected):
    assert warmup_steps(ScheduleSettings(**settings), epoch=epoch, total=total) == expected


@pytest.mark.parametrize(("least", "epochs"), [(6, 2), (7, 3)])
def test_few_images_get_as_many_epochs_as_make_the_least_number_of_steps(make_trainer, least, epochs):
    trainer = make_trainer(**{"training.min_steps": least, "schedule.warmup_epochs": 0, "schedule.warmup_share": 0.1})
    assert (trainer.epochs, trainer.total, trainer.learner.warmup) == (epochs, 3 * epochs, round(0.3 * epochs))
    trainer.run()
    assert trainer.done == 3 * epochs
    assert trainer.rows[-1]["epoch"] == epochs


def test_a_fast_run_for_developers_stays_fast(make_trainer):
    assert make_trainer(**{"training.min_steps": 500, "training.fast_dev_run": True}).epochs == 1


# patch dropout


def test_patch_dropout_stays_or_falls_along_a_line():
    falling, constant = ScheduleSettings(patch_dropout="falling"), ScheduleSettings()
    assert [patch_dropout_at(falling, 0.6, step, total=4) for step in range(5)] == pytest.approx([0.6, 0.45, 0.3, 0.15, 0])
    assert {patch_dropout_at(constant, 0.6, step, total=4) for step in range(5)} == {0.6}


def tokens_of(trainer) -> list[int]:
    """How many tokens the blocks saw in every step."""
    seen = []
    trainer.learner.model.blocks[0].register_forward_hook(
        lambda module, given, result: seen.append(result.shape[1]) if module.training else None
    )
    trainer.run()
    return seen


def test_a_run_sees_more_and_more_of_its_images(make_trainer):
    few = {"model.image_size": 16, "model.patch_dropout": 0.75, "training.batch_size": 22, "training.epochs": 4}
    falling = make_trainer("falling", **few, **{"schedule.patch_dropout": "falling"})
    assert tokens_of(falling) == [1 + 4, 1 + 7, 1 + 10, 1 + 13]  # of 16 patches 1 - 0.75 (1 - step / 4)
    assert tokens_of(make_trainer("constant", **few)) == [1 + 4] * 4
    assert falling.learner.model.config.patch_dropout == 0.75  # as it is kept


def test_the_parts_of_a_batch_leave_out_as_many_patches(make_trainer):
    few = {"model.image_size": 16, "model.patch_dropout": 0.75, "training.batch_size": 22, "training.epochs": 2}
    trainer = make_trainer(**few, **{"schedule.patch_dropout": "falling", "training.accumulate": 2})
    assert tokens_of(trainer) == [5, 5, 11, 11]


def test_images_grow_along_a_line_in_whole_patches_and_end_at_their_full_size():
    settings = ScheduleSettings(first_image_size=(16, 8))
    sizes = [image_size_at(settings, (32, 24), (4, 4), step, total=100) for step in range(100)]
    assert sizes[0] == (16, 8) and sizes[40] == (24, 16) and sizes[80:] == [(32, 24)] * 20
    assert sizes == sorted(sizes) and all(h % 4 == w % 4 == 0 for h, w in sizes)
    assert image_size_at(ScheduleSettings(), (32, 24), (4, 4), 0, total=100) == (32, 24)


def test_the_first_size_may_be_a_share_of_the_models_own():
    def sizes(first, full):
        settings = ScheduleSettings(first_image_size=first)
        return [image_size_at(settings, full, (16, 16), step, total=100) for step in range(100)]

    assert sizes(0.5, (256, 192)) == sizes((128, 96), (256, 192)) == sizes((0.5, 96), (256, 192))
    assert sizes(0.1, (32, 16))[0] == (16, 16)  # a patch at least
    assert set(sizes(1, (256, 192))) == {(256, 192)}


def test_images_grow_to_their_last_size_which_alone_is_that_of_every_step():
    def sizes(**given):
        return [image_size_at(ScheduleSettings(**given), (256, 192), (16, 16), step, total=100) for step in range(100)]

    grown = sizes(first_image_size=0.25, last_image_size=0.75)
    assert grown[0] == (64, 48) and grown[40] == (128, 96) and grown[80:] == [(192, 144)] * 20
    assert set(sizes(last_image_size=(128, 0.5))) == {(128, 96)}
    assert sizes(first_image_size=64, last_image_size=1) == sizes(first_image_size=64)


def test_a_run_of_no_steps_has_a_schedule_too():
    settings = ScheduleSettings(patch_dropout="falling", first_image_size=0.5)
    assert patch_dropout_at(settings, 0.5, 0, total=0) == 0.5
    assert image_size_at(settings, (32, 32), (8, 8), 0, total=0) == (16, 16)
