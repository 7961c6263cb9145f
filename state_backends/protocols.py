"""What the rooms of this library ask of each other: a place to keep rows, and a way to fold measures."""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, LiteralString, Protocol

from state_backends.row import Key, Versioned

if TYPE_CHECKING:
    from state_backends.spec import StateSpec


class IBackingMap(Protocol):
    """Where the rows of one state live. Trident's IBackingMap, with removal, scans and revert added.

    Keys are tuples with one part per key column of `spec`, in that order. A key that does not fit raises KeyShapeError,
    naming its index, and nothing of that call is stored. Empty calls do nothing.
    """

    @property
    def spec(self) -> "StateSpec": ...

    def multi_get(self, keys: Sequence[Key]) -> list[Versioned | None]:
        """Return the stored row of each key, in the order asked; None where a key is absent."""

    def multi_put(self, keys: Sequence[Key], rows: Sequence[Versioned]) -> None:
        """Store rows[i] under keys[i], all or none.

        Raises DuplicateKeyError if a key comes twice, StaleBatchError if a stored row has a newer txid than its
        replacement: a writer that was left behind must not take a row back, whatever it has read or cached before.
        """

    def multi_remove(self, keys: Sequence[Key]) -> None:
        """Forget the rows of these keys, versions and all; absent keys are no error."""

    def scan(
        self, start: Key | None = None, stop: Key | None = None, prefix: Key | None = None
    ) -> Iterator[tuple[Key, Versioned]]:
        """Yield (key, row) in key order: from `start` (with it) to `stop` (without it), or under a prefix of parts."""

    def revert(self, txid: int) -> int:
        """Put every row written by batch `txid` back to its previous version. Returns the number of rows."""


class Updater(Protocol):
    """Turns the stored value of one key into the new one. Trident's ValueUpdater."""

    def update(self, stored: Any) -> Any:
        """Return the new value; `stored` is None where nothing is stored, and must not be changed itself."""


class Aggregator(Protocol):
    """One measure of a state: what Spark computes of a batch, what is stored, how the two join, what a reader sees.

    columns: the stored columns, suffix to SQL type; the suffix `""` names the measure's own column.
    fold_sql: per suffix, SQL over {stored_SUFFIX} and {partial_SUFFIX} ({stored}, {partial} for the suffix `""`); empty
        where SQL cannot fold it, and then the state takes the generic path, by `fold`.
    fold_lua: the same in Lua, over the functions of backends/redis/lua/arithmetic.lua (`add_integer`,
        `min_double`, ..); a missing value is nil. Empty where Lua cannot.
    finish_sql: SQL over {stored_SUFFIX} giving what a reader sees, of type `result_type`.
    Folding is associative and commutative, and takes a null on either side as nothing.
    """

    name: ClassVar[str]
    finish_sql: LiteralString

    @property
    def columns(self) -> Mapping[str, LiteralString]: ...

    @property
    def fold_sql(self) -> Mapping[str, LiteralString]: ...

    @property
    def fold_lua(self) -> Mapping[str, str]: ...

    @property
    def result_type(self) -> str: ...

    def partial(self) -> Mapping[str, str]:
        """Return per suffix the Spark SQL expression that aggregates one batch; a suffix left out comes from `fold`."""

    def fold(self, stored: Mapping[str, Any], partial: Mapping[str, Any]) -> dict[str, Any]:
        """Join two partials, given and returned as suffix to value: the Python twin of `fold_sql`.

        Either side may be without the suffixes that `partial` leaves out, or hold nulls for nothing.
        Returns every suffix of `columns`.
        """

    def finish(self, stored: Mapping[str, Any]) -> Any:
        """Return what a reader sees; the Python twin of `finish_sql`."""

    def arguments(self) -> dict[str, Any]:
        """Return the constructor's arguments, for the catalog."""
