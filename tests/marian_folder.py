"""Folders of transformers' MarianMT with pieces of SentencePiece that were learned from the words of tests."""

import io
import itertools
import json
from functools import cache
from pathlib import Path
from typing import Any

import sentencepiece
import torch
from transformers import MarianConfig, MarianMTModel

from words import WORDS

SHAPES: list[dict[str, Any]] = [
    {"activation_function": "swish", "scale_embedding": True},
    {"activation_function": "relu", "encoder_layers": 3, "decoder_layers": 1, "encoder_ffn_dim": 40, "decoder_ffn_dim": 40},
    {"activation_function": "gelu", "encoder_attention_heads": 1, "decoder_attention_heads": 1, "tie_word_embeddings": False},
    {"activation_function": "gelu_new", "encoder_layers": 1, "decoder_layers": 3, "scale_embedding": True},
    {"share_encoder_decoder_embeddings": False, "scale_embedding": True, "max_position_embeddings": 32},
    {"share_encoder_decoder_embeddings": False, "tie_word_embeddings": False, "activation_function": "silu"},
]
"""Of random models: what of a MarianMT may differ."""


@cache
def contents() -> dict[str, bytes]:
    """The files of tokens."""
    files = {}
    for name, words in (("source.spm", list(WORDS)), ("target.spm", list(WORDS.values()))):
        model = io.BytesIO()
        texts = [" ".join(some) for some in itertools.permutations(words, 3)]
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(texts), model_writer=model, vocab_size=24, model_type="bpe", minloglevel=2, num_threads=1
        )
        files[name] = model.getvalue()
    models = [sentencepiece.SentencePieceProcessor(model_proto=content) for content in files.values()]
    pieces = [model.id_to_piece(number) for model in models for number in range(3, model.get_piece_size())]
    names = list(dict.fromkeys(["</s>", "<unk>", *pieces, ">>de<<", "<pad>"]))
    files["vocab.json"] = json.dumps({name: number for number, name in enumerate(names)}).encode()
    files["tokenizer_config.json"] = json.dumps({"source_lang": "en", "target_lang": "de"}).encode()
    return files


def random_marian(seed: int = 0, **fields: Any) -> MarianMTModel:
    """A small model with random weights, none of them zero."""
    torch.manual_seed(seed)
    pad = len(json.loads(contents()["vocab.json"])) - 1
    heads = {f"{side}_attention_heads": 2 for side in ("encoder", "decoder")}
    depths = {f"{side}_layers": 2 for side in ("encoder", "decoder")} | {f"{side}_ffn_dim": 24 for side in ("encoder", "decoder")}
    marks = {"pad_token_id": pad, "decoder_start_token_id": pad, "eos_token_id": 0, "forced_eos_token_id": 0}
    model = MarianMTModel(MarianConfig(vocab_size=pad + 1, d_model=16, **{**heads, **depths, **marks, **fields}))
    for name, tensor in model.state_dict().items():
        if "embed_positions" not in name:
            torch.nn.init.normal_(tensor, mean=1.0 if name.endswith("norm.weight") else 0.0, std=0.3)
    return model.eval()


def write_folder(folder: Path, model: MarianMTModel) -> Path:
    """As transformers and Helsinki's converter write it."""
    model.generation_config.bad_words_ids = [[model.config.pad_token_id]]
    model.save_pretrained(folder)
    for name, content in contents().items():
        (folder / name).write_bytes(content)
    return folder
