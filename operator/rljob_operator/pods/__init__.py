"""Pure builders and parsers of Kubernetes objects: what a workload looks like as a pod, and what a pod says back."""
