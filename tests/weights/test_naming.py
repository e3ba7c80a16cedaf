"""Words that wrapping modules put before the names of weights are dropped where a layout then fits, and reported."""

import re

import pytest
import torch
from safetensors.torch import load_file, save_file

from vitrail.errors import ModelFileError
from vitrail.weights.convert import convert
from vitrail.weights.reference import from_pretrained

LARGER = {"dim": 64, "heads": 1, "image_size": 16, "patch_size": 4, "channels": 3}


@pytest.fixture
def state(tmp_path, trained):
    """The weights of a small model in timm's layout."""
    convert(trained(**LARGER), tmp_path / "plain.safetensors", layout="timm")
    return load_file(tmp_path / "plain.safetensors")


def read(path, state, **told):
    """The model's parameters, read of a file with these tensors."""
    save_file({name: tensor.clone() for name, tensor in state.items()}, path)
    return from_pretrained(path, **told).model.state_dict()


def below(word, state):
    return {f"{word}{name}": tensor for name, tensor in state.items()}


PREFIXES = [
    "model.",
    "net.",
    "encoder.",
    "backbone.",
    "visual.trunk.",
    "timm_model.",
    "model.backbone.",
    "my_lightning.thing.",
    "params/",
]


@pytest.mark.parametrize("before", PREFIXES)
def test_what_stands_before_all_names_is_left_out_and_reported(before, state, tmp_path, capsys):
    expected = read(tmp_path / "x.safetensors", state)
    assert "removed the prefix" not in capsys.readouterr().err
    found = read(tmp_path / "y.safetensors", below(before, state))
    assert found.keys() == expected.keys() and all(torch.equal(tensor, expected[name]) for name, tensor in found.items())
    assert f"removed the prefix {before} from the names" in capsys.readouterr().err


BESIDE = {
    "visual.trunk.": {"logit_scale": torch.tensor(4.6), "text.transformer.a.weight": torch.ones(3), "logit_bias": torch.ones(1)},
    "encoder.": {
        "decoder.blocks.0.norm1.weight": torch.ones(4),
        "encoder_to_decoder.weight": torch.ones(4),
        "mask_token": torch.ones(4),
    },
    "module.": {"n_averaged": torch.tensor(5)},
    "ema_model.module.": {"ema_model.n_averaged": torch.tensor(5)},
    "model.": {"global_step": torch.tensor(5)},
}


@pytest.mark.parametrize("before", BESIDE)
def test_what_is_known_to_stand_beside_a_wrapped_model_is_passed_over(before, state, tmp_path):
    expected = read(tmp_path / "x.safetensors", state)
    found = read(tmp_path / "y.safetensors", below(before, state) | BESIDE[before])
    assert all(torch.equal(tensor, expected[name]) for name, tensor in found.items())


def test_a_head_beside_a_wrapped_backbone_is_read_with_it(state, tmp_path):
    apart = {name if name.startswith("head.") else f"backbone.{name}": tensor for name, tensor in state.items()}
    assert torch.equal(read(tmp_path / "x.safetensors", apart)["head.linear.weight"], state["head.weight"])


@pytest.mark.parametrize("beside", ["decode_head.weight", "model.lora.weight", "model.blocks.0.attn.extra", "criterion.centre"])
def test_what_is_not_understood_beside_it_is_refused_by_its_name(beside, state, tmp_path):
    with pytest.raises(
        ModelFileError, match=rf"Without the prefix model\. they.*nearest to timm.*unexpected: .*{beside.rpartition('.')[2]}"
    ):
        read(tmp_path / "x.safetensors", below("model.", state) | {beside: torch.ones(3)})


@pytest.mark.parametrize("layout", ["vit", "vit-pytorch", "dino"])
def test_the_names_of_other_layouts_may_be_wrapped_as_well(layout, tmp_path, trained):
    fields = LARGER | {
        "dino": {"num_classes": 0},
        "vit-pytorch": {"embedding_norm": "patches", "qkv_bias": False, "norm_eps": 1e-5},
    }.get(layout, {})
    fields |= {"heads": 2, "head_dim": 64} if layout == "vit-pytorch" else {}
    file = tmp_path / "x.safetensors"
    convert(trained(**fields), file, layout=layout)
    told = {"heads": fields["heads"], "image_size": 16}
    expected, found = (
        read(file, load_file(file), **told),
        read(tmp_path / "y.safetensors", below("net.model.", load_file(file)), **told),
    )
    assert found.keys() == expected.keys() and all(torch.equal(tensor, expected[name]) for name, tensor in found.items())


LACKING = ["patch_embed.proj.weight", "blocks.0.norm1.weight", "blocks.0.attn.qkv.weight", "blocks.0.mlp.fc2.weight"]


@pytest.mark.parametrize("name", LACKING)
def test_what_all_else_follows_from_is_missed_by_the_names_in_the_file(name, state, tmp_path):
    del state[name]
    with pytest.raises(ModelFileError) as error:
        read(tmp_path / "x.safetensors", state | {"strange.weight": torch.ones(2)})
    text = str(error.value)
    assert f"no {name}" in text and "unexpected: strange.weight" in text
    assert not re.search(r"attention|embedding\.projection|mlp\.layer|fetch", text), text
