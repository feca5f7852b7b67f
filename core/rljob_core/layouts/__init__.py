"""Layouts of ranks and tensors."""

from rljob_core.layouts.layout import ExpertMap, Layout, Slice, TensorKind, TensorSpec

__all__ = ["ExpertMap", "Layout", "Slice", "TensorKind", "TensorSpec"]
