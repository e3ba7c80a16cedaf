"""A trained pose model with its skeleton."""

from collections.abc import Mapping, Sequence
from typing import Any

from vitrail.data.images.box_preparation import BoxPreparation
from vitrail.errors import ConfigError, ModelFileError
from vitrail.models.base import ImageModel
from vitrail.tasks.pose.people.skeleton import COCO, Skeleton
from vitrail.weights.formats.checkpoint import Checkpoint, Source
from vitrail.weights.formats.safe_files import CONFIG, SKELETON
from vitrail.weights.model_folder.folder import TrainedModel


class TrainedPose(TrainedModel):
    """A trained pose model: prepared images (B, C, H, W) to heatmaps (B, K, h, w).

    Args:
        model: computes the heatmaps.
        skeleton: the skeleton, with one joint per heatmap.
        preparation: crops a person from an image.
        card: the model card, as Markdown.
    """

    preparation: BoxPreparation
    fixed_labels = "a model that finds joints has its skeleton's"

    def __init__(self, model: ImageModel, skeleton: Skeleton, preparation: BoxPreparation, card: str = ""):
        super().__init__(model, list(skeleton.joints), preparation, card=card)
        self.skeleton = skeleton

    @property
    def facts(self) -> dict[str, Any]:
        return {"labels": [], "joints": self.skeleton.joints}

    @property
    def uses(self) -> Sequence[str]:
        return "predict {} IMAGES --pictures FOLDER", "export {}", "serve {}"

    @property
    def more(self) -> dict[str, Any]:
        """The skeleton's entries of ``config.json``."""
        return dict(zip(SKELETON, (self.skeleton.model_dump(mode="json"), self.skeleton.limb_indices), strict=True))


def trained_of(model: ImageModel, source: Source, preparation: BoxPreparation, checkpoint: Checkpoint) -> TrainedPose:
    """Return a checkpoint's model with its skeleton; raises `ModelFileError`."""
    described = {**checkpoint.config, **checkpoint.metadata}
    return TrainedPose(
        model, skeleton_of(described, source.labels, checkpoint.file.parent / CONFIG), preparation, checkpoint.card
    )


def skeleton_of(config: Mapping[str, Any], labels: Sequence[str], where: object) -> Skeleton:
    """Read the skeleton from a ``config.json``: a full skeleton, or joint names with transformers' edges.

    Joints without names are COCO's if their number fits.

    Raises:
        ModelFileError: the description is invalid or has another number of joints.
    """
    whole, edges = (config.get(name) for name in SKELETON)
    nameless = all(label.removeprefix("LABEL_") == str(number) for number, label in enumerate(labels))
    try:
        if whole is not None:
            found = Skeleton.read(whole, where="skeleton").complete
        elif nameless and len(labels) == len(COCO.joints):
            found = COCO.complete
        else:
            names = [f"joint {name}" for name in labels] if nameless else labels
            found = Skeleton.of(names, edges or ()).complete
        if len(found.joints) != len(labels):
            raise ValueError(f"{len(found.joints)} joints and {len(labels)} heatmaps")
    except (ConfigError, TypeError, ValueError, IndexError) as error:
        raise ModelFileError(f"the skeleton is damaged: {error}", where=where, hint="write the folder again") from None
    return found


def require_poses(trained: TrainedModel, where: object) -> TrainedPose:
    """Return ``trained`` if it is a pose model; raises `ModelFileError` otherwise."""
    if not isinstance(trained, TrainedPose):
        raise no_joints(where)
    return trained


def no_joints(where: object) -> ModelFileError:
    """Return the error for a model of another kind."""
    hint = "give a model that was trained with --task pose, or a ViTPose"
    return ModelFileError("the model finds no joints", where=where, hint=hint)
