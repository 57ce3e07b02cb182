"""Results on paper: an audit's table and figures, and pages about whole runs."""

from veilmap.reports.audits import (
    COLUMNS,
    TRADEOFF_COLUMNS,
    UNITS,
    by_label,
    headline,
    label,
    label_of,
    marked,
    metres,
    shown_rounds,
    study_among,
    table_rows,
    tradeoff_rows,
    write_audit,
    write_json,
    write_tradeoff,
)
from veilmap.reports.pages import write_page

__all__ = [
    "COLUMNS",
    "TRADEOFF_COLUMNS",
    "UNITS",
    "by_label",
    "headline",
    "label",
    "label_of",
    "marked",
    "metres",
    "shown_rounds",
    "study_among",
    "table_rows",
    "tradeoff_rows",
    "write_audit",
    "write_json",
    "write_page",
    "write_tradeoff",
]
