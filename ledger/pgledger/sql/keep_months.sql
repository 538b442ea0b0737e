-- Notes the first month that is kept. It never goes back: what has left does
-- not come again.
INSERT INTO kept_months AS kept (first_month) VALUES ($1)
ON CONFLICT (only_row) DO UPDATE SET first_month = excluded.first_month
 WHERE kept.first_month < excluded.first_month
