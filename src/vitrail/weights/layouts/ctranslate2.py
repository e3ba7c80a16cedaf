"""CTranslate2's Transformer (https://github.com/OpenNMT/CTranslate2): the variables of its ``TransformerSpec``.

CTranslate2 also stores queries, keys and values in one matrix. It stores position encodings as a table, so that the order of
sines and cosines does not matter.
"""

from torch import Tensor

from vitrail.errors import ConfigError
from vitrail.models.configs.texts import TransformerConfig
from vitrail.models.text.text_model import TextModel
from vitrail.parts.positions.text import sequence_table
from vitrail.weights.keys import Key, layers
from vitrail.weights.layout import Layout, Reading

ENCODER, DECODER = "encoder/layer_{i}", "decoder/layer_{i}"
NORMS = {
    "encoder.{i}.attention.norm": f"{ENCODER}/self_attention/layer_norm",
    "encoder.{i}.mlp.norm": f"{ENCODER}/ffn/layer_norm",
    "encoder_norm": "encoder/layer_norm",
    "decoder.{i}.attention.norm": f"{DECODER}/self_attention/layer_norm",
    "decoder.{i}.cross.norm": f"{DECODER}/attention/layer_norm",
    "decoder.{i}.mlp.norm": f"{DECODER}/ffn/layer_norm",
    "decoder_norm": "decoder/layer_norm",
}
LINEAR = {
    "encoder.{i}.attention.layer.qkv": f"{ENCODER}/self_attention/linear_0",
    "encoder.{i}.attention.layer.output": f"{ENCODER}/self_attention/linear_1",
    "encoder.{i}.mlp.layer.expand": f"{ENCODER}/ffn/linear_0",
    "encoder.{i}.mlp.layer.contract": f"{ENCODER}/ffn/linear_1",
    "decoder.{i}.attention.layer.qkv": f"{DECODER}/self_attention/linear_0",
    "decoder.{i}.attention.layer.output": f"{DECODER}/self_attention/linear_1",
    "decoder.{i}.cross.layer.query": f"{DECODER}/attention/linear_0",
    "decoder.{i}.cross.layer.key_value": f"{DECODER}/attention/linear_1",
    "decoder.{i}.cross.layer.output": f"{DECODER}/attention/linear_2",
    "decoder.{i}.mlp.layer.expand": f"{DECODER}/ffn/linear_0",
    "decoder.{i}.mlp.layer.contract": f"{DECODER}/ffn/linear_1",
}
PROJECTION = "decoder/projection"

CTRANSLATE2 = Layout(
    name="ctranslate2",
    about="CTranslate2's Transformer",
    reading=Reading(architecture="Transformer", fields=lambda shapes, known, size, layout: dict(known)),
    keys={
        "embedding.weight": Key("encoder/embeddings_0/weight"),
        "target_embedding.weight": Key("decoder/embeddings/weight"),
        "output.weight": Key(f"{PROJECTION}/weight"),
        "output_bias": Key(f"{PROJECTION}/bias"),
        **layers(LINEAR, "/weight", "/bias"),
        **layers(NORMS, "/gamma", "/beta"),
    },
    activations={"relu": "RELU", "gelu": "GELU", "gelu-tanh": "GELUTanh", "silu": "SWISH"},
    activation_field="activation",
)
NEVER = -1e9
"""Output bias of tokens that must never be written."""


def variables(model: TextModel) -> dict[str, Tensor]:
    """Return all tensors by CTranslate2's names, with a table of positions and a bias that forbids the pad and start tokens.

    Raises:
        ConfigError: CTranslate2 does not support the model.
    """
    c = model.config
    if not isinstance(c, TransformerConfig):
        raise _impossible(f"a {type(model).__name__}")
    if c.activation not in CTRANSLATE2.activations:
        raise _impossible(f"the activation {c.activation}")
    state = model.state_dict()
    learned = state.pop("position.embedding", None)
    found = CTRANSLATE2.write(state, c)
    table, bias = model.output_table()
    banned = sorted({c.pad, c.start} - {c.end})
    never = table.new_zeros(c.vocabulary)
    never[banned] = NEVER
    positions = sequence_table(c.dim, c.max_tokens, halves=c.position == "sincos-halves") if learned is None else learned
    read = found["encoder/embeddings_0/weight"]
    return {
        **found,
        "decoder/embeddings/weight": found.get("decoder/embeddings/weight", read),
        f"{PROJECTION}/weight": table.detach(),
        f"{PROJECTION}/bias": never if bias is None else bias.detach() + never,
        **{f"{side}/position_encodings/encodings": positions for side in ("encoder", "decoder")},
    }


def _impossible(what: str) -> ConfigError:
    return ConfigError(f"CTranslate2 does not support {what}", where="--to", hint="only Transformers can be exported to it")
