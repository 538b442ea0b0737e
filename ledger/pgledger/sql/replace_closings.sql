-- What follows insert_closings.sql where a reservation may have a closing
-- already: it is replaced if its rank is lower, and stays otherwise. Returns
-- the closings that were written. A row that stays is locked until the
-- transaction ends all the same.
ON CONFLICT (account, reservation, month) DO UPDATE
   SET rank = excluded.rank, revision = kept.revision + 1, late = excluded.late, degraded = excluded.degraded,
       minted = excluded.minted, closed_at = excluded.closed_at, body = excluded.body,
       price_version = excluded.price_version, labels = excluded.labels, outcome = excluded.outcome,
       posted_at = now()
 WHERE kept.rank < excluded.rank
RETURNING account, reservation, month, revision
