"""Where the queries of joints look: against the attention from a patch, patch by patch."""

import pytest
import torch

import vitrail.study
from test_contract import tiny
from tiny_pose import HEATMAP, SIZE, tiny_pose
from vitrail.errors import ConfigError
from vitrail.study.attention import attention_map, look_of
from vitrail.study.joints import between_joints, joint_map, joint_maps, layer_maps, patches_of

GRID = (8, 6)


@pytest.fixture(scope="module")
def trained():
    return tiny_pose(depth=2)


@pytest.fixture(scope="module")
def images():
    return torch.randn(3, 3, *SIZE, generator=torch.Generator().manual_seed(0))


def bells(*places):
    """A heatmap for each place (x, y) of one image."""
    y, x = torch.meshgrid(*(torch.arange(side, dtype=torch.float32) for side in HEATMAP), indexing="ij")
    return torch.stack([torch.exp(-((x - a) ** 2 + (y - b) ** 2) / 8) for a, b in places])[None]


def test_a_joint_is_in_the_patch_whose_part_of_the_heatmap_has_the_peak():
    found = patches_of(bells((0, 0), (3, 3), (4, 3), (3.4, 8), (3.6, 8), (23, 31)), GRID)
    assert found.tolist() == [[0, 0, 1, 12, 13, 47]]


@pytest.mark.parametrize("options", [{}, {"layer": 0}, {"layer": -2, "head": 1}])
def test_the_map_of_a_joint_is_the_attention_from_its_patch(trained, images, options):
    with torch.no_grad():
        patches = patches_of(trained.model(images), GRID)
    assert len(set(patches.flatten().tolist())) > 4, "else it shows nothing"
    for number, joint in enumerate(trained.skeleton.joints):
        found = joint_map(trained, images, joint, **options)
        for place, patch in enumerate(patches[:, number].tolist()):
            expected = attention_map(trained.model, images[place : place + 1], query=divmod(patch, GRID[1]), **options)
            assert torch.allclose(found[place], expected[0], atol=1e-6)


@pytest.mark.parametrize("fields", [{"registers": 2}, {"class_token": True, "shared_position": False}])
def test_tokens_beside_the_patches_have_no_map_and_take_their_share(images, fields):
    trained = tiny_pose(depth=2, **fields)
    maps, heatmaps = joint_maps(trained.model, images)
    assert maps.shape == (3, 7, *GRID) and heatmaps.shape == (3, 7, *HEATMAP)
    sums = maps.sum(dim=(2, 3))
    assert (sums < 0.999).all() and (sums > 0.5).all()


def test_maps_of_all_layers_are_the_maps_of_each(trained, images):
    found = layer_maps(trained.model, images)
    for layer in range(2):
        assert torch.allclose(found[:, layer], joint_maps(trained.model, images, layer=layer)[0], atol=1e-6)


def test_a_server_is_given_the_maps_of_one_person(trained):
    pixels = torch.randint(0, 256, (1, 3, *SIZE), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    look, why = look_of(trained, layer_maps)
    assert why == "" and look is not None
    assert torch.equal(look(pixels), layer_maps(trained.model, trained.preparation.normalize(pixels))[0])


def test_what_joints_say_of_each_other_is_told_by_the_mean_of_all_patches():
    maps = torch.arange(48.0).reshape(1, 1, *GRID).expand(1, 2, *GRID)
    found = between_joints(maps, bells((0, 0), (23, 31)))
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


def test_it_is_a_public_function():
    assert vitrail.study.joint_map is joint_map
