"""Images in a notebook's cell while they are made."""

import sys
from types import SimpleNamespace

import numpy as np
from PIL import Image

import vitrail
from tiny_diffusion import model
from vitrail.tasks.diffusion.sampling.preview import tiled


def test_a_notebook_shows_the_images_as_they_come(monkeypatch):
    shown = []
    cell = SimpleNamespace(update=shown.append)
    display = SimpleNamespace(display=lambda picture, display_id: cell)
    shell = SimpleNamespace(kernel=object())
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: shell, display=display))
    monkeypatch.setitem(sys.modules, "IPython.display", display)
    pictures = vitrail.sample(model(), count=10, steps=3)
    assert [picture.size for picture in shown] == [(8 * 68 - 4, 2 * 68 - 4)] * len(shown) and 2 <= len(shown) <= 3
    assert np.array_equal(np.asarray(shown[-1])[68:132:8, :64:8], np.asarray(pictures[8]))


def test_pictures_are_tiled_row_by_row_and_small_ones_enlarged_by_a_whole_factor():
    pictures = [Image.new("RGB", (20, 10), (shade, 0, 0)) for shade in (10, 20, 30)]
    whole = np.asarray(tiled(pictures, 2))
    assert whole.shape == (64, 124, 3)
    assert [whole[y, x, 0] for y, x in ((5, 5), (29, 123), (34, 0), (31, 0), (63, 123))] == [10, 20, 30, 255, 255]
    assert tiled([Image.new("L", (100, 100))], 8).size == (100, 100)
