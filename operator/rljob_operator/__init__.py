"""The control plane: observe, decide (rljob_core), apply. No torch, no Mooncake."""
