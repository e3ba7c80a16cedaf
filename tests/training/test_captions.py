"""What a run of captioning makes of its settings."""

import pytest

from captioned import write_captions
from vitrail.data.preparation import Preparation
from vitrail.models.registry import create_model
from vitrail.training import preparing
from vitrail.training.configuration import nested
from vitrail.weights.folder import TrainedModel

VIT = {"image_size": 16, "patch_size": 4, "dim": 16, "depth": 1, "heads": 2, "mlp_dim": 24}


@pytest.mark.parametrize(
    ("told", "expected"),
    [({}, (0.3, 2)), ({"model.dropout": 0.1}, (0.1, 2)), ({"model.decoder_depth": 3}, (0.3, 3))],
)
def test_a_vit_becomes_a_captioner_with_what_the_recipe_and_the_flags_say_of_its_decoder(tmp_path, told, expected):
    vit = create_model("ViT-Ti/16", num_classes=2, **VIT)
    TrainedModel(vit, ("a", "b"), Preparation.standard((16, 16))).save_pretrained(tmp_path / "vit")
    (tmp_path / "data").mkdir()
    data = write_captions(tmp_path / "data")
    words = {"data": str(data), "start": str(tmp_path / "vit"), "task": "caption", **told}
    model = preparing.resolve_run(None, None, nested(words))[0].model
    assert (model.dropout, model.decoder_depth) == expected
    assert model.encoder.dim == 16 and model.encoder.dropout == 0
