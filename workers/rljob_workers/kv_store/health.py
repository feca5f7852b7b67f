"""Whether a store master serves: its own word, since a port that accepts, or HTTP 200, also comes from a standby."""

from __future__ import annotations

import json
import urllib.error
import urllib.request

TIMEOUT_S = 2.0


def service_ready(host: str, metrics_port: int) -> bool:
    """GET /health of `mooncake_master`; False when it does not answer in time."""
    address = f"[{host}]" if ":" in host else host
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(f"http://{address}:{metrics_port}/health", timeout=TIMEOUT_S) as response:
            return bool(json.load(response).get("service_ready"))
    except (OSError, urllib.error.URLError, ValueError):
        return False
