"""Fixtures of this folder."""

from operator_fixtures import api, client, cluster, namespace, proxy, start

__all__ = ["api", "client", "cluster", "namespace", "proxy", "start"]
