-- Writes entries of one month that a correction posts.
INSERT INTO entries (month, account, reservation, sequence, usage_id, amount, correction)
SELECT $1, e.account, e.reservation, e.sequence, e.usage_id, e.amount, $7
  FROM unnest($2::text[], $3::uuid[], $4::integer[], $5::uuid[], $6::bigint[])
       AS e (account, reservation, sequence, usage_id, amount)
