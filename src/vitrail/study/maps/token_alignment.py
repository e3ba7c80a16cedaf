"""Figures of the attention between the tokens of two sentences."""

from collections.abc import Iterable, Sequence

from matplotlib.figure import Figure

from vitrail.models.text.text_model import Aligned, TextModel
from vitrail.models.text.transformer_decoder import TransformerDecoder
from vitrail.study.page import figures

BETWEEN_TOKENS = "Attention from each token that is written (rows) to each token that is read (columns), {}; darker is more."
SMALL = {"fontsize": 7, "parse_math": False}
"""Style of tokens, which may hold any character."""


def which_attention(model: TextModel) -> str:
    """Return a phrase that says which of a model's attention layers is shown."""
    if not isinstance(model, TransformerDecoder):
        return "by the model's only attention"
    if model.shown == TransformerDecoder.shown:
        return "in the last block of the decoder, the mean of its heads"
    return "in all blocks of the decoder, the mean of their heads"


def alignment_caption(models: Iterable[TextModel]) -> str:
    """Return the caption of the `alignment_maps` of these models."""
    return BETWEEN_TOKENS.format(" or ".join(dict.fromkeys(map(which_attention, models))))


@figures.styled
def alignment_maps(drawn: Sequence[Aligned], titles: Sequence[str] = ()) -> Figure:
    """Draw a map for each sentence pair, two in a row, with titles below."""
    rows = -(-len(drawn) // 2)
    figure, grid = figures.canvas(9.6, 4.6 * rows, rows, 2)
    for axes in grid.flat[len(drawn) :]:
        axes.set_axis_off()
    for axes, title in zip(grid.flat, titles, strict=False):
        axes.set_xlabel(title, parse_math=False)
    for axes, (read, written, weights) in zip(grid.flat, drawn, strict=False):
        axes.imshow(weights, cmap="Blues", vmin=0, aspect="auto")
        axes.set_xticks(range(len(read)), [figures.readable(word.strip() or "␣") for word in read], rotation=90, **SMALL)
        axes.set_yticks(range(len(written)), [figures.readable(word.strip() or "␣") for word in written], **SMALL)
        axes.tick_params(length=0)
        axes.xaxis.tick_top()
    return figure
