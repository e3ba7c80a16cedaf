"""vit-pytorch's ViT with random weights: today's, and earlier versions installed beside it."""

import pytest
import vit_pytorch
from safetensors.torch import load_file
from sweep.vit_pytorch_versions import vit_pytorch_class
from torch import nn
from vit_pytorch.vit_detpool import ViTDetPool

from vitrail.errors import ModelFileError
from vitrail.weights.convert import convert
from vitrail.weights.reference import from_pretrained

SMALL = {"image_size": 40, "patch_size": 8, "num_classes": 5, "dim": 96, "depth": 2, "heads": 2, "mlp_dim": 80}
VERSIONS = {
    "vit-pytorch": (None, "vit-pytorch"),
    "vit-pytorch-1.0": ("1.0.2", "vit-pytorch 1.0"),
    "vit-pytorch-0.16": ("0.16.13", "vit-pytorch 0.16 to 0.40"),
    "vit-pytorch-early": ("0.6.8", "vit-pytorch 0.6 to 0.11"),
    "vit-pytorch-0.5": ("0.5.1", "vit-pytorch 0.5"),
}
every_version = pytest.mark.parametrize("layout", VERSIONS)


def build(version: str | None, **fields) -> nn.Module:
    """A ViT of some version."""
    return vit_pytorch_class(version)(**{**SMALL, **fields})


@every_version
def test_logits_are_those_of_the_version(layout, randomized, kept, recognised, agree):
    version, about = VERSIONS[layout]
    theirs = randomized(build(version))
    told = {"layout": layout} if version == "0.5.1" else {}
    ours = recognised(kept(theirs.state_dict()), about, **told)
    assert (ours.config.heads, ours.config.head_dim, ours.config.norm_eps) == (2, 64, 1e-5)
    agree(ours, theirs, size=(40, 40))


@every_version
@pytest.mark.parametrize("size", [56, 24])
def test_at_another_resolution_the_version_takes_our_positions(layout, size, randomized, kept, agree):
    """It has no interpolation of its own."""
    version, _ = VERSIONS[layout]
    theirs = randomized(build(version))
    ours = from_pretrained(kept(theirs.state_dict()), image_size=size, layout=layout)
    resized = build(version, image_size=max(size, 40) if version in ("0.6.8", "0.5.1") else size).eval()
    state = {name: tensor for name, tensor in theirs.state_dict().items() if name != "pos_embedding"}
    resized.load_state_dict(state, strict=False)
    positions = ours.model.position.embedding.detach()
    resized.pos_embedding = nn.Parameter(positions.reshape(resized.pos_embedding.shape[:-2] + positions.shape))
    agree(ours, resized, size=(size, size))


def test_the_mean_of_the_patches_has_no_class_token(randomized, kept, recognised, agree):
    theirs = randomized(build(None, pool="mean"))
    ours = recognised(kept(theirs.state_dict()), "vit-pytorch")
    assert ours.config.pool == "mean" and not ours.config.has_class_token
    agree(ours, theirs, size=(40, 40))


def test_patches_of_one_channel_are_told_from_those_of_three(randomized, kept, agree):
    theirs = randomized(build(None, channels=1))
    agree(from_pretrained(kept(theirs.state_dict())), theirs, size=(40, 40), channels=1)


@pytest.mark.parametrize("pool", ["cls", "mean"])
def test_what_is_written_is_read_by_todays_version(pool, randomized, kept, tmp_path, agree):
    theirs = randomized(build(None, pool=pool))
    convert(from_pretrained(kept(theirs.state_dict())), tmp_path / "out.safetensors", layout="vit-pytorch")
    again = build(None, pool=pool).eval()
    again.load_state_dict(load_file(tmp_path / "out.safetensors"))
    agree(again, theirs, size=(40, 40))


@pytest.mark.parametrize("size", [40, 56])
def test_simple_vit_is_told_its_size_and_has_positions_for_each(size, randomized, kept, recognised, agree, tmp_path):
    theirs = randomized(vit_pytorch.SimpleViT(**{**SMALL, "image_size": size}))
    ours = recognised(kept(theirs.state_dict()), "vit-pytorch's SimpleViT", image_size=size)
    agree(ours, theirs, size=(size, size))
    convert(ours, tmp_path / "out.safetensors", layout="simple-vit")
    again = vit_pytorch.SimpleViT(**{**SMALL, "image_size": size}).eval()
    again.load_state_dict(load_file(tmp_path / "out.safetensors"))
    agree(again, theirs, size=(size, size))


@pytest.mark.parametrize("early", [False, True], ids=["1.0 to 1.2", "0.33 to 0.40"])
def test_simple_vit_with_the_norm_in_its_head_is_read(early, randomized, kept, recognised, agree):
    theirs = vit_pytorch_class("1.0.2", "simple_vit.py", "SimpleViT")(**SMALL)
    if early:  # without norms around the linear layer of the patches
        theirs.to_patch_embedding = nn.Sequential(theirs.to_patch_embedding[0], theirs.to_patch_embedding[2])
    randomized(theirs)
    about = "vit-pytorch's first SimpleViT" if early else "vit-pytorch's SimpleViT"
    ours = recognised(kept(theirs.state_dict()), about, image_size=40)
    agree(ours, theirs, size=(40, 40))


def test_patches_that_are_cut_inside_of_the_embedding_are_read_as_those_before_it(randomized, kept, agree):
    theirs = randomized(build("0.6.8"))
    state = {name.replace("patch_to_embedding", "to_patch_embedding.1"): tensor for name, tensor in theirs.state_dict().items()}
    agree(from_pretrained(kept(state)), theirs, size=(40, 40))


def test_simple_vit_does_not_tell_the_size_of_its_images(randomized, kept):
    with pytest.raises(ModelFileError, match="do not show the image size") as error:
        from_pretrained(kept(randomized(vit_pytorch.SimpleViT(**SMALL)).state_dict()))
    assert "image_size" in (error.value.hint or "")


def test_two_versions_of_the_same_keys_are_told_apart_by_name_alone(randomized, kept, capsys):
    file = kept(randomized(build("0.6.8")).state_dict())
    from_pretrained(file)
    assert "guessed, as the file does not say: layout vit-pytorch-early (vit-pytorch-0.5 has" in capsys.readouterr().err
    from_pretrained(file, layout="vit-pytorch-early")
    assert "layout" not in capsys.readouterr().err


def test_a_mean_with_the_class_token_in_it_is_refused(randomized, kept):
    with pytest.raises(ModelFileError, match="pooling class, not mean"):
        from_pretrained(kept(randomized(build("1.0.2")).state_dict()), pool="mean")


def test_another_model_of_the_same_keys_is_refused(randomized, kept):
    with pytest.raises(ModelFileError):
        from_pretrained(kept(randomized(ViTDetPool(**SMALL)).state_dict()))
