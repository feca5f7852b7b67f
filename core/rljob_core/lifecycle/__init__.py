"""Job lifecycle: (spec, observed, memory, now) in, plan out."""
