"""Feeder: writes transfers into the input folder, and knows what the states must hold in the end."""

import json
import os
import random
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from tests.soak.transfers import ACCOUNTS, MODULUS

FIRST_LANDING = 1_700_000_000
LARGEST_FILE = 12  # transfers


@dataclass
class Model:
    """Account to count, total and largest amount, of all transfers fed; for each of the two sides."""

    n: dict[str, Counter[str]] = field(default_factory=lambda: {"debits": Counter(), "credits": Counter()})
    total: dict[str, Counter[str]] = field(default_factory=lambda: {"debits": Counter(), "credits": Counter()})

    def add(self, debited: str, credited: str, amount: int) -> None:
        for side, account in (("debits", debited), ("credits", credited)):
            self.n[side][account] += 1
            self.total[side][account] += amount

    def values(self, side: str) -> dict[str, dict[str, int]]:
        return {account: {"n": n, "total": self.total[side][account]} for account, n in self.n[side].items()}

    @property
    def transfers(self) -> int:
        return self.n["debits"].total()


class Feeder:
    """Lands files one after the other; the chance that fills them is its own, so a seed always lands the same files."""

    def __init__(self, folder: Path, seed: str) -> None:
        self.folder = folder
        self.model = Model()
        self.files = 0
        self._chance = random.Random(seed)
        folder.mkdir(parents=True, exist_ok=True)

    def land(self, files: int = 1) -> None:
        for _ in range(files):
            self._land_one()

    def _land_one(self) -> None:
        transfers = [self._transfer() for _ in range(self._chance.randint(1, LARGEST_FILE))]
        debited, credited, amount = transfers[-1]
        excess = sum(amount for _, _, amount in transfers) % MODULUS
        transfers[-1] = debited, credited, amount + MODULUS - excess
        for transfer in transfers:
            self.model.add(*transfer)
        self._write(transfers)

    def _transfer(self) -> tuple[str, str, int]:
        debited, credited = self._chance.sample(ACCOUNTS, 2)
        return debited, credited, self._chance.randint(1, 500)

    def _write(self, transfers: list[tuple[str, str, int]]) -> None:
        names = ("debited", "credited", "amount")
        draft = self.folder / f".{self.files}"
        draft.write_text("".join(json.dumps(dict(zip(names, each, strict=True))) + "\n" for each in transfers))
        # Spark reads files in the order of their times, to the second.
        os.utime(draft, (FIRST_LANDING + self.files, FIRST_LANDING + self.files))
        draft.replace(self.folder / f"{self.files:06}.json")
        self.files += 1
