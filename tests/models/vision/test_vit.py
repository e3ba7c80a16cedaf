"""The Vision Transformer against transformers and the lecture notes; every choice is trained."""

from typing import Any, Literal, get_args, get_origin

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import ViTConfig as TheirConfig
from transformers import ViTForImageClassification

from vitrail.errors import ConfigError
from vitrail.models.configs.vit import ViTConfig
from vitrail.models.registry import create_model
from vitrail.models.vision.vit import ViT
from vitrail.parts import patchify, resnet_stride, unpatchify

SMALL: dict[str, Any] = {
    "image_size": 16, "patch_size": 4, "num_classes": 4, "dim": 32, "depth": 2, "heads": 4, "mlp_dim": 64,
}  # fmt: skip
POSITIONS = get_args(ViTConfig.model_fields["position"].annotation)
POOLS = get_args(ViTConfig.model_fields["pool"].annotation)

VALUES: dict[str, list[Any]] = {
    "image_size": [(16, 24)],
    "patch_size": [(4, 8), (2, 4)],
    "channels": [1, 5],
    "num_classes": [6],
    "dim": [48],
    "depth": [1, 3],
    "heads": [1, 8],
    "head_dim": [4, 12],
    "mlp_dim": [20],
    "registers": [1, 3],
    "layer_scale": [0.1, 1.0],
    "dropout": [0.1],
    "attention_dropout": [0.2],
    "head_dropout": [0.2],
    "patch_dropout": [0.25],
    "stochastic_depth": [0.2],
    "token_merging": [2],
    "norm_eps": [1e-3],
    "rotary_base": [50.0],
    "rotary_grid": [2, (3, 5)],
    "rotary_offset": [1.0],
    "pool_heads": [1, 2],
    "pool_mlp_dim": [12],
    "resnet_depths": [(), (1, 2)],
    "resnet_width": [8],
}
"""What is trained of every field that has no list of choices."""

RESNET: dict[str, Any] = {"embedding": "resnet", "resnet_width": 8, "patch_size": 8, "resnet_depths": (1, 1)}
BESIDE: dict[str, dict[str, Any]] = {
    **{name: RESNET for name in ViTConfig.model_fields if name.startswith("resnet_")},
    **{name: {"position": "rotary"} for name in ViTConfig.model_fields if name.startswith("rotary_")},
    **{name: {"pool": "attention"} for name in ViTConfig.model_fields if name.startswith("pool_")},
    "resnet_root": RESNET | {"resnet_block": "pooled"},
    "class_token": {"pool": "mean"},
    "final_norm": {"pool": "mean"},
}
"""What a field needs beside it to mean anything."""

TOGETHER: list[dict[str, Any]] = [
    *({**RESNET, "resnet_root": root} for root in ("imagenet", "cifar", "whitened")),
    *({"patch_dropout": 0.5, "position": position} for position in POSITIONS),
    *({"patch_dropout": 0.5, "pool": pool} for pool in POOLS),
    *({"registers": 2, "pool": pool, "position": position} for pool in POOLS for position in ("relative-per-block", "rotary")),
    *({"block": "parallel", "position": position} for position in ("relative", "rotary")),
    {"block": "parallel", "layer_scale": 0.1, "stochastic_depth": 0.2, "mlp": "swiglu", "qk_norm": True, "qkv_bias": False},
    {"image_size": (16, 24), "patch_size": (4, 8), "channels": 1, "embedding": "stem", "pool": "attention"},
    *({"class_token": True, "pool": pool, "position": "sincos-2d"} for pool in ("mean", "attention")),
    *({"final_norm": "pooled", "pool": pool, "patch_dropout": 0.5} for pool in ("mean", "attention")),
    {"distillation_token": True, "registers": 2, "position": "relative", "patch_dropout": 0.5, "final_norm": "pooled"},
    {"embedding_norm": "patches", "patch_size": (4, 8), "channels": 1, "position": "rotary", "head_dim": 12},
    {"pool": "attention", "mlp": "quick-gelu", "embedding_norm": "tokens", "head": "projection"},
    {"pool": "attention-patches", "class_token": True, "registers": 2, "norm_kind": "rms", "final_norm": "none"},
    {"norm_kind": "rms", "linear_bias": False, "embedding_norm": "projected", "qk_norm": True, "mlp": "swiglu", "mlp_norm": True},
    {"norm": "residual-post", "attention_norm": True, "mlp_norm": True, "layer_scale": 0.1, "stochastic_depth": 0.2},
    {"position": "sincos-1d", "head": "lecture", "embedding": "linear", "attention_dropout": 0.1, "head_dropout": 0.1},
]


