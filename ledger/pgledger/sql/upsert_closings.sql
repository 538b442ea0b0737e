-- Writes closings where there is none of that reservation, or one of a lower
-- rank, and returns those that it wrote. Rows are inserted in the order given,
-- which is the same in every node, so two Appends can't deadlock on them. A
-- row that stays is locked until the transaction ends all the same.
INSERT INTO closings AS kept (
    month, account, reservation, rank, revision, late, degraded,
    minted, closed_at, body, price_version, labels, outcome)
SELECT date_trunc('month', c.minted AT TIME ZONE 'UTC')::date, c.account, c.reservation, c.rank, 1, c.late, c.degraded,
       c.minted, c.closed_at, c.body, c.price_version, c.labels::jsonb, c.outcome
  FROM unnest($1::text[], $2::uuid[], $3::smallint[], $4::boolean[], $5::boolean[],
              $6::timestamptz[], $7::timestamptz[], $8::uuid[], $9::text[], $10::text[], $11::bytea[])
       WITH ORDINALITY AS c (account, reservation, rank, late, degraded,
              minted, closed_at, body, price_version, labels, outcome, position)
 ORDER BY c.position
ON CONFLICT (account, reservation, month) DO UPDATE
   SET rank = excluded.rank, revision = kept.revision + 1, late = excluded.late, degraded = excluded.degraded,
       minted = excluded.minted, closed_at = excluded.closed_at, body = excluded.body,
       price_version = excluded.price_version, labels = excluded.labels, outcome = excluded.outcome,
       posted_at = now()
 WHERE kept.rank < excluded.rank
RETURNING account, reservation, month, revision
