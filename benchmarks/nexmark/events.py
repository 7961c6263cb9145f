"""Events of the Nexmark benchmark as Parquet files, chosen by a seed.

They follow the benchmark's own generator (nexmark/nexmark, nexmark-flink/src/main/java/com/github/nexmark/flink/
generator): of 50 events, one is a person, three are auctions and 46 are bids, and most bids are for a hot auction and
by a hot bidder. An event's number decides its kind, its time, and which auctions and persons exist. Persons and
auctions have their kind, time and padding only, because none of the queries reads more of them.
"""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

SCHEMA = (
    "event_type int NOT NULL, auction bigint, bidder bigint, price bigint, channel string, url string, "
    "date_time timestamp, extra string"
)
PERSON, AUCTION, BID = 0, 1, 2
PERSONS, AUCTIONS, CYCLE = 1, 3, 50  # of each 50 events
FIRST_ID = 1_000  # of auctions and of persons
# Of these, all but one in this many are for the hot auction, or by the hot bidder, which changes every HOT_EVERY ids.
HOT_AUCTION_RATIO, HOT_BIDDER_RATIO, HOT_EVERY = 2, 4, 100
IN_FLIGHT, ACTIVE_PERSONS, LEAD = 100, 1_000, 10
HOT_CHANNELS, CHANNELS = ("Google", "Facebook", "Baidu", "Apple"), 10_000
BYTES = {PERSON: 200, AUCTION: 500, BID: 100}
BID_COLUMNS_BYTES = 32
EVENTS_PER_SECOND = 10_000  # the generator's default, of event time
START_MS = 1_700_000_000_000


def lay_out_events(folder: Path, events: int, files: int) -> None:
    """Write `events` events into `files` Parquet files, in order of their numbers; the same arguments give the same."""
    folder.mkdir(parents=True)
    for number in range(files):
        first, after = number * events // files, (number + 1) * events // files
        pq.write_table(events_table(first, after), folder / f"part-{number:04}.parquet", row_group_size=100_000)


def events_table(first: int, after: int) -> pa.Table:
    """Return the events with the numbers from `first` to before `after`. The seed of their choices is `first`."""
    chance, numbers = np.random.default_rng(first), np.arange(first, after)
    place = numbers % CYCLE
    kinds = np.where(place < PERSONS, PERSON, np.where(place < PERSONS + AUCTIONS, AUCTION, BID)).astype(np.int32)
    other = kinds != BID
    columns = {
        "event_type": pa.array(kinds),
        "auction": pa.array(_auctions(chance, numbers), mask=other),
        "bidder": pa.array(_bidders(chance, numbers), mask=other),
        "price": pa.array(np.round(10 ** (6 * chance.random(len(numbers))) * 100).astype(np.int64), mask=other),
        **_channels(chance, other),
        "date_time": pa.array(START_MS + numbers * 1000 // EVENTS_PER_SECOND, pa.timestamp("ms", "UTC")),
        "extra": pa.array(_padding(chance, kinds)),
    }
    return pa.table(columns)


def _auctions(chance: np.random.Generator, numbers: np.ndarray) -> np.ndarray:
    """Return the auction of each bid: the hot one, or one of those in flight or about to be opened."""
    last = numbers // CYCLE * AUCTIONS + AUCTIONS - 1
    first = np.maximum(last - IN_FLIGHT, 0)
    cold = first + chance.integers(0, last - first + 1 + LEAD)
    is_hot = chance.integers(0, HOT_AUCTION_RATIO, len(numbers)) > 0
    return FIRST_ID + np.where(is_hot, last // HOT_EVERY * HOT_EVERY, cold)


def _bidders(chance: np.random.Generator, numbers: np.ndarray) -> np.ndarray:
    """Return the person who makes each bid: the hot one, or one of those who are active or about to come."""
    persons = numbers // CYCLE * PERSONS + 1
    active = np.minimum(persons, ACTIVE_PERSONS)
    cold = persons - active + chance.integers(0, active + LEAD)
    is_hot = chance.integers(0, HOT_BIDDER_RATIO, len(numbers)) > 0
    # The first id is added twice, as in the generator.
    return 2 * FIRST_ID + np.where(is_hot, (persons - 1) // HOT_EVERY * HOT_EVERY + 1, cold)


def _channels(chance: np.random.Generator, absent: np.ndarray) -> dict[str, pa.Array]:
    """Return channels and their addresses: half of the bids come through one of four, the others through any."""
    names = [*HOT_CHANNELS, *(f"channel-{number}" for number in range(CHANNELS))]
    urls = [f"https://www.nexmark.com/{name.lower()}/item.htm?query=1&channel_id={n}" for n, name in enumerate(names)]
    hot = chance.integers(0, len(HOT_CHANNELS), len(absent))
    cold = len(HOT_CHANNELS) + chance.integers(0, CHANNELS, len(absent))
    chosen = pa.array(np.where(chance.integers(0, 2, len(absent)) > 0, hot, cold), mask=absent)
    return {"channel": pa.array(names).take(chosen), "url": pa.array(urls).take(chosen)}


def _padding(chance: np.random.Generator, kinds: np.ndarray) -> list[str]:
    """Return texts that bring events to their size on average, give or take a fifth, cut from one random text."""
    text = "".join(map(chr, chance.integers(ord("a"), ord("z") + 1, 100_000)))
    wanted = np.array([BYTES[kind] for kind in (PERSON, AUCTION, BID)])[kinds] - BID_COLUMNS_BYTES
    lengths = (wanted * (0.8 + 0.4 * chance.random(len(kinds)))).astype(int)
    starts = chance.integers(0, len(text) - lengths.max(), len(kinds))
    return [text[start : start + length] for start, length in zip(starts.tolist(), lengths.tolist(), strict=True)]
