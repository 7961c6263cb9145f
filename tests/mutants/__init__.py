"""Mutants: wrong changes of the code, one at a time, each of which some test must notice.

    python -m tests.mutants                     run all of them; a quarter of an hour on a quiet machine
    python -m tests.mutants --list              show their names
    python -m tests.mutants ledger maps/rollback    run those whose names begin so

A mutant that survives shows a promise that no test checks: write the test. One that changes nothing that anyone could
see is replaced by another.
"""

from tests.mutants import access, backup, batches, boards, ledger, maintenance, maps, merge, readers, redis
from tests.mutants.mutant import Mutant

MUTANTS: list[Mutant] = [
    *maps.MUTANTS,
    *ledger.MUTANTS,
    *batches.MUTANTS,
    *merge.MUTANTS,
    *redis.MUTANTS,
    *readers.MUTANTS,
    *maintenance.MUTANTS,
    *access.MUTANTS,
    *backup.MUTANTS,
    *boards.MUTANTS,
]
