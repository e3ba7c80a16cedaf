"""What a captioner looked at, word by word, laid over the picture."""

import numpy as np
from PIL import Image

from small_captioner import ENCODER, small_captioner
from vitrail.study.maps.patch_coordinates import patch_places
from vitrail.tasks.captioning.report import overlays, write_looks
from vitrail.tasks.captioning.words import Caption, Word


def test_what_a_word_was_read_from_glows_where_its_patch_is_and_the_remainder_is_pale():
    model = small_captioner(image_size=30, encoder={**ENCODER, "crop_remainder": True}).model
    look = np.zeros((3, 3))
    look[2, 2] = 1
    (shown,) = overlays(Image.new("RGB", (60, 60), "grey"), (0, 0, 60, 60), patch_places(model.encoder), [("word", look)])
    glow = np.ptp(np.asarray(shown).astype(int), axis=2)
    assert divmod(int(glow.argmax()), 60) >= (32, 32) and glow[36:46, 36:46].min() > 50
    assert not glow[48:].any() and not glow[:, 48:].any() and np.asarray(shown)[48:].min() > 180


def test_the_page_says_which_attention_it_shows(tmp_path):
    Image.new("RGB", (24, 24), "grey").save(tmp_path / "grey.png")
    for name, said in (
        ("Captioner-Ti/16", "in all blocks of the decoder"),
        ("Captioner-LSTM-Ti/16", "only attention"),
    ):
        folder = tmp_path / name.partition("/")[0]
        folder.mkdir()
        write_looks(
            folder, small_captioner(name), [(tmp_path / "grey.png", Caption("a word", -1.0, (Word("word", 0.5, np.eye(3)),)))]
        )
        assert said in (folder / "index.html").read_text(encoding="utf-8")
