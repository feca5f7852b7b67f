"""The token with which the operator and the workers of one job recognise each other."""

from __future__ import annotations

import hashlib
import hmac


def job_token(install_key: bytes, job_uid: str) -> str:
    """HMAC-SHA256 of the job's uid under the install key, in hex: derived, so it never has to be read back."""
    return hmac.new(install_key, job_uid.encode(), hashlib.sha256).hexdigest()
