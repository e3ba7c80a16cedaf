"""Studies of a model: its attention, features, and costs. `vitrail.study_model` writes a report of them."""

from typing import TYPE_CHECKING

from vitrail.lazy import lazily

if TYPE_CHECKING:
    from vitrail.study.maps.attention import attention_map, head_maps, reading_map, relevance_map, roll_out, rollout_map
    from vitrail.study.maps.captures import capture, capture_names
    from vitrail.study.maps.distance import attention_distances, mean_attention_distances, patch_distances
    from vitrail.study.maps.embedding import filters, offset_biases, position_similarity, stage_position_similarity
    from vitrail.study.maps.occlusion import deletion, without_patches
    from vitrail.study.maps.patch_coordinates import Places, patch_places
    from vitrail.study.maps.stages import looked_at, stage_distances, stage_maps, stage_places
    from vitrail.study.page.images import overlay
    from vitrail.study.quality.probes import features, few_shot, linear_probe, nearest_neighbours
    from vitrail.study.speed import kept_for_gradients, measured
    from vitrail.tasks.pose.study.joints import joint_map

_NAMES = {
    "study.maps.attention": ("attention_map", "head_maps", "reading_map", "relevance_map", "roll_out", "rollout_map"),
    "study.maps.captures": ("capture", "capture_names"),
    "study.maps.distance": ("attention_distances", "mean_attention_distances", "patch_distances"),
    "study.maps.embedding": ("filters", "offset_biases", "position_similarity", "stage_position_similarity"),
    "tasks.pose.study.joints": ("joint_map",),
    "study.maps.occlusion": ("deletion", "without_patches"),
    "study.page.images": ("overlay",),
    "study.maps.patch_coordinates": ("Places", "patch_places"),
    "study.quality.probes": ("features", "few_shot", "linear_probe", "nearest_neighbours"),
    "study.speed": ("kept_for_gradients", "measured"),
    "study.maps.stages": ("looked_at", "stage_distances", "stage_maps", "stage_places"),
}

__all__ = [
    "Places",
    "attention_distances",
    "attention_map",
    "capture",
    "capture_names",
    "deletion",
    "features",
    "few_shot",
    "filters",
    "head_maps",
    "joint_map",
    "kept_for_gradients",
    "linear_probe",
    "looked_at",
    "mean_attention_distances",
    "measured",
    "nearest_neighbours",
    "offset_biases",
    "overlay",
    "patch_distances",
    "patch_places",
    "position_similarity",
    "reading_map",
    "relevance_map",
    "roll_out",
    "rollout_map",
    "stage_distances",
    "stage_maps",
    "stage_places",
    "stage_position_similarity",
    "without_patches",
]

__getattr__ = lazily("vitrail", {name: home for home, names in _NAMES.items() for name in names})
