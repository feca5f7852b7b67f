"""Pure decisions and shared documents of RLJob: no I/O, no clock, no randomness of its own."""
