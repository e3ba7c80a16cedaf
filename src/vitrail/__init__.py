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
    from vitrail.data.preparation import Preparation
    from vitrail.data.sources import open_data
    from vitrail.deploy.captions import caption
    from vitrail.deploy.embed import embed
    from vitrail.deploy.predict import predict
    from vitrail.deploy.predict_poses import predict_poses
    from vitrail.deploy.translate import translate
    from vitrail.deploy.zero_shot import zero_shot
    from vitrail.models.configs.vit import ViTConfig
    from vitrail.models.inference import for_inference
    from vitrail.models.registry import create_model, model_config
    from vitrail.models.vit import ViT
    from vitrail.result import Run
    from vitrail.studies import study_model
    from vitrail.study.captures import capture, capture_names
    from vitrail.tasks.teachers import CallableTeacher
    from vitrail.weights.convert import convert
    from vitrail.weights.folder import TrainedModel
    from vitrail.weights.reference import from_pretrained, open_model

__version__ = "0.1.0"

_HOMES = {
    "Run": "result",
    "compare": "api",
    "evaluate": "api",
    "predict": "deploy.predict",
    "resume": "api",
    "study_model": "studies",
    "sweep": "api",
    "train": "api",
    "predict_poses": "deploy.predict_poses",
    "caption": "deploy.captions",
    "embed": "deploy.embed",
    "translate": "deploy.translate",
    "zero_shot": "deploy.zero_shot",
    "Preparation": "data.preparation",
    "open_data": "data.sources",
    "ViTConfig": "models.configs.vit",
    "for_inference": "models.inference",
    "create_model": "models.registry",
    "model_config": "models.registry",
    "ViT": "models.vit",
    "TrainedModel": "weights.folder",
    "CallableTeacher": "tasks.teachers",
    "capture": "study.captures",
    "capture_names": "study.captures",
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
