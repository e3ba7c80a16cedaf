"""The study of a model that makes images: gates, attention and estimates, each beside a hand calculation."""

import json

import numpy as np
import pytest
import torch
from PIL import Image
from torch.nn import functional as F

import vitrail
from tiny_diffusion import CLASSES
from tiny_diffusion import model as tiny_diffusion
from vitrail.errors import ConfigError
from vitrail.studies import study_model
from vitrail.study.maps.captures import capture
from vitrail.study.maps.distance import attention_distances, patch_distances
from vitrail.study.sections.request import StudyRequest
from vitrail.tasks.diffusion.study.sections import DiffusionStudy, subjects_for

NAMES = [f"{name}/{number}.png" for name in CLASSES for number in range(2)]


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """A folder of images of the model's classes."""
    folder, random = tmp_path_factory.mktemp("images"), np.random.default_rng(0)
    for name in NAMES:
        (folder / name).parent.mkdir(exist_ok=True)
        Image.fromarray(random.integers(0, 256, (8, 8), dtype=np.uint8)).save(folder / name)
    return folder


@pytest.fixture(scope="module")
def studied(data, tmp_path_factory):
    """A model, the folder of its study, its numbers and its maps."""
    trained = tiny_diffusion(depth=3, objective="velocity", steps=40, learned_variance=True)
    folder, numbers = study_model(trained, data, tmp_path_factory.mktemp("study") / "all", split="all")
    with np.load(folder / "maps.npz") as maps:
        return trained, folder, numbers, dict(maps)


def test_times_go_from_noise_to_the_image(studied):
    assert studied[2]["times"] == [39, 35, 30, 26, 22, 17, 13, 9, 4, 0]


def test_gates_are_those_of_time_and_class(studied):
    """The gate is the last third of ``W silu(c) + b``; the mean over images is that over three classes of two images each."""
    trained, _, numbers, _ = studied
    model = trained.model
    for place, time in enumerate(numbers["times"]):
        with torch.no_grad():
            condition = model.time(torch.tensor([float(time)] * 3)) + model.label(torch.arange(3))
            for layer, block in enumerate(model.blocks):
                for name in ("attention", "mlp"):
                    modulation = block.get_submodule(name).modulation
                    gate = F.linear(F.silu(condition), modulation.weight[64:], modulation.bias[64:])
                    assert numbers["gates"][name][layer][place] == pytest.approx(gate.abs().mean().item(), rel=1e-5)


def looked_into(trained, data, folder, **options):
    """A study without its page."""
    request = StudyRequest(trained, data, **options)
    return DiffusionStudy(folder, trained, subjects_for(trained, request)[1], request)


def seen_by_hand(trained, data, name, number, time, label):
    """The image, what the model is given of it, its output, and the attention of its layers."""
    image, noise = trained.preparation([data / name]), torch.randn(1, 1, 8, 8, generator=torch.Generator().manual_seed(number))
    bar = np.prod(1 - np.minimum(np.linspace(1000 / 40 * 1e-4, 0.5, 40), 0.999)[: time + 1])
    a, s = np.float32(bar**0.5), np.float32((1 - bar) ** 0.5)
    x = a * image + s * noise
    with torch.no_grad(), capture(trained.model, "blocks.*.attention.weights") as seen:
        output = trained.model(x, torch.tensor([float(time)]), torch.tensor([label]))
    return image, x, output[:, :1], (a, s), list(seen.values())


def test_attention_and_estimates_are_those_of_the_noisy_image(studied, data):
    trained, _, numbers, maps = studied
    errors, distances = [], []
    for number, name in enumerate(maps["images"]):
        label = CLASSES.index(str(name).split("/")[0])
        image, x, v, (a, s), weights = seen_by_hand(trained, data, str(name), number, 22, label)
        errors.append((a * x - s * v - image).square().mean().item())  # x_0 = a x - s v
        distances.append(torch.stack([attention_distances(w, patch_distances((4, 4), (2, 2))).mean() for w in weights]))
        expected = weights[-1].mean(dim=(0, 1, 2)).view(4, 4)
        np.testing.assert_allclose(maps["attention"][number, 4], expected.numpy(), atol=1e-6)
    assert numbers["estimate_error"][4] == pytest.approx(np.mean(errors), rel=1e-4)
    np.testing.assert_allclose(np.array(numbers["attention_distance"])[:, 4], torch.stack(distances).mean(dim=0), rtol=1e-4)


def test_layer_head_and_query_choose_the_attention(studied, data, tmp_path):
    trained = studied[0]
    study = looked_into(trained, data, tmp_path, split="all", layer=0, head=1, query=(2, 3))
    name = study.subjects.items[5].name
    *_, weights = seen_by_hand(trained, data, name, 5, 22, CLASSES.index(name.split("/")[0]))
    np.testing.assert_allclose(study.maps["attention"][5, 4].flatten(), weights[0][0, 1, 2 * 4 + 3], atol=1e-6)


def test_the_folder_has_the_page_and_its_pictures(studied):
    _, folder, numbers, _ = studied
    page = (folder / "report.html").read_text()
    for name, title in {"gates": "Which branches work when", "attention": "Where it looks", "estimates": "What it makes"}.items():
        assert title in page
        with Image.open(folder / f"{name}.png") as picture:
            assert picture.width > 300
    assert json.loads((folder / "study.json").read_text()) == numbers and numbers["images"] == 6


@pytest.mark.parametrize("fields", [{}, {"num_classes": 0, "objective": "flow"}], ids=["null class", "no classes"])
def test_pictures_without_classes_are_studied_as_of_none(fields, data, tmp_path):
    study = looked_into(tiny_diffusion(**fields), data / "ant" / "0.png", tmp_path)
    assert study.labels == ([torch.tensor([3])] if not fields else None)
    assert study.numbers["images"] == 1 and len(study.numbers["gates"]["mlp"]) == 2


def test_a_fresh_model_has_closed_gates(data, tmp_path):
    fresh = vitrail.create_model("DiT-S/2", dim=32, depth=2, heads=4, mlp_dim=64, image_size=8, channels=1).eval()
    trained = type(tiny_diffusion())(fresh, [], vitrail.Preparation.standard((8, 8), 1))
    study = looked_into(trained, data / "ant", tmp_path)
    assert study.gates.keys() == {"attention", "mlp"} and not np.any([*study.gates.values()])


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"layer": 2}, "layer 2 of 2"),
        ({"head": 4}, "head 4 of 4"),
        ({"query": (4, 0)}, "row of the query 4 of 4"),
        ({"joints": ["nose"]}, "finds no joints"),
    ],
)
def test_what_the_model_does_not_have_is_refused(options, words, data, tmp_path):
    with pytest.raises(ConfigError, match=words):
        study_model(tiny_diffusion(), data, tmp_path / "none", **options)
    assert not (tmp_path / "none").exists()


def test_a_model_without_a_null_class_needs_classes(data, tmp_path):
    with pytest.raises(ConfigError, match="needs the class of each image"):
        study_model(tiny_diffusion(null_class=False), data / "ant", tmp_path / "none")
