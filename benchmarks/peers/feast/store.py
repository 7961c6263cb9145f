"""Fill a Feast store with sales: `python store.py FOLDER SALES.parquet`; `python store.py FOLDER` empties it again.

Runs in Feast's environment, not in ours. The feature service `sales_vector` reads one stored vector per key
(`precompute_online`). Feast can compute the vectors of its own accord in Redis only, so they are written here as
`FeatureStore.precompute_feature_service` writes them, but many at a time.
"""

import sys
from datetime import UTC, datetime, timedelta

import pandas as pd
from feast import Entity, FeatureService, FeatureStore, FeatureView, Field, FileSource, ValueType
from feast.protos.feast.core.PrecomputedFeatureVector_pb2 import FeatureViewTimestamp, PrecomputedFeatureVector
from feast.protos.feast.types.EntityKey_pb2 import EntityKey
from feast.protos.feast.types.Value_pb2 import Value
from feast.types import Bytes, Float64, Int64
from google.protobuf.timestamp_pb2 import Timestamp

VECTORS = "sales_vector"
FEATURES = ("n", "total")
ROWS_EACH = 5_000


def main(folder: str, sales: str | None = None) -> None:
    store = FeatureStore(folder)
    if sales is None:
        store.teardown()
        return
    frame = pd.read_parquet(sales)
    shop = Entity(name="shop", join_keys=["shop"], value_type=ValueType.STRING)
    view = FeatureView(
        name="sales",
        entities=[shop],
        ttl=timedelta(days=1),
        schema=[Field(name="n", dtype=Int64), Field(name="total", dtype=Float64)],
        source=FileSource(path=sales, timestamp_field="event_time"),
    )
    service = FeatureService(name=VECTORS, features=[view], precompute_online=True)
    store.apply([shop, view, service])
    store.write_to_online_store("sales", frame)
    write_vectors(store, frame)


def write_vectors(store: FeatureStore, frame: pd.DataFrame) -> None:
    stored = FeatureView(
        name=f"__precomputed__{VECTORS}", entities=[], schema=[Field(name="vector", dtype=Bytes)], source=None
    )
    rows = []
    for shop, n, total, at in zip(frame["shop"], frame["n"], frame["total"], frame["event_time"], strict=True):
        event_time = Timestamp()
        event_time.FromDatetime(at)
        vector = PrecomputedFeatureVector(
            feature_names=FEATURES,
            values=[Value(int64_val=n), Value(double_val=total)],
            fv_timestamps=[FeatureViewTimestamp(feature_view_name="sales", event_timestamp=event_time)],
            precomputed_at=event_time,
        )
        key = EntityKey(join_keys=["shop"], entity_values=[Value(string_val=shop)])
        rows.append((key, {"vector": Value(bytes_val=vector.SerializeToString())}, datetime.now(UTC), None))
    online = store._get_provider().online_store
    online.update(store.config, [], [stored], [], [], partial=True)
    for start in range(0, len(rows), ROWS_EACH):
        online.online_write_batch(store.config, stored, rows[start : start + ROWS_EACH], None)


if __name__ == "__main__":
    main(*sys.argv[1:])
