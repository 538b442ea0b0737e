-- Writes entries.
INSERT INTO entries (month, account, reservation, sequence, usage_id, amount)
SELECT * FROM unnest($1::date[], $2::text[], $3::uuid[], $4::integer[], $5::uuid[], $6::bigint[])
