"""transformers' CLIP, small, with a tokenizer that knows ten words."""

from pathlib import Path

import torch
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import CLIPConfig, CLIPModel

WORDS = ["a", "photo", "of", "red", "green", "blue", "thing", "very", "[start]", "[end]"]


def small_clip() -> CLIPModel:
    torch.manual_seed(0)
    text = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48, "hidden_act": "gelu"}
    text |= {"vocab_size": len(WORDS), "max_position_embeddings": 8, "eos_token_id": 9, "bos_token_id": 8}
    vision = {"hidden_size": 24, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
    vision |= {"image_size": 16, "patch_size": 8}
    model = CLIPModel(CLIPConfig(text_config=text, vision_config=vision, projection_dim=20)).eval()
    for name, parameter in model.named_parameters():
        if name != "logit_scale":
            torch.nn.init.normal_(parameter, std=0.3)
    return model


def save_clip(model: CLIPModel, folder: Path) -> Path:
    """Both models and the tokenizer, as on the hub."""
    model.save_pretrained(folder)
    words = Tokenizer(models.WordLevel({word: i for i, word in enumerate(WORDS)}, unk_token="thing"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    words.post_processor = processors.TemplateProcessing(single="[start] $A [end]", special_tokens=[("[start]", 8), ("[end]", 9)])
    words.save(str(folder / "tokenizer.json"))
    return folder
