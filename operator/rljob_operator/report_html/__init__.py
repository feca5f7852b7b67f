"""`report.html` of a run: one file, inline SVG, no script, nothing loaded from anywhere."""

from rljob_operator.report_html.page import render, write_report

__all__ = ["render", "write_report"]
