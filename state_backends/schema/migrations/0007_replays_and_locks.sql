-- The time by which rows of a state were freed as expired, the latest; null: none were. The committed batch may come
-- again, and must not count on them.
ALTER TABLE tidemark.state ADD COLUMN expired_until timestamptz;
