"""Low-rank adapters against PEFT: the same numbers from the same files, in both directions."""

import copy
import json

import pytest
import torch
import torch.nn.functional as F
from peft import LoraConfig, PeftModel, get_peft_model
from safetensors.torch import load_file, save_file
from torch import nn

from vitrail.config.settings import LoraSettings
from vitrail.errors import ConfigError, ModelFileError
from vitrail.models.configs.vit import ViTConfig
from vitrail.models.registry import create_model
from vitrail.models.vision.vit import ViT
from vitrail.training.finetune.adapters import LowRankLinear, adapters, add_adapters, load_adapter, merge_lora, save_adapter
from vitrail.weights.reference import open_model

BASE = {"image_size": 16, "patch_size": 8, "channels": 1, "num_classes": 3, "dim": 16, "depth": 2, "heads": 2, "mlp_dim": 32}
KINDS = [{}, {"block": "parallel"}, {"distillation_token": True}, {"mlp": "swiglu", "qkv_bias": False, "layer_scale": 0.1}]
LORA = {"training.tune": "lora", "lora.rank": 2, "lora.alpha": 8}


@pytest.fixture
def images():
    return torch.randn(5, 1, 16, 16, generator=torch.Generator().manual_seed(1))


def vit(**fields) -> ViT:
    torch.manual_seed(0)
    return ViT(ViTConfig(**{**BASE, **fields})).eval()


def trained(model: nn.Module, *parts: str) -> nn.Module:
    """The model with numbers in what would have been trained: adapters, and the parts that begin so."""
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "lora_" in name or name.startswith(parts):
                parameter.normal_(std=0.1)
    return model


def adapted(**fields) -> ViT:
    model = vit(**fields)
    add_adapters(model, LoraSettings(rank=3, alpha=6))
    return trained(model, "head")


def whole(model: ViT) -> list[str]:
    return ["head", "head_distillation"] if model.config.distillation_token else ["head"]


# the layer


@pytest.mark.parametrize("bias", [True, False])
def test_an_adapter_adds_two_thin_matrices_to_a_frozen_layer(bias):
    linear, x = nn.Linear(5, 7, bias=bias), torch.randn(2, 3, 5)
    layer = LowRankLinear(linear, rank=2, alpha=6)
    torch.testing.assert_close(layer(x), linear(x), rtol=0, atol=0)  # B is zero
    trained(layer)
    a, b = layer.lora_A.weight, layer.lora_B.weight
    assert (a.shape, b.shape) == ((2, 5), (7, 2))
    torch.testing.assert_close(layer(x), F.linear(x, linear.weight, linear.bias) + 6 / 2 * x @ a.T @ b.T)
    assert {name for name, p in layer.named_parameters() if p.requires_grad} == {"lora_A.weight", "lora_B.weight"}
    assert layer.weight is linear.weight


@pytest.mark.parametrize("fields", KINDS, ids=str)
def test_adapters_stand_on_the_layers_that_are_named_and_change_nothing_at_first(fields, images):
    model = vit(**fields)
    before = model(images)
    add_adapters(model, LoraSettings(targets=["output", "contract"]))
    layers = [name for name, m in vit(**fields).blocks.named_modules(prefix="blocks") if isinstance(m, nn.Linear)]
    assert list(adapters(model)) == [name for name in layers if name.endswith((".output", ".contract"))]
    assert len(adapters(model)) == 4
    assert torch.equal(model(images), before)


@pytest.mark.parametrize(("name", "apart"), [("PVT-Tiny", {"query", "key_value"}), ("CvT-13", {"query", "key", "value"})])
def test_where_queries_keys_and_values_stand_apart_qkv_means_all_of_them(name, apart):
    model = create_model(name, image_size=32, num_classes=3)
    add_adapters(model, LoraSettings(rank=2))
    assert {layer.rpartition(".")[2] for layer in adapters(model)} == {*apart, "output"}


def test_a_layer_that_no_block_has_is_refused_with_the_nearest():
    with pytest.raises(ConfigError, match="did you mean 'output'") as error:
        add_adapters(vit(), LoraSettings(targets=["outputs"]))
    assert "contract, expand, output, qkv" in error.value.hint


@pytest.mark.parametrize("fields", KINDS, ids=str)
def test_a_merged_model_is_a_plain_one_of_the_same_function(fields, images):
    model = adapted(**fields)
    merged = merge_lora(model)
    assert merged.state_dict().keys() == vit(**fields).state_dict().keys()
    torch.testing.assert_close(merged(images), model(images), rtol=0, atol=2e-6)
    assert not torch.allclose(merged(images), vit(**fields)(images), atol=1e-3)
    with torch.no_grad():
        for parameter in merged.parameters():
            parameter.zero_()
    assert model.head.linear.weight.any() and not merge_lora(vit()).training


# PEFT's files


@pytest.mark.parametrize("fields", KINDS, ids=str)
def test_peft_reads_our_adapters(fields, images, tmp_path):
    model = adapted(**fields)
    save_adapter(tmp_path / "adapter", model, LoraSettings(rank=3, alpha=6), whole=whole(model), base=None)
    theirs = PeftModel.from_pretrained(vit(**fields), tmp_path / "adapter")
    torch.testing.assert_close(theirs(images), merge_lora(model)(images), rtol=0, atol=1e-6)
    theirs.save_pretrained(tmp_path / "again")
    one, other = (load_file(tmp_path / name / "adapter_model.safetensors") for name in ("adapter", "again"))
    assert one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


