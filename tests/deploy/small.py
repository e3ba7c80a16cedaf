"""Small models that exporters take a second for."""

import torch
from PIL import Image

from vitrail.data.images.preparation import Preparation
from vitrail.deploy.export.artefact import Description
from vitrail.models.configs.vit import ViTConfig
from vitrail.models.vision.vit import ViT
from vitrail.runtime.observer import Observer
from vitrail.tasks.classification.judging.int8_check import Judged
from vitrail.weights.model_folder.folder import TrainedModel

GOOD = Judged(
    points=0.2, error=0.1, least=0.0, answers=30, images=33, views=330, labels=1000, shown=28, agreement=0.98, elsewhere=None
)
"""What is judged of a graph that holds the accuracy."""
SMALL = {"image_size": 32, "patch_size": 8, "dim": 32, "depth": 2, "heads": 4, "mlp_dim": 64, "num_classes": 5}


def small_model(**fields) -> TrainedModel:
    """A random model with labels; its logits are some units apart."""
    torch.manual_seed(0)
    model = ViT(ViTConfig(**{**SMALL, **fields})).eval()
    with torch.no_grad():
        for parameter in model.head.parameters():
            parameter.mul_(20)
    c = model.config
    preparation = Preparation.standard(c.image_size, c.channels)
    return TrainedModel(model, [f"label {i}" for i in range(c.num_classes)], preparation)


def described(trained, precision="fp32", *, pixels=False):
    return Description.of_model(trained, "small", precision, pixels=pixels)


def pixels_for(trained, count=5):
    c = trained.config
    return torch.randint(0, 256, (count, c.channels, *c.image_size), dtype=torch.uint8)


def shade(number):
    """A picture of one grey, by which it is known again among prepared pixels."""
    return Image.new("RGB", (40, 40), (number,) * 3)


def shades(samples):
    """The greys of prepared images."""
    return {int(pixels[0, 0, 0]) for pixels in samples.pixels}


def shade_folder(folder, splits=("",)):
    """Two classes of 20 shades in every split."""
    places = [folder / split / f"label {label}" for split in splits for label in range(2)]
    for number, place in enumerate(place for place in places for _ in range(20)):
        place.mkdir(parents=True, exist_ok=True)
        shade(number).save(place / f"{number}.png")
    return folder


class Noting(Observer):
    """Keeps the notes it gets."""

    def __init__(self):
        self.notes = []

    def note(self, text):
        self.notes.append(text)
