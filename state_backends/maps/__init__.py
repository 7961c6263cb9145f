"""The maps: what Trident's three kinds of state guarantee, over any backing map."""

from state_backends.maps.batch_map import BatchMap
from state_backends.maps.non_transactional import NonTransactionalMap
from state_backends.maps.opaque import OpaqueMap
from state_backends.maps.transactional import TransactionalMap

# Kind of a state to its map.
MAPS: dict[str, type[BatchMap]] = {
    "opaque": OpaqueMap,
    "transactional": TransactionalMap,
    "non_transactional": NonTransactionalMap,
}
