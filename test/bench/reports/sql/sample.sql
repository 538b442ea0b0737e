-- One row a closing, made evenly over 90 days: 10 accounts of 5 teams each, 2
-- keys a team, 30 routes of which few are busy, 20 models of which a team uses
-- 2 on a route: 6,000 sets of labels. Nothing is random: a hash of the number
-- says it all.
CREATE UNLOGGED TABLE sample AS
WITH drawn AS (
    SELECT n,
           timestamptz '2026-09-01 00:00+00' + n * (interval '90 days' / $1::bigint) AS minted,
           mod(hashint8extended(n, 1) & 1048575, 50)::int AS team,
           mod(hashint8extended(n, 2) & 1048575, 2)::int AS key,
           floor(30 * power((hashint8extended(n, 3) & 1048575) / 1048576.0::float8, 3))::int AS route,
           mod(hashint8extended(n, 4) & 1048575, 2)::int AS choice,
           (100 + (hashint8extended(n, 5) & 4095))::bigint AS input,
           (20 + (hashint8extended(n, 6) & 511))::bigint AS output
      FROM generate_series(0, $1::bigint - 1) AS n
), labelled AS (
    SELECT n, minted, input, output, format('account-%s', team / 5) AS account,
           format('{"key":"key-%s-%s","model":"model-%s","route":"route-%s","team":"team-%s"}',
                  team, key, mod(7 * team + 3 * route + 11 * choice, 20), route, team) AS labels
      FROM drawn
)
SELECT n, minted, account, labels, encode(substring(sha256(convert_to(labels, 'UTF8')) FOR 16), 'hex')::uuid AS label_set,
       (lpad(to_hex((extract(epoch FROM minted) * 1000000)::bigint), 16, '0') || lpad(to_hex(n), 16, '0'))::uuid AS reservation,
       date_trunc('month', minted AT TIME ZONE 'UTC')::date AS month,
       input, output, 150 * input + 600 * output AS cost
  FROM labelled
