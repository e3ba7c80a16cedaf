"""Where the queries of joints look: against the attention from a patch, patch by patch."""

import pytest
import torch

from test_contract import tiny
from tiny_pose import SIZE, tiny_pose
from vitrail.errors import ConfigError
from vitrail.study.maps.attention import attention_map
from vitrail.study.maps.patch_coordinates import patch_places
from vitrail.tasks.pose.heatmaps import joints_in
from vitrail.tasks.pose.study.joints import between_joints, joint_map, joint_maps, look_of_joints, patches_of

GRID = (8, 6)


@pytest.fixture(scope="module")
def trained():
    return tiny_pose(depth=2)


@pytest.fixture(scope="module")
def images():
    return torch.randn(3, 3, *SIZE, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("fields", [{}, {"patch_padding": 2}])
def test_the_query_of_a_joint_is_of_the_patch_that_the_picture_shows_it_in(images, fields):
    trained = tiny_pose(**fields)
    with torch.no_grad():
        joints, _ = joints_in(trained.model(images), trained.preparation)
    left, top = (joints + 0.5 + fields.get("patch_padding", 0)).unbind(-1)  # from the left rim of the first patch, from its top
    column, row = (left // 8).clamp(0, 5).long(), (top // 8).clamp(0, 7).long()
    maps, _ = joint_maps(trained.model, images)
    every = torch.stack([attention_map(trained.model, images, query=divmod(patch, 6)) for patch in range(48)], dim=1)
    expected = every[torch.arange(len(images))[:, None], 6 * row + column]
    assert torch.allclose(maps, expected, atol=1e-6)


@pytest.mark.parametrize("options", [{}, {"layer": 0}, {"layer": -2, "head": 1}])
def test_the_map_of_a_joint_is_the_attention_from_its_patch(trained, images, options):
    with torch.no_grad():
        joints, _ = joints_in(trained.model(images), trained.preparation)
    patches = patches_of(joints, patch_places(trained.model))
    assert len(set(patches.flatten().tolist())) > 4, "else it shows nothing"
    for number, joint in enumerate(trained.skeleton.joints):
        found = joint_map(trained, images, joint, **options)
        for place, patch in enumerate(patches[:, number].tolist()):
            expected = attention_map(trained.model, images[place : place + 1], query=divmod(patch, GRID[1]), **options)
            assert torch.allclose(found[place], expected[0], atol=1e-6)


def test_a_server_tells_joints_as_the_preparation_smooths_heatmaps():
    trained, random = tiny_pose(depth=2), torch.Generator().manual_seed(0)
    pixels = torch.randint(0, 256, (64, 3, *SIZE), dtype=torch.uint8, generator=random)
    trained.preparation = trained.preparation.changed(smoothing=0.0)
    look, _ = look_of_joints(trained)
    found = torch.stack([look(each[None])[-1] for each in pixels])
    images = trained.preparation.normalize(pixels)
    expected, smoothed = (joint_maps(trained.model, images, smoothing=each)[0] for each in (0.0, 4.0))
    torch.testing.assert_close(found, expected)
    assert not torch.allclose(found, smoothed)


def test_what_joints_say_of_each_other_is_told_by_the_mean_of_all_patches():
    maps = torch.arange(48.0).reshape(1, 1, *GRID).expand(1, 2, *GRID)
    found = between_joints(maps, torch.tensor([[0, 47]]))
    assert torch.allclose(found, torch.tensor([[[0, 2.0], [0, 2.0]]]))


def test_a_joint_layer_or_head_that_is_none_is_refused_by_name(trained, images):
    with pytest.raises(ConfigError, match="unknown joint 'left_hnad'") as caught:
        joint_map(trained, images, "left_hnad")
    assert "left_hand" in caught.value.hint
    with pytest.raises(ConfigError, match="layer 2 of 2"):
        joint_map(trained, images, "head", layer=2)
    with pytest.raises(ConfigError, match="head -3 of 2"):
        joint_map(trained, images, "head", head=-3)


def test_a_model_without_attention_to_the_whole_image_has_no_such_maps(images):
    with pytest.raises(ConfigError, match="no attention to the whole image"):
        joint_maps(tiny("ResNet").eval(), images)
