"""``vitrail models``."""

from typing import Annotated, Any

from cyclopts import Parameter

from vitrail.cli.console import result, result_json

FIELDS = ("dim", "depth", "heads", "mlp_dim")


def models(*, json: Annotated[bool, Parameter(negative=())] = False) -> None:
    """List the models by name, with parameters and multiply-adds of one image.

    Any other patch side works as well: ViT-S/8, ViT-B/28. timm's names are understood: vit_base_patch16_224.

    Parameters
    ----------
    json
        One JSON document: a list of models.
    """
    from vitrail.models.registry import NAMES, model_config
    from vitrail.study.cost import totals

    rows: list[dict[str, Any]] = []
    for name in NAMES:
        config = model_config(name)
        parameters, macs = totals(config)
        sizes = {field: getattr(config, field) for field in FIELDS}
        rows.append({"model": name, "image_size": list(config.image_size), **sizes, "parameters": parameters, "macs": macs})
    if json:
        result_json(rows)
        return
    result(f"{'model':<22}{'image':>9}{'dim':>6}{'depth':>7}{'heads':>7}{'mlp':>6}{'parameters':>16}{'multiply-adds':>16}")
    for row in rows:
        image = "×".join(str(side) for side in row["image_size"])
        widths = f"{row['dim']:>6}{row['depth']:>7}{row['heads']:>7}{row['mlp_dim']:>6}"
        result(f"{row['model']:<22}{image:>9}{widths}{row['parameters']:>16,}{row['macs'] / 1e9:>14.2f} G")
