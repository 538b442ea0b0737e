-- Notes which usage rows this transaction changes. Ids of transactions are
-- unique but after a dump was restored into another server.
INSERT INTO usage_changes AS kept (usage_ids) VALUES ($1)
ON CONFLICT (xid) DO UPDATE SET usage_ids = kept.usage_ids || excluded.usage_ids
