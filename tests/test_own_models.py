"""Models that somebody changed or wrote: what takes them, and the sentence of what does not."""

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

import vitrail
from test_contract import tiny
from vitrail.data.images.box_preparation import BoxPreparation
from vitrail.data.images.preparation import Preparation
from vitrail.errors import ConfigError, DataError, ModelFileError
from vitrail.study.maps.captures import hides
from vitrail.tasks.pose.people.skeleton import Skeleton
from vitrail.tasks.pose.weights import TrainedPose
from vitrail.weights.model_folder.folder import TrainedModel

LABELS = ["ant", "bee", "cow"]
SIZE = Preparation.standard((8, 8))


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data") / "photos"
    random = np.random.default_rng(0)
    for label in LABELS:
        (folder / label).mkdir(parents=True)
        for number in range(3):
            Image.fromarray(random.integers(0, 255, (9, 9, 3), np.uint8)).save(folder / label / f"{number}.png")
    return folder


class Own(nn.Module):
    """Somebody's own module, with a model of the library in it."""

    def __init__(self):
        super().__init__()
        self.inner, self.more = tiny("ViT"), nn.Linear(3, 3)

    def forward(self, images):
        return self.more(self.inner(images))


class OwnAttention(nn.Linear):
    def forward(self, x, *given, **options):
        return super().forward(x)


def with_part(path, module):
    model = tiny("ViT")
    parent, _, name = path.rpartition(".")
    setattr(model.get_submodule(parent), name, module)
    return model


CHANGED = {
    "head": lambda: with_part("head", nn.Linear(16, 3)),
    "attention": lambda: with_part("blocks.0.attention.layer", OwnAttention(16, 16)),
    "embedding": lambda: with_part("embedding", nn.Sequential(nn.Flatten(), nn.Linear(192, 64), nn.Unflatten(1, (4, 16)))),
    "mlp": lambda: with_part("blocks.1.mlp.layer", nn.Linear(16, 16)),
}


@pytest.mark.parametrize("make", [*CHANGED.values(), Own], ids=[*CHANGED, "own module"])
def test_a_changed_model_predicts_and_is_evaluated_as_it_computes(make, photos):
    model = make().eval()
    trained = TrainedModel(model, LABELS, SIZE)
    image = photos / "ant" / "0.png"
    with torch.no_grad():
        expected = model(SIZE(image)).softmax(dim=1)[0]
    assert dict(vitrail.predict(trained, image)[0]) == pytest.approx(dict(zip(LABELS, expected.tolist(), strict=True)), abs=1e-5)
    assert vitrail.evaluate(trained, photos, workers=0)[0].scores()["images"] == 9


@pytest.mark.parametrize(("name", "part"), [("attention", "blocks.0.attention.layer"), ("embedding", "embedding")])
def test_a_changed_model_is_studied_without_what_its_changes_hide(name, part, photos, tmp_path):
    folder, numbers = vitrail.study_model(TrainedModel(CHANGED[name](), LABELS, SIZE), photos, tmp_path / "study")
    assert not (folder / "maps.png").exists() and not {"macs", "cost"} & numbers.keys()
    assert numbers["scores"]["images"] == 9 and f"{part} is a " in (folder / "report.html").read_text()


def test_only_changes_that_attention_passes_hide_maps():
    assert {name: hides(make()) for name, make in CHANGED.items()} == {
        "head": False, "attention": True, "embedding": True, "mlp": False,
    }  # fmt: skip


@pytest.mark.parametrize("name", CHANGED)
def test_a_folder_that_could_not_be_read_is_not_written(name, tmp_path):
    with pytest.raises(ConfigError, match=name):
        TrainedModel(CHANGED[name](), LABELS, SIZE).save_pretrained(tmp_path / "model")
    assert not (tmp_path / "model").exists()


@pytest.mark.parametrize(
    ("labels", "preparation", "words"),
    [(LABELS[:2], SIZE, "2 labels.* 3 classes"), (LABELS, Preparation.standard((9, 9)), r"\(3, 9, 9\).*\(3, 8, 8\)")],
    ids=["labels", "preparation"],
)
def test_labels_and_a_preparation_of_another_model_are_not_written(labels, preparation, words, tmp_path):
    with pytest.raises(ConfigError, match=words):
        TrainedModel(tiny("ViT"), labels, preparation).save_pretrained(tmp_path / "model")


