"""Trident's map states: which updates count when a batch is replayed. One class per kind, over any backing map.

`batch_map` has what the kinds share; `updaters` has the operations that they apply to a stored value.
"""

from tidegauge.state_backends.maps.batch_map import BatchMap
from tidegauge.state_backends.maps.non_transactional import NonTransactionalMap
from tidegauge.state_backends.maps.opaque import OpaqueMap
from tidegauge.state_backends.maps.transactional import TransactionalMap

# By `StateSpec.kind`.
MAPS: dict[str, type[BatchMap]] = {
    "opaque": OpaqueMap,
    "transactional": TransactionalMap,
    "non_transactional": NonTransactionalMap,
}
