"""Good files of every kind that Vitrail opens, made once of tiny models: what trials spoil."""

import os
import shutil
import signal
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import soak_runs
import torch
from file_bytes import forget_sums
from safetensors.torch import load_file

import vitrail
from vitrail import api
from vitrail.config.settings import LoraSettings
from vitrail.errors import ConfigError, VitrailError
from vitrail.files import write_json
from vitrail.runtime.observer import Observer
from vitrail.tasks.translation.weights import TrainedTranslator, open_translator
from vitrail.training.finetune.adapters import add_adapters, save_adapter
from vitrail.weights.convert import convert
from vitrail.weights.formats.tensor_files import write_tensors
from vitrail.weights.layouts import LAYOUTS
from vitrail.weights.model_folder.folder import TrainedModel

TESTS = Path(__file__).parents[2] / "tests"
VIT = {"image_size": 16, "patch_size": 8, "dim": 32, "depth": 2, "heads": 2, "mlp_dim": 48, "num_classes": 3}
VECTORS = {**VIT, "num_classes": 0, "class_token": True}
MIXER = {"image_size": 16, "patch_size": 8, "dim": 16, "depth": 2, "token_dim": 12, "channel_dim": 24, "num_classes": 3}
RESNET = {"image_size": 32, "depths": (1, 1), "width": 32, "num_classes": 3}
MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "vit": ("ViT-Ti/16", VIT),
    "transformers": ("ViT-Ti/16", {**VIT, "norm_eps": 1e-12}),
    "distilled": ("ViT-Ti/16", {**VIT, "distillation_token": True}),
    "mean": ("ViT-Ti/16", {**VIT, "pool": "mean", "class_token": False}),
    "swiglu": ("ViT-Ti/16", {**VIT, "registers": 2, "layer_scale": 1.0, "mlp": "swiglu"}),
    "dino": ("ViT-Ti/16", VECTORS),
    "dinov2": ("ViT-Ti/16", {**VECTORS, "layer_scale": 1.0, "mlp_dim": 128}),
    "dinov2-gated": ("ViT-Ti/16", {**VECTORS, "layer_scale": 1.0, "mlp": "swiglu", "mlp_dim": 88}),
    "dinov2-swiglu": ("ViT-Ti/16", {**VECTORS, "layer_scale": 1.0, "registers": 4, "mlp": "swiglu", "mlp_dim": 88}),
    "dinov2-registers": ("ViT-Ti/16", {**VECTORS, "layer_scale": 1.0, "registers": 4, "mlp_dim": 128}),
    "dinov3": ("ViT-Ti/16", {**VECTORS, "layer_scale": 1.0, "registers": 4, "position": "rotary", "rotary_coordinates": "unit",
                             "norm_eps": 1e-5}),
    "dinov3-gated": ("ViT-Ti/16", {**VECTORS, "layer_scale": 1.0, "registers": 4, "position": "rotary", "mlp": "swiglu",
                                   "rotary_coordinates": "unit", "norm_eps": 1e-5}),
    "clip-scores": ("ViT-Ti/16", {**VIT, "norm_eps": 1e-5, "embedding_norm": "tokens", "mlp": "quick-gelu"}),
    "clip": ("ViT-Ti/16", {**VIT, "norm_eps": 1e-5, "embedding_norm": "tokens", "mlp": "quick-gelu", "head": "projection"}),
    "open-clip": ("ViT-Ti/16", {**VIT, "norm_eps": 1e-5, "embedding_norm": "tokens", "head": "projection"}),
    "siglip": ("ViT-Ti/16", {**VIT, "num_classes": 0, "pool": "attention", "mlp": "gelu-tanh"}),
    "vit-pytorch": ("ViT-Ti/16", {**VIT, "norm_eps": 1e-5, "embedding_norm": "patches", "qkv_bias": False, "head_dim": 16,
                                  "embedding": "linear"}),
    "vit-pytorch-early": ("ViT-Ti/16", {**VIT, "norm_eps": 1e-5, "qkv_bias": False, "head_dim": 16}),
    "sincos": ("ViT-Ti/16", {**VIT, "position": "sincos-2d-simple", "pool": "mean", "class_token": False, "norm_eps": 1e-5,
                             "embedding_norm": "patches", "qkv_bias": False, "head_dim": 16}),
    "eva": ("ViT-Ti/16", {**VIT, "position": "learned-1d+rotary", "rotary_base": 1e4, "rotary_grid": 16, "mlp": "swiglu",
                          "mlp_norm": True, "pool": "mean", "class_token": True, "final_norm": "pooled"}),
    "beit": ("ViT-Ti/16", {**VIT, "position": "relative-per-block", "layer_scale": 0.1, "pool": "mean", "class_token": True,
                           "final_norm": "pooled"}),
    "aimv2": ("ViT-Ti/16", {**VECTORS, "norm_kind": "rms", "norm_eps": 1e-5, "mlp": "swiglu", "qkv_bias": False,
                            "linear_bias": False, "pool": "mean", "class_token": False, "embedding_norm": "projected"}),
    "hybrid": ("ViT-Ti/16", {**VIT, "image_size": 32, "patch_size": 16, "embedding": "resnet", "resnet_depths": (1, 1),
                             "resnet_width": 32}),
    "mixer": ("Mixer-S/16", MIXER),
    "resnet": ("ResNet-50", RESNET),
    "resnet-basic": ("ResNet-18", RESNET),
    "resnet-wide": ("ResNet-18", {**RESNET, "depths": (1, 1, 1, 1), "width": 64}),
    "bit": ("BiT-R50x1", RESNET),
}  # fmt: skip
"""Names and fields, chosen so that nearly every layout can hold one of them."""


