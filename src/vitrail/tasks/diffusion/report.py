"""The report on diffusion."""

from vitrail.study.page.report_part import SPLIT_WORDS, Part, Reported
from vitrail.study.page.tables import split_table


def report_part(run: Reported) -> Part:
    """Return the loss, and how many images there are."""
    what = f"loss on {len(run.items):,} {SPLIT_WORDS[run.split]}images"
    return Part(cards=[(f"{run.metrics.scores()['loss']:.4f}", what)], sections=[], data=split_table(run.data), caption="")
