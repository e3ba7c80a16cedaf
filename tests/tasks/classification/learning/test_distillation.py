"""Distillation: its loss by hand and by torch; what a teacher sees, what it says, and what the student makes of it."""

import copy
import json
import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from PIL import Image
from torch import nn

import vitrail
from vitrail.config.configuration import nested, resolve
from vitrail.data.images.preparation import Preparation
from vitrail.data.readers.sources import ImageData
from vitrail.errors import ConfigError, DataError
from vitrail.models.configs.vit import ViTConfig
from vitrail.models.vision.vit import ViT
from vitrail.runtime.observer import Observer
from vitrail.tasks.classification.labels.single_label import Classification
from vitrail.tasks.classification.learning.distillation import Distillation, Teacher
from vitrail.tasks.settings import DistillationSettings
from vitrail.tasks.teachers import CallableTeacher
from vitrail.weights.model_folder.folder import TrainedModel

LABELS = ["dark", "grey", "bright"]


def teacher_model(labels=LABELS, *, seed=7, image_size=(8, 8), channels=1, mean=0.3, std=0.2, **fields) -> TrainedModel:
    """An untrained model that has opinions all the same."""
    torch.manual_seed(seed)
    sizes = {"patch_size": 4, "dim": 16, "depth": 1, "heads": 2, "mlp_dim": 32}
    config = ViTConfig(image_size=image_size, channels=channels, num_classes=len(labels), **{**sizes, **fields})
    preparation = Preparation.standard(image_size, channels).changed(mean=(mean,) * channels, std=(std,) * channels)
    return TrainedModel(ViT(config), labels, preparation)


def pixels(channels=1, size=(8, 8), batch=4) -> torch.Tensor:
    random = np.random.default_rng(0)
    return torch.from_numpy(random.integers(0, 256, (batch, channels, *size), dtype=np.uint8))


# the loss

LOGITS = torch.tensor([[2.0, 0.0, -1.0], [0.5, 0.2, 0.1], [-1.0, 3.0, 0.0], [0.0, 0.0, 4.0]])
TEACHER = torch.tensor([[1.0, 2.0, 0.0], [0.0, 0.0, 5.0], [-3.0, 1.0, 1.5], [2.0, 0.0, 1.0]])
TOKEN = torch.tensor([[0.5, 1.0, -2.0], [0.0, 2.0, 0.1], [1.0, 3.0, 0.0], [0.3, 0.2, 0.1]])
TRUE = torch.tensor([0, 2, 1, 2])


class Answering(nn.Module):
    """A model of one head or two that has answered already."""

    def __init__(self, logits, token):
        super().__init__()
        self.logits, self.token, self.config = logits, token, SimpleNamespace(image_size=(1, 1))

    def heads(self):
        return {"head": None} if self.token is None else {"head": None, "head_distillation": None}

    def forward(self, images, separate=False):
        assert separate == (self.token is not None)
        return (self.logits, self.token) if separate else self.logits


def asked(logits, token, settings=None, *, labels=TRUE, teacher=TEACHER, **arguments) -> dict[str, torch.Tensor]:
    """What the task says of answers of a student and of its teacher."""
    settings = settings or DistillationSettings()
    student, prepared = Answering(logits, token), SimpleNamespace(normalize=lambda pixels: pixels)
    task = Distillation(student, prepared, ["a", "b", "c"], teacher=lambda pixels: teacher, distillation=settings, **arguments)
    return task({"images": torch.zeros(4, 1, 1, 1), "labels": labels})


def loss_of(*given, **arguments) -> torch.Tensor:
    return asked(*given, **arguments)["loss"]


def test_smoothing_and_weights_and_mixing_are_of_the_true_labels_alone():
    mixed = torch.tensor([[0.6, 0.4, 0], [0, 0.3, 0.7], [0, 1, 0], [0.5, 0, 0.5]])
    plain = {"label_smoothing": 0.2, "weights": torch.tensor([1.0, 2.0, 0.5])}
    true = Classification(None, None, ["a", "b", "c"], **plain).loss(LOGITS, mixed)
    expected = 0.5 * true + 0.5 * F.cross_entropy(TOKEN, TEACHER.argmax(dim=1))
    torch.testing.assert_close(loss_of(LOGITS, TOKEN, labels=mixed, **plain), expected)


# what it sees


def test_a_teacher_prepares_the_pixels_with_its_own_mean_and_deviation(shades):
    trained, given = teacher_model(), pixels()
    expected = trained.model.eval()((given.float() / 255 - 0.3) / 0.2)
    torch.testing.assert_close(Teacher(trained, shades)(given), expected)
    assert given.dtype == torch.uint8 and torch.equal(given, pixels())


