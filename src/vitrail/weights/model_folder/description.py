"""The architecture in a ``config.json`` in the words of a layout: written, and read with nothing ignored."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from vitrail.errors import ConfigError, ModelFileError
from vitrail.settings import brief
from vitrail.weights.keys import words
from vitrail.weights.layout import Layout


def describe(config: Any, layout: Layout) -> dict[str, Any]:
    """Return the entries of ``config.json`` on the architecture in a layout of transformers."""
    values: dict[str, Any] = {
        "architectures": [layout.classes[0 if layout.has_head(config) else 1]],
        "model_type": layout.model_types[0],
    }
    for ours, theirs in layout.described.items():
        value = getattr(config, ours)
        square = ours.endswith("_size") and isinstance(value, tuple) and len(set(value)) == 1
        values[theirs] = value[0] if square else list(value) if isinstance(value, tuple) else value
    if layout.activations and (activation := getattr(config, layout.activation_field)) in layout.activations:
        values[layout.activation] = layout.activations[activation]
    return {**values, **layout.extra(config)}


EVERYWHERE = words(
    """
    add_cross_attention architectures attn_implementation auto_map bad_words_ids begin_suppress_tokens bos_token_id
    chunk_size_feed_forward cross_attention_hidden_size decoder_start_token_id diversity_penalty do_sample dtype early_stopping
    encoder_no_repeat_ngram_size encoder_stride eos_token_id exponential_decay_length_penalty finetuning_task forced_bos_token_id
    forced_eos_token_id id2label initializer_factor initializer_range is_decoder is_encoder_decoder label2id length_penalty
    max_length min_length model_type no_repeat_ngram_size num_beam_groups num_beams num_labels num_return_sequences out_features
    out_indices output_attentions output_hidden_states output_scores pad_token_id prefix problem_type remove_invalid_values
    repetition_penalty return_dict return_dict_in_generate semantic_loss_ignore_index sep_token_id stage_names suppress_tokens
    task_specific_params temperature tf_legacy_loss thresholds tie_encoder_decoder tie_word_embeddings tokenizer_class top_k top_p
    torch_dtype torchscript transformers_version typical_p use_bfloat16 use_cache vitrail
    """
)
"""Keys of any ``config.json`` of transformers that never change an output."""
NO_MODEL = words("num_classes num_features label_names label_descriptions pretrained_cfg")
"""Keys of timm's ``config.json`` on labels and images, and those that the weights show as well."""


def require_no_model(values: Mapping[str, Any], name: str) -> None:
    """Refuse what a ``config.json`` without the ``name`` that all of a model hangs on says of a model.

    Raises:
        ModelFileError: what else than labels and preparation stands there, by name.
    """
    for word, value in values.items():
        if word not in {name, *EVERYWHERE, *NO_MODEL} and not word.startswith("_"):
            what = f"{word} is not understood without {name}, which config.json says is {brief(value)}"
            raise ModelFileError(what, where="config.json", hint=f"give {name}, or take it out")


def _require_understood(values: Mapping[str, Any], layout: Layout) -> None:
    """Refuse what may change the answer and is not known; raises `ModelFileError` with its name."""
    known = {*layout.described.values(), layout.activation, *layout.harmless, *layout.fixed, *EVERYWHERE}
    for name, value in values.items():
        if name not in known and not name.startswith("_"):
            raise ModelFileError(
                f"{name} is not understood, which config.json says is {brief(value)}",
                where="config.json",
                hint=f"where it changes nothing of what {layout.about} answers, take it out",
            )
        if name in layout.fixed and value not in layout.fixed[name]:
            choices = ", ".join(map(brief, layout.fixed[name]))
            raise ModelFileError(f"{name} {brief(value)} is not known here", where="config.json", hint=f"known: {choices}")


def described(values: Mapping[str, Any], layout: Layout) -> dict[str, Any]:
    """Return the fields of the configuration that a ``config.json`` of this layout tells.

    Raises:
        ConfigError: a value that cannot be.
        ModelFileError: something that may change the answer and is not understood.
    """
    _require_understood(values, layout)
    if values.get("model_type") in layout.model_types:
        values = {**layout.defaults, **values}
    fields = {
        ours: layout.config.read_field(ours, values[theirs], where="config")
        for ours, theirs in layout.described.items()
        if values.get(theirs) is not None
    }
    act = values.get(layout.activation)
    if layout.activations and act is not None and not values.get("use_swiglu_ffn"):
        names = {theirs: ours for ours, theirs in layout.activations.items()}
        if not isinstance(act, str) or act not in names:
            raise ConfigError(
                f"the activation {brief(act)} is unknown", where=layout.activation, hint=f"known: {', '.join(names)}"
            )
        fields[layout.activation_field] = names[act]
    return fields


def read_description(
    values: Mapping[str, Any], layout: Layout, where: Path, *, flat: Mapping[str, Any] | None = None
) -> Mapping[str, Any]:
    """Return the fields of the configuration that a ``config.json`` tells, by the layout's function or its tables.

    Args:
        values: what it says; nothing where there is none.
        layout: whose words it is in.
        where: the file, for errors.
        flat: what it says without the sections of transformers; the same where there are none.

    Raises:
        ModelFileError: something that may change the answer and is not understood, or a value that cannot be.
    """
    flat = values if flat is None else flat
    try:
        return layout.read(values) if layout.read else described(flat, layout) if values else {}
    except ConfigError as error:
        what = f"the configuration is damaged: {error}"
        raise ModelFileError(what, where=where, hint="give the one that belongs to it") from None
    except ModelFileError as error:
        raise ModelFileError(error.what, where=where, hint=error.hint) from None
    except (TypeError, AttributeError, LookupError, ValueError, ArithmeticError) as error:  # a value of an unforeseen kind
        what = f"the configuration is damaged: {type(error).__name__}: {error}"
        raise ModelFileError(what, where=where, hint="give the one that belongs to it") from error
