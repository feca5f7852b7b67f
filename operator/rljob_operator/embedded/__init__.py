"""`rljob run`: the operator's brain with local processes in place of pods."""
