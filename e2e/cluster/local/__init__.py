"""A one-node Kubernetes cluster without Docker: components built from Go modules, containerd and runc from Debian.

The node lives in namespaces of its own (mount, network, PID), as kind's does: when its first process ends, the
kernel ends every process, mount, interface and firewall rule with it, so nothing is left to clean but files.
"""
