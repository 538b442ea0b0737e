-- Adds the entries of one month to what its usage rows carry, and returns how
-- many rows they name and how many of those there are. Rows are locked in the
-- order of their ids, as everywhere, once the sums are known.
WITH sums AS MATERIALIZED (
    SELECT usage_id, sum(amount) AS amount FROM entries WHERE month = $1 GROUP BY usage_id
), locked AS MATERIALIZED (
    SELECT u.id, s.amount FROM sums s JOIN usage u ON u.id = s.usage_id ORDER BY u.id FOR UPDATE OF u
), carried AS (
    UPDATE usage u SET carried = (u.carried + l.amount)::bigint FROM locked l WHERE u.id = l.id RETURNING 1
)
SELECT (SELECT count(*) FROM sums), (SELECT count(*) FROM carried)
