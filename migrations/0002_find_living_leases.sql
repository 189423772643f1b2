-- When a shard's server is replaced, the members of every conversation that may have lost something are told. Those are the ones whose
-- lease of the closed epoch was not ended in order; without this index finding them would read the leases of all conversations there
-- ever were, while the shard takes no writes. An index on what is living only stays small.
CREATE INDEX leases_living_of_shard ON leases (shard, conv_id) WHERE state = 'installed';
