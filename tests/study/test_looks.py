"""What a captioner looked at, word by word, laid over the picture."""

import numpy as np
from PIL import Image

from small_captioner import ENCODER, small_captioner
from vitrail.study.looks import overlays
from vitrail.study.places import patch_places


def test_what_a_word_was_read_from_glows_where_its_patch_is_and_the_remainder_is_pale():
    model = small_captioner(image_size=30, encoder={**ENCODER, "crop_remainder": True}).model
    look = np.zeros((3, 3))
    look[2, 2] = 1
    (shown,) = overlays(Image.new("RGB", (60, 60), "grey"), (0, 0, 60, 60), patch_places(model.encoder), [("word", look)])
    glow = np.ptp(np.asarray(shown).astype(int), axis=2)
    assert divmod(int(glow.argmax()), 60) >= (32, 32) and glow[36:46, 36:46].min() > 50
    assert not glow[48:].any() and not glow[:, 48:].any() and np.asarray(shown)[48:].min() > 180
