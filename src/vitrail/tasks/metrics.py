"""The table of metrics: names, formats, and the order in which they decide. This module imports no torch."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Metric:
    """A metric in the row of an epoch or in the scores of a model."""

    name: str
    """The key, such as ``top1``; in an epoch's row with the split as a prefix: ``val_top1``."""
    title: str
    short: str
    """A short title for narrow columns."""
    is_share: bool = True
    """True for a fraction 0…1, which is shown in per cent."""
    counts_images: bool = False
    """True for a fraction of images, whose uncertainty is that of a binomial count."""
    higher_is_better: bool = True
    every_epoch: bool = True
    """True if the rows of epochs have it."""
    unless: str = ""
    """The name of a metric that replaces this one in the rows of epochs."""
    digits: int = 2
    """Number of decimals in per cent; a metric that is no fraction has two more."""

    @property
    def factor(self) -> int:
        """The factor from a value to the shown number."""
        return 100 if self.is_share else 1

    @property
    def label(self) -> str:
        """The title with the unit, for an axis or a column's header."""
        return f"{self.title}, %" if self.is_share else self.title

    def shown(self, value: float, digits: int | None = None) -> str:
        """Return a value as text: ``98.06 %``, or for a value that is no fraction ``0.1234``."""
        digits = self.digits if digits is None else min(digits, self.digits)
        return f"{100 * value:.{digits}f} %" if self.is_share else f"{value:.{digits + 2}f}"


METRICS = {
    metric.name: metric
    for metric in (
        Metric("cider_d", "CIDEr-D", "CIDEr-D", is_share=False, digits=0),
        Metric("bleu4", "BLEU-4", "BLEU-4", is_share=False, digits=0),
        Metric("bleu3", "BLEU-3", "BLEU-3", is_share=False, every_epoch=False, digits=0),
        Metric("bleu2", "BLEU-2", "BLEU-2", is_share=False, every_epoch=False, digits=0),
        Metric("bleu1", "BLEU-1", "BLEU-1", is_share=False, every_epoch=False, digits=0),
        Metric("rouge_l", "ROUGE-L", "ROUGE-L", is_share=False, every_epoch=False, digits=0),
        Metric("different_captions", "captions that differ", "variety", is_share=False, digits=-2),
        Metric("bleu", "BLEU", "BLEU", is_share=False, every_epoch=False, digits=0),
        Metric("chrf", "chrF", "chrF", is_share=False, every_epoch=False, digits=0),
        Metric("token_accuracy", "token accuracy", "acc"),
        Metric("map", "mean average precision", "mAP"),
        Metric("f1", "mean F1", "F1"),
        Metric("mean_absolute_error", "mean absolute error", "MAE", is_share=False, higher_is_better=False, digits=0),
        Metric("top1", "accuracy", "top-1", counts_images=True, unless="map"),
        Metric("top5", "top-5 accuracy", "top-5", counts_images=True, every_epoch=False),
        Metric("pck", "correct joints (PCK@0.2)", "PCK"),
        Metric("pck_box", "correct joints by the box", "PCK-box", every_epoch=False),
        Metric("pckh", "correct joints by the head (PCKh@0.5)", "PCKh", every_epoch=False),
        Metric("oks", "keypoint similarity (OKS)", "OKS", is_share=False),
        Metric("ap", "average precision of people", "AP", every_epoch=False),
        Metric("ap50", "average precision at OKS 0.5", "AP50", every_epoch=False),
        Metric("ap75", "average precision at OKS 0.75", "AP75", every_epoch=False),
        Metric("ap_medium", "average precision, medium", "AP-M", every_epoch=False),
        Metric("ap_large", "average precision, large", "AP-L", every_epoch=False),
        Metric("ar", "average recall of people", "AR", every_epoch=False),
        Metric("ar50", "average recall at OKS 0.5", "AR50", every_epoch=False),
        Metric("ar75", "average recall at OKS 0.75", "AR75", every_epoch=False),
        Metric("ar_medium", "average recall, medium", "AR-M", every_epoch=False),
        Metric("ar_large", "average recall, large", "AR-L", every_epoch=False),
        Metric("miou", "mean IoU of classes", "mIoU"),
        Metric("pixel_accuracy", "pixel accuracy", "pAcc"),
        Metric("mean_accuracy", "mean accuracy of classes", "mAcc", every_epoch=False),
        Metric("boundary_iou", "mean boundary IoU of classes", "bIoU", every_epoch=False),
        Metric("sample_distance", "kernel distance of samples", "KID", is_share=False, higher_is_better=False),
        Metric("knn", "accuracy of nearest neighbours", "kNN", counts_images=True),
        Metric("linear_accuracy", "accuracy of a linear probe", "lin-acc", counts_images=True, every_epoch=False),
        Metric("rankme", "rank of the features", "RankMe", is_share=False, digits=-1),
        Metric("uniformity", "uniformity of the features", "unif", is_share=False, higher_is_better=False, every_epoch=False),
        Metric("loss", "loss", "loss", is_share=False, higher_is_better=False),
    )
}
"""All metrics by name. The first one that a model has decides; all models have the loss."""


SIGNATURE = "signature"
"""Key of sacreBLEU's signature, which describes how BLEU and chrF were computed."""
COUNTS = ("images", "sentences", "people", "boxes")
"""Keys for numbers of items in scores."""


def metric_of(name: str) -> Metric:
    """Return a metric by its name, with or without the prefix of a split; an unknown name becomes a metric without unit."""
    bare = name.removeprefix("train_").removeprefix("val_")
    title = bare.replace("_", " ")
    return METRICS.get(bare, Metric(bare, title, title, is_share=False))


def of_epoch(scores: Mapping[str, float]) -> dict[str, float]:
    """Return those scores of a model that belong in the row of an epoch."""
    metrics = {name: metric_of(name) for name in scores if name not in (*COUNTS, SIGNATURE)}
    return {name: scores[name] for name, metric in metrics.items() if metric.every_epoch and metric.unless not in scores}


def metrics_in(scores: Mapping[str, object]) -> list[Metric]:
    """Return the metrics in scores, in the order of the table."""
    return [metric for name, metric in METRICS.items() if name in scores]


def main_metric(scores: Mapping[str, object], prefix: str = "") -> Metric:
    """Return the metric that decides between models with these scores; keys may have the ``prefix`` of a split."""
    return next((metric for metric in METRICS.values() if prefix + metric.name in scores), METRICS["loss"])


def rank(row: Mapping[str, float]) -> tuple[float, float]:
    """Return a key for comparing epochs: the main metric on validation images, then the lower loss; larger is better."""
    metric = main_metric(row, "val_")
    value = row[f"val_{metric.name}"]
    return value if metric.higher_is_better else -value, -row["val_loss"]


def described(values: Mapping[str, float], prefix: str = "") -> str:
    """Return a short text on the metrics in values with the ``prefix`` of a split: ``loss 0.073 top-1 98.1 %``."""
    names = ["loss", *(name for name in METRICS if name != "loss")]
    shown = ((METRICS[name], values[prefix + name]) for name in names if prefix + name in values)
    return " ".join(f"{metric.short} {metric.shown(value, 1)}" for metric, value in shown)
