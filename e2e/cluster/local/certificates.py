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
        usage = "keyUsage=critical,keyCertSign,digitalSignature"
        subject = ["-subj", "/CN=rljob-e2e-ca", "-addext", usage]
        _openssl("req -x509 -new", *subject, "-days", _DAYS, "-key", self._key, "-out", self.certificate)

    def issue(self, name: str, common_name: str, organization: str = "", addresses: tuple[str, ...] = ()) -> None:
        """Sign a certificate for `common_name` (a user) in `organization` (a group), valid for `addresses`.

        addresses: subject alternative names in openssl's form, as `DNS:kubernetes` or `IP:10.0.0.1`.
        """
        key, request, extensions = (self.folder / f"{name}.{suffix}" for suffix in ("key", "csr", "ext"))
        _key(key)
        subject = (f"/O={organization}" if organization else "") + f"/CN={common_name}"
        _openssl("req -new", "-key", key, "-subj", subject, "-out", request)
        lines = ["keyUsage=critical,digitalSignature", "extendedKeyUsage=serverAuth,clientAuth"]
        if addresses:
            lines.append("subjectAltName=" + ",".join(addresses))
        extensions.write_text("\n".join(lines) + "\n")
        signer = ["-CA", str(self.certificate), "-CAkey", str(self._key), "-CAcreateserial", "-days", _DAYS]
        _openssl("x509 -req", *signer, "-extfile", extensions, "-in", request, "-out", self.folder / f"{name}.crt")


def _key(path: Path) -> None:
    _openssl("genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-256", "-out", path)
    path.chmod(0o600)


def _openssl(command: str, *arguments: str | Path) -> None:
    run(["openssl", *command.split(), *arguments])
