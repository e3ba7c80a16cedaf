import numpy as np
import pytest
import torch
from sklearn.decomposition import PCA
from sklearn.metrics.pairwise import cosine_similarity

import test_contract as contract
import vitrail
from vitrail.errors import ConfigError
from vitrail.parts import StandardizedConv2d
from vitrail.parts.positions.schemes import sincos_2d
from vitrail.study.maps.embedding import filters, offset_biases, position_similarity, stage_position_similarity

TINY = {"image_size": (24, 16), "patch_size": 4, "dim": 16, "depth": 2, "heads": 2, "mlp_dim": 32, "num_classes": 5}


def tiny(**fields):
    return vitrail.create_model("ViT-Ti/4", **{**TINY, **fields}).eval()


def pyramid(kind, **fields):
    return contract.tiny(kind, image_size=(16, 12), **fields)


def test_similarity_of_learned_positions_is_their_cosine():
    model = tiny(registers=2)
    expected = cosine_similarity(model.position.embedding.detach().numpy()[1:])
    np.testing.assert_allclose(position_similarity(model).reshape(24, 24), expected, atol=1e-6)


@pytest.mark.parametrize(("position", "endpoint"), [("sincos-2d", False), ("sincos-2d-simple", True)])
def test_similarity_of_fixed_positions(position, endpoint):
    expected = cosine_similarity(sincos_2d((6, 4), 16, endpoint=endpoint))
    np.testing.assert_allclose(position_similarity(tiny(position=position)).reshape(24, 24), expected, atol=1e-6)


def test_similarity_of_a_relative_bias_is_what_it_adds_at_an_offset():
    model = tiny(position="relative")
    found = position_similarity(model)
    table = model.relative.table.detach()[:-3].unflatten(0, (11, 7)).mean(dim=-1)  # offsets −5…5 and −3…3
    for query in ((0, 0), (5, 3), (2, 1)):
        for key in ((0, 0), (3, 2), (5, 0)):
            expected = table[query[0] - key[0] + 5, query[1] - key[1] + 3]
            assert found[*query, *key] == pytest.approx(expected.item())


def test_similarity_of_rotary_positions_is_the_score_of_two_equal_tokens():
    from vitrail.parts.positions.schemes import rotate

    model = tiny(position="rotary", registers=1)
    token = torch.ones(1, 26, 8)  # of equal length in every plane
    turned = rotate(token, model.rotary())[0, 2:]
    torch.testing.assert_close(position_similarity(model).reshape(24, 24), turned @ turned.T / 8)


def test_similarity_of_the_positions_of_a_stage_is_their_cosine():
    model = pyramid("PVT")
    for stage, grid in enumerate([(8, 6), (4, 3)]):
        rows = model.stages[stage].embedding.position.embedding.detach().numpy()
        table = rows[stage:]  # in the last there is one of the class token
        found = stage_position_similarity(model, stage)
        assert found.shape == (*grid, *grid)
        np.testing.assert_allclose(found.reshape(len(table), -1), cosine_similarity(table), atol=1e-6)


def test_a_bias_is_drawn_where_the_key_stands_beside_the_query():
    model = pyramid("Swin", window_size=3)
    for stage in range(2):
        bias = model.stages[stage].blocks[0].attention.layer.bias((3, 3)).detach()  # (k, n, n)
        found = offset_biases(model, stage)
        assert found.shape == (2, 5, 5)
        for query, key in ((4, 4), (0, 5), (7, 3), (2, 6)):
            down, across = key // 3 - query // 3, key % 3 - query % 3
            torch.testing.assert_close(found[:, 2 + down, 2 + across], bias[:, query, key])


def test_positions_of_a_stage_that_has_none_are_refused():
    with pytest.raises(ConfigError, match="Swin has no LearnedPosition1d"):
        stage_position_similarity(pyramid("Swin"))
    with pytest.raises(ConfigError, match="stage 2 of 2"):
        offset_biases(pyramid("Swin"), 2)
    with pytest.raises(ConfigError, match="stage 0 of 0"):
        offset_biases(tiny())


def test_a_model_without_positions_is_refused():
    with pytest.raises(ConfigError, match="no positions"):
        position_similarity(tiny(position="none"))


def test_filters_are_the_principal_components():
    model = tiny(dim=64)
    found, shares = filters(model, count=5)
    theirs = PCA(5).fit(model.embedding.projection.weight.detach().flatten(1).double().numpy())
    assert found.shape == (5, 3, 4, 4)
    np.testing.assert_allclose(shares, theirs.explained_variance_ratio_, rtol=1e-5)
    same = np.abs((found.flatten(1).numpy() * theirs.components_).sum(axis=1))  # up to their sign
    np.testing.assert_allclose(same, 1, atol=1e-5)


@pytest.mark.parametrize("kind", ["BiT", "hybrid"])
def test_filters_are_what_the_first_layer_multiplies_pixels_by(kind):
    resnet = {"embedding": "resnet", "resnet_depths": (1,), "resnet_width": 8, "resnet_root": "cifar"}
    bit = {"image_size": 8, "depths": (1,), "width": 8, "root": "cifar", "num_classes": 5}
    model = tiny(**resnet) if kind == "hybrid" else vitrail.create_model("BiT-R50x1", **bit).eval()
    first = next(module for module in model.modules() if isinstance(module, StandardizedConv2d))
    pixels = torch.eye(27).unflatten(1, (3, 3, 3))  # each a single pixel of a patch
    torch.testing.assert_close(first(pixels)[..., 1, 1].T, model.filters().flatten(1))
    assert not torch.allclose(model.filters(), first.weight)
