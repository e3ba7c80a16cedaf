"""Distilled features: of any teacher, standardized, of vectors and of maps, and computed once where that is asked for."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import vitrail
from test_contract import tiny
from vitrail import api
from vitrail.data.images.preparation import Preparation
from vitrail.errors import ConfigError
from vitrail.tasks.distill.settings import DistillSettings
from vitrail.tasks.distill.task import Distill, Standard, moments
from vitrail.tasks.distill.teacher import FeatureTeacher
from vitrail.tasks.teachers import images_for

EIGHT = Preparation.standard((8, 8))
STUDENT = {
    "task": "distill", "model.name": "ViT-Ti/4", "model.image_size": 8, "model.dim": 16, "model.depth": 1, "model.heads": 2,
    "model.mlp_dim": 32, "augmentation.crop": "none", "training.batch_size": 8, "training.epochs": 2,
}  # fmt: skip


def teacher_of(kind: str, **fields) -> vitrail.TrainedModel:
    model = tiny(kind, **fields)
    return vitrail.TrainedModel(model, list("abc"), Preparation.standard(model.config.image_size))


def pixels(count: int = 5) -> torch.Tensor:
    return torch.randint(0, 256, (count, 3, 8, 8), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("kind", ["ViT", "Swin", "PVTv2", "ResNet", "CvT", "TNT", "T2T", "Mixer"])
def test_the_loss_is_the_error_of_standardized_vectors_and_maps_of_any_teacher(kind):
    trained = teacher_of(kind)
    task = Distill(tiny("ViT", num_classes=0), EIGHT, DistillSettings(vectors=2, maps=3), FeatureTeacher(trained))
    for standard in task.standards.values():
        standard.fit(moments(torch.randn(50, len(standard.mean))))
    images = EIGHT.normalize(pixels())
    with torch.no_grad():
        vectors, maps = trained.model.vectors(images), trained.model.feature_maps(images)[-1]
        own, own_map = task.model.vectors(images), task.model.feature_maps(images)[-1]
        resized = F.interpolate(maps, own_map.shape[2:], mode="bilinear", antialias=True)
        wanted = task.standards["maps"](resized.permute(0, 2, 3, 1))
        of_maps = (task.projections["maps"](own_map.permute(0, 2, 3, 1)) - wanted).square().mean(dim=(1, 2, 3))
        of_vectors = (task.projections["vectors"](own) - task.standards["vectors"](vectors)).square().mean(dim=1)
        torch.testing.assert_close(task({"images": pixels()})["loss"], (2 * of_vectors + 3 * of_maps).mean())
        torch.testing.assert_close(task.answer({"images": pixels()})["features"], own)


def test_a_teacher_sees_the_students_images_at_its_own_size_and_colours():
    teacher = FeatureTeacher(teacher_of("ViT", image_size=16, channels=1))
    teacher.preparation = Preparation.standard((16, 16), 1)
    seen = images_for(teacher.preparation, pixels())
    torch.testing.assert_close(teacher.vectors(pixels()), teacher.model.vectors(seen))
    assert seen.shape == (5, 1, 16, 16)


def test_standardized_features_have_mean_zero_and_deviation_one_and_a_constant_one_stays_finite():
    features = torch.randn(100, 4) * torch.tensor([3.0, 1.0, 0.5, 0.0]) + 7
    standard = Standard(4)
    standard.fit(moments(features[:40]) + moments(features[40:]))
    found = standard(features)
    torch.testing.assert_close(found.mean(dim=0), torch.zeros(4), atol=1e-4, rtol=0)
    torch.testing.assert_close(found.std(dim=0, correction=0), torch.tensor([1.0, 1.0, 1.0, 0.0]), atol=1e-4, rtol=0)
    assert standard(features[:1] + 0.1).abs().max() < 10  # of the constant feature, too


def test_a_callable_gives_vectors_and_no_maps():
    given = vitrail.CallableTeacher(lambda images: images.flatten(1)[:, :6], [], EIGHT)
    task = Distill(tiny("ViT", num_classes=0), EIGHT, DistillSettings(), FeatureTeacher(given))
    assert task({"images": pixels()})["loss"].isfinite()
    with pytest.raises(ConfigError, match="vectors only"):
        Distill(tiny("ViT", num_classes=0), EIGHT, DistillSettings(maps=1), FeatureTeacher(given))
    wrong = vitrail.CallableTeacher(lambda images: images, [], EIGHT)
    with pytest.raises(ConfigError, match="no finite vectors"):
        FeatureTeacher(wrong)(pixels())


@pytest.mark.usefixtures("unreported")
def test_vectors_that_are_computed_once_are_those_of_the_images_as_they_are(pictures, run, tmp_path, monkeypatch):
    asked, call = [], FeatureTeacher.__call__
    monkeypatch.setattr(
        FeatureTeacher, "__call__", lambda self, given, **more: asked.append(len(given)) or call(self, given, **more)
    )
    taught = {}
    forward = Distill.forward
    monkeypatch.setattr(
        Distill, "forward", lambda self, batch: taught.setdefault("teacher" in batch, batch) and forward(self, batch)
    )
    api.train(pictures, tmp_path / "once", recipe="distill", teacher=str(run.folder), **STUDENT, **{"distillation.once": True})
    assert taught.keys() == {True} and taught[True]["teacher"].shape[1] == 16
    often = sum(asked)
    asked.clear()
    api.train(pictures, tmp_path / "often", recipe="distill", teacher=str(run.folder), **STUDENT)
    assert often < sum(asked)


def test_a_run_with_a_teacher_of_python_is_scored_without_a_loss(pictures, tmp_path, unreported):
    given = vitrail.CallableTeacher(lambda images: images.mean(dim=(2, 3)), [], EIGHT)
    run = api.train(pictures, tmp_path / "run", recipe="distill", teacher=given, **STUDENT)
    assert "loss" not in run.scores and 0 <= run.scores["knn"] <= 1


def test_mixed_images_are_shown_to_the_teacher_too(pictures, run, tmp_path, unreported):
    mixed = api.train(
        pictures, tmp_path / "mixed", recipe="distill", teacher=str(run.folder), **STUDENT, **{"augmentation.mixup": 0.5}
    )
    assert np.isfinite(mixed.scores["loss"])


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "no teacher to learn from"),
        (["--teacher", "RUN", "--distillation.once", "true", "--task.maps", "1"], "too much memory"),
        (["--teacher", "RUN", "--task.vectors", "0"], "nothing of the teacher"),
        (["--teacher", "RUN", "--task.maps", "1", "--model.patch-dropout", "0.5"], "maps need all patches"),
        (["--teacher", "RUN", "--task.maps", "1", "--schedule.first-image-size", "4"], "maps are learned at the model's size"),
    ],
)
def test_what_cannot_be_distilled_is_refused(vitrail, pictures, run, tmp_path, words, said):
    own = [str(run.folder) if word == "RUN" else word for word in words]
    answer = vitrail("train", "--task", "distill", "--data", pictures, "--out", tmp_path / "run", *own)
    assert answer.code == 2 and said in answer.err and not (tmp_path / "run").exists()