@pytest.mark.parametrize("fields", KINDS, ids=str)
@pytest.mark.parametrize("more", [{}, {"lora_dropout": 0.1, "init_lora_weights": "gaussian"}], ids=str)
def test_we_read_the_adapters_of_peft(fields, more, images, tmp_path):
    parts = whole(vit(**fields))
    config = LoraConfig(r=4, lora_alpha=2, target_modules=["qkv", "expand"], modules_to_save=parts, **more)
    theirs = trained(get_peft_model(vit(**fields), config), *(f"base_model.model.{p}.modules_to_save" for p in parts)).eval()
    theirs.save_pretrained(tmp_path)
    ours = vit(**fields)
    load_adapter(ours, tmp_path)
    assert len(adapters(ours)) == 4
    torch.testing.assert_close(ours(images), theirs(images), rtol=0, atol=1e-6)
    torch.testing.assert_close(merge_lora(ours)(images), theirs(images), rtol=0, atol=1e-6)


# bad files


def configured(**values):
    def change(folder):
        file = folder / "adapter_config.json"
        file.write_text(json.dumps({**json.loads(file.read_text()), **values}))

    return change


def with_tensors(change):
    def changed(folder):
        tensors = load_file(folder / "adapter_model.safetensors")
        change(tensors)
        save_file(tensors, folder / "adapter_model.safetensors")

    return changed


FIRST = "base_model.model.blocks.0.attention.layer.qkv.lora_A.weight"
BAD = {
    "no configuration": (lambda f: (f / "adapter_config.json").unlink(), "is missing"),
    "no JSON": (lambda f: (f / "adapter_config.json").write_text("{"), "damaged"),
    "another method": (configured(peft_type="IA3"), "peft_type is 'IA3'"),
    "no rank": (configured(r=None), "r is None"),
    "no alpha": (configured(lora_alpha=0), "lora_alpha None"),
    "DoRA": (configured(use_dora=True), "use_dora"),
    "trained biases": (configured(bias="all"), "bias"),
    "changed matrices": (configured(init_lora_weights="pissa"), "init_lora_weights"),
    "no tensors": (lambda f: (f / "adapter_model.safetensors").unlink(), "is missing"),
    "half a file": (lambda f: (f / "adapter_model.safetensors").write_bytes(b"\x10" * 40), "damaged"),
    "another rank": (configured(r=2), r"lora_A.weight is \(3, 16\), expected \(2, 16\)"),
    "no adapters": (with_tensors(lambda t: [t.pop(name) for name in list(t) if "lora_" in name]), "missing adapters"),
    "half an adapter": (with_tensors(lambda t: t.pop(FIRST)), "missing blocks.0.attention.layer.qkv.lora_A"),
    "a stranger": (with_tensors(lambda t: t.update(x=torch.ones(1))), "unexpected x"),
    "another head": (with_tensors(lambda t: t.update({"base_model.model.head.linear.bias": torch.ones(9)})), r"\(9,\), expected"),
    "no number": (with_tensors(lambda t: t[FIRST].fill_(float("nan"))), "not finite"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_adapters_are_refused_and_the_model_is_as_before(name, images, tmp_path):
    spoil, message = BAD[name]
    save_adapter(tmp_path / "adapter", adapted(), LoraSettings(rank=3, alpha=6), whole=["head"], base=None)
    (tmp_path / "adapter" / "SHA256SUMS").unlink()
    spoil(tmp_path / "adapter")
    model = vit()
    with pytest.raises(ModelFileError, match=message) as error:
        load_adapter(model, tmp_path / "adapter")
    assert error.value.hint
    assert not adapters(model) and torch.equal(model(images), vit()(images))


def test_adapters_are_not_put_upon_adapters(tmp_path):
    save_adapter(tmp_path / "adapter", adapted(), LoraSettings(rank=3, alpha=6), whole=["head"], base=None)
    with pytest.raises(ModelFileError, match="do not fit"):
        load_adapter(adapted(), tmp_path / "adapter")


# runs


@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
def test_a_run_with_adapters_trains_them_and_the_head_alone(make_trainer, optimizer):
    trainer = make_trainer(**LORA, **{"optimizer.name": optimizer, "training.ema": 0.5, "training.epochs": 6})
    before = {name: value.clone() for name, value in trainer.learner.model.state_dict().items()}
    trainer.run()
    changed = {name for name, value in trainer.learner.model.state_dict().items() if not torch.equal(value, before[name])}
    assert changed == {name for name in before if "lora_" in name or name.startswith("head.")}
    assert trainer.rows[-1]["train_loss"] < 0.9 * trainer.rows[0]["train_loss"]


def test_what_a_run_with_adapters_keeps_is_a_complete_model_and_an_adapter_for_peft(make_trainer):
    trainer = make_trainer(**LORA, **{"training.ema": 0.5, "training.epochs": 3})
    base = copy.deepcopy(trainer.learner.model)
    for name, layer in adapters(base).items():
        plain = nn.Linear(layer.in_features, layer.out_features)
        plain.weight, plain.bias = layer.weight, layer.bias
        base.set_submodule(name, plain)
    trainer.run()
    images = torch.randn(4, 1, 8, 8)
    for folder in ("best", "last"):
        kept = open_model(trainer.folder.path / folder).model.eval()
        theirs = PeftModel.from_pretrained(copy.deepcopy(base), trainer.folder.path / folder / "adapter").eval()
        torch.testing.assert_close(theirs(images), kept(images), rtol=0, atol=1e-6)
    torch.testing.assert_close(kept(images), trainer.learner.evaluated.model.eval()(images), rtol=0, atol=1e-6)
    assert not torch.allclose(kept(images), base.eval()(images), atol=1e-3)