def seen_by(trained: TrainedModel, data: ImageData, given: torch.Tensor) -> torch.Tensor:
    """What the teacher's model is given, back in levels of 0…255."""
    seen = []
    trained.model.register_forward_pre_hook(lambda module, arguments: seen.append(arguments[0]))
    Teacher(trained, data)(given)
    return (seen[0] * 0.2 + 0.3) * 255


@pytest.mark.parametrize("size", [(16, 16), (4, 4), (12, 8), (8, 20)])
def test_pixels_of_another_size_are_resized_as_by_pillow(shades, size):
    smooth = F.avg_pool2d(pixels(size=(12, 12)).float(), 3, stride=1, padding=1).round().byte()
    seen = seen_by(teacher_model(image_size=size, patch_size=4), shades, smooth)
    for image, given in zip(seen, smooth, strict=True):
        theirs = Image.fromarray(given[0].numpy()).resize(size[::-1], Image.Resampling.BILINEAR)
        assert np.abs(np.asarray(theirs, float) - image[0].numpy()).max() <= 1


def test_a_teacher_of_grey_images_sees_colours_as_pillow_turns_them_grey(shades):
    given = pixels(channels=3)
    for image, levels in zip(given, seen_by(teacher_model(), shades, given), strict=True):
        theirs = Image.fromarray(image.permute(1, 2, 0).numpy()).convert("L")
        assert np.abs(np.asarray(theirs, float) - levels[0].numpy()).max() <= 1


def test_a_teacher_of_colours_sees_grey_in_all_three(shades):
    given = pixels()
    seen = seen_by(teacher_model(channels=3), shades, given)
    torch.testing.assert_close(seen, given.expand(-1, 3, -1, -1).float(), rtol=0, atol=1e-3)


# what it says


def test_its_answers_come_in_the_order_of_the_datas_classes(shades):
    trained, given = teacher_model(["bright", "dark", "violet", "grey"]), pixels()
    expected = trained.model.eval()(trained.preparation.normalize(given))[:, [1, 3, 0]]
    torch.testing.assert_close(Teacher(trained, shades)(given), expected)


def test_a_class_that_it_does_not_know_is_refused_with_both_sides(shades):
    with pytest.raises(DataError, match="'bright' of the data are none of the model's labels 'dark', 'grey', 'light'") as error:
        Teacher(teacher_model(["dark", "grey", "light"]), shades)
    assert error.value.where == "--teacher"


def test_several_labels_an_image_are_refused(shades):
    several = ImageData("shades", LABELS, shades.splits, multi_label=True)
    trained = teacher_model()
    for data, teacher in ((several, trained), (shades, TrainedModel(trained.model, LABELS, trained.preparation, True))):
        with pytest.raises(ConfigError, match="several labels each, and distillation needs one per image"):
            Teacher(teacher, data)


# any callable


def convolutional(channels=3, classes=3) -> nn.Sequential:
    """A network of no library, in training mode, as whoever has trained it may leave it."""
    torch.manual_seed(3)
    pooled = (nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, classes))
    return nn.Sequential(nn.Conv2d(channels, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), *pooled)


COLOURS = Preparation.standard((12, 10), 3).changed(mean=(0.1, 0.2, 0.3), std=(0.5, 0.4, 0.2))


def test_a_callable_gets_the_students_pixels_as_its_preparation_says_and_its_labels_order_its_answers(shades):
    seen = []

    def network(images):
        seen.append(images)
        return torch.arange(4.0).expand(len(images), -1)

    given = pixels(channels=3, size=(12, 10))
    found = Teacher(CallableTeacher(network, ("bright", "dark", "violet", "grey"), COLOURS), shades)(given)
    assert torch.equal(found, torch.tensor([1.0, 3.0, 0.0]).expand(4, -1))  # dark, grey, bright
    mean, std = (torch.tensor(values).view(3, 1, 1) for values in (COLOURS.mean, COLOURS.std))
    torch.testing.assert_close(seen[0], (given.float() / 255 - mean) / std)
    assert seen[0].dtype == torch.float32
    Teacher(CallableTeacher(network, [*LABELS, "violet"], COLOURS), shades)(pixels(channels=1, size=(30, 20)))
    assert seen[1].shape == (4, 3, 12, 10)


def test_a_convolutional_network_answers_in_evaluation_mode_and_learns_nothing(shades):
    network = convolutional()
    before = copy.deepcopy(network.state_dict())
    found = Teacher(CallableTeacher(network, LABELS, COLOURS), shades)(given := pixels(channels=3, size=(12, 10)))
    assert not network.training and not found.requires_grad
    assert all(torch.equal(value, before[name]) for name, value in network.state_dict().items())
    torch.testing.assert_close(found, network(COLOURS.normalize(given)))


