"""The architecture in the ``config.json`` of a layout: written, and read so that no unknown entry is ignored."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from vitrail.errors import ConfigError, ModelFileError
from vitrail.settings import brief
from vitrail.weights.keys import words
from vitrail.weights.layout import Layout


def describe(config: Any, layout: Layout) -> dict[str, Any]:
    """Return the entries of transformers' ``config.json`` that describe the architecture."""
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
"""Entries of any transformers ``config.json`` that never change an output."""
NO_MODEL = words("num_classes num_features label_names label_descriptions pretrained_cfg")
"""Entries of timm's ``config.json`` on labels, on images, and on sizes that the weights show as well."""


def require_no_model(values: Mapping[str, Any], name: str) -> None:
    """Refuse a ``config.json`` that describes an architecture but lacks its entry ``name``, such as ``model_type``.

    Raises:
        ModelFileError: there is an entry on anything else than labels and preparation.
    """
    for word, value in values.items():
        if word not in {name, *EVERYWHERE, *NO_MODEL} and not word.startswith("_"):
            what = f"{word} is {brief(value)}, which cannot be understood without {name}"
            raise ModelFileError(what, where="config.json", hint=f"add {name}, or remove {word}")


def _require_understood(values: Mapping[str, Any], layout: Layout) -> None:
    """Raise `ModelFileError` for an entry that may change the output and is not supported."""
    known = {*layout.described.values(), layout.activation, *layout.harmless, *layout.fixed, *EVERYWHERE}
    for name, value in values.items():
        if name not in known and not name.startswith("_"):
            raise ModelFileError(
                f"unknown entry {name}: {brief(value)}",
                where="config.json",
                hint=f"remove {name} if it does not change the output of {layout.about}",
            )
        if name in layout.fixed and value not in layout.fixed[name]:
            choices = ", ".join(map(brief, layout.fixed[name]))
            raise ModelFileError(f"{name} {brief(value)} is not supported", where="config.json", hint=f"supported: {choices}")


def described(values: Mapping[str, Any], layout: Layout) -> dict[str, Any]:
    """Return the configuration fields in a ``config.json`` of this layout.

    Raises:
        ConfigError: a value is impossible.
        ModelFileError: an entry that may change the output is not supported.
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
    """Return the configuration fields in a ``config.json``, read by the layout's ``read`` or its tables.

    Args:
        values: content of ``config.json``; empty if there is no file.
        layout: the layout whose entries it has.
        where: the file, for error messages.
        flat: the content with transformers' sections flattened; by default ``values``.

    Raises:
        ModelFileError: an entry that may change the output is not supported, or a value is impossible.
    """
    flat = values if flat is None else flat
    try:
        return layout.read(values) if layout.read else described(flat, layout) if values else {}
    except ConfigError as error:
        what = f"the configuration is damaged: {error}"
        raise ModelFileError(what, where=where, hint="give the config.json that belongs to the weights") from None
    except ModelFileError as error:
        raise ModelFileError(error.what, where=where, hint=error.hint) from None
    except (TypeError, AttributeError, LookupError, ValueError, ArithmeticError) as error:  # a value of an unforeseen kind
        what = f"the configuration is damaged: {type(error).__name__}: {error}"
        raise ModelFileError(what, where=where, hint="give the config.json that belongs to the weights") from error
