"""The layouts of MDT's authors are read and written with the same numbers, or refused by name.

That the numbers mean the same as in the authors' code, tests/models/vision/test_mdt.py holds.
"""

import pytest
import torch
from safetensors.torch import load_file, save_file

from vitrail.errors import ConfigError, ModelFileError
from vitrail.models.registry import model_config
from vitrail.weights.convert import convert
from vitrail.weights.layouts import LAYOUTS
from vitrail.weights.reference import from_pretrained
from vitrail.weights.state_dict import meta_shapes, recognise
from written_mdt import PATCHES, authors_weights

SIZES = {"dim": 32, "depth": 4, "decoder_depth": 2, "heads": 4, "mlp_dim": 128, "image_size": 8, "num_classes": 5}
VERSIONS = {"MDT": "mdt", "MDTv2": "mdt-v2"}


@pytest.mark.parametrize("version", VERSIONS)
def test_the_authors_pickle_is_refused_with_the_command_that_converts_it_and_read_where_it_is_trusted(version, tmp_path, capsys):
    file, state = tmp_path / "mdt_xl2_ckpt.pt", authors_weights(version)
    torch.save(state, file)
    with pytest.raises(ModelFileError, match="pickle") as refusal:
        from_pretrained(file)
    assert f"vitrail convert {file} mdt_xl2_ckpt --trust-pickle" in refusal.value.hint
    model = from_pretrained(file, trust_pickle=True)
    said = capsys.readouterr().err
    assert f"recognised its authors' {version}:" in said and ("decoder_depth 2" in said) is (version == "MDT")
    assert model.config == model_config(f"{version}-S/2", **SIZES)
    assert torch.equal(model.model.side.relative.table, state["sideblocks.0.attn.rel_pos_bias.relative_position_bias_table"])


@pytest.mark.parametrize("version", VERSIONS)
def test_a_file_that_is_read_is_written_with_all_of_its_tensors(version, tmp_path):
    state = authors_weights(version)
    save_file(state, tmp_path / "theirs.safetensors")
    assert convert(from_pretrained(tmp_path / "theirs.safetensors"), tmp_path / "ours.safetensors", layout=VERSIONS[version])
    ours = load_file(tmp_path / "ours.safetensors")
    assert ours.keys() == state.keys() and all(torch.equal(ours[name], tensor) for name, tensor in state.items())


@pytest.mark.parametrize("size", ["S", "XL"])
@pytest.mark.parametrize("version", VERSIONS)
def test_the_published_sizes_are_recognised_by_their_shapes_alone(version, size):
    layout, config = LAYOUTS[VERSIONS[version]], model_config(f"{version}-{size}/2")
    state = {name: torch.empty(shape, device="meta") for name, shape in meta_shapes(config).items()}
    theirs = layout.write(layout.reading.share_out(state, config, layout), config)
    shapes = {name: tuple(tensor.shape) for name, tensor in theirs.items()}
    found = recognise(shapes, lambda layout: {}, layouts=list(LAYOUTS.values()), where="file")
    assert found.match.layout is layout and found.config == config


def test_a_decoder_of_another_depth_is_read_where_that_is_said_and_not_written(tmp_path):
    save_file(authors_weights("MDT"), tmp_path / "theirs.safetensors")
    model = from_pretrained(tmp_path / "theirs.safetensors", decoder_depth=1)
    assert model.config.decoder_depth == 1
    with pytest.raises(ConfigError, match="decoder_depth is 1, would be read as 2"):
        convert(model, tmp_path / "ours.safetensors", layout="mdt")


BIAS = "blocks.0.attn.rel_pos_bias.relative_position"
WRONG = {
    "mask_token": (None, "missing: mask_token"),
    "decoder_pos_embed": (None, "missing: decoder_pos_embed"),
    f"{BIAS}_bias_table": (None, f"no {BIAS}_bias_table"),
    f"{BIAS}_index": ((PATCHES, 9), f"unexpected: {BIAS}_index"),
    "blocks.3.adaLN_modulation.1.weight": ((96, 32), "wrong shape: blocks.3.adaLN_modulation.1.weight"),
    "blocks.1.skip_linear.weight": ((32, 64), "unexpected: blocks.1.skip_linear.weight"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_missing_unknown_or_of_another_shape_is_named(name, tmp_path):
    state, (shape, expected) = authors_weights("MDT"), WRONG[name]
    state.pop(name, None)
    save_file(state if shape is None else {**state, name: torch.zeros(shape)}, tmp_path / "wrong.safetensors")
    with pytest.raises(ModelFileError) as refusal:
        from_pretrained(tmp_path / "wrong.safetensors")
    assert expected in str(refusal.value)


@pytest.mark.parametrize("name", ["en_outblocks.0.skip_linear.weight", "de_blocks.1.mlp.fc1.bias"])
def test_a_second_version_without_a_part_is_refused_by_its_name(name, tmp_path):
    state = authors_weights("MDTv2")
    del state[name]
    save_file(state, tmp_path / "wrong.safetensors")
    with pytest.raises(ModelFileError, match=f"missing: .*{name.replace('.', '[.]')}"):
        from_pretrained(tmp_path / "wrong.safetensors")
