"""Events of the Yahoo Streaming Benchmark, chosen by a seed, and the counts that its check expects.

They follow the benchmark's own generator (yahoo/streaming-benchmarks, data/src/setup/core.clj): ten ads per campaign, a
hundred users and pages, and every choice uniform. In the variant of many campaigns (dataArtisans/
yahoo-streaming-benchmark) an event has its campaign's id, so that nothing is joined.
"""

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from itertools import pairwise, product

import numpy as np

WINDOW_MS = 10_000
CAMPAIGNS, ADS_EACH = 100, 10
AD_TYPES = ("banner", "modal", "sponsored-search", "mail", "mobile")
VIEW = "view"
EVENT_TYPES = (VIEW, "click", "purchase")
TAIL = '", "ip_address": "1.2.3.4"}\n'

POOL = 200_000  # events

# With skew, times differ by 50 ms at most, and one event in 100,000 is up to a minute late.
SKEW_MS, LATE_IN, LATE_MS = 50, 100_000, 60_000

Key = tuple[str, int]  # a campaign, and the start of a window in ms since 1970


class Events:
    """Makes events, and counts the views of those that it has made.

    joined: whether events have an ad's id instead of the campaign's. skew: whether times are like those of the option
    `--with-skew`. The same arguments and calls give the same events. Only times are made for each event; the rest is
    chosen at random once for POOL events, or as many as there are campaigns, which come round, because the sender
    must not take the processor from what it measures.
    """

    def __init__(
        self,
        seed: int,
        campaigns: int = CAMPAIGNS,
        *,
        joined: bool = True,
        window_ms: int = WINDOW_MS,
        skew: bool = False,
    ) -> None:
        self._chance = np.random.default_rng(seed)
        self._skew, self.window_ms = skew, window_ms
        self.campaigns = self._ids(campaigns)
        ids = self._ids(campaigns * ADS_EACH) if joined else self.campaigns
        self.ads = {ad: self.campaigns[place // ADS_EACH] for place, ad in enumerate(ids)} if joined else {}
        self._fill_pool("ad_id" if joined else "campaign_id", ids)
        self._views: dict[int, np.ndarray] = {}
        self.made = 0

    def lines(self, times: np.ndarray) -> bytes:
        """Return an event for each time, in ms since 1970, as JSON lines, and count the views among them."""
        if self._skew:
            late = (self._chance.integers(0, LATE_IN, len(times)) == 0) * self._chance.integers(0, LATE_MS, len(times))
            times = times + self._chance.integers(-SKEW_MS, SKEW_MS, len(times)) - late
        chosen = np.arange(self.made, self.made + len(times)) % len(self._pool)
        self._count(self._places[chosen], times)
        self.made += len(times)
        pieces = []
        for first, after in pairwise([0, *(np.flatnonzero(np.diff(times)) + 1).tolist(), len(times)]):
            end = f"{times[first]}{TAIL}"
            pieces += [end.join([self._pool[place] for place in chosen[first:after].tolist()]), end]
        return "".join(pieces).encode()

    def views(self) -> Counter[Key]:
        """Return the number of views per campaign and window, among the events made so far."""
        return Counter(
            {
                (self.campaigns[place], start): int(counts[place])
                for start, counts in self._views.items()
                for place in np.flatnonzero(counts)
            }
        )

    def _fill_pool(self, name: str, ids: list[str]) -> None:
        """Choose everything but the times: `_pool` has the events' texts, `_places` their campaigns, -1 if no view."""
        size, chance = max(POOL, len(self.campaigns)), self._chance
        heads = [
            f'{{"user_id": "{u}", "page_id": "{p}", "{name}": "' for u, p in product(self._ids(100), self._ids(100))
        ]
        middles = [
            f'", "ad_type": "{ad_type}", "event_type": "{event_type}", "event_time": "'
            for event_type, ad_type in product(EVENT_TYPES, AD_TYPES)
        ]
        head, chosen, middle = (chance.integers(0, len(each), size) for each in (heads, ids, middles))
        choices = zip(head.tolist(), chosen.tolist(), middle.tolist(), strict=True)
        self._pool = [f"{heads[h]}{ids[i]}{middles[m]}" for h, i, m in choices]
        place = chosen // ADS_EACH if self.ads else chosen
        self._places = np.where(middle < len(AD_TYPES), place, -1)

    def _count(self, places: np.ndarray, times: np.ndarray) -> None:
        starts = times // self.window_ms * self.window_ms
        for start in np.unique(starts).tolist():
            counts = self._views.setdefault(start, np.zeros(len(self.campaigns), np.int64))
            np.add.at(counts, places[(starts == start) & (places >= 0)], 1)

    def _ids(self, count: int) -> list[str]:
        digits = self._chance.bytes(16 * count).hex()
        each = (digits[place : place + 32] for place in range(0, len(digits), 32))
        return [f"{d[:8]}-{d[8:12]}-{d[12:16]}-{d[16:20]}-{d[20:]}" for d in each]


def counted(lines: Iterable[bytes], ads: Mapping[str, str]) -> Counter[Key]:
    """Count views by parsing each event, as the benchmark's own check does. ads: their campaigns, or empty."""
    views: Counter[Key] = Counter()
    for line in lines:
        event = json.loads(line)
        if event["event_type"] == VIEW:
            campaign = ads[event["ad_id"]] if ads else event["campaign_id"]
            views[campaign, int(event["event_time"]) // WINDOW_MS * WINDOW_MS] += 1
    return views