def test_a_model_with_other_labels_than_logits_does_not_answer(photos):
    with pytest.raises(ModelFileError, match=r"3.* for 1 images, but has 2 labels"):
        vitrail.predict(TrainedModel(tiny("ViT"), LABELS[:2], SIZE), photos / "ant" / "0.png")


@pytest.mark.parametrize(
    ("model", "labels", "preparation"),
    [
        ("runs/first", LABELS, SIZE),
        *((tiny("ViT"), labels, SIZE) for labels in ("ant", [0, 1, 2], None, 3, iter(LABELS))),
        (tiny("ViT"), LABELS, 8),
    ],
    ids=["a path", "a text", "numbers", "nothing", "a number", "an iterator", "a size"],
)
def test_a_trained_model_is_made_of_a_module_names_and_a_preparation(model, labels, preparation):
    with pytest.raises(ConfigError, match=r"model|labels|preparation"):
        TrainedModel(model, labels, preparation)


@pytest.mark.parametrize("value", [tiny("ViT"), Own(), None, 3, {}], ids=lambda value: type(value).__name__)
@pytest.mark.parametrize("function", ["predict", "evaluate", "study_model", "embed"])
def test_a_model_without_labels_and_preparation_is_refused_with_the_way(function, value, photos):
    with pytest.raises(ConfigError, match=f"{type(value).__name__} is neither text nor a path") as error:
        getattr(vitrail, function)(value, photos / "ant" / "0.png")
    assert ("vitrail.TrainedModel(" in str(error.value)) == isinstance(value, nn.Module)


@pytest.mark.parametrize("setting", ["model", "start"])
@pytest.mark.parametrize("value", [tiny("ViT"), TrainedModel(tiny("ViT"), LABELS, SIZE)], ids=["model", "trained"])
def test_a_run_is_made_of_names_and_files(setting, value, photos, tmp_path):
    with pytest.raises(ConfigError, match="cannot be a setting") as error:
        vitrail.train(photos, tmp_path / "run", epochs=1, **{setting: value})
    assert "save_pretrained" in str(error.value) and not (tmp_path / "run").exists()
    with pytest.raises(ConfigError, match="ImageData is neither text nor a path"):
        vitrail.train(vitrail.open_data(photos), model="ViT-Ti/8", epochs=1)


@pytest.mark.parametrize("function", ["embed", "study_model"])
def test_what_needs_a_model_of_the_library_says_so_of_a_module(function, photos):
    with pytest.raises(ConfigError, match="Own is not a model of this library"):
        getattr(vitrail, function)(TrainedModel(Own(), LABELS, SIZE), photos / "ant" / "0.png")


def test_a_changed_model_of_joints_has_no_study(photos, tmp_path):
    model = tiny("ViTPose")
    model.blocks[0].attention.layer = OwnAttention(16, 16)
    trained = TrainedPose(model, Skeleton.of(LABELS, ()), BoxPreparation.of_size((8, 8), 3))
    with pytest.raises(ConfigError, match=r"blocks.0.attention.layer is a OwnAttention"):
        vitrail.study_model(trained, photos / "ant" / "0.png", tmp_path / "study")


def test_images_are_prepared_as_predict_takes_them(photos):
    file = photos / "ant" / "0.png"
    expected = SIZE(file)
    pixels = np.array(Image.open(file))
    for image in (str(file), file.read_bytes(), file.open("rb"), Image.open(file), pixels, torch.tensor(pixels).movedim(-1, 0)):
        assert torch.equal(SIZE(image), expected)
    assert SIZE([file, str(file)]).shape == (2, 3, 8, 8) and torch.equal(SIZE(pixels[None]), expected)
    assert SIZE.decode(str(file)).size == (9, 9)
    for none in (None, [], "https://a.b/c.png", 3):
        with pytest.raises(DataError):
            SIZE(none)