def write_seeds(root: Path) -> Path:
    """A folder for each kind, and in it folders of files that are good."""
    sys.path += [str(TESTS), str(TESTS / "deploy")]
    import peers

    peers.declare_operators()  # transformers imports torchvision, which needs them
    _write_models(root)
    _write_open_clip(root)
    run = _write_runs(root)
    _write_translators(root)
    _write_exported(root)
    _write_clip(root)
    _write_configurations(root, run)
    forget_sums(root)
    return root


def trained_models() -> Iterator[tuple[str, TrainedModel]]:
    """Tiny models with random weights; one of them gives several labels."""
    for name, (preset, fields) in MODELS.items():
        torch.manual_seed(0)
        with suppress(ConfigError):
            model = vitrail.create_model(preset, **fields).eval()
            config = model.config
            labels = [f"label {number}" for number in range(config.num_classes)]
            several = name == "mean"
            bounds = (0.5, 0.25, 0.125) if several else ()
            preparation = vitrail.Preparation.standard(config.image_size, config.channels)
            yield name, TrainedModel(model, labels, preparation, several, "", bounds)


def _write_models(root: Path) -> None:
    """Folders of our own; every layout that holds a model, as a folder, as a file alone, and as a pickle."""
    for layout in LAYOUTS.values():
        object.__setattr__(layout, "written", True)  # those that are only read are spoilt as well
    for name, trained in trained_models():
        trained.save_pretrained(root / "own" / name, layout="vitrail")
        for layout in LAYOUTS.values():
            alone = root / ("npz" if layout.suffix == ".npz" else "layouts") / f"{name} {layout.name} alone"
            try:
                convert(trained, alone / f"model{layout.suffix}", layout=layout.name)
            except VitrailError:
                continue
            if layout.suffix == ".npz":
                continue
            tensors = load_file(alone / "model.safetensors")
            _save_pickles(root / "pickles" / f"{name} {layout.name}", tensors)
            with suppress(VitrailError):
                trained.save_pretrained(root / "layouts" / f"{name} {layout.name} folder", layout=layout.name)
        _save_adapter(root / "adapters" / name, trained)


def _write_open_clip(root: Path) -> None:
    """A folder of OpenCLIP's, whose description is a file of its own."""
    folder = root / "layouts" / "open-clip folder"
    folder.mkdir()
    alone = load_file(root / "layouts" / "open-clip open-clip alone" / "model.safetensors")
    write_tensors(folder / "open_clip_model.safetensors", alone)
    vision = {"image_size": 16, "patch_size": 8, "width": 32, "layers": 2, "head_width": 16, "mlp_ratio": 1.5}
    model = {"embed_dim": 3, "quick_gelu": False, "vision_cfg": vision, "text_cfg": {"width": 16}}
    prepared = {"mean": [0.1, 0.2, 0.3], "std": [0.5, 0.5, 0.5], "interpolation": "bicubic", "resize_mode": "squash"}
    write_json(folder / "open_clip_config.json", {"model_cfg": model, "preprocess_cfg": prepared})