def choices() -> list[dict[str, Any]]:
    """One case for each value of each field of the configuration, and some that meet."""
    cases: list[dict[str, Any]] = []
    for name, field in ViTConfig.model_fields.items():
        if get_origin(field.annotation) is Literal:
            values = get_args(field.annotation)
        else:
            values = [False, True] if field.annotation is bool else VALUES[name]
        cases += [{**BESIDE.get(name, {}), name: value} for value in values]
    return cases + TOGETHER


def named(case: dict[str, Any]) -> str:
    return ",".join(f"{name}={value}" for name, value in case.items()).replace(" ", "")


every_choice = pytest.mark.parametrize("case", choices(), ids=named)


def small(**fields: Any) -> ViT:
    return ViT(ViTConfig.read({**SMALL, **fields}))


def randomized(model: nn.Module, std: float = 0.3) -> Any:
    """In double precision and evaluation, every parameter (biases, norms, tokens too) away from its initial value."""
    for parameter in model.double().parameters():
        nn.init.normal_(parameter, std=std)
    return model.eval()


def images_for(model: ViT, batch: int = 8, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(batch, model.config.channels, *model.config.image_size, dtype=dtype)


# every choice is trained


@every_choice
def test_every_parameter_gets_a_gradient(case):
    model = small(**case).double().train("patch_dropout" in case)
    for module in model.modules():
        if isinstance(module, nn.GroupNorm):
            nn.init.ones_(module.weight)  # a bottleneck's last norm starts at zero and lets nothing through before a step
    images, labels = images_for(model, dtype=torch.float64), torch.arange(8) % 4
    F.cross_entropy(model(images), labels).backward()
    assert len(list(model.parameters())) > 10
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        largest = parameter.grad.abs().max()
        if name.endswith("key_norm.bias") and case.get("position") != "rotary":
            assert largest < 1e-12  # one and the same vector on every key moves all scores of a query alike
        else:
            assert largest > 1e-9, name


@pytest.mark.parametrize("case", TOGETHER[::2], ids=named)
def test_it_learns_one_batch_by_heart(case):
    model = small(**case)
    images, labels = images_for(model), torch.arange(8) % 4
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(8):
        model.train()
        for _ in range(15):
            loss = F.cross_entropy(model(images), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        with torch.no_grad():
            logits = model.eval()(images)
        if F.cross_entropy(logits, labels) < 0.05:
            break
    assert (logits.argmax(dim=1) == labels).all()
    assert F.cross_entropy(logits, labels) < 0.1


SINGLE = [case for case in choices() if case not in TOGETHER]
SAME = [{"embedding": "linear"}, {"crop_remainder": True}]
"""What is another way to the same numbers, or allows more."""


def fingerprint(model: ViT) -> tuple[dict[str, torch.Size], list[float]]:
    """Every tensor's shape, and the logits in training and outside it."""
    torch.manual_seed(1)
    shapes = {name: tensor.shape for name, tensor in model.state_dict().items()}
    images = images_for(model)
    return shapes, [*model.eval()(images).flatten().tolist(), *model.train()(images).flatten().tolist()]


def test_every_field_changes_the_model():
    seen = set()
    for case in SINGLE:
        torch.manual_seed(0)
        plain = small(**BESIDE.get(list(case)[-1], {}))
        torch.manual_seed(0)
        model = small(**case)
        if model.config == plain.config or case in SAME:
            continue
        assert fingerprint(model) != fingerprint(plain), f"{case} changes nothing"
        seen |= case.keys()
    assert seen | {"crop_remainder"} == ViTConfig.model_fields.keys()  # which allows sizes, and changes no others


@pytest.mark.parametrize("stages", [0, 1, 2, 3])
@pytest.mark.parametrize("patches", [(2, 2), (3, 5)])
def test_without_padding_a_hybrid_has_a_row_and_a_column_of_patches_fewer(stages, patches):
    side = 2 * resnet_stride("whitened-valid", stages)  # patches of two by two places
    size = side * patches[0], side * patches[1]
    root = {"resnet_root": "whitened-valid", "resnet_block": "pooled", "resnet_depths": (1,) * stages}
    fields = RESNET | root | {"patch_size": side, "position": "none", "pool": "mean"}
    model = randomized(small(**fields, image_size=size))
    images = images_for(model, 2, torch.float64)
    assert model.config.grid == (patches[0] - 1, patches[1] - 1)
    assert model.tokens(images).patches.shape == (2, *model.config.grid, 32)
    other = small(**fields, image_size=3 * side).double().eval()
    other.load_state_dict(model.state_dict())
    torch.testing.assert_close(other.at_any_size()(images), model(images))


def test_what_remains_behind_the_last_whole_patch_is_left_out():
    model = randomized(small(image_size=(18, 19), patch_size=4, crop_remainder=True))
    images = images_for(model, 2, torch.float64)
    whole = randomized(small(image_size=16, patch_size=4))
    whole.load_state_dict(model.state_dict())
    torch.testing.assert_close(model(images), whole(images[..., :16, :16]))


# against other people's


def copied_from(theirs: nn.Module, depth: int) -> dict[str, Tensor]:
    """The tensors of a `ViTForImageClassification` under our names."""
    their = theirs.state_dict()
    ours = {
        "class_token": their["vit.embeddings.cls_token"],
        "position.embedding": their["vit.embeddings.position_embeddings"][0],
    }
    names = {
        "embedding.projection": "vit.embeddings.patch_embeddings.projection",
        "norm": "vit.layernorm",
        "head.linear": "classifier",
    }
    for i in range(depth):
        here, there = f"blocks.{i}", f"vit.layers.{i}"
        names |= {
            f"{here}.attention.norm": f"{there}.layernorm_before",
            f"{here}.attention.layer.output": f"{there}.attention.o_proj",
            f"{here}.mlp.norm": f"{there}.layernorm_after",
            f"{here}.mlp.layer.expand": f"{there}.mlp.fc1",
            f"{here}.mlp.layer.contract": f"{there}.mlp.fc2",
        }
    for kind in ("weight", "bias"):
        ours |= {f"{name}.{kind}": their[f"{other}.{kind}"] for name, other in names.items()}
        for i in range(depth):
            parts = [their[f"vit.layers.{i}.attention.{letter}_proj.{kind}"] for letter in "qkv"]
            ours[f"blocks.{i}.attention.layer.qkv.{kind}"] = torch.cat(parts)
    return ours


@pytest.mark.parametrize("image_size", [(16, 16), (16, 24), (24, 8)])
@pytest.mark.parametrize("embedding", ["conv", "linear"])
def test_logits_equal_those_of_transformers(image_size, embedding):
    config = TheirConfig(
        hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=48, image_size=image_size, patch_size=4,
        num_labels=5, layer_norm_eps=1e-5, attn_implementation="eager",
    )  # fmt: skip
    theirs = ViTForImageClassification(config).eval()
    for parameter in theirs.parameters():
        nn.init.normal_(parameter, std=0.2)
    ours = small(image_size=image_size, mlp_dim=48, num_classes=5, norm_eps=1e-5, embedding=embedding).eval()
    ours.load_state_dict(copied_from(theirs, depth=2))
    images = torch.randn(3, 3, *image_size)
    with torch.no_grad():
        expected = theirs(images).logits
        assert expected.std() > 0.1
        torch.testing.assert_close(ours(images), expected, atol=1e-5, rtol=1e-5)


class LectureModel(nn.Module):
    """The CIFAR-10 model as the lecture notes write it, layer by layer."""

    def __init__(self, image: int, patch: int, dim: int, depth: int, heads: int, mlp_dim: int, classes: int):
        super().__init__()
        self.patch, self.count = patch, (image // patch) ** 2 + 1
        self.projection = nn.Linear(3 * patch * patch, dim)
        self.class_token = nn.Parameter(torch.rand(1, 1, dim))
        self.layers = nn.ModuleList(
            nn.ModuleDict(
                {
                    "mha": nn.MultiheadAttention(dim, heads, batch_first=True),
                    "ln1": nn.LayerNorm(dim),
                    "ln2": nn.LayerNorm(dim),
                    "ffn1": nn.Linear(dim, mlp_dim),
                    "ffn2": nn.Linear(mlp_dim, dim),
                }
            )
            for _ in range(depth)
        )
        self.ln = nn.LayerNorm(dim)
        self.linear = nn.Linear(dim, classes)
        self.head_ln = nn.LayerNorm(classes)

    def positions(self) -> Tensor:
        dim = self.projection.out_features
        table = torch.zeros(self.count, dim)
        for i in range(self.count):
            for j in range(dim):
                angle = torch.tensor(i / 10000 ** ((j - j % 2) / dim), dtype=torch.float64)
                table[i, j] = angle.sin() if j % 2 == 0 else angle.cos()
        return table

    def forward(self, images: Tensor) -> Tensor:
        patches = F.unfold(images, self.patch, stride=self.patch).transpose(1, 2)
        x = self.projection(patches)
        x = torch.cat([self.class_token.expand(len(x), -1, -1), x], dim=1) + self.positions().to(x.dtype)
        for layer in self.layers:
            normed = layer["ln1"](x)
            x = layer["mha"](normed, normed, normed)[0] + x
            x = x + layer["ffn2"](F.gelu(layer["ffn1"](layer["ln2"](x))))
        return self.head_ln(F.gelu(self.linear(self.ln(x)))[:, 0])

    def with_our_names(self) -> dict[str, Tensor]:
        own = self.state_dict()
        dim = self.projection.out_features
        weight = own["projection.weight"].reshape(dim, 3, self.patch, self.patch)
        ours = {"class_token": own["class_token"], "embedding.projection.weight": weight}
        ours["embedding.projection.bias"] = own["projection.bias"]
        names = {"ln": "norm", "linear": "head.linear", "head_ln": "head.norm"}
        for i in range(len(self.layers)):
            ours[f"blocks.{i}.attention.layer.qkv.weight"] = own[f"layers.{i}.mha.in_proj_weight"]
            ours[f"blocks.{i}.attention.layer.qkv.bias"] = own[f"layers.{i}.mha.in_proj_bias"]
            names |= {
                f"layers.{i}.mha.out_proj": f"blocks.{i}.attention.layer.output",
                f"layers.{i}.ln1": f"blocks.{i}.attention.norm",
                f"layers.{i}.ln2": f"blocks.{i}.mlp.norm",
                f"layers.{i}.ffn1": f"blocks.{i}.mlp.layer.expand",
                f"layers.{i}.ffn2": f"blocks.{i}.mlp.layer.contract",
            }
        for theirs, name in names.items():
            ours |= {f"{name}.{kind}": own[f"{theirs}.{kind}"] for kind in ("weight", "bias")}
        return ours


def test_the_lecture_model_computes_what_the_notes_compute():
    theirs = randomized(LectureModel(image=16, patch=4, dim=32, depth=2, heads=4, mlp_dim=48, classes=10), std=0.1)
    ours = create_model("ViT-CIFAR10-lecture", image_size=16, patch_size=4, dim=32, depth=2, heads=4, mlp_dim=48)
    ours = ours.double().eval()
    ours.load_state_dict(theirs.with_our_names())
    images = torch.randn(3, 3, 16, 16, dtype=torch.float64)
    with torch.no_grad():
        torch.testing.assert_close(ours(images), theirs(images), atol=1e-6, rtol=1e-6)


# tokens


@pytest.mark.parametrize("pool", POOLS)
@pytest.mark.parametrize("position", POSITIONS)
def test_tokens_stand_as_class_token_registers_patches_and_registers_have_no_position(pool, position):
    model = randomized(small(pool=pool, position=position, registers=3))
    images = images_for(model, 2, torch.float64)
    z, _ = model.embed(images)
    first = int("class" in pool)
    with_position = model.position(
        torch.cat([*([model.class_token.expand(2, -1, -1)] if first else []), model.embedding(images)], dim=1)
    )
    assert z.shape == (2, first + 3 + 16, 32)
    torch.testing.assert_close(z[:, :first], with_position[:, :first])
    torch.testing.assert_close(z[:, first : first + 3], model.registers.expand(2, -1, -1))
    torch.testing.assert_close(z[:, first + 3 :], with_position[:, first:])


@pytest.mark.parametrize("pool", POOLS)
@pytest.mark.parametrize("registers", [0, 2])
def test_tokens_are_those_of_the_encoder_by_name_and_position(pool, registers):
    model = randomized(small(pool=pool, registers=registers, image_size=(8, 12)))
    images = images_for(model, 2, torch.float64)
    encoded, tokens = model.encode(images), model.tokens(images)
    first = int("class" in pool)
    if first:
        torch.testing.assert_close(tokens.class_token, encoded[:, 0])
    else:
        assert tokens.class_token is None
    torch.testing.assert_close(tokens.registers, encoded[:, first : first + registers])
    assert tokens.patches.shape == (2, 2, 3, 32)
    for row in range(2):
        for column in range(3):
            torch.testing.assert_close(tokens.patches[:, row, column], encoded[:, first + registers + 3 * row + column])


@pytest.mark.parametrize(
    ("fields", "stride"),
    [
        ({"patch_size": (4, 8), "image_size": (16, 24), "registers": 2, "distillation_token": True}, (4, 8)),
        ({"embedding": "stem", "pool": "mean", "image_size": (8, 16)}, 4),
        ({"embedding": "resnet", "resnet_depths": (1, 1), "resnet_width": 8, "patch_size": 8, "image_size": (16, 32)}, 8),
        ({"token_merging": 1, "final_norm": "pooled", "image_size": (8, 16)}, 4),
    ],
    ids=["all tokens", "stem", "hybrid", "merged"],
)
def test_the_feature_map_has_the_patches_where_they_stand(fields, stride):
    model = randomized(small(**fields)).eval()
    images = images_for(model, 2, torch.float64)
    (level,) = model.feature_maps(images)
    assert model.strides == (stride,)
    torch.testing.assert_close(level.flatten(2).mT, model.encode(images)[:, model.config.prefix :])
    assert level.shape[2:] == tuple(
        int(side / step) for side, step in zip(images.shape[2:], model.config.patch_size, strict=True)
    )


def test_a_model_that_drops_patches_has_no_feature_map_in_training():
    model = small(patch_dropout=0.5).train()
    with pytest.raises(ConfigError, match="patch dropout drops tokens"):
        model.feature_maps(images_for(model, 1))


# positions matter, and only positions do


def permuted(images: Tensor, order: Tensor) -> Tensor:
    patches = patchify(images, (4, 4))
    return unpatchify(patches[:, order], (4, 4), (images.shape[2] // 4, images.shape[3] // 4))


@pytest.mark.parametrize("pool", POOLS)
@pytest.mark.parametrize("position", POSITIONS)
def test_the_order_of_the_patches_matters_exactly_when_they_have_positions(pool, position):
    model = randomized(small(pool=pool, position=position, registers=1), std=0.2)
    images, order = images_for(model, 2, torch.float64), torch.randperm(16)
    with torch.no_grad():
        difference = (model(permuted(images, order)) - model(images)).abs().max()
    assert difference < 1e-9 if position == "none" else difference > 1e-4


# training and evaluation


@every_choice
def test_the_last_block_answers_for_the_tokens_that_are_read_and_all_comes_out_the_same(case):
    model = randomized(small(**case)).eval()
    images = images_for(model, 2, torch.float64)
    whole = model.forward_head(model.encode(images))
    torch.testing.assert_close(model(images), whole)
    parameters = [p for p in model.parameters() if p.requires_grad]
    read, all_of_them = (torch.autograd.grad(logits.square().sum(), parameters) for logits in (model(images), whole))
    torch.testing.assert_close(read, all_of_them)


@pytest.mark.parametrize("case", TOGETHER, ids=named)
def test_an_image_is_judged_alike_alone_and_in_a_batch(case):
    model = small(**case).double().eval()
    images = images_for(model, 3, torch.float64)
    with torch.no_grad():
        logits = model(images)
        assert logits.shape == (3, model.config.num_classes)
        torch.testing.assert_close(model(images[1:2]), logits[1:2])
        torch.testing.assert_close(model(images), logits)


@pytest.mark.parametrize(
    "name", [name for name in ViTConfig.model_fields if name.endswith("dropout") or name == "stochastic_depth"]
)
def test_what_is_random_in_training_is_off_in_evaluation(name):
    model, plain = small(**{name: 0.5}), small()
    plain.load_state_dict(model.state_dict())
    images = images_for(model)
    with torch.no_grad():
        torch.testing.assert_close(model.eval()(images), plain.eval()(images))
        assert not torch.allclose(model.train()(images), plain(images), atol=1e-4)
        torch.testing.assert_close(plain.train()(images), plain.eval()(images))


@pytest.mark.parametrize("position", POSITIONS)
def test_dropped_patches_take_their_positions_along(position):
    model = randomized(small(patch_dropout=0.5, position=position))
    images = images_for(model, 3, torch.float64)
    full, attention = model.embed(images)
    kept, fewer = model.train().embed(images)
    for sample in range(3):
        places = [next(i for i in range(17) if torch.equal(token, full[sample, i])) for token in kept[sample]]
        assert places == sorted(set(places))
        assert places[0] == 0
        if "bias" in attention:
            biases = attention["bias"], fewer["bias"]
            for whole, part in zip(*biases, strict=True) if isinstance(biases[0], tuple) else [biases]:
                assert torch.equal(part[sample], whole[:, places][:, :, places])
        if "rotation" in attention:
            for table, part in zip(attention["rotation"], fewer["rotation"], strict=True):
                assert torch.equal(part[sample, 0], table[places])


def test_every_matrix_starts_with_the_variance_of_one_over_its_inputs_but_that_of_the_classes():
    model = small(dim=64, heads=4, mlp_dim=256, num_classes=100)
    starts = {name: m.weight for name, m in model.named_modules() if isinstance(m, nn.Linear | nn.Conv2d)}
    assert starts.pop("head.linear").std().item() == pytest.approx(0.02, rel=0.05)
    for name, weight in starts.items():
        assert weight.square().mean().item() * weight[0].numel() == pytest.approx(1, rel=0.1), name


def test_the_kind_of_norm_and_its_epsilon_reach_every_norm():
    fields = {"qk_norm": True, "attention_norm": True, "mlp_norm": True, "embedding_norm": "projected", "pool": "attention"}
    model = small(norm_eps=0.01, norm_kind="rms", **fields)
    norms = [module for module in model.modules() if isinstance(module, nn.RMSNorm)]
    assert len(norms) == 2 * (2 + 2 + 2) + 1 + 1 + 1
    assert {norm.eps for norm in norms} == {0.01}
    assert not any(isinstance(module, nn.LayerNorm) for module in model.modules())


def test_every_block_has_relative_biases_of_its_own_where_they_are_per_block():
    model = randomized(small(position="relative-per-block"))
    images = images_for(model, 2, torch.float64)
    biases = model.embed(images)[1]["bias"]
    assert len(biases) == model.config.depth and not torch.equal(biases[0], biases[1])
    shared = randomized(small(position="relative"))
    shared.load_state_dict(model.state_dict() | {"relative.table": model.relative.tables[0]}, strict=False)
    with torch.no_grad():
        assert not torch.allclose(model(images), shared(images))
        model.relative.tables[1].copy_(model.relative.tables[0])
        torch.testing.assert_close(model(images), shared(images))


def test_attention_pooling_of_patches_reads_no_other_token():
    pool = randomized(small(pool="attention-patches", class_token=True, registers=2)).pool
    tokens = torch.randn(2, 3 + 16, pool.query.shape[-1], dtype=torch.float64)
    changed = torch.cat([torch.randn_like(tokens[:, :3]), tokens[:, 3:]], dim=1)
    torch.testing.assert_close(pool(tokens), pool(changed))
    assert not torch.allclose(pool(tokens), pool(tokens.flip(1)))


# refusals


# tokens, norms and heads that other people's weights have


def test_a_distillation_token_has_a_head_and_the_logits_are_the_mean_of_both():
    model = randomized(small(distillation_token=True, registers=2))
    images = images_for(model, 2, torch.float64)
    encoded = model.encode(images)
    one, two = model(images, separate=True)
    torch.testing.assert_close(one, model.head(encoded[:, 0]))
    torch.testing.assert_close(two, model.head_distillation(encoded[:, 1]))
    torch.testing.assert_close(model(images), (one + two) / 2)
    tokens = model.tokens(images)
    torch.testing.assert_close(tokens.distillation_token, encoded[:, 1])
    torch.testing.assert_close(tokens.registers, encoded[:, 2:4])


def test_without_classes_the_pooled_vector_comes_out():
    for pool, width in (("class", 32), ("mean", 32), ("attention", 32), ("class+mean", 64)):
        model = randomized(small(num_classes=0, pool=pool))
        images = images_for(model, 2, torch.float64)
        assert not any(name.startswith("head") for name in model.state_dict())
        assert model(images).shape == (2, width)
        torch.testing.assert_close(model(images), model.pool(model.encode(images)))


@pytest.mark.parametrize("distillation_token", [False, True])
def test_of_single_tokens_the_last_norm_may_stand_on_either_side(distillation_token):
    before = randomized(small(distillation_token=distillation_token))
    after = small(distillation_token=distillation_token, final_norm="pooled").double().eval()
    after.load_state_dict(before.state_dict())
    images = images_for(before, 2, torch.float64)
    torch.testing.assert_close(after(images), before(images))


def test_a_norm_on_the_tokens_comes_after_their_positions():
    model = randomized(small(embedding_norm="tokens"))
    plain = small().double().eval()
    plain.load_state_dict({k: v for k, v in model.state_dict().items() if not k.startswith("embedding_norm")})
    images = images_for(model, 2, torch.float64)
    expected = F.layer_norm(plain.embed(images)[0], (32,), model.embedding_norm.weight, model.embedding_norm.bias, 1e-6)
    torch.testing.assert_close(model.embed(images)[0], expected)


@pytest.mark.parametrize(
    "fields",
    [
        {"embedding_norm": "patches", "embedding": "stem"},
        {"distillation_token": True, "pool": "mean"},
        {"distillation_token": True, "head": "mlp"},
        {"final_norm": "pooled", "pool": "class+mean"},
        {"head_dim": 6, "position": "rotary"},
        {**RESNET, "resnet_root": "whitened-valid"},
        {**RESNET, "resnet_root": "whitened-valid", "resnet_block": "pooled", "image_size": (16, 8)},
    ],
    ids=str,
)
def test_what_cannot_go_together_is_refused(fields):
    with pytest.raises(ConfigError) as error:
        small(**fields)
    assert error.value.hint


# token merging


@pytest.mark.parametrize("fields", [{}, {"pool": "mean"}, {"pool": "attention"}, {"registers": 2}, {"layer_scale": 0.5}])
def test_merging_patches_that_are_alike_changes_nothing(fields):
    """A merged token counts in every softmax as often as the patches in it did."""
    torch.manual_seed(0)
    sizes = {"image_size": 32, "patch_size": 8, "dim": 32, "depth": 3, "heads": 4, "mlp_dim": 64, "num_classes": 5}
    plain = ViT(ViTConfig(**sizes, **fields, position="none")).eval()
    merging = ViT(plain.config.changed(token_merging=4)).eval()
    merging.load_state_dict(plain.state_dict())
    images = torch.randn(5, 3, 8, 8).repeat(1, 1, 4, 4)  # sixteen times the same patch
    torch.testing.assert_close(merging(images), plain(images), atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(merging.tokens(images).patches, plain.tokens(images).patches, atol=1e-5, rtol=1e-5)


def test_each_block_may_merge_a_number_of_its_own():
    fields = {"image_size": 32, "patch_size": 8, "dim": 32, "depth": 4, "heads": 4, "mlp_dim": 64, "num_classes": 5}
    model, seen = ViT(ViTConfig(**fields, token_merging="0,5,3")).eval(), []
    assert model.config.merged == (0, 5, 3, 0) and ViTConfig(**fields, token_merging="2").merged == (2, 2, 2, 2)
    assert ViTConfig.read(model.config.model_dump(mode="json")) == model.config
    for block in model.blocks:
        block.mlp.register_forward_pre_hook(lambda module, inputs: seen.append(inputs[0].shape[1]))
    images = torch.randn(2, 3, 32, 32)
    logits, tokens = model(images), model.tokens(images)
    assert seen == [17, 12, 9, 1, 17, 12, 9, 9]
    torch.testing.assert_close(logits, model.head(tokens.class_token))
    for wrong in ("1,2,3,4,5", "-1,2", "a,b"):
        with pytest.raises(ValueError, match="token_merging"):
            ViTConfig(**fields, token_merging=wrong)


@pytest.mark.parametrize("fields", [{"position": "rotary"}, {"position": "relative"}, {"block": "parallel"}])
def test_merging_is_refused_where_it_has_no_meaning(fields):
    with pytest.raises(ValueError, match="token_merging"):
        ViTConfig(**fields, token_merging=4)


def test_the_earlier_name_of_tokens_still_works():
    assert ViT.features is ViT.tokens
