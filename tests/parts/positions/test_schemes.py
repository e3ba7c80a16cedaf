"""Positions against loops of their formulas, transformers and torch's interpolation."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from timm.layers import RotaryEmbeddingCat, RotaryEmbeddingDinoV3, resample_abs_pos_embed, resize_rel_pos_bias_table
from torch import Tensor
from transformers import (
    BeitConfig,
    Dinov2WithRegistersConfig,
    SiglipVisionConfig,
    ViTConfig,
)
from transformers.models.beit.modeling_beit import BeitRelativePositionBias
from transformers.models.dinov2_with_registers.modeling_dinov2_with_registers import Dinov2WithRegistersEmbeddings
from transformers.models.siglip.modeling_siglip import SiglipVisionEmbeddings
from transformers.models.vit.modeling_vit import ViTEmbeddings
from vit_pytorch.simple_vit import posemb_sincos_2d

from vitrail.errors import ConfigError
from vitrail.parts import (
    Interpolation,
    LearnedPosition1d,
    LearnedPosition2d,
    RelativePositionBias,
    RotaryPosition2d,
    resize_factorised,
    resize_positions,
    resize_relative,
    rotate,
    sincos_position_1d,
    sincos_position_2d,
)
from vitrail.parts.positions.interpolation import resize_grid, resizing_matrix

few = settings(max_examples=20, deadline=None)
grids = st.tuples(st.integers(1, 4), st.integers(1, 4))
prefixes = st.integers(0, 3)


def added(position: torch.nn.Module, tokens: int, dim: int) -> Tensor:
    """What a position adds to each token; also checks that it is the same for every sample and any token."""
    x = torch.randn(2, tokens, dim)
    difference = position(x) - x
    torch.testing.assert_close(difference[0], difference[1], atol=1e-5, rtol=0)
    return position(torch.zeros(1, tokens, dim))[0]


# fixed


@given(grid=grids, prefix=prefixes, half=st.integers(1, 4))
@few
def test_sincos_1d_equals_the_formula_of_vaswani(grid, prefix, half):
    dim, count = 2 * half, prefix + grid[0] * grid[1]
    expected = torch.zeros(count, dim)
    for p in range(count):
        for i in range(half):
            angle = p / 10000 ** (2 * i / dim)
            expected[p, 2 * i], expected[p, 2 * i + 1] = math.sin(angle), math.cos(angle)
    torch.testing.assert_close(added(sincos_position_1d(grid, dim, prefix=prefix), count, dim), expected)


@given(grid=grids, prefix=prefixes, quarter=st.integers(1, 4))
@few
def test_sincos_2d_equals_the_formula_of_moco_v3(grid, prefix, quarter):
    dim, count = 4 * quarter, prefix + grid[0] * grid[1]
    expected = torch.zeros(count, dim)
    for row in range(grid[0]):
        for column in range(grid[1]):
            for i in range(quarter):
                omega = 1 / 10000 ** (i / quarter)
                angles = [math.sin(column * omega), math.cos(column * omega), math.sin(row * omega), math.cos(row * omega)]
                expected[prefix + row * grid[1] + column, i::quarter] = torch.tensor(angles)
    torch.testing.assert_close(added(sincos_position_2d(grid, dim, prefix=prefix), count, dim), expected)


@given(grid=grids, prefix=prefixes, quarter=st.integers(2, 4))
@few
def test_sincos_2d_with_its_endpoint_equals_simple_vit(grid, prefix, quarter):
    position = sincos_position_2d(grid, 4 * quarter, prefix=prefix, endpoint=True)
    table = added(position, prefix + grid[0] * grid[1], 4 * quarter)
    assert (table[:prefix] == 0).all()
    torch.testing.assert_close(table[prefix:], posemb_sincos_2d(*grid, 4 * quarter))


def test_a_single_wave_is_the_same_with_and_without_its_endpoint():
    one, other = (sincos_position_2d((2, 3), 4, prefix=0, endpoint=endpoint).embedding for endpoint in (True, False))
    assert torch.equal(one, other)


@pytest.mark.parametrize("make", [sincos_position_1d, sincos_position_2d])
def test_fixed_positions_are_neither_trained_nor_saved(make):
    position = make((2, 3), 8, prefix=1)
    assert list(position.parameters()) == []
    assert position.state_dict() == {}


@pytest.mark.parametrize("make", [sincos_position_1d, sincos_position_2d])
def test_fixed_positions_are_real_numbers_even_when_built_on_meta(make):
    with torch.device("meta"):
        position = make((2, 3), 8, prefix=1)
    torch.testing.assert_close(position.embedding, make((2, 3), 8, prefix=1).embedding)


@pytest.mark.parametrize(("make", "dim"), [(sincos_position_1d, 7), (sincos_position_2d, 6), (LearnedPosition2d, 7)])
def test_a_width_that_a_scheme_cannot_fill_is_refused(make, dim):
    with pytest.raises(ConfigError, match=f"not {dim}"):
        make((2, 2), dim, prefix=1)


# learned


def test_learned_1d_adds_one_vector_per_token():
    position = LearnedPosition1d((2, 3), 4, prefix=2)
    assert position.embedding.shape == (8, 4)
    assert torch.equal(added(position, 8, 4), position.embedding)
    assert 0.005 < position.embedding.std() < 0.05


@pytest.mark.parametrize("prefix", [0, 1, 2])
def test_learned_2d_concatenates_a_row_and_a_column_vector(prefix):
    rows, columns = 2, 3
    position = LearnedPosition2d((rows, columns), 8, prefix=prefix)
    table = added(position, prefix + rows * columns, 8)
    for row in range(rows):
        for column in range(columns):
            expected = torch.cat([position.rows[row], position.columns[column]])
            assert torch.equal(table[prefix + row * columns + column], expected)
    if prefix:
        assert torch.equal(table[:prefix], position.prefix)
    assert sum(p.numel() for p in position.parameters()) == prefix * 8 + rows * 4 + columns * 4


# relative


@given(grid=grids, prefix=prefixes, heads=st.integers(1, 3))
@few
def test_the_relative_index_equals_a_loop_over_pairs(grid, prefix, heads):
    position = RelativePositionBias(grid, heads, prefix=prefix)
    patches = [(row, column) for row in range(grid[0]) for column in range(grid[1])]
    bias = position()
    assert bias.shape == (heads, prefix + len(patches), prefix + len(patches))
    for i, (row, column) in enumerate(patches):
        for j, (other_row, other_column) in enumerate(patches):
            entry = (row - other_row + grid[0] - 1) * (2 * grid[1] - 1) + (column - other_column + grid[1] - 1)
            assert torch.equal(bias[:, prefix + i, prefix + j], position.table[entry])


@pytest.mark.parametrize("prefix", [1, 3])
def test_prefix_tokens_share_three_relative_entries(prefix):
    position = RelativePositionBias((2, 3), 2, prefix=prefix)
    bias, (to_patch, from_patch, among) = position(), position.table[-3:]
    assert len(position.table) == 3 * 5 + 3
    assert torch.equal(bias[:, :prefix, prefix:], to_patch[:, None, None].expand(-1, prefix, 6))
    assert torch.equal(bias[:, prefix:, :prefix], from_patch[:, None, None].expand(-1, 6, prefix))
    assert torch.equal(bias[:, :prefix, :prefix], among[:, None, None].expand(-1, prefix, prefix))


# rotary


def rotated(x: Tensor, grid: tuple[int, int], prefix: int = 0) -> Tensor:
    return rotate(x, RotaryPosition2d(grid, x.shape[-1], prefix=prefix)())


def test_rotation_turns_each_plane_by_the_angle_of_its_row_or_column():
    rows, columns, dim, base = 3, 4, 8, 100.0
    x = torch.randn(rows * columns, dim)
    result = rotated(x, (rows, columns))
    for token in range(rows * columns):
        row, column = divmod(token, columns)
        for plane in range(dim // 2):
            frequency = base ** -((plane % (dim // 4)) / (dim // 4))
            angle = (row if plane < dim // 4 else column) * frequency
            a, b = x[token, plane].item(), x[token, plane + dim // 2].item()
            turned = [a * math.cos(angle) - b * math.sin(angle), b * math.cos(angle) + a * math.sin(angle)]
            torch.testing.assert_close(result[token, [plane, plane + dim // 2]], torch.tensor(turned), atol=1e-5, rtol=1e-5)


def test_rotations_are_not_saved_and_exist_when_built_on_meta():
    with torch.device("meta"):
        position = RotaryPosition2d((2, 3), 8, prefix=1)
    assert position.state_dict() == {}
    torch.testing.assert_close(position(), RotaryPosition2d((2, 3), 8, prefix=1)())


# resize


def embedding_of(grid: tuple[int, int], prefix: int, dim: int = 5) -> Tensor:
    return torch.randn(prefix + grid[0] * grid[1], dim)


KINDS = {
    "ours": Interpolation(),
    "plain": Interpolation(antialias=False),
    "corners": Interpolation(antialias=False, align_corners=True),
    "bilinear": Interpolation(mode="bilinear", antialias=False),
}
every_kind = pytest.mark.parametrize("kind", KINDS)


@every_kind
@pytest.mark.parametrize("prefix", [0, 1, 5])
@pytest.mark.parametrize(
    ("old", "new"), [((4, 4), (7, 7)), ((6, 4), (3, 8)), ((3, 5), (1, 1)), ((2, 3), (6, 1)), ((5, 1), (3, 4))]
)
def test_every_kind_keeps_constants_prefixes_and_what_has_its_size(old, new, prefix, kind):
    tokens, how = torch.randn(prefix, 3), {"prefix": prefix, "interpolation": KINDS[kind]}
    embedding = torch.cat([tokens, torch.full((old[0] * old[1], 3), -1.5)])
    resized = resize_positions(embedding, old, new, **how)
    torch.testing.assert_close(resized, torch.cat([tokens, torch.full((new[0] * new[1], 3), -1.5)]))
    assert torch.equal(resize_positions(embedding, old, old, **how), embedding)


@every_kind
@pytest.mark.parametrize("columns", [1, 2, 3])
def test_of_every_kind_one_column_is_one_row_turned(columns, kind):
    grid = torch.randn(4, columns)
    column = resize_positions(grid.reshape(-1, 1), (4, columns), (6, 1), prefix=0, interpolation=KINDS[kind])
    row = resize_positions(grid.T.reshape(-1, 1), (columns, 4), (1, 6), prefix=0, interpolation=KINDS[kind])
    torch.testing.assert_close(column, row)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_resizing_keeps_the_precision(dtype):
    embedding = embedding_of((3, 2), 1).double()
    exact = resize_positions(embedding, (3, 2), (5, 4), prefix=1)
    resized = resize_positions(embedding.to(dtype), (3, 2), (5, 4), prefix=1)
    assert resized.dtype == dtype
    torch.testing.assert_close(resized.double(), exact, rtol=0, atol=10 * torch.finfo(dtype).eps)


# resize, as other libraries do it

RESIZES = [((4, 4), (7, 7)), ((6, 6), (4, 4)), ((4, 4), (3, 6)), ((3, 5), (5, 4)), ((5, 2), (3, 3)), ((4, 4), (5, 1))]


@pytest.mark.parametrize(("old", "new"), [(old, new) for old, new in RESIZES if new[1] > 1])  # where torch has its bug
@pytest.mark.parametrize("prefix", [0, 1, 5])
def test_positions_are_resized_as_in_timm(old, new, prefix):
    embedding = embedding_of(old, prefix)
    theirs = resample_abs_pos_embed(embedding[None], list(new), list(old), num_prefix_tokens=prefix)
    torch.testing.assert_close(resize_positions(embedding, old, new, prefix=prefix), theirs[0])


SMALL = {"image_size": 16, "patch_size": 4, "hidden_size": 8, "num_attention_heads": 2}
PLAIN = Interpolation(antialias=False)
MODELS = {
    "vit": (ViTEmbeddings, ViTConfig, "position_embeddings", 1, PLAIN),
    "dinov2_with_registers": (
        Dinov2WithRegistersEmbeddings, Dinov2WithRegistersConfig, "position_embeddings", 1, Interpolation()
    ),
    "siglip": (SiglipVisionEmbeddings, SiglipVisionConfig, "position_embedding.weight", 0, PLAIN),
}  # fmt: skip


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("new", [(7, 7), (3, 6), (5, 1)])
def test_positions_are_resized_as_in_transformers(name, new):
    """From a square grid, which is all that its models are made for."""
    embeddings, config, parameter, prefix, interpolation = MODELS[name]
    theirs = embeddings(config(**SMALL)).eval()
    weights = theirs.get_parameter(parameter)
    torch.nn.init.normal_(weights)
    embedding = weights.detach().reshape(-1, 8)
    resized = resize_positions(embedding, (4, 4), new, prefix=prefix, interpolation=interpolation)
    tokens = torch.zeros(1, len(resized), 8)
    expected = theirs.interpolate_pos_encoding(tokens, 4 * new[0], 4 * new[1])[0].detach()
    torch.testing.assert_close(resized, expected, rtol=1e-5, atol=1e-5)


# resize, of the other schemes


@every_kind
@pytest.mark.parametrize(("old", "new"), RESIZES)
def test_factorised_positions_are_resized_as_their_table_is(old, new, kind):
    """A table that is a sum over rows and columns stays one: 2-D interpolation acts along each side by itself."""
    position, resized = LearnedPosition2d(old, 8, prefix=2), LearnedPosition2d(new, 8, prefix=2)
    with torch.no_grad():
        resized.prefix.copy_(position.prefix)
        resized.rows.copy_(resize_factorised(position.rows, new[0], interpolation=KINDS[kind]))
        resized.columns.copy_(resize_factorised(position.columns, new[1], interpolation=KINDS[kind]))
        table, tokens = added(position, 2 + old[0] * old[1], 8), 2 + new[0] * new[1]
        expected = resize_positions(table, old, new, prefix=2, interpolation=KINDS[kind])
        torch.testing.assert_close(added(resized, tokens, 8), expected, rtol=1e-5, atol=1e-6)


def test_the_bias_between_some_tokens_is_cut_out_of_the_bias_between_all_and_unused_entries_change_nothing():
    plain, longer = RelativePositionBias((3, 4), 2, prefix=0), RelativePositionBias((3, 4), 2, prefix=0, unused=3)
    assert len(longer.table) == len(plain.table) + 3
    with torch.no_grad():
        longer.table[:-3] = plain.table
    assert torch.equal(longer(), plain()) and torch.equal(longer((5, 2)), plain((5, 2)))
    tokens = torch.tensor([[7, 0, 3], [11, 2, 5]])
    for number, row in enumerate(tokens):
        assert torch.equal(longer.between(tokens)[number], plain()[:, row][:, :, row])


def relative_resized(position: RelativePositionBias, old: tuple[int, int], new: tuple[int, int], prefix: int, **how) -> Tensor:
    """The biases (heads, prefix + N, prefix + N) on another grid."""
    resized = RelativePositionBias(new, position.table.shape[1], prefix=prefix)
    with torch.no_grad():
        resized.table.copy_(resize_relative(position.table, old, new, prefix_entries=3 if prefix else 0, **how))
        return resized()


@pytest.mark.parametrize("new", [(6, 6), (3, 3), (3, 5), (6, 2)])
def test_relative_biases_are_resized_as_in_transformers(new):
    theirs, ours = BeitRelativePositionBias(BeitConfig(**SMALL)), RelativePositionBias((4, 4), 2, prefix=1)
    torch.nn.init.normal_(theirs.relative_position_bias_table)
    ours.load_state_dict({"table": theirs.relative_position_bias_table})
    bilinear = Interpolation(mode="bilinear", antialias=False)
    resized = relative_resized(ours, (4, 4), new, 1, interpolation=bilinear)
    torch.testing.assert_close(resized, theirs(new)[0].detach(), rtol=1e-5, atol=1e-5)


GRIDS = [((4, 4), (6, 6)), ((4, 4), (3, 3)), ((4, 4), (3, 9)), ((3, 5), (6, 5)), ((5, 2), (1, 7)), ((1, 1), (3, 2))]


@pytest.mark.parametrize(("old", "new"), GRIDS)
@pytest.mark.parametrize("prefix", [0, 1])
def test_relative_biases_are_resized_as_in_timm(old, new, prefix):
    position = RelativePositionBias(old, 2, prefix=prefix)
    table = torch.randn(position.table.shape)
    shape = RelativePositionBias(new, 2, prefix=prefix).table.shape
    expected = resize_rel_pos_bias_table(table, new, shape, old_window_size=old)
    how = Interpolation(relative=Interpolation("geometric"))
    found = resize_relative(table, old, new, prefix_entries=3 if prefix else 0, interpolation=how)
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)


def test_of_a_model_with_two_ways_each_is_for_its_own_positions():
    how = Interpolation("bilinear", relative=Interpolation("bicubic", antialias=False))
    table, same = torch.randn(9, 2), {"prefix": 0, "interpolation": how}
    relative = resize_relative(table, (2, 2), (3, 3), prefix_entries=0, interpolation=how)
    assert torch.equal(relative, resize_positions(table, (3, 3), (5, 5), prefix=0, interpolation=how.relative))
    assert not torch.allclose(relative, resize_positions(table, (3, 3), (5, 5), **same))


def test_relative_biases_of_the_same_grid_stay_as_they_are():
    table = RelativePositionBias((2, 3), 2, prefix=1).table
    assert resize_relative(table, (2, 3), (2, 3), prefix_entries=3) is table


@given(old=st.integers(1, 20), new=st.integers(1, 40))
@settings(max_examples=200, deadline=None)
def test_a_product_resizes_as_torch_interpolates(old, new):
    values = torch.randn(2, 3, old, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    matrix = resizing_matrix(old, torch.arange(new).double())
    torch.testing.assert_close(matrix @ values, resize_grid(values, (new, 5)), atol=1e-12, rtol=0)


@pytest.mark.parametrize(("grid", "reference", "offset"), [((3, 4), None, 0.0), ((3, 4), (5, 6), 0.0), ((2, 5), (3, 3), 1.0)])
def test_rotations_that_count_patches_are_timms(grid, reference, offset):
    theirs = RotaryEmbeddingCat(
        16, temperature=50.0, in_pixels=False, feat_shape=grid, ref_feat_shape=reference, grid_offset=offset, rotate_half=True
    )
    ours = RotaryPosition2d(grid, 16, prefix=0, base=50.0, reference=reference, offset=offset)
    sin, cos = theirs.get_embed().chunk(2, dim=-1)
    torch.testing.assert_close(ours(), (cos, sin), rtol=0, atol=1e-5)


@pytest.mark.parametrize("grid", [(3, 4), (2, 2), (5, 1)])
def test_rotations_by_the_place_between_the_edges_are_those_of_dinov3(grid):
    theirs = RotaryEmbeddingDinoV3(16, temperature=100.0, feat_shape=grid)
    sin, cos = theirs.get_embed().chunk(2, dim=-1)
    torch.testing.assert_close(RotaryPosition2d(grid, 16, prefix=0, coordinates="unit")(), (cos, sin), rtol=0, atol=1e-5)
