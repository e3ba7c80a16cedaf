"""The training image nearest to each sample beside all distances, and what a copy looks like."""

import numpy as np
import pytest
from PIL import Image

import vitrail
from vitrail.data.items import Item
from vitrail.tasks.diffusion.quality import copies
from vitrail.tasks.diffusion.quality.copies import WORST, Copies, nearest_of

RANDOM = np.random.default_rng(0)


def items(vectors):
    """Items whose images are their vectors."""
    return [Item(f"{number}", vector, 0) for number, vector in enumerate(vectors)]


def test_the_nearest_is_that_of_all_distances_whatever_the_chunk(monkeypatch):
    images, learned = RANDOM.normal(size=(20, 6)), RANDOM.normal(size=(45, 6))
    apart = np.linalg.norm(images[:, None] - learned[None], axis=2)
    sizes = []

    def embed(some):
        sizes.append(len(some))
        return np.stack(some)

    for chunk in (7, 45, 1000):
        monkeypatch.setattr(copies, "CHUNK", chunk)
        nearest = nearest_of(images, list(learned), embed)
        assert nearest.index.tolist() == apart.argmin(axis=1).tolist()
        assert nearest.apart == pytest.approx(apart.min(axis=1))
        assert nearest.order[0] == apart.min(axis=1).argmin()
    assert max(sizes[:7]) == 7


def test_a_memory_of_the_training_images_is_found():
    learned, others = RANDOM.normal(size=(100, 6)), RANDOM.normal(size=(50, 6))
    copied = learned[:60] + 0.01 * RANDOM.normal(size=(60, 6))
    fresh, memory = (
        Copies.search(made, items(others), items(learned), np.stack) for made in (RANDOM.normal(size=(60, 6)), copied)
    )
    assert fresh.ratio == pytest.approx(1, abs=0.2)
    assert memory.ratio < 0.05
    worst = list(memory.worst())
    assert len(worst) == WORST and all(item.name == str(number) for number, item, _ in worst)
    assert [distance for *_, distance in worst] == sorted(memory.samples.apart)[:WORST]


def test_training_images_beside_each_other_have_no_distance_to_compare_with():
    same = np.zeros((10, 4))
    assert Copies.search(same, items(same), items(same), np.stack).ratio == float("inf")


def test_pairs_are_each_sample_and_the_training_image_beside_it(pictures):
    preparation = vitrail.Preparation.standard((8, 8), 3)
    learned = [Item(file.name, file, 0) for file in sorted(pictures.rglob("*.png"))]

    def embed(images):
        return np.stack([preparation.pixels(image).ravel() / 255 for image in images])

    made = [Image.open(item.image).resize((8, 8), Image.Resampling.BILINEAR) for item in learned[:3]]
    found = Copies.search(embed(made), learned[3:], learned, embed)
    pairs = found.pairs(made, preparation)
    assert len(pairs) == 6
    assert all(np.abs(np.asarray(a, int) - np.asarray(b, int)).max() <= 1 for a, b in zip(pairs[::2], pairs[1::2], strict=True))


def test_an_exact_copy_has_no_distance():
    learned = RANDOM.integers(0, 256, size=(50, 200)) / 255.0
    nearest = nearest_of(learned[10:40], list(learned), np.stack)
    assert nearest.index.tolist() == list(range(10, 40))
    assert nearest.apart == pytest.approx(np.zeros(30), abs=1e-6)
