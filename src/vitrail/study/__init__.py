"""What a model does: where it looks, what it has learned, what it costs. `vitrail.study_model` writes all of it down."""

from typing import TYPE_CHECKING

from vitrail.lazy import lazily

if TYPE_CHECKING:
    from vitrail.study.attention import attention_map, head_maps, reading_map, relevance_map, roll_out, rollout_map
    from vitrail.study.captures import capture, capture_names
    from vitrail.study.distance import attention_distances, mean_attention_distances, patch_distances
    from vitrail.study.embedding import filters, offset_biases, position_similarity, stage_position_similarity
    from vitrail.study.joints import joint_map
    from vitrail.study.occlusion import deletion, without_patches
    from vitrail.study.pictures import overlay
    from vitrail.study.places import Places, patch_places
    from vitrail.study.probes import features, few_shot, linear_probe, nearest_neighbours
    from vitrail.study.speed import kept_for_gradients, measured
    from vitrail.study.stages import looked_at, stage_distances, stage_maps, stage_places

_NAMES = {
    "attention": ("attention_map", "head_maps", "reading_map", "relevance_map", "roll_out", "rollout_map"),
    "captures": ("capture", "capture_names"),
    "distance": ("attention_distances", "mean_attention_distances", "patch_distances"),
    "embedding": ("filters", "offset_biases", "position_similarity", "stage_position_similarity"),
    "joints": ("joint_map",),
    "occlusion": ("deletion", "without_patches"),
    "pictures": ("overlay",),
    "places": ("Places", "patch_places"),
    "probes": ("features", "few_shot", "linear_probe", "nearest_neighbours"),
    "speed": ("kept_for_gradients", "measured"),
    "stages": ("looked_at", "stage_distances", "stage_maps", "stage_places"),
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

__getattr__ = lazily("vitrail.study", {name: home for home, names in _NAMES.items() for name in names})
