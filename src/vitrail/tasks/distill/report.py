"""The report on distilled features."""

from vitrail.study.page.feature_report import report_part

__all__ = ["report_part"]
