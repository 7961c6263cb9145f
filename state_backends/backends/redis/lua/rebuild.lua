-- Rebuild: from now on nobody reads or writes the state until a batch is published. KEYS: guard, batches.
-- Returns the batches whose written keys are on record.

replace(KEYS[1], {"rebuilding", "1"})
return redis.call("ZRANGE", KEYS[2], 0, -1)
