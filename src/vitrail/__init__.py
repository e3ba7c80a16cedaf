"""Vitrail: Vision Transformers to build, train, fine-tune, inspect and deploy.

Importing it is fast: modules that need torch are imported at their first use. If torch is not imported yet, ``import vitrail``
shortens the spinning of its OpenMP threads, which would take cores from other programs (docs/performance.md).
"""

from typing import TYPE_CHECKING

from vitrail.errors import ConfigError, DataError, DivergedError, ModelFileError, VitrailError
from vitrail.lazy import lazily
from vitrail.runtime.terminal import hide_torch_warnings
from vitrail.runtime.waiting import wait_briefly

if TYPE_CHECKING:
    from vitrail.api import compare, evaluate, resume, sweep, train
    from vitrail.data.images.preparation import Preparation
    from vitrail.data.readers.sources import open_data
    from vitrail.deploy.batch_predictor import BatchPredictor
    from vitrail.deploy.embed import embed
    from vitrail.models.configs.vit import ViTConfig
    from vitrail.models.inference import for_inference
    from vitrail.models.registry import create_model, model_config
    from vitrail.models.vision.vit import ViT
    from vitrail.result import Run
    from vitrail.studies import study_model
    from vitrail.study.maps.captures import capture, capture_names
    from vitrail.tasks.captioning.predictor import caption
    from vitrail.tasks.classification.predictor import predict
    from vitrail.tasks.classification.zero_shot import zero_shot
    from vitrail.tasks.diffusion.sampling.making import sample
    from vitrail.tasks.pose.predictor import predict_poses
    from vitrail.tasks.segmentation.predictor import predict_masks
    from vitrail.tasks.teachers import CallableTeacher
    from vitrail.tasks.translation.predictor import translate
    from vitrail.weights.convert import convert
    from vitrail.weights.model_folder.folder import TrainedModel
    from vitrail.weights.reference import from_pretrained, open_model

__version__ = "0.1.0"

_NAMES: dict[str, tuple[str, ...]] = {
    "result": ("Run",),
    "api": ("compare", "evaluate", "resume", "sweep", "train"),
    "tasks.classification.predictor": ("predict",),
    "studies": ("study_model",),
    "tasks.pose.predictor": ("predict_poses",),
    "tasks.segmentation.predictor": ("predict_masks",),
    "tasks.captioning.predictor": ("caption",),
    "deploy.embed": ("embed",),
    "deploy.batch_predictor": ("BatchPredictor",),
    "tasks.diffusion.sampling.making": ("sample",),
    "tasks.translation.predictor": ("translate",),
    "tasks.classification.zero_shot": ("zero_shot",),
    "data.images.preparation": ("Preparation",),
    "data.readers.sources": ("open_data",),
    "models.configs.vit": ("ViTConfig",),
    "models.inference": ("for_inference",),
    "models.registry": ("create_model", "model_config"),
    "models.vision.vit": ("ViT",),
    "weights.model_folder.folder": ("TrainedModel",),
    "tasks.teachers": ("CallableTeacher",),
    "study.maps.captures": ("capture", "capture_names"),
    "weights.convert": ("convert",),
    "weights.reference": ("from_pretrained", "open_model"),
}
"""The public names, by the module that defines them."""

__all__ = [
    "BatchPredictor", "CallableTeacher", "ConfigError", "DataError", "DivergedError", "ModelFileError", "Preparation", "Run",
    "TrainedModel", "ViT", "ViTConfig", "VitrailError", "caption", "capture", "capture_names", "compare", "convert",
    "create_model", "embed", "evaluate", "for_inference", "from_pretrained", "model_config", "open_data", "open_model",
    "predict", "predict_masks", "predict_poses", "resume", "sample", "study_model", "sweep", "train", "translate", "zero_shot",
]  # fmt: skip

wait_briefly()
hide_torch_warnings()
__getattr__ = lazily("vitrail", {name: home for home, names in _NAMES.items() for name in names})


def __dir__() -> list[str]:
    return sorted(__all__)
