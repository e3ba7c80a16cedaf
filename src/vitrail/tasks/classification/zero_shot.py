"""Zero-shot classification with CLIP: the label whose text is nearest to the image (Radford et al. 2021, section 3.1)."""

from collections.abc import Sequence
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

from vitrail.errors import ConfigError
from vitrail.models.inference import for_inference, in_evaluation_mode
from vitrail.runtime.device import Precision, pick_device
from vitrail.tasks.classification.predictor import LabelPredictor
from vitrail.weights.formats.checkpoint import Checkpoint
from vitrail.weights.locate import locate
from vitrail.weights.reference import open_model
from vitrail.weights.text_tower import ClipTokenizer, read_text_tower

BATCH = 64
"""Texts per batch."""


@torch.inference_mode()
def zero_shot(
    model: str | Path, labels: Sequence[str], *, template: str = "{}", precision: Precision | None = None
) -> LabelPredictor:
    """Return a CLIP predictor of the label whose text is nearest to the image: ``softmax(s · cos(image, text))``.

    >>> vitrail.predict(vitrail.zero_shot("clip", ["a cat", "a dog"]), "photo.jpg")  # doctest: +SKIP

    Args:
        model: a folder or hub id with the image and text encoder of a CLIP and its ``tokenizer.json``.
        labels: two or more different texts.
        template: a sentence for each label: ``"a photo of a {}"``.
        precision: the precision of the image encoder: fp32 (default) or bf16.

    Raises:
        ConfigError: fewer than two labels, or equal ones; the template lacks ``{}``; the extra ``text`` is not installed.
        ModelFileError: the model has no text encoder, or an unsupported one.
    """
    labels = [" ".join(label.split()) for label in labels]
    if len(labels) < 2 or len(set(labels)) < len(labels) or not all(labels):
        raise ConfigError("two or more different labels are needed", where="--labels", hint='--labels "a cat, a dog"')
    if template.count("{}") != 1:
        raise ConfigError(f"{template!r} has no place for a label", where="--template", hint='--template "a photo of a {}"')
    path = locate(model)
    with Checkpoint.opened(path) as checkpoint:
        tower, scale = read_text_tower(checkpoint)
    tokenizer = ClipTokenizer(path if path.is_dir() else path.parent, tower.config.length, tower.config.vocabulary)
    trained, device = open_model(path), pick_device()
    if trained.config.num_classes != tower.config.output_dim:
        raise ConfigError(
            "image and text vectors have different lengths", where=path, hint="give a complete CLIP, projections included"
        )
    texts = [template.replace("{}", label) for label in labels]
    vectors = torch.cat([tower(*tokenizer(texts[start : start + BATCH])) for start in range(0, len(texts), BATCH)])
    directions = scale * F.normalize(vectors, dim=1)  # (classes, D)
    network = for_inference(in_evaluation_mode(trained.model, device), precision or "fp32")

    @torch.inference_mode()
    def logits(pixels: Tensor) -> Tensor:
        images = network(trained.preparation.normalize(pixels.to(device)))
        return F.normalize(images, dim=1).cpu() @ directions.mT

    return LabelPredictor(f"torch {precision or 'fp32'}", labels, False, trained.preparation, logits)
