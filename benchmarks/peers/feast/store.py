"""Fill a Feast store with sales: `python store.py FOLDER SALES.parquet`. Runs in Feast's environment, not in ours."""

import sys
from datetime import timedelta

import pandas as pd
from feast import Entity, FeatureStore, FeatureView, Field, FileSource, ValueType
from feast.types import Float64, Int64

folder, sales = sys.argv[1:]
store = FeatureStore(folder)
shop = Entity(name="shop", join_keys=["shop"], value_type=ValueType.STRING)
view = FeatureView(
    name="sales",
    entities=[shop],
    ttl=timedelta(days=1),
    schema=[Field(name="n", dtype=Int64), Field(name="total", dtype=Float64)],
    source=FileSource(path=sales, timestamp_field="event_time"),
)
store.apply([shop, view])
store.write_to_online_store("sales", pd.read_parquet(sales))
