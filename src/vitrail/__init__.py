"""Vitrail: Vision Transformers to build, train, fine-tune, see into and ship.

Importing it costs nothing: what computes is imported when it is first used. If torch is not imported yet, its threads
will wait for each other only briefly, since other programs may want the cores (docs/performance.md).
"""

from typing import TYPE_CHECKING

from vitrail.errors import ConfigError, DataError, DivergedError, ModelFileError, VitrailError
from vitrail.lazy import lazily
from vitrail.runtime.waiting import wait_briefly

if TYPE_CHECKING:
    from vitrail.api import compare, evaluate, resume, sweep, train
    from vitrail.data.images.preparation import Preparation
    from vitrail.data.readers.sources import open_data
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
    from vitrail.tasks.diffusion.sampling import sample
    from vitrail.tasks.pose.predictor import predict_poses
    from vitrail.tasks.teachers import CallableTeacher
    from vitrail.tasks.translation.predictor import translate
    from vitrail.weights.convert import convert
    from vitrail.weights.model_folder.folder import TrainedModel
    from vitrail.weights.reference import from_pretrained, open_model

__version__ = "0.1.0"

_HOMES = {
    "Run": "result",
    "compare": "api",
    "evaluate": "api",
    "predict": "tasks.classification.predictor",
    "resume": "api",
    "study_model": "studies",
    "sweep": "api",
    "train": "api",
    "predict_poses": "tasks.pose.predictor",
    "caption": "tasks.captioning.predictor",
    "embed": "deploy.embed",
    "sample": "tasks.diffusion.sampling",
    "translate": "tasks.translation.predictor",
    "zero_shot": "tasks.classification.zero_shot",
    "Preparation": "data.images.preparation",
    "open_data": "data.readers.sources",
    "ViTConfig": "models.configs.vit",
    "for_inference": "models.inference",
    "create_model": "models.registry",
    "model_config": "models.registry",
    "ViT": "models.vision.vit",
    "TrainedModel": "weights.model_folder.folder",
    "CallableTeacher": "tasks.teachers",
    "capture": "study.maps.captures",
    "capture_names": "study.maps.captures",
    "convert": "weights.convert",
    "from_pretrained": "weights.reference",
    "open_model": "weights.reference",
}

__all__ = [
    "CallableTeacher",
    "ConfigError",
    "DataError",
    "DivergedError",
    "ModelFileError",
    "Preparation",
    "Run",
    "TrainedModel",
    "ViT",
    "ViTConfig",
    "VitrailError",
    "caption",
    "capture",
    "capture_names",
    "compare",
    "convert",
    "create_model",
    "embed",
    "evaluate",
    "for_inference",
    "from_pretrained",
    "model_config",
    "open_data",
    "open_model",
    "predict",
    "predict_poses",
    "resume",
    "sample",
    "study_model",
    "sweep",
    "train",
    "translate",
    "zero_shot",
]

wait_briefly()
__getattr__ = lazily("vitrail", _HOMES)


def __dir__() -> list[str]:
    return sorted(__all__)
