"""Mutants of backup, restore and doctor: what is damaged, does not fit, or is wrong."""

from tests.mutants.mutant import Mutant

MANIFEST = "webapp/commands/management/backup/manifest.py"
SAVE = "webapp/commands/management/backup/save.py"
LOAD = "webapp/commands/management/backup/load.py"
CHECKPOINTS = "webapp/commands/management/doctor/running.py"

TESTS = "tests/webapp/commands/test_backup.py"
REFUSALS = [f"{TESTS}::test_a_restore_refuses_what_is_damaged_or_does_not_fit"]
MODE = [f"{TESTS}::test_a_backup_says_what_it_has_and_only_its_owner_may_read_it"]
DOCTOR = ["tests/webapp/commands/test_doctor.py"]

MUTANTS = [
    Mutant(
        "backup/a-damaged-file-is-restored",
        MANIFEST,
        'if file.stat().st_size != known["bytes"] or _digest(file) != known["sha256"]:',
        'if file.stat().st_size != known["bytes"]:',
        REFUSALS,
    ),
    Mutant(
        "backup/tables-of-a-later-version-are-restored",
        MANIFEST,
        "if manifest.schema not in map(str, migrations()):",
        "if not manifest.schema:",
        REFUSALS,
    ),
    Mutant(
        "backup/a-database-with-tables-is-restored-into",
        LOAD,
        "if tables := [name for (name,) in conn.execute(TABLES).fetchall()]:",
        "if tables := []:",
        REFUSALS,
    ),
    Mutant(
        "backup/others-may-read-it",
        SAVE,
        "draft.mkdir(mode=0o700)",
        "draft.mkdir()",
        MODE,
    ),
    Mutant(
        "backup/a-restored-ledger-is-no-finding",
        CHECKPOINTS,
        "seen.txid > committed",
        "seen.txid < committed",
        DOCTOR,
    ),
]
