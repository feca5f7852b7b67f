"""The Kubernetes shell of the operator: API calls, watches, Lease, probes, and the loop that drives passes."""