def _save_pickles(folder: Path, tensors: dict[str, torch.Tensor]) -> None:
    """A state dict alone, one within a checkpoint of training, and one of torch before version 1.6."""
    for ending, content, new in (
        ("", tensors, True),
        (" checkpoint", {"model": tensors, "epoch": 3}, True),
        (" old", tensors, False),
    ):
        place = folder.with_name(folder.name + ending)
        place.mkdir(parents=True)
        torch.save(content, place / "model.pth", _use_new_zipfile_serialization=new)


def _save_adapter(folder: Path, trained: TrainedModel) -> None:
    """Adapters of a model, and the model beside them."""
    settings = LoraSettings(rank=2)
    trained.save_pretrained(folder / "model", layout="vitrail")
    with suppress(VitrailError):
        add_adapters(trained.model, settings)
        save_adapter(folder / "adapter", trained.model, settings, whole=list(trained.model.heads()), base="model")
        return
    shutil.rmtree(folder)


class Stopping(Observer):
    """Ends a run as a signal would, after so many steps."""

    def __init__(self, after: int):
        self.left = after

    def step(self, *told: Any) -> None:
        self.left -= 1
        if not self.left:
            os.kill(os.getpid(), signal.SIGTERM)


def _write_runs(root: Path) -> Path:
    """Runs that have ended, and runs that a signal has stopped one step before their end."""
    for kind, learned in (("images", soak_runs.IMAGES), ("texts", soak_runs.TEXTS)):
        data = learned.write(root / "data" / kind)
        settings = {**learned.settings, "training.epochs": 2, "training.checkpoint_every_steps": 1}
        finished = api.train(data, root / "finished" / kind, **settings)
        shutil.rmtree(root / "finished" / kind / "plots")
        steps = finished_steps(finished.folder)
        with suppress(VitrailError):
            api.train(data, root / "stopped" / kind, observer=Stopping(steps - 1), **settings)
    return root / "finished" / "images"


def finished_steps(run: Path) -> int:
    """How many steps a run made."""
    from vitrail.config.run_files import standing

    return int(standing(run)["step"])


def _write_translators(root: Path) -> None:
    """A Transformer and LSTMs, as ours, for transformers, and for CTranslate2; and a MarianMT with SentencePiece."""
    import marian_folder

    trained = open_translator(root / "finished" / "texts")
    trained.save_pretrained(root / "translators" / "transformer")
    trained.save_pretrained(root / "marian" / "byte pairs", layout="marian")
    for number, fields in enumerate(({}, {"attention": "additive"})):
        with suppress(ConfigError):
            model = vitrail.create_model("LSTM", dim=16, hidden_dim=24, vocabulary=len(trained.preparation), **fields).eval()
            TrainedTranslator(model, trained.preparation, trained.languages).save_pretrained(
                root / "translators" / f"lstm-{number}"
            )
    for number in (0, 2):
        marian_folder.write_folder(
            root / "marian" / f"pieces {number}", marian_folder.random_marian(**marian_folder.SHAPES[number])
        )
    for precision in ("fp32", "int8"):
        api.export(trained, root / "ctranslate2" / precision, to="ctranslate2", precision=precision, force=True)


def _write_exported(root: Path) -> None:
    """Graphs of ONNX, with their weights within and beside them, and of OpenVINO."""
    import onnx

    for name in ("vit", "mixer", "resnet"):
        model = root / "own" / name
        for to in ("onnx", "openvino"):
            api.export(model, root / to / name, to=to, precision="fp32")
        graph = onnx.load(root / "onnx" / name / "model.onnx")
        beside = root / "onnx" / f"{name} beside"
        beside.mkdir()
        onnx.save_model(graph, beside / "model.onnx", save_as_external_data=True, location="weights", size_threshold=64)


def _write_clip(root: Path) -> None:
    """A whole CLIP of transformers' with its tokenizer."""
    import small_clip

    small_clip.save_clip(small_clip.small_clip(), root / "clip" / "small")


def _write_configurations(root: Path, run: Path) -> None:
    """Configurations as ``--config`` takes them: complete ones, and a recipe."""
    for name, content in (
        ("run", (run / "config.yaml").read_text()),
        ("short", "model:\n  name: ViT-Ti/4\ntraining:\n  epochs: 1\n"),
    ):
        (root / "configurations" / name).mkdir(parents=True)
        (root / "configurations" / name / "mine.yaml").write_text(content)
