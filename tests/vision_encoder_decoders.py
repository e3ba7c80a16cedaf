"""transformers' VisionEncoderDecoder of a ViT and GPT-2 with random weights, and a folder of one."""

import json
from pathlib import Path
from typing import Any

import torch
from transformers import GPT2Config, VisionEncoderDecoderConfig, VisionEncoderDecoderModel, ViTConfig

from vitrail.data.text.tokenizer import END, PAD, SPECIAL, START, Tokenizer

SENTENCES = ["A red circle on the left .", "there is a square, and it is blue", "a dog runs – naïve «ñ»"]
VISION: dict[str, Any] = {
    "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 24,
    "image_size": 24, "patch_size": 8,
}  # fmt: skip
PREPARATION = {
    "image_processor_type": "ViTImageProcessor", "do_resize": True, "size": {"height": 24, "width": 24}, "resample": 2,
    "do_rescale": True, "rescale_factor": 1 / 255, "do_normalize": True, "image_mean": [0.5] * 3, "image_std": [0.5] * 3,
}  # fmt: skip


def tokenizer() -> Tokenizer:
    return Tokenizer.learned(SENTENCES, 290, "none")  # as GPT-2's


def random_peer(
    seed: int = 0,
    *,
    vision: dict[str, Any] | None = None,
    marks: tuple[int, int, int] = (PAD, START, END),
    vocabulary: int = 0,
    **decoder: Any,
) -> VisionEncoderDecoderModel:
    """A small model with random weights, none of them zero."""
    torch.manual_seed(seed)
    _, start, end = marks
    sizes = {"n_embd": 16, "n_layer": 2, "n_head": 2, "n_positions": 20, "bos_token_id": start, "eos_token_id": end}
    sizes |= {"vocab_size": vocabulary or len(tokenizer()), **decoder}
    config = VisionEncoderDecoderConfig.from_encoder_decoder_configs(ViTConfig(**VISION | (vision or {})), GPT2Config(**sizes))
    config.pad_token_id, config.decoder_start_token_id, config.eos_token_id = marks
    model = VisionEncoderDecoderModel(config)
    model.decoder.set_attn_implementation("eager")
    for name, parameter in model.named_parameters():
        is_norm = any(part in name for part in ("ln_", "layernorm")) and name.endswith("weight")
        torch.nn.init.normal_(parameter, mean=float(is_norm), std=0.3)
    generation = model.generation_config
    generation.pad_token_id, generation.decoder_start_token_id, generation.eos_token_id = marks
    return model.eval()


def write_peer(folder: Path, model: VisionEncoderDecoderModel, tokens: dict[str, bytes] | None = None) -> Path:
    """As transformers writes it, with its tokenizer and its preparation of images."""
    model.save_pretrained(folder)
    for name, content in (tokens or tokenizer().files_for_transformers(())).items():
        (folder / name).write_bytes(content)
    (folder / "preprocessor_config.json").write_text(json.dumps(PREPARATION))
    return folder


def gpt2_files(*, older: bool = False) -> dict[str, bytes]:
    """A tokenizer as GPT-2's, whose one mark is the last token: in one file, or in the two of older folders."""
    values = json.loads(tokenizer().to_json())
    model, mark = values["model"], "<|endoftext|>"
    names = [name for name in sorted(model["vocab"], key=model["vocab"].__getitem__) if name not in SPECIAL]
    model["vocab"] = {name: number for number, name in enumerate([*names, mark])}
    values["added_tokens"] = [{
        "id": len(names), "content": mark, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False,
        "special": True,
    }]  # fmt: skip
    values["pre_tokenizer"]["add_prefix_space"] = False
    settings = json.dumps({"tokenizer_class": "GPT2Tokenizer", **dict.fromkeys(("bos_token", "eos_token", "pad_token"), mark)})
    if older:
        merges = "\n".join(["#version: 0.2", *(" ".join(pair) for pair in model["merges"])])
        files = {"vocab.json": json.dumps(model["vocab"]), "merges.txt": merges, "tokenizer_config.json": settings}
    else:
        files = {"tokenizer.json": json.dumps(values), "tokenizer_config.json": settings}
    return {name: content.encode() for name, content in files.items()}
