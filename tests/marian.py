"""Small models of transformers' Marian that have learned a little, and the same models as ours."""

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy
from torch.nn.utils.rnn import pad_sequence
from transformers import MarianConfig, MarianMTModel

from vitrail.models.configs.texts import TransformerConfig
from vitrail.models.text.transformer import Transformer

END, WORDS, PAD = 0, 18, 19


def learned(seed: int, *, steps: int = 60, layers: int = 1, activation: str = "swish", tied: bool = False) -> MarianMTModel:
    """A model that has begun to learn a code of one word for another: unsure of words, but not of where a text ends."""
    torch.manual_seed(seed)
    config = MarianConfig(
        vocab_size=20, d_model=16, encoder_layers=layers, decoder_layers=layers, encoder_attention_heads=2,
        decoder_attention_heads=2, encoder_ffn_dim=24, decoder_ffn_dim=24, activation_function=activation,
        scale_embedding=True, pad_token_id=PAD, decoder_start_token_id=PAD, eos_token_id=END, forced_eos_token_id=END,
        max_position_embeddings=64, dropout=0.0, tie_word_embeddings=tied,
    )  # fmt: skip
    model = MarianMTModel(config)
    model.final_logits_bias.normal_(std=0.1)
    for parameter in model.parameters():
        if parameter.requires_grad and parameter.ndim == 2:
            torch.nn.init.normal_(parameter, std=0.25)
    optimizer = torch.optim.Adam([p for p in model.parameters() if p.requires_grad], lr=0.01)
    for step in range(steps):
        source = sentences(32, seed=1000 * seed + step)
        target = torch.where((source == END) | (source == PAD), source, (source * 7 + seed) % WORDS + 1)
        before = torch.cat([torch.full((32, 1), PAD), target[:, :-1]], dim=1)
        logits = model(input_ids=source, attention_mask=source != PAD, decoder_input_ids=before).logits
        optimizer.zero_grad()
        cross_entropy(logits.flatten(0, 1), target.flatten(), ignore_index=PAD).backward()
        optimizer.step()
    return model.eval()


def sentences(count: int, *, seed: int, longest: int = 8) -> Tensor:
    """Random ones, each with its end, filled up to one length: (count, S)."""
    random = torch.Generator().manual_seed(seed)
    lengths = torch.randint(1, longest + 1, (count,), generator=random).tolist()
    rows = [torch.cat([torch.randint(1, WORDS + 1, (n,), generator=random), torch.tensor([END])]) for n in lengths]
    return pad_sequence(rows, batch_first=True, padding_value=PAD)


def as_ours(marian: MarianMTModel) -> Transformer:
    """The same model."""
    c, theirs = marian.config, {name.removeprefix("model."): tensor for name, tensor in marian.state_dict().items()}
    model = Transformer(
        TransformerConfig(
            vocabulary=c.vocab_size, pad=c.pad_token_id, start=c.decoder_start_token_id, end=c.eos_token_id, dim=c.d_model,
            depth=c.encoder_layers, decoder_depth=c.decoder_layers, heads=c.encoder_attention_heads, mlp_dim=c.encoder_ffn_dim,
            activation={"swish": "silu"}.get(c.activation_function, c.activation_function), position="sincos-halves",
            output_bias=True, tied=c.tie_word_embeddings,
        )
    )  # fmt: skip
    ours = {
        "embedding.weight": marian.model.encoder.embed_tokens.weight,
        "target_embedding.weight": marian.model.decoder.embed_tokens.weight,
        "output.weight": marian.lm_head.weight,
        "output_bias": marian.final_logits_bias[0],
    }
    for name in model.state_dict():
        side, _, rest = name.partition(".")
        if side in ("encoder", "decoder"):
            number, _, rest = rest.partition(".")
            place, _, kind = rest.rpartition(".")
            ours[name] = torch.cat([theirs[f"{side}.layers.{number}.{key}.{kind}"] for key in KEYS[place]])
    model.load_state_dict({name: ours[name] for name in model.state_dict()})
    return model.eval()


KEYS = {
    "attention.norm": ["self_attn_layer_norm"],
    "attention.layer.qkv": ["self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"],
    "attention.layer.output": ["self_attn.out_proj"],
    "cross.norm": ["encoder_attn_layer_norm"],
    "cross.layer.query": ["encoder_attn.q_proj"],
    "cross.layer.key_value": ["encoder_attn.k_proj", "encoder_attn.v_proj"],
    "cross.layer.output": ["encoder_attn.out_proj"],
    "mlp.norm": ["final_layer_norm"],
    "mlp.layer.expand": ["fc1"],
    "mlp.layer.contract": ["fc2"],
}