@pytest.mark.parametrize(
    ("network", "told"),
    [
        (lambda images: images.mean(dim=(2, 3))[:, :2], r"\(4, 2\) for 4 images, expected \(4, 3\)"),
        (lambda images: SimpleNamespace(logits=images), "returns a SimpleNamespace"),
    ],
)
def test_answers_that_are_no_logits_are_refused_with_what_to_give(network, told, shades):
    teacher = Teacher(CallableTeacher(network, LABELS, COLOURS), shades)
    with pytest.raises(ConfigError, match=told) as error:
        teacher(pixels(channels=3))
    assert "network(images).logits" in error.value.hint


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_logits_that_are_not_finite_are_refused(value, shades):
    def network(images):
        return torch.where(torch.eye(4, 3, dtype=torch.bool), value, 0.0)

    with pytest.raises(ConfigError, match="the teacher's logits are not finite"):
        Teacher(CallableTeacher(network, LABELS, COLOURS), shades)(pixels(channels=3))


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"labels": "abc"}, "labels is not a list of names"),
        ({"labels": None}, "labels is not a list of names"),
        ({"model": None}, "a NoneType is not callable"),
        ({"preparation": None}, "the preparation is not a vitrail.Preparation"),
    ],
)
def test_a_callable_teacher_that_is_none_is_refused_when_it_is_made(changes, told):
    with pytest.raises(ConfigError, match=told) as error:
        CallableTeacher(**{"model": convolutional(), "labels": LABELS, "preparation": COLOURS} | changes)
    assert error.value.hint


TINY = {"model": "ViT-Ti/4", "image_size": 8, "epochs": 1, "batch_size": 12, "recipe": "scratch",
        "model.dim": 8, "model.depth": 1, "model.heads": 2, "model.mlp_dim": 8, "model.embedding": "conv",
        "model.pool": "class", "augmentation.crop": "none"}  # fmt: skip


@pytest.mark.usefixtures("unreported")
def test_a_run_with_a_callable_says_so_and_goes_on_with_it_alone(pictures, tmp_path):
    teacher = CallableTeacher(convolutional(), ["red", "green", "blue"], COLOURS)
    run = vitrail.train(pictures, tmp_path / "run", teacher=teacher, **TINY)
    assert run.trained.config.distillation_token
    written = (run.folder / "config.yaml").read_text()
    assert "given: Sequential, 3 classes, images 12×10×3" in written
    status = json.loads((run.folder / "status.json").read_text())
    (run.folder / "status.json").write_text(json.dumps({**status, "state": "interrupted"}))
    other = CallableTeacher(convolutional(), ["red", "green", "blue"], COLOURS.changed(image_size=(8, 8), resize_size=(8, 8)))
    for wrong in (None, other):
        with pytest.raises(ConfigError, match="passed in Python: Sequential, 3 classes, images 12×10×3") as error:
            vitrail.resume(run.folder, teacher=wrong)
        assert "vitrail.resume(RUN, teacher=…)" in error.value.hint
    again = vitrail.resume(run.folder, teacher=teacher)
    assert again.scores == run.scores


def test_what_says_nothing_of_its_images_is_refused_before_anything_is_opened(tmp_path):
    with pytest.raises(ConfigError, match="a Sequential has no labels and no preparation") as error:
        vitrail.train(tmp_path / "nowhere", teacher=convolutional())
    assert "vitrail.CallableTeacher(network, labels, preparation)" in error.value.hint


# what the student makes of it


@pytest.mark.parametrize("kind", ["hard", "soft"])
@pytest.mark.parametrize("token", [True, False])
def test_a_step_is_that_of_the_equations(make_trainer, kind, token):
    settings = {"distillation.kind": kind, "model.distillation_token": token, "training.epochs": 1, "training.batch_size": 22}
    trained = teacher_model(image_size=(12, 12), channels=3)
    trainer = make_trainer(teacher=trained, **settings)
    model, (batch,) = copy.deepcopy(trainer.learner.model), list(trainer.train_loader.epoch(0))
    given, labels = batch["images"], batch["labels"]
    answers = model(trainer.learner.task.preparation.normalize(given), separate=True)
    own, token_logits = answers if token else (answers, answers)
    taught = Teacher(trained, trainer.data)(given)
    if kind == "hard":
        second = F.cross_entropy(token_logits, taught.argmax(dim=1))
    else:
        second = 9 * F.kl_div(F.log_softmax(token_logits / 3, 1), F.softmax(taught / 3, 1), reduction="batchmean")
    loss = 0.5 * F.cross_entropy(own, labels) + 0.5 * second
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    (optimizer,) = trainer.learner.optimizers
    gradients = {}
    step = optimizer.step

    def noting(*args, **kwargs):
        gradients.update({name: p.grad.clone() for name, p in trainer.learner.model.named_parameters()})
        return step(*args, **kwargs)

    optimizer.step = noting
    trainer.run()
    assert trainer.rows[0]["train_loss"] == pytest.approx(loss.item(), rel=1e-5)
    for name, parameter in model.named_parameters():
        torch.testing.assert_close(gradients[name], parameter.grad, rtol=1e-4, atol=1e-6, msg=name)


