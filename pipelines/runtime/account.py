"""Whom PostgreSQL runs as. It refuses to run as root, so root lends it to an account without rights.

That account may be unable to reach the data folder or the server's own programs, because a folder on the way is
closed to others (a checkout in a private temporary folder, a virtual environment below /root). Then `setpriv` of
util-linux leaves it the one capability that opens folders, CAP_DAC_OVERRIDE, which containers have by default.
"""

import os
import pwd
import shutil
import stat
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pipelines.runtime.errors import RuntimeSetupError

WAYS_OUT = "set DATABASE_URL to a PostgreSQL of your own, or run as an ordinary user"


@dataclass(frozen=True)
class Account:
    """The user and group of a server; `closed` is the folder on its way that it may not enter, if any."""

    uid: int
    gid: int
    closed: Path | None = None

    def run(self, *command: str | Path, stdin: str = "") -> subprocess.CompletedProcess[str]:
        """Run a command as this account and return its output, whatever its exit code."""
        words = [*self._through_closed_folders(), *map(str, command)]
        lent = os.geteuid() == 0 and self.closed is None
        try:
            # The working folder may be closed to this account, the root folder is not.
            return subprocess.run(
                words, input=stdin, capture_output=True, text=True, cwd="/", start_new_session=True,
                user=self.uid if lent else None,
                group=self.gid if lent else None,
                extra_groups=[] if lent else None,
            )  # fmt: skip
        except OSError as error:
            raise RuntimeSetupError(
                f"{command[0]}: cannot be run as user {self.uid} ({error.strerror}); {WAYS_OUT}"
            ) from error

    def own(self, path: Path) -> None:
        """Make `path` this account's own."""
        if os.geteuid() == 0:
            os.chown(path, self.uid, self.gid)

    def _through_closed_folders(self) -> Sequence[str]:
        if self.closed is None:
            return ()
        return (
            _setpriv(self.closed),
            f"--reuid={self.uid}",
            f"--regid={self.gid}",
            "--clear-groups",
            "--inh-caps=-all,+dac_override",
            "--ambient-caps=-all,+dac_override",
            # Or access(2), by which initdb looks for its fellow programs, would not count the capability.
            "--securebits=+no_setuid_fixup",
        )


def server_account(data: Path, program: Path) -> Account:
    """Return whom to run `program` as, on data in the folder `data` (which need not exist yet).

    An ordinary user runs it as himself; root as the owner of the data, `nobody` where there is none.
    """
    if os.geteuid() != 0:
        return Account(os.geteuid(), os.getegid())
    uid, gid = _owner(data)
    return Account(uid, gid, _closed_folder(uid, data.parent) or _closed_folder(uid, program))


def _owner(data: Path) -> tuple[int, int]:
    if data.exists() and data.stat().st_uid != 0:
        return data.stat().st_uid, data.stat().st_gid
    nobody = pwd.getpwnam("nobody")
    return nobody.pw_uid, nobody.pw_gid


def _closed_folder(uid: int, target: Path) -> Path | None:
    """Return the first path from the root folder down to `target` that `uid` may not enter or execute."""
    for path in [*reversed(target.parents), target]:
        status = path.stat()
        needed = stat.S_IXUSR if status.st_uid == uid else stat.S_IXOTH
        if not status.st_mode & needed:
            return path
    return None


def _setpriv(closed: Path) -> str:
    setpriv = shutil.which("setpriv")
    if setpriv is None:
        raise RuntimeSetupError(
            f"{str(closed)!r} is closed to the unprivileged account that PostgreSQL needs to run as when started by "
            f"root, and there is no setpriv (util-linux) to open it; chmod o+x it, {WAYS_OUT}"
        )
    return setpriv
