"""The cluster's certificate authority and the certificates it signs, by the openssl command."""

from __future__ import annotations

from pathlib import Path

from commands import run

_DAYS = "3650"


class Authority:
    """A certificate authority in one folder: `ca.crt`, and `<name>.crt` and `<name>.key` for each certificate."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self.certificate = folder / "ca.crt"
        self._key = folder / "ca.key"
        _key(self._key)
        run(
            "openssl req -x509 -new -subj /CN=rljob-e2e-ca -addext keyUsage=critical,keyCertSign,digitalSignature".split()
            + ["-days", _DAYS, "-key", str(self._key), "-out", str(self.certificate)]
        )

    def issue(self, name: str, common_name: str, organization: str = "", addresses: tuple[str, ...] = ()) -> None:
        """Sign a certificate for `common_name` (a user) in `organization` (a group), valid for `addresses`.

        addresses: subject alternative names in openssl's form, as `DNS:kubernetes` or `IP:10.0.0.1`.
        """
        key, request, extensions = (self.folder / f"{name}.{suffix}" for suffix in ("key", "csr", "ext"))
        _key(key)
        subject = (f"/O={organization}" if organization else "") + f"/CN={common_name}"
        run(["openssl", "req", "-new", "-key", key, "-subj", subject, "-out", request])
        lines = ["keyUsage=critical,digitalSignature", "extendedKeyUsage=serverAuth,clientAuth"]
        if addresses:
            lines.append("subjectAltName=" + ",".join(addresses))
        extensions.write_text("\n".join(lines) + "\n")
        run(
            f"openssl x509 -req -CAcreateserial -days {_DAYS}".split()
            + ["-CA", str(self.certificate), "-CAkey", str(self._key), "-extfile", str(extensions)]
            + ["-in", str(request), "-out", str(self.folder / f"{name}.crt")]
        )


def _key(path: Path) -> None:
    run(["openssl", "genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256", "-out", path])
    path.chmod(0o600)