@pytest.mark.parametrize(
    "changes",
    [
        {"distillation.kind": "hard", "augmentation.mixup": 0.4, "training.accumulate": 2},
        {"distillation.kind": "soft", "training.precision": "bf16", "training.ema": 0.9, "model.dropout": 0.1},
        {"distillation.kind": "soft", "distillation.once": True, "training.precision": "bf16", "training.ema": 0.9},
    ],
    ids=lambda changes: changes["distillation.kind"],
)
def test_a_run_with_a_teacher_is_decided_by_its_seed_and_can_be_resumed(make_trainer, changes):
    class Stopping(Observer):
        def step(self, epoch, sums):
            if broken.done == 4:
                raise KeyboardInterrupt

    settings = {**changes, "model.distillation_token": True, "training.checkpoint_every_steps": 1}
    unbroken = make_trainer("unbroken", teacher=teacher_model(), **settings)
    unbroken.run()
    broken = make_trainer("broken", teacher=teacher_model(), **settings)
    with pytest.raises(KeyboardInterrupt):
        broken.run(Stopping())
    resumed = make_trainer.reopen(broken, teacher_model())
    resumed.restore()
    assert 0 < resumed.done < resumed.total
    resumed.run()
    assert all(
        torch.equal(value, unbroken.learner.model.state_dict()[name])
        for name, value in resumed.learner.model.state_dict().items()
    )
    other = make_trainer("other", teacher=teacher_model(seed=8), **settings)
    other.run()
    assert not torch.equal(other.learner.model.class_token, unbroken.learner.model.class_token)


def test_a_teacher_that_is_asked_once_answers_for_each_image_as_it_is_and_for_no_view_of_it(make_trainer, shades):
    trained, asked = teacher_model(), []

    def network(images):
        asked.append(len(images))
        return trained.model(images)

    teacher = CallableTeacher(network, ["grey", "bright", "dark"], trained.preparation)
    settings = {"distillation.once": True, "distillation.kind": "soft", "augmentation.horizontal_flip": 0.5}
    trainer = make_trainer(teacher=teacher, **settings, **{"training.epochs": 3})
    trainer.run()
    items = shades.split("train")
    assert sum(asked) == len(items)
    expected = Teacher(teacher, shades)(
        torch.stack([torch.from_numpy(trainer.learner.task.preparation.pixels(item.image)) for item in items])
    )
    by_name = {item.name: logits for item, logits in zip(items, expected, strict=True)}
    found = trainer.learner.task.answers
    assert found.keys() == by_name.keys()
    for name, logits in by_name.items():
        torch.testing.assert_close(torch.from_numpy(found[name]), logits, rtol=1e-5, atol=1e-6)

    views = trainer.train_loader.dataset
    for number, item in enumerate(views.items):
        assert np.array_equal(views[(4, number)]["teacher"][0], found[item.name])


def test_answers_that_were_given_once_are_learned_from_and_nobody_is_asked_again():
    def never(pixels):
        raise AssertionError("asked again")

    settings = DistillationSettings(kind="soft", once=True)
    student, prepared = Answering(LOGITS, TOKEN), SimpleNamespace(normalize=lambda pixels: pixels)
    task = Distillation(student, prepared, ["a", "b", "c"], teacher=never, distillation=settings)
    batch = {"images": torch.zeros(4, 1, 1, 1), "labels": TRUE}
    assert task({**batch, "teacher": TEACHER})["loss"] == loss_of(LOGITS, TOKEN, settings)
    with pytest.raises(AssertionError, match="asked again"):
        task(batch)


def test_a_teacher_that_is_asked_once_has_no_answers_to_mixed_images(make_trainer):
    with pytest.raises(ConfigError, match="images cannot be mixed"):
        make_trainer(teacher=teacher_model(), **{"distillation.once": True, "augmentation.mixup": 0.4})


# the token


BASE = {"model": {"name": "ViT-Ti/16"}, "data": {"source": "somewhere"}}


@pytest.mark.parametrize(
    ("settings", "token"),
    [
        ({}, False),
        ({"teacher": "t"}, True),
        ({"teacher": "t", "model.distillation_token": False}, False),
        ({"teacher": "t", "model.pool": "mean"}, False),
        ({"teacher": "t", "model.head": "mlp"}, False),
        ({"teacher": "t", "start": "s", "tune": "head"}, False),
        ({"model.distillation_token": True}, True),
    ],
    ids=str,
)
def test_a_student_that_can_gets_a_distillation_token(settings, token):
    assert resolve(BASE, {}, nested(settings)).model.distillation_token == token
