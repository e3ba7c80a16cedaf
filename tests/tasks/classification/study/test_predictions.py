"""What is drawn of answers."""

import numpy as np
import torch

import vitrail
from vitrail.data.images.preparation import Preparation
from vitrail.data.items import Item
from vitrail.study.sections.study_images import Subjects
from vitrail.tasks.classification.labels.single_label import LabelMetrics
from vitrail.tasks.classification.study.predictions import Predictions


class Answered(LabelMetrics):
    """Metrics of answers that nobody gave."""

    probabilities = torch.tensor([[0.2, 0.8]])

    def scores(self):
        return {}


def test_beside_a_mistake_is_where_the_model_looked_and_pale_what_it_left_out():
    fields = {"image_size": 31, "patch_size": 8, "crop_remainder": True, "dim": 8, "depth": 1, "heads": 2, "mlp_dim": 8}
    model = vitrail.create_model("ViT-Ti/16", num_classes=2, **fields).eval()
    trained = vitrail.TrainedModel(model, ["a", "b"], Preparation.standard((31, 31)))
    item = Item("grey", np.full((31, 31, 3), 100, dtype=np.uint8), 0)
    made = Predictions.of(trained, Subjects([item], "test", labelled=True), Answered())
    pair = np.asarray(made._shown(item, looked=True))
    assert pair.shape == (31, 62, 3)
    beside = pair[:, 31:]
    assert beside[24:].min() > 180 and beside[:, 24:].min() > 180 and np.median(beside[:24, :24]) < 180
