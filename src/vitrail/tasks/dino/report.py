"""The report on self-distillation."""

from vitrail.study.page.feature_report import report_part

__all__ = ["report_part"]
